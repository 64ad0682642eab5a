"""``tickkeeper worker``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tickkeeper.cli._config import load, refuse


def worker(
    queue: Annotated[list[str] | None, typer.Option(help="Queue to work; may be given again.")] = None,
    handlers: Annotated[list[str] | None, typer.Option(help="Module with handlers; may be given again.")] = None,
    routes: Annotated[Path | None, typer.Option(help="File of HTTP routes, YAML or JSON.")] = None,
    prefix: Annotated[str | None, typer.Option(help="BullMQ's key prefix.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Ticks at once, per queue.")] = None,
    grace_seconds: Annotated[float | None, typer.Option(help="From SIGTERM to the end of the process.")] = None,
    default_tenant: Annotated[str | None, typer.Option(help="Tenant of ticks that carry none.")] = None,
    http_host: Annotated[str | None, typer.Option(help="Address of probes and metrics.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Their port; 0 takes a free one.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="json or console.")] = None,
) -> None:
    """Work ticks: drain the outbox of the tenant that each tick names.

    Reads TICKKEEPER_REDIS_URL and TICKKEEPER_DATABASE_URL, and every option here as TICKKEEPER_<OPTION>.
    """
    from tickkeeper.telemetry import logs
    from tickkeeper.telemetry.redaction import redact, redactor
    from tickkeeper.worker.handlers import HandlerError
    from tickkeeper.worker.http_route import HttpDelivery
    from tickkeeper.worker.process import build_registry, run
    from tickkeeper.worker.routes import RoutesError
    from tickkeeper.worker.settings import WorkerSettings

    settings = load(
        WorkerSettings,
        queue=queue,
        handlers=handlers,
        routes=routes,
        prefix=prefix,
        concurrency=concurrency,
        grace_seconds=grace_seconds,
        default_tenant=default_tenant,
        http_host=http_host,
        http_port=http_port,
        log_level=log_level,
        log_format=log_format,
    )
    redactor.learn(*settings.secrets)
    # As `python -m` has it: handlers usually lie beside where the worker is started.
    sys.path.insert(0, str(Path.cwd()))
    delivery = HttpDelivery()
    try:
        registry = build_registry(settings, delivery)
    except HandlerError as error:
        refuse([redact(f"TICKKEEPER_HANDLERS: {error}")])
    except RoutesError as error:
        refuse(f"TICKKEEPER_ROUTES={settings.routes}: {fault}" for fault in error.faults)
    # After the handlers' modules, which may set up logging of their own.
    logs.configure(settings.log_level, settings.log_format)
    try:
        run(settings, registry, delivery)
    except OSError as error:
        refuse([f"TICKKEEPER_HTTP_PORT={settings.http_port}: cannot listen on {settings.http_host}: {error.strerror}"])
