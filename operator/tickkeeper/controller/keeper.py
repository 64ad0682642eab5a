"""The loop around it all: takes in resources, has them reconciled, takes in what each Redis reports."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from pydantic import ValidationError

from tickkeeper.api.conditions import Reason, Status
from tickkeeper.controller.charge import Charge, Intent, Outcome, Unreachable
from tickkeeper.controller.kube import API_ERRORS, Gone, Outdated, explain, until_answered
from tickkeeper.controller.memo import Held, Memo
from tickkeeper.controller.orphans import OrphanHunt
from tickkeeper.controller.reconcile import Reconciler
from tickkeeper.controller.references import ReferenceNotFound
from tickkeeper.controller.table import Entry, key_of
from tickkeeper.controller.told import Told
from tickkeeper.controller.verdicts import healed_by, is_cleared, report_of
from tickkeeper.controller.world import World
from tickkeeper.schedules.claims import Claim, Claims, Target
from tickkeeper.schedules.desired import ResourceKey
from tickkeeper.schedules.report import Report
from tickkeeper.schedules.ticking import Verdict
from tickkeeper.schedules.wanted import place

_log = structlog.get_logger(__name__)

_LANES = 8
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 15.0
#: Seconds between two comparisons of the table with a full list: a watch that missed a deletion must not keep a
#: scheduler alive for ever.
_FIRST_RESYNC = 30.0
_RESYNC = 600.0
_CARE_SECONDS = 1.0
#: So many failed tries in a row are worth a condition.
_FAILURES_TOLD = 3


class Keeper:
    """Keeps all schedules of one operator alive."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._reconciler = Reconciler(world)
        self.synced = asyncio.Event()
        self.last_beat = time.monotonic()

    async def run(self, leading: asyncio.Event) -> None:
        """Keep them until cancelled, beginning once ``leading`` is set; until then only know them.

        A fault in one of its loops ends all of them, and so the process.
        """
        async with asyncio.TaskGroup() as group:
            self._world.sites.open(group)
            await self._sync()
            if not leading.is_set():
                await leading.wait()
                # They are those of the first list, and the queue is worked on from now on only.
                await self._claim_all()
            group.create_task(self._world.queue.run(self._work, lanes=_LANES), name="reconcile")
            group.create_task(self._care(), name="care")
            group.create_task(self._resync(), name="resync")
            group.create_task(OrphanHunt(self._world).run(), name="orphans")

    # --- from the API server ---

    def observe(self, body: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Take in one event of the watch."""
        if not deleted and self._world.table.has_version(body):
            return  # a list after a list: at a start every resource is told of twice
        try:
            entry = Entry.read(body)
        except ValidationError as error:
            _log.warning("unreadable_resource", error=str(error))
            return
        if deleted:
            self._deleted(entry)
            return
        memo = self._world.memos.get(entry.key)
        taken_up = memo is not None and memo.uid == entry.meta.uid
        kept = entry.without_status() if taken_up else entry
        if self._world.table.put(kept):
            self._world.queue.add(entry.key)
        elif memo is not None and self._world.table.get(entry.key) is kept:
            self._world.publisher.put_back(entry.key, memo, entry.status)

    def _deleted(self, entry: Entry) -> None:
        last = self._world.table.drop(entry.key, entry.meta.uid)
        if last is None:
            return
        memo = self._world.memos.pop(entry.key, None)
        self._world.publisher.forget(entry.key)
        for other in self._world.claims.release(entry.key):
            self._world.queue.add(other)
        if memo is None:
            return
        if memo.held is not None:
            memo.held.drop()
        for held in self._all_held(memo):
            held.drop()
            self._remove_orphan(held)

    def _remove_orphan(self, held: Held) -> None:
        """Somebody took our finalizer off: the scheduler must go all the same."""
        if self._world.claims.owner(held.target) is not None:
            return  # another resource has it now
        orphan = Held(held.site, Charge(held.charge.desired, Intent.REMOVE), held.target)
        self._world.orphans[held.target] = orphan
        held.site.take(orphan.charge)

    async def _sync(self) -> None:
        """Know every resource before the first write: the oldest of two that name one scheduler must be known."""
        world = self._world
        await until_answered(self._read_all)
        await self._claim_all()
        for entry in world.table:
            world.queue.add(entry.key)
        _log.info("synced", resources=len(world.table))
        self.synced.set()

    async def _read_all(self) -> None:
        async for body in self._world.kube.schedules(self._world.options.namespaces):
            self.observe(body)

    async def _claim_all(self) -> None:
        """Know who names what before the first write: the younger of two must not come first."""
        self._world.claims = Claims()
        for entry in self._world.table:
            await self._claim_early(entry)

    async def _claim_early(self, entry: Entry) -> None:
        if entry.spec is None:
            return
        with suppress(ReferenceNotFound, *API_ERRORS):
            settings = await self._world.references.resolve(entry.key.namespace, entry.spec)
            if self._reconciler.refusal(entry, entry.spec, settings) is not None:
                return  # what may not be had cannot be claimed
            created = entry.meta.creation_timestamp
            claim = Claim(created.isoformat() if created else "", entry.meta.uid, entry.key)
            self._world.claims.claim(Target(str(settings.address), place(entry.spec)), claim)

    async def _resync(self) -> None:
        pause = _FIRST_RESYNC
        while True:
            await asyncio.sleep(pause)
            # Soon again, unless it shows that the watch had told everything.
            pause = _FIRST_RESYNC
            try:
                if not await self._compare_with_list():
                    pause = _RESYNC
            except API_ERRORS as error:
                _log.warning("list_failed", error=explain(error))

    async def _compare_with_list(self) -> int:
        """Take in a full list; how many resources were not known as it has them."""
        world = self._world
        news = 0
        # Before the list: what is made while it is read must not look deleted.
        known = {entry.key for entry in world.table}
        async for body in world.kube.schedules(world.options.namespaces):
            news += not world.table.has_version(body)
            self.observe(body)
            known.discard(key_of(body))
        for key in known:
            await self._confirm_deletion(key)
        return news + len(known)

    async def _confirm_deletion(self, key: ResourceKey) -> None:
        entry = self._world.table.get(key)
        try:
            body = await self._world.kube.get_schedule(key)
        except Gone:
            if entry is not None:
                self._deleted(entry)
            return
        self.observe(body)

    # --- one resource ---

    async def _work(self, key: ResourceKey) -> None:
        entry = self._world.table.get(key)
        if entry is None:
            return
        memo = self._memo(entry)
        try:
            await self._reconciler.reconcile(entry, memo)
        except Gone:
            await self._confirm_quietly(key)
        except Outdated:
            await self._refresh(key)
        except API_ERRORS as error:
            self._later(key, memo, explain(error))
        except Exception:  # noqa: BLE001
            # One resource's fault must not stop the others'; the log has the whole of it.
            _log.exception("reconcile_failed", namespace=key.namespace, name=key.name)
            self._later(key, memo, "internal error")
        else:
            memo.failures = 0

    def _memo(self, entry: Entry) -> Memo:
        memos = self._world.memos
        memo = memos.get(entry.key)
        if memo is None or memo.uid != entry.meta.uid:
            for held in self._all_held(memo):
                # Made anew under the same name: what the old one had goes, unless the new one claims it.
                held.drop()
                self._remove_orphan(held)
            self._world.publisher.forget(entry.key)
            memo = memos[entry.key] = Memo(entry.meta.uid, Told.of(entry.status))
            self._world.table.put(entry.without_status())
        return memo

    @staticmethod
    def _all_held(memo: Memo | None) -> list[Held]:
        """What a resource that is no more had: its earlier places, and its own unless it retains that."""
        if memo is None:
            return []
        held = memo.held
        keeps = held is None or memo.removed or held.charge.desired.deletion_policy == "Retain"
        return [*memo.leaving, *([] if keeps or held is None else [held])]

    async def _confirm_quietly(self, key: ResourceKey) -> None:
        with suppress(*API_ERRORS):
            await self._confirm_deletion(key)

    async def _refresh(self, key: ResourceKey) -> None:
        with suppress(Gone, *API_ERRORS):
            self.observe(await self._world.kube.get_schedule(key))
        self._world.queue.add_later(key, 0.05)

    def _later(self, key: ResourceKey, memo: Memo, why: str) -> None:
        memo.failures += 1
        self._world.reconcile_errors += 1
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(memo.failures, 10))
        _log.info("reconcile_later", namespace=key.namespace, name=key.name, seconds=pause, why=why)
        self._world.queue.add_later(key, pause)
        entry = self._world.table.get(key)
        if memo.failures >= _FAILURES_TOLD and memo.held is None and entry is not None:
            verdict = Verdict(Status.FALSE, Reason.REGISTERING, f"not registered yet: {why}")
            kept = memo.told.registered
            self._world.publisher.publish(key, memo, Report(entry.meta.generation, verdict, target=kept))
            self._world.publisher.flush()

    async def _care(self) -> None:
        """Once a second: Secrets that are due to be read again, connections that nobody needs, altered statuses."""
        while True:
            await asyncio.sleep(_CARE_SECONDS)
            self.last_beat = time.monotonic()
            self._world.sites.close_idle(keep=self._world.references.default)
            self._world.publisher.put_back_late()
            for key, secret in self._world.table.with_secrets():
                if self._world.references.is_stale(secret):
                    self._world.queue.add(key)

    # --- from Redis ---

    def report(self, pairs: Sequence[tuple[Charge, Outcome]]) -> None:
        """Take in what one pass of a site came to."""
        for charge, outcome in pairs:
            key = charge.desired.owner.key
            memo = self._world.memos.get(key)
            if memo is not None and memo.held is not None and memo.held.charge is charge:
                self._judge(key, memo, memo.held, outcome)
            elif memo is not None and (leaving := [held for held in memo.leaving if held.charge is charge]):
                self._left(key, memo, leaving[0], outcome)
            else:
                self._orphan_seen(charge, outcome)
        self._world.publisher.flush()

    def _judge(self, key: ResourceKey, memo: Memo, held: Held, outcome: Outcome) -> None:
        charge = held.charge
        entry = self._world.table.get(key)
        if entry is not None and entry.meta.deleting and is_cleared(outcome) and charge.intent is Intent.REMOVE:
            memo.removed = True
            self._world.queue.add(key)
            return
        if entry is not None and entry.secret is not None:
            self._weigh_secret(entry, entry.secret, outcome)
        was_registered = charge.seen_in_place or memo.told.registered == held.target
        healed = healed_by(charge, outcome, registered_before=was_registered)
        report = report_of(charge, outcome, held.target, was_registered=was_registered, healed=healed)
        if charge.intent is Intent.KEEP and not isinstance(outcome, Unreachable):
            charge.seen_in_place = charge.seen_in_place or outcome.in_place
        if healed is not None:
            self._world.heals[healed.state] += 1
            _log.info(
                "healed",
                tenant=charge.desired.data.get("tenantId"),
                namespace=key.namespace,
                name=key.name,
                scheduler_id=charge.desired.place.scheduler_id,
                cause=healed.state,
                message=healed.message,
            )
        self._world.publisher.publish(key, memo, report, healed)
        charge.told_healthy = _healthy_under(charge, outcome)

    def _left(self, key: ResourceKey, memo: Memo, leaving: Held, outcome: Outcome) -> None:
        """An earlier place was looked at: it is clear, or cannot be reached and is no longer waited for."""
        if not isinstance(outcome, Unreachable) and not is_cleared(outcome):
            leaving.site.look_soon(leaving.charge)
            return
        leaving.drop()
        memo.leaving.remove(leaving)
        if isinstance(outcome, Unreachable):
            self._reconciler.abandon(key, memo, leaving.target, outcome.message)
        elif memo.told.registered == leaving.target:
            memo.told = Told.of(memo.told.status.model_copy(update={"registered": None}))
            memo.last = None
            memo.tell_again()
        self._world.queue.add(key)

    def _orphan_seen(self, charge: Charge, outcome: Outcome) -> None:
        for target, orphan in tuple(self._world.orphans.items()):
            if orphan.charge is charge and is_cleared(outcome):
                orphan.drop()
                del self._world.orphans[target]

    def _weigh_secret(self, entry: Entry, secret: tuple[str, str], outcome: Outcome) -> None:
        references = self._world.references
        if not isinstance(outcome, Unreachable):
            references.trust(secret)
        elif outcome.access and not references.is_stale(secret):
            references.forget(secret)
            self._world.queue.add_later(entry.key, 1.0)
        else:
            references.doubt(secret)


def _healthy_under(charge: Charge, outcome: Outcome) -> Verdict | None:
    """What was said of the Redis of a schedule that was found healthy; None for all others."""
    if isinstance(outcome, Unreachable) or charge.intent is not Intent.KEEP or not outcome.healthy:
        return None
    return outcome.redis_safe
