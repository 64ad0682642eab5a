"""Logs: structlog on top, the standard library's loggers (redis, bullmq, kopf, aiohttp, psycopg) through it.

One line an event, on stderr, as JSON or for a console. Credentials are masked in every value, in exceptions too.
"""

import logging
import sys
from collections.abc import Iterable
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tickkeeper.telemetry.redaction import redactor

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]

# They tell each request or each heartbeat at INFO; their warnings are worth reading.
_QUIET_LOGGERS = ("aiohttp.access", "asyncio", "kubernetes", "urllib3")


def configure(
    level: Level = "info", fmt: Format = "json", *, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Set up this process's logging, in place of an earlier set-up. ``secrets`` are masked from now on."""
    redactor.learn(*secrets)
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_credentials,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(fmt)],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    logging.captureWarnings(capture=True)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; ``name`` is the module's."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def _without_credentials(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    # structlog's own bookkeeping starts with an underscore and is taken out later.
    return {
        key: value if key.startswith("_") else redactor.value(value, key="" if key == "event" else key)
        for key, value in event.items()
    }


def _renderer(fmt: Format) -> Processor:
    if fmt == "console":
        return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_plain)
    return structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False)


def _plain(stream: TextIO, exc_info: Any) -> None:
    """Exceptions are text by the time they get here; rich's frames would show local variables, secrets too."""
    structlog.dev.plain_traceback(stream, exc_info)
