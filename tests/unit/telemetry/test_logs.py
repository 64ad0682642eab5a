"""Log lines: one an event, without credentials, those of libraries too."""

import io
import json
import logging
import warnings

import pytest
import structlog

from tickkeeper.telemetry.logs import configure, get_logger


@pytest.fixture
def stream():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], _ = before[0], root.setLevel(before[1])
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)


def _fail(error):
    raise error


def _lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_its_fields(stream):
    configure("info", "json", stream=stream)
    get_logger("a.b").info("ticked", queue="ticks", rows=3)
    get_logger("a.b").debug("not shown")
    [line] = _lines(stream)
    assert (line["event"], line["level"], line["logger"], line["queue"], line["rows"]) == (
        "ticked",
        "info",
        "a.b",
        "ticks",
        3,
    )
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_e8_no_credential_in_any_value_exception_or_library_line(stream, fmt):
    configure("debug", fmt, secrets=["redis://:hunter2x@h/0"], stream=stream)
    log = get_logger("a")
    log.warning("lost %s", "hunter2x", url="redis://u:hunter2x@h", password="hunter2x", error=ValueError("hunter2x"))
    try:
        _fail(ConnectionError("redis://:hunter2x@h refused"))
    except ConnectionError:
        log.exception("failed")
        logging.getLogger("redis").exception("library failed for %s", "hunter2x")
    logging.getLogger("kopf").error("plain hunter2x")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("hunter2x", UserWarning, stacklevel=1)
    text = stream.getvalue()
    assert "hunter2x" not in text
    assert text.count("ConnectionError") >= 2
    assert "plain ***" in text


def test_tracebacks_show_no_local_variables(stream):
    configure("info", "console", stream=stream)
    secret_of_the_frame = "only-in-a-variable"  # noqa: F841
    try:
        _fail(ValueError("x"))
    except ValueError:
        get_logger("a").exception("failed")
    assert "only-in-a-variable" not in stream.getvalue().replace('secret_of_the_frame = "only-in-a-variable"', "")


def test_noisy_libraries_are_heard_from_warning_on(stream):
    configure("debug", "json", stream=stream)
    logging.getLogger("asyncio").debug("using selector")
    logging.getLogger("asyncio").warning("slow callback")
    assert [line["event"] for line in _lines(stream)] == ["slow callback"]


def test_configuring_again_replaces(stream):
    configure("info", "json", stream=io.StringIO())
    configure("info", "json", stream=stream)
    get_logger("a").info("once")
    assert len(_lines(stream)) == 1
