"""Cycles that hold payloads are looked for by the bytes that were handled."""

import gc
import weakref

from tests.unit.worker.fakes import row
from tickkeeper.worker.garbage import Garbage
from tickkeeper.worker.pressure import Pressure


class _Circle:
    def __init__(self) -> None:
        self.itself = self


def _left_behind() -> weakref.ref[_Circle]:
    return weakref.ref(_Circle())


def test_after_32_mib_what_was_left_behind_is_gone() -> None:
    gc.collect()
    gc.disable()
    try:
        garbage, left = Garbage(), _left_behind()
        garbage.handled(32 * 1024 * 1024 - 1)
        assert left() is not None
        garbage.handled(1)
        assert left() is None
    finally:
        gc.enable()


def test_rows_that_are_given_back_are_counted() -> None:
    pressure = Pressure()
    gc.collect()
    gc.disable()
    try:
        left = _left_behind()
        pressure.give(pressure.take([row(payload="x" * 40_000_000)]))
        assert left() is None
    finally:
        gc.enable()
