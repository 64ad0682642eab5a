"""``tickkeeper worker``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tickkeeper.cli._config import load, refuse


def worker(
    queue: Annotated[
        list[str] | None, typer.Option(help="Queue to work; may be given again. TICKKEEPER_QUEUES; default: ticks.")
    ] = None,
    handlers: Annotated[
        list[str] | None, typer.Option(help="Module with handlers; may be given again. TICKKEEPER_HANDLERS.")
    ] = None,
    routes: Annotated[Path | None, typer.Option(help="File of HTTP routes, YAML or JSON. TICKKEEPER_ROUTES.")] = None,
    prefix: Annotated[str | None, typer.Option(help="BullMQ's key prefix. TICKKEEPER_PREFIX; default: bull.")] = None,
    store: Annotated[
        str | None, typer.Option(help="Whose outbox: tickkeeper or mnemora. TICKKEEPER_STORE; default: tickkeeper.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Ticks at once, per queue. TICKKEEPER_CONCURRENCY; default: 10.")
    ] = None,
    handler_concurrency: Annotated[
        int | None, typer.Option(help="Handlers at once, per tick. TICKKEEPER_HANDLER_CONCURRENCY; default: 16.")
    ] = None,
    lanes: Annotated[int | None, typer.Option(help="Batches at once, per tick. TICKKEEPER_LANES; default: 2.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows of one claim. TICKKEEPER_BATCH_SIZE; default: 500.")
    ] = None,
    grace_seconds: Annotated[
        float | None,
        typer.Option(help="From SIGTERM to the end of the process. TICKKEEPER_GRACE_SECONDS; default: 25.0."),
    ] = None,
    default_tenant: Annotated[
        str | None, typer.Option(help="Tenant of ticks that carry none. TICKKEEPER_DEFAULT_TENANT.")
    ] = None,
    http_host: Annotated[
        str | None, typer.Option(help="Address of probes and metrics. TICKKEEPER_HTTP_HOST; default: 127.0.0.1.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Their port; 0 takes a free one. TICKKEEPER_HTTP_PORT; default: 8080.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error. TICKKEEPER_LOG_LEVEL; default: info.")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="json or console. TICKKEEPER_LOG_FORMAT; default: json.")
    ] = None,
) -> None:
    """Work ticks: drain the outbox of the tenant that each tick names.

    Needs TICKKEEPER_REDIS_URL and TICKKEEPER_DATABASE_URL in the environment. Options win over the variables named with
    them; docs/configuration.md lists all variables.
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
        store=store,
        concurrency=concurrency,
        handler_concurrency=handler_concurrency,
        lanes=lanes,
        batch_size=batch_size,
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
        where = f"TICKKEEPER_HTTP_HOST={settings.http_host} TICKKEEPER_HTTP_PORT={settings.http_port}"
        refuse([f"{where}: cannot listen there: {error.strerror}"])
