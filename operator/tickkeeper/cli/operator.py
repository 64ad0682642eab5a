"""``tickkeeper operator``: keeps schedules registered."""

import asyncio
from typing import Annotated

import structlog
import typer
from kubernetes.aio.config import ConfigException

from tickkeeper.cli._config import load, refuse
from tickkeeper.controller import process
from tickkeeper.controller.settings import OperatorSettings
from tickkeeper.telemetry import logs


def operator(
    namespace: Annotated[
        list[str] | None, typer.Option(help="Watch this namespace only; may be repeated. Default: all.")
    ] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="Path of a kubeconfig. Default: the pod's own.")] = None,
) -> None:
    """Watch TickSchedules and keep their BullMQ job schedulers registered.

    Configured by TICKKEEPER_* environment variables; exits with 2 and one line a fault when they cannot be used.
    """
    settings = load(OperatorSettings, namespaces=tuple(namespace or ()), kubeconfig=kubeconfig)
    logs.configure(settings.log_level, settings.log_format, secrets=settings.secrets)
    try:
        asyncio.run(process.run(settings))
    except ConfigException as error:
        remedies = "run it in a pod with a service account, or set TICKKEEPER_KUBECONFIG, KUBECONFIG or --kubeconfig"
        refuse([f"no Kubernetes cluster is configured: {remedies} ({' '.join(str(error).split())})"])
    except Exception as error:  # noqa: BLE001 - whatever it was, it is told in the log and by the exit code
        structlog.get_logger(__name__).error("operator_failed", error=error, exc_info=error)
        raise typer.Exit(1) from None
