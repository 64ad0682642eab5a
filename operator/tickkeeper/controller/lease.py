"""Leader election by a coordination.k8s.io Lease: one operator acts, the others stand by with a full table.

A small loop of our own: kubernetes.aio.leaderelection of 37.0.2 fails on an absent Lease, has no time-outs and does not
stop its leader (tried). Times are those of client-go's leaderelection, whose rules this follows: a holder is judged by
how long *we* have seen its record unchanged, so that clocks need not agree.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import structlog
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from tickkeeper.controller.kube import explain

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. A holder is dead after ``duration`` without a renewal; the leader gives up after ``deadline``."""

    duration: float = 10.0
    deadline: float = 6.0
    retry: float = 2.0


class Turn(Enum):
    """What to do about the Lease now."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


class LeadershipLost(Exception):
    """The Lease could not be renewed in time: another operator may act by now, so this process must end."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease's record as it was first seen in this form, at ``since`` (monotonic seconds)."""

    holder: str
    renewed: str
    since: float
    #: how long its holder asked for
    duration: float


def decide(seen: Seen | None, identity: str, now: float) -> Turn:
    """The rule: take what is free, released or expired; renew what is ours; else wait."""
    if seen is None:
        return Turn.CREATE
    if seen.holder == identity:
        return Turn.RENEW
    if not seen.holder or now - seen.since > seen.duration:
        return Turn.TAKE
    return Turn.WAIT


class Lease:
    """One process' part in the election."""

    def __init__(
        self,
        api: client.CoordinationV1Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: Times | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or Times()
        self._clock = clock
        self._seen: Seen | None = None
        self._held_until = 0.0
        self.leading = asyncio.Event()

    def may_write(self) -> bool:
        """Whether this process is the leader beyond doubt. Asked before every write."""
        return self._clock() < self._held_until

    async def run(self) -> None:
        """Take part until cancelled. Raises LeadershipLost when the Lease was held and could not be renewed."""
        while True:
            started = self._clock()
            try:
                async with asyncio.timeout(self._times.retry):
                    await self._turn(started)
            except Exception as error:  # noqa: BLE001 - whatever it was (an answer that is no Lease too): not renewed
                _log.warning("lease_turn_failed", lease=self._name, error=explain(error))
            if self.leading.is_set() and not self.may_write():
                raise LeadershipLost(f"the Lease {self._name} was not renewed for {self._times.deadline} s")
            await asyncio.sleep(max(0.0, self._times.retry - (self._clock() - started)))

    async def release(self) -> None:
        """Give the Lease back, so that another may act at once. Never raises."""
        if not self.leading.is_set():
            return
        self._held_until = 0.0
        try:
            async with asyncio.timeout(self._times.retry):
                found = await self._api.read_namespaced_lease(self._name, self._namespace)
                if found.spec is None or found.spec.holder_identity != self._identity:
                    return
                await self._replace(found, holder="", duration=1)
                _log.info("lease_released", lease=self._name)
        except Exception as error:  # noqa: BLE001 - the process ends in order all the same
            _log.warning("lease_release_failed", lease=self._name, error=explain(error))

    async def _turn(self, started: float) -> None:
        try:
            found = await self._api.read_namespaced_lease(self._name, self._namespace)
        except ApiException as error:
            if error.status != 404:
                raise
            found = None
        self._seen = _look(found, self._seen, self._clock())
        match decide(self._seen, self._identity, self._clock()):
            case Turn.CREATE:
                await self._api.create_namespaced_lease(self._namespace, self._body(1))
            case Turn.TAKE:
                transitions = (found.spec.lease_transitions or 0) if found is not None and found.spec else 0
                await self._replace(found, holder=self._identity, transitions=transitions + 1)
            case Turn.RENEW:
                await self._replace(found, holder=self._identity)
            case Turn.WAIT:
                if self.leading.is_set():
                    self._held_until = 0.0  # somebody took it from us
                return
        # Counted from before the call: the renewal that others see may be as old as that.
        self._held_until = started + self._times.deadline
        if not self.leading.is_set():
            _log.info("leading", lease=self._name, identity=self._identity)
            self.leading.set()

    def _body(self, transitions: int) -> Any:
        now = _now()
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": round(self._times.duration),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    async def _replace(
        self, found: Any, *, holder: str, transitions: int | None = None, duration: float | None = None
    ) -> None:
        """Write the record; the resourceVersion that was read makes a rival's write win or lose as a whole."""
        spec = found.spec or client.V1LeaseSpec()
        body = self._body(spec.lease_transitions or 0 if transitions is None else transitions)
        body["metadata"]["resourceVersion"] = found.metadata.resource_version
        body["spec"]["holderIdentity"] = holder
        body["spec"]["leaseDurationSeconds"] = round(duration or self._times.duration)
        if transitions is None and spec.acquire_time is not None:
            body["spec"]["acquireTime"] = _text(spec.acquire_time)
        await self._api.replace_namespaced_lease(self._name, self._namespace, body)


def _look(found: Any, before: Seen | None, now: float) -> Seen | None:
    if found is None:
        return None
    spec = found.spec or client.V1LeaseSpec()
    holder = spec.holder_identity or ""
    renewed = _text(spec.renew_time) if spec.renew_time is not None else ""
    if before is not None and (before.holder, before.renewed) == (holder, renewed):
        return before
    return Seen(holder, renewed, now, float(spec.lease_duration_seconds or 0))


def _now() -> str:
    return _text(datetime.now(UTC))


def _text(moment: datetime) -> str:
    """metav1.MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
