"""Reports become statuses and events."""

import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tickkeeper.api.conditions import EventReason
from tickkeeper.api.status import TickScheduleStatus
from tickkeeper.controller.memo import Memo
from tickkeeper.controller.told import Told
from tickkeeper.controller.writer import Notice, Writer
from tickkeeper.schedules.announce import Announcement, announcements
from tickkeeper.schedules.desired import ResourceKey
from tickkeeper.schedules.plan import Plan
from tickkeeper.schedules.report import Report, next_status

#: Beyond so many events of one reason at once, one stands for all: a Redis that comes back heals a thousand.
_MOST_AT_ONCE = 5

#: Seconds between two events of heals of one resource.
_BETWEEN_HEALS = 10.0

#: Seconds between two writes of one status that somebody else keeps changing.
_BETWEEN_PUT_BACKS = 10.0

#: Fields of the status that a merge patch must name to clear them.
_OPTIONAL = ("observedGeneration", "registered", "lastHeal")


class Publisher:
    """Collects what changed and hands it to the writer: call ``publish`` for each report, then ``flush``."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._pending: dict[str, list[Notice]] = defaultdict(list)
        #: statuses that somebody else changed, and that could not be written again at once
        self._altered: dict[ResourceKey, Memo] = {}

    def publish(self, key: ResourceKey, memo: Memo, report: Report, healed: Plan | None = None) -> bool:
        """Take in a report. Returns whether the status changed."""
        if healed is None and not report.heals and report == memo.last:
            return False
        memo.tell_again()
        before = memo.told.status
        status = next_status(before, report, datetime.now(UTC))
        for announcement in announcements(before, report, healed):
            if self._is_worth_telling(memo, announcement):
                self.announce(key, memo, announcement)
        memo.last = report
        if status == before:
            return False
        memo.told = Told.of(status)
        self._write(key, memo)
        return True

    def _write(self, key: ResourceKey, memo: Memo) -> None:
        self._altered.pop(key, None)
        # Made when it is written, and not now: thousands may wait, and a newer one may come before their turn.
        self._writer.status(key, memo.uid, partial(_patch_of, memo))

    def put_back(self, key: ResourceKey, memo: Memo, told: TickScheduleStatus) -> None:
        """The API server told a status: where it is not ours, somebody cleared or forged it. Write ours again."""
        if told == memo.told.status:
            self._altered.pop(key, None)
        else:
            self._altered[key] = memo
            self._put_back(key)

    def put_back_late(self) -> None:
        """Write again what was altered too soon after the last time, or while ours was on its way."""
        for key in tuple(self._altered):
            self._put_back(key)

    def _put_back(self, key: ResourceKey) -> None:
        memo, now = self._altered[key], time.monotonic()
        if self._writer.is_pending(key) or now - memo.put_back_at < _BETWEEN_PUT_BACKS:
            return
        memo.put_back_at = now
        self._write(key, memo)

    def announce(self, key: ResourceKey, memo: Memo, announcement: Announcement) -> None:
        """An event that no report carries."""
        notice = Notice(key, memo.uid, announcement.reason, announcement.message, announcement.warning)
        self._pending[announcement.reason].append(notice)

    def _is_worth_telling(self, memo: Memo, announcement: Announcement) -> bool:
        """Of heals that come one after another, the first; the status counts them all."""
        if announcement.reason not in (EventReason.HEALED, EventReason.DRIFT_CORRECTED):
            return True
        now = time.monotonic()
        if now - memo.heal_told_at < _BETWEEN_HEALS:
            return False
        memo.heal_told_at = now
        return True

    def forget(self, key: ResourceKey) -> None:
        """A resource is gone."""
        self._altered.pop(key, None)
        self._writer.forget(key)

    def flush(self) -> None:
        """Post the events of one pass."""
        pending, self._pending = self._pending, defaultdict(list)
        for notices in pending.values():
            if len(notices) <= _MOST_AT_ONCE:
                for notice in notices:
                    self._writer.event(notice)
            else:
                self._writer.event(_for_all(notices))


def _patch_of(memo: Memo) -> Mapping[str, Any]:
    return to_patch(memo.told.status)


def to_patch(status: TickScheduleStatus) -> Mapping[str, Any]:
    """The status as a merge patch: what is absent is cleared."""
    return dict.fromkeys(_OPTIONAL) | status.to_wire()


def _for_all(notices: list[Notice]) -> Notice:
    first = min(notices, key=lambda notice: notice.key)
    more = f" (and {len(notices) - 1} other TickSchedules)"
    return Notice(first.key, first.uid, first.reason, first.message[: 1000 - len(more)] + more, first.warning)
