"""One pass over schedulers of one Redis: look at them in batches, carry out the plans, look again."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, OutOfMemoryError, ResponseError

from tickkeeper.api.conditions import Reason, Status
from tickkeeper.bullmq import server
from tickkeeper.bullmq.apply import Applier, ApplyError
from tickkeeper.bullmq.errors import REDIS_ERRORS, explain, is_site_wide
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import BATCH, Look, Observer
from tickkeeper.bullmq.workers import count_workers
from tickkeeper.controller.charge import Charge, Found, Intent
from tickkeeper.schedules.checks import plan, plan_removal
from tickkeeper.schedules.desired import Desired
from tickkeeper.schedules.observed import Observed
from tickkeeper.schedules.plan import Plan, State
from tickkeeper.schedules.ticking import Verdict

_log = structlog.get_logger(__name__)

#: Plans carried out at once: what was fastest, as for bare upserts (make bench-keeper tries 4 to 64).
_LANES = 32
_SKEW_MS = 1_000
_HEALTHY = Plan(State.HEALTHY)
_UNCHECKED = Verdict(Status.UNKNOWN, Reason.NO_EVICTION, "not checked yet")


@dataclass(frozen=True, slots=True)
class _Safety:
    """What was learnt of the server as a whole."""

    eviction: Verdict = _UNCHECKED
    skew_ms: int = 0

    @property
    def clock_off(self) -> bool:
        return abs(self.skew_ms) > _SKEW_MS

    def verdict(self) -> Verdict:
        if self.eviction.status is not Status.FALSE and self.clock_off:
            # Not by how much: that changes with each look, and each change would be written to every status.
            side = "ahead of" if self.skew_ms > 0 else "behind"
            message = f"Redis' clock is more than {_SKEW_MS // 1000} s {side} the operator's"
            return Verdict(Status.FALSE, Reason.CLOCK_SKEW, message)
        return self.eviction


@dataclass(slots=True)
class _Begun:
    """A batch that was looked at. ``judged``: the edition that each charge had before."""

    queue: QueueKey
    charges: Sequence[Charge]
    judged: Mapping[Charge, Desired]
    look: Look
    plans: Mapping[Charge, Plan]
    errors: Mapping[Charge, str] = field(default_factory=dict)

    @property
    def acting(self) -> list[Charge]:
        """Those whose plan asks for something."""
        return [charge for charge in self.charges if self.plans[charge].acts]


class Fenced(Exception):
    """This process may not write any more: another one may be the leader."""


#: Asked after each batch of a pass for schedulers that cannot wait for the rest; given those that the pass has mended.
Urgent = Callable[[AbstractSet[Charge]], Iterable[Charge]]


def _none(_: AbstractSet[Charge]) -> Iterable[Charge]:
    return ()


class Inspection:
    """Looks at schedulers and mends them. Raises redis' errors where Redis as a whole cannot be asked."""

    def __init__(self, client: Redis, observer: Observer, applier: Applier, may_write: Callable[[], bool]) -> None:
        self._client = client
        self._may_write = may_write
        self._observer = observer
        self._applier = applier
        self._safety = _Safety()
        #: its verdict: the same object for as long as it says the same
        self._safe = self._safety.verdict()
        self._refuses_no_write = server.WriteCheck(client)

    def calls(self) -> dict[str, int]:
        """What was asked of Redis so far, by kind."""
        return {"look": self._observer.looks, "write": self._applier.writes}

    async def probe(self) -> None:
        """Ask what holds for the whole server: does it evict keys, may it be written?"""
        await self._refuses_no_write()
        try:
            memories = await server.info(self._client, "memory")
            roles = [answer.get("role", "master") for answer in await server.info(self._client, "replication")]
        except NoPermissionError:
            unknown = Verdict(Status.UNKNOWN, Reason.NO_EVICTION, "the Redis user may not run INFO")
            self._learn(replace(self._safety, eviction=unknown))
            return
        if any(role != "master" for role in roles):
            raise ResponseError("READONLY this server is a replica")
        if any(map(_is_full, memories)):
            raise OutOfMemoryError("OOM used_memory is above maxmemory")
        verdicts = map(_eviction, memories)
        worst = min(verdicts, key=lambda verdict: (verdict.status is not Status.FALSE, verdict.status is Status.TRUE))
        self._learn(replace(self._safety, eviction=worst))

    def _learn(self, safety: _Safety) -> None:
        self._safety = safety
        if (verdict := safety.verdict()) != self._safe:
            self._safe = verdict

    async def inspect(
        self, charges: Iterable[Charge], *, urgent: Urgent = _none
    ) -> AsyncIterator[tuple[Charge, Found]]:
        """What each charge came to, in batches. All that is broken is mended before any of it is looked at again.

        Nothing of those that are as healthy as they were told to be: all but a few, with each sweep.
        """
        begun: list[_Begun] = []
        mended: set[Charge] = set()
        ahead: set[Charge] = set()
        for queue, members in _batches(charges):
            left = [charge for charge in members if charge not in ahead]
            for pair in await self._or_each(queue, left, self._begin(queue, left, begun)) if left else ():
                yield pair
            mended.update(begun[-1].acting if begun else ())
            news = urgent(mended)
            ahead.update(news)
            for its_queue, some in _batches(news):
                for pair in await self._or_each(its_queue, some, self._begin(its_queue, some, begun)):
                    yield pair
                mended.update(begun[-1].acting if begun else ())
        for batch in begun:
            for pair in await self._or_each(batch.queue, batch.charges, self._end(batch)):
                yield pair

    async def _or_each(
        self, queue: QueueKey, charges: Sequence[Charge], batch: Awaitable[list[tuple[Charge, Found]]]
    ) -> list[tuple[Charge, Found]]:
        """A batch; where something in it cannot be understood, one by one, so that it costs only itself."""
        try:
            return await batch
        except (Fenced, *REDIS_ERRORS):
            raise
        except Exception:  # noqa: BLE001 - whatever it is, it must not cost the others
            _log.exception("batch_failed", queue=str(queue), schedules=len(charges))
        found: list[tuple[Charge, Found]] = []
        for charge in charges:
            try:
                begun: list[_Begun] = []
                found.extend(await self._begin(queue, [charge], begun))
                for one in begun:
                    found.extend(await self._end(one))
            except (Fenced, *REDIS_ERRORS):
                raise
            except Exception as error:  # noqa: BLE001 - told in the condition, and in the log above
                unclear = Plan(State.UNCLEAR, message=f"what is in Redis cannot be understood ({type(error).__name__})")
                found.append((charge, Found(unclear, unclear, None, self._safe)))
        return found

    async def _begin(
        self, queue: QueueKey, charges: Sequence[Charge], begun: list[_Begun]
    ) -> list[tuple[Charge, Found]]:
        """Look, and carry the plans out; ``begun`` gets the batch where there were any, to be looked at again."""
        judged = {charge: charge.desired for charge in charges}
        look = await self._look(queue, charges)
        worth_a_word = [charge for charge in charges if not self._is_as_told(charge, look)]
        plans = await self._plans(queue, worth_a_word, look)
        batch = _Begun(queue, worth_a_word, judged, look, plans)
        if not batch.acting:
            return self._found(batch, look, {})
        if any(charge.intent is Intent.KEEP for charge in batch.acting):
            await self._applier.cap_events(queue, look.max_len_events)
        batch.errors = await self._carry_out_all(batch.acting, plans)
        begun.append(batch)
        return []

    async def _end(self, batch: _Begun) -> list[tuple[Charge, Found]]:
        look = await self._look(batch.queue, batch.acting)
        return self._found(batch, look, await self._plans(batch.queue, batch.acting, look))

    def _found(self, batch: _Begun, after_look: Look, after: Mapping[Charge, Plan]) -> list[tuple[Charge, Found]]:
        found = []
        for charge in batch.charges:
            if charge.desired is not batch.judged[charge]:
                continue  # edited meanwhile, and looked at again soon: this was about the edition before
            now = after_look if charge in after else batch.look
            sight = now.sights.get(charge.desired.place.scheduler_id)
            seen = sight.observed if sight is not None else None
            made = batch.plans[charge]
            outcome = Found(made, after.get(charge, made), seen, self._safe, batch.errors.get(charge))
            self._remember(charge, outcome, sight.digest if sight is not None else charge.digest)
            found.append((charge, outcome))
        return found

    async def _look(self, queue: QueueKey, charges: Sequence[Charge]) -> Look:
        before = _now_ms()
        wanted = [charge.wanted for charge in charges]
        look = await self._observer.look(queue, wanted, now=before + self._safety.skew_ms)
        self._learn(replace(self._safety, skew_ms=_skew(look.now, before, _now_ms())))
        return look

    def _is_as_told(self, charge: Charge, look: Look) -> bool:
        """Whether a report would repeat the last one."""
        if charge.told_healthy is not self._safe:
            return False
        sight = look.sights.get(charge.desired.place.scheduler_id)
        return sight is None or (sight.healthy and sight.observed.score == charge.watch.baseline)

    async def _plans(self, queue: QueueKey, charges: Sequence[Charge], look: Look) -> Mapping[Charge, Plan]:
        plans = {charge: self._plan(charge, look) for charge in charges}
        if late := [charge for charge, made in plans.items() if made.reason is Reason.OVERDUE]:
            # Only now is it worth asking who is connected: CLIENT LIST is as long as there are clients.
            workers = await self._workers(queue)
            plans |= {charge: self._plan(charge, look, workers) for charge in late}
        return plans

    def _plan(self, charge: Charge, look: Look, workers: int | None = None) -> Plan:
        sight = look.sights.get(charge.desired.place.scheduler_id)
        if sight is None or (sight.healthy and charge.intent is Intent.KEEP):
            return _HEALTHY
        observed: Observed = sight.observed
        if charge.intent is Intent.REMOVE:
            return plan_removal(charge.claim, observed)
        if workers is not None:
            observed = replace(observed, queue=replace(observed.queue, workers=workers))
        now = time.monotonic()
        made = plan(charge.claim, observed, charge.history.standing(now, own_clock_off=self._safety.clock_off))
        charge.history.look(made, now)
        return made

    async def _workers(self, queue: QueueKey) -> int | None:
        try:
            return await count_workers(self._client, queue)
        except NoPermissionError:
            return None

    async def _carry_out_all(self, charges: Sequence[Charge], plans: Mapping[Charge, Plan]) -> dict[Charge, str]:
        """What went wrong, by charge. All have ended when it returns or raises: no write outlives its pass."""
        errors: dict[Charge, str] = {}
        todo = iter(charges)

        async def lane() -> None:
            for charge in todo:
                if (error := await self._carry_out(charge, plans[charge])) is not None:
                    errors[charge] = error

        for ended in await asyncio.gather(*(lane() for _ in range(_LANES)), return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended
        return errors

    async def _carry_out(self, charge: Charge, made: Plan) -> str | None:
        """None, or why this one scheduler could not be written. Raises where Redis as a whole failed."""
        if not self._may_write():
            raise Fenced("not the leader any more")
        try:
            await self._applier.apply(charge.desired, made)
        except ApplyError as error:
            return str(error)
        except ResponseError as error:
            if is_site_wide(error):
                raise
            return explain(error)
        charge.history.note(made, time.monotonic())
        return None

    def _remember(self, charge: Charge, found: Found, digest: str | None) -> None:
        if charge.intent is Intent.REMOVE:
            return
        charge.digest = digest if found.in_place else None
        if found.in_place:
            charge.ours = True
            acted_on = found.plan if found.plan.acts else found.after
            charge.watch = charge.watch.judge(acted_on, found.seen)


def _batches(charges: Iterable[Charge]) -> Iterator[tuple[QueueKey, Sequence[Charge]]]:
    queues: dict[QueueKey, list[Charge]] = defaultdict(list)
    for charge in charges:
        queues[charge.queue].append(charge)
    for queue, members in queues.items():
        for start in range(0, len(members), BATCH):
            yield queue, members[start : start + BATCH]


def _eviction(memory: Mapping[str, Any]) -> Verdict:
    policy = memory.get("maxmemory_policy")
    if policy == "noeviction":
        return Verdict(Status.TRUE, Reason.NO_EVICTION)
    if policy is None:
        return Verdict(Status.UNKNOWN, Reason.NO_EVICTION, "this Redis does not tell its maxmemory-policy")
    message = f"maxmemory-policy is {policy}: Redis may drop schedules; set it to noeviction"
    return Verdict(Status.FALSE, Reason.EVICTION_POLICY, message)


def _is_full(memory: Mapping[str, Any]) -> bool:
    """Whether the next write would be refused: a schedule that looks healthy would then not tick."""
    limit = memory.get("maxmemory") or 0
    return memory.get("maxmemory_policy") == "noeviction" and 0 < limit < memory.get("used_memory", 0)


def _skew(redis_now: int, before: int, after: int) -> int:
    """How far Redis' clock is from ours in ms; 0 where it lies within the call."""
    if redis_now < before:
        return redis_now - before
    return max(0, redis_now - after)


def _now_ms() -> int:
    return int(time.time() * 1000)
