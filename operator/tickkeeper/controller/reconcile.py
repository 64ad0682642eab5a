"""One resource: what is to become of its scheduler, and what has to happen before."""

from dataclasses import replace

import structlog

from tickkeeper.api.conditions import EventReason, Reason, Status
from tickkeeper.api.resource import FINALIZER
from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.controller.charge import Charge, Intent
from tickkeeper.controller.memo import Held, Memo
from tickkeeper.controller.references import ReferenceNotFound
from tickkeeper.controller.site import Site
from tickkeeper.controller.table import Entry
from tickkeeper.controller.world import World
from tickkeeper.schedules.announce import Announcement
from tickkeeper.schedules.claims import Claim, Target
from tickkeeper.schedules.desired import Desired, Every, Owner, Place, ResourceKey
from tickkeeper.schedules.report import RESOLVED, Report
from tickkeeper.schedules.ticking import Verdict
from tickkeeper.schedules.wanted import place, wanted

_log = structlog.get_logger(__name__)

#: Seconds until a reference that was not found is looked for again.
_LOOK_AGAIN = 3.0


class Reconciler:
    """Brings one resource at a time in line. Raises API_ERRORS, Gone and Outdated: the caller tries again."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def reconcile(self, entry: Entry, memo: Memo) -> None:
        """Decide what is to become of the resource's scheduler and set it going."""
        if entry.meta.deleting:
            await self._delete(entry, memo)
        elif entry.spec is None:
            # What is registered stays: the last valid spec is better than none.
            self._hands_off(memo)
            self._refuse(entry, memo, Reason.INVALID_SPEC, str(entry.fault))
        elif entry.meta.paused:
            self._hands_off(memo)
            self._refuse(entry, memo, Reason.OPERATOR_PAUSED, "the annotation tickkeeper.dev/paused is true")
        else:
            await self._keep(entry, entry.spec, memo)

    async def _keep(self, entry: Entry, spec: TickScheduleSpec, memo: Memo) -> None:
        world = self._world
        try:
            settings = await world.references.resolve(entry.key.namespace, spec)
        except ReferenceNotFound as fault:
            self._hands_off(memo)
            self._publish(entry, memo, _unresolved(entry, memo, str(fault)))
            world.queue.add_later(entry.key, _LOOK_AGAIN)
            return
        refusal = self.refusal(entry, spec, settings)
        if refusal is not None:
            self._hands_off(memo)
            for other in world.claims.release(entry.key):
                world.queue.add(other)
            self._refuse(entry, memo, *refusal)
            return
        desired = self._wanted(entry, spec, memo, settings)
        target = Target(str(settings.address), desired.place)
        owner = self._claim(entry, target)
        if self._leave_earlier_place(entry, memo, desired, target):
            return
        if owner != entry.key:
            self._hands_off(memo)
            message = f"{owner} is older and names the same scheduler {target.place.scheduler_id}"
            self._refuse(entry, memo, Reason.CONFLICT, message)
            return
        await self._set_finalizer(entry, wanted_finalizer=spec.deletion_policy == "Delete")
        intent = Intent.REMOVE if spec.suspend else Intent.KEEP
        self._hold(memo, world.sites.get(settings), target, desired, intent)

    def refusal(self, entry: Entry, spec: TickScheduleSpec, settings: RedisSettings) -> tuple[Reason, str] | None:
        """Why the spec may not be had in that Redis, None where it may."""
        told = self._world.options.allow.refusal(entry.key.namespace, spec, settings.address.hosts)
        if told is not None:
            return Reason.NOT_ALLOWED, told
        if settings.address.mode == "cluster" and not QueueKey(spec.prefix, spec.queue_name).has_hash_tag:
            prefix = spec.prefix
            told = f"spec.prefix: {prefix} must hold a hash tag for a Redis Cluster, such as {{{prefix}}}"
            return Reason.CLUSTER_PREFIX, told
        return None

    def _claim(self, entry: Entry, target: Target) -> object:
        world = self._world
        created = entry.meta.creation_timestamp
        claim = Claim(created.isoformat() if created else "", entry.meta.uid, entry.key)
        for other in world.claims.claim(target, claim):
            world.queue.add(other)
        orphan = world.orphans.pop(target, None)
        if orphan is not None:
            orphan.drop()
        return world.claims.owner(target)

    async def _set_finalizer(self, entry: Entry, *, wanted_finalizer: bool) -> None:
        if entry.meta.finalized == wanted_finalizer:
            return
        others = tuple(name for name in entry.meta.finalizers if name != FINALIZER)
        body = await self._world.kube.write_finalizers(entry.meta, (*others, FINALIZER) if wanted_finalizer else others)
        self._world.table.put(Entry.read(body).without_status())

    def _leave_earlier_place(self, entry: Entry, memo: Memo, desired: Desired, target: Target) -> bool:
        """Clear the place that the resource had before. True: wait for it."""
        earlier = memo.told.registered
        if earlier is None or earlier == target or earlier == memo.abandoned:
            return False
        if any(held.target == earlier for held in memo.leaving):
            return True
        if self._world.claims.owner(earlier) is not None:
            return False  # somebody else's by now: they overwrite it
        site = self._site_at(earlier.redis)
        if site is None:
            self.abandon(entry.key, memo, earlier, "it is no longer among the known ones")
            return False
        self._hands_off(memo)
        self._clear(memo, site, earlier, replace(desired, place=earlier.place, adopts_unstamped=True))
        return True

    def _clear(self, memo: Memo, site: Site, target: Target, desired: Desired) -> None:
        held = Held(site, Charge(desired, Intent.REMOVE), target)
        memo.leaving.append(held)
        site.take(held.charge)

    def _site_at(self, address: str) -> Site | None:
        """The Redis at an address, in use or at least known."""
        world = self._world
        settings = world.references.at(address)
        return world.sites.at(address) or (world.sites.get(settings) if settings is not None else None)

    def abandon(self, key: ResourceKey, memo: Memo, earlier: Target, why: str) -> None:
        """Go on without having cleared an earlier place, and say so."""
        memo.abandoned = earlier
        message = f"the scheduler {earlier.place} may be left in {earlier.redis}: {why}"
        self._announce(key, memo, EventReason.OLD_REDIS_UNREACHABLE, message)

    def _hold(self, memo: Memo, site: Site, target: Target, desired: Desired, intent: Intent) -> None:
        held = memo.held
        # A suspension or a resumption makes a new charge too: neither heals anything, and what was known of its ticks
        # is over.
        if held is None or held.site is not site or held.target != target or held.charge.intent is not intent:
            if held is not None and held.target == target:
                held.drop()
            else:
                self._hands_off(memo)
            memo.held = Held(site, Charge(desired, intent), target)
            site.take(memo.held.charge)
            if memo.abandoned == target:
                memo.abandoned = None  # it is ours again: left another time, it is to be cleared
            return
        if held.charge.desired != desired:
            held.charge.edit(desired)
        site.look_soon(held.charge)

    # --- deletion ---

    async def _delete(self, entry: Entry, memo: Memo) -> None:
        if not entry.meta.finalized:
            self._hands_off(memo)
            return
        if entry.deletion_policy == "Retain":
            self._hands_off(memo)
            await self._release(entry, memo, "deletionPolicy is Retain: the scheduler stays in Redis")
            return
        if memo.removed or _owns_nothing(memo):
            await self._release(entry, memo, "nothing of it is left in Redis")
            return
        try:
            found = await self._place_to_clear(entry, memo)
        except ReferenceNotFound as fault:
            await self._wait_or_give_up(entry, memo, str(fault))
            return
        if found is None:
            await self._release(entry, memo, "it was never registered")
            return
        site, target, desired = found
        self._hold(memo, site, target, desired, Intent.REMOVE)
        left = self._seconds_left(entry)
        now = self._world.now()
        memo.clearing_since = memo.clearing_since or now
        if left <= 0 and site.up is False:
            await self._give_up(entry, memo, f"{target.redis} does not answer")
        elif now - memo.clearing_since > self._world.options.deletion_grace_seconds:
            await self._give_up(entry, memo, f"{target.redis} refuses its removal")
        else:
            self._world.queue.add_later(entry.key, max(left, _LOOK_AGAIN))

    async def _place_to_clear(self, entry: Entry, memo: Memo) -> tuple[Site, Target, Desired] | None:
        """Where the scheduler is. None: nowhere. Raises ReferenceNotFound where that Redis cannot be known."""
        world = self._world
        if memo.held is not None:
            return memo.held.site, memo.held.target, memo.held.charge.desired
        earlier = memo.told.registered
        site = None if earlier is None else self._site_at(earlier.redis)
        if entry.spec is None:
            if earlier is None:
                return None
            if site is None:
                raise ReferenceNotFound(f"the spec is invalid and {earlier.redis} is not among the known ones")
            owner = Owner(world.options.cluster, entry.key, entry.meta.uid, entry.meta.generation)
            return site, earlier, to_remove(owner, earlier.place)
        settings = await world.references.resolve(entry.key.namespace, entry.spec)
        desired = self._wanted(entry, entry.spec, memo, settings)
        target = earlier or Target(str(settings.address), desired.place)
        return (
            site or world.sites.get(settings),
            target,
            replace(desired, place=target.place, adopts_unstamped=earlier is not None or desired.adopts_unstamped),
        )

    def _wanted(self, entry: Entry, spec: TickScheduleSpec, memo: Memo, settings: RedisSettings) -> Desired:
        options = self._world.options
        # Naming an id is asking for the scheduler that is there; with allow-lists it takes the annotation too.
        named = spec.scheduler_id is not None and (entry.meta.adopts or not options.allow.restricts)
        ours = memo.told.registered == Target(str(settings.address), place(spec))
        return wanted(
            entry.meta, spec, cluster=options.cluster, opts=options.template_opts, adopts_unstamped=named or ours
        )

    async def _wait_or_give_up(self, entry: Entry, memo: Memo, why: str) -> None:
        if self._seconds_left(entry) <= 0:
            await self._give_up(entry, memo, why)
            return
        self._publish(entry, memo, _unresolved(entry, memo, why))
        self._world.queue.add_later(entry.key, min(_LOOK_AGAIN, self._seconds_left(entry)))

    async def _give_up(self, entry: Entry, memo: Memo, why: str) -> None:
        target = memo.told.registered
        what = f"the scheduler {target.place} may be left in {target.redis}" if target else "nothing was registered"
        self._announce(entry.key, memo, EventReason.OLD_REDIS_UNREACHABLE, f"deleted without its Redis: {what}; {why}")
        await self._set_finalizer(entry, wanted_finalizer=False)
        if memo.held is not None:
            # It goes as soon as that Redis is back.
            self._world.orphans[memo.held.target] = memo.held
            memo.held = None

    async def _release(self, entry: Entry, memo: Memo, why: str) -> None:
        self._world.publisher.announce(entry.key, memo, Announcement(EventReason.REMOVED, why))
        # The event goes first: after the finalizer is off, its object may be gone.
        self._world.publisher.flush()
        await self._set_finalizer(entry, wanted_finalizer=False)
        self._hands_off(memo)

    def _seconds_left(self, entry: Entry) -> float:
        asked = entry.meta.deletion_timestamp
        assert asked is not None  # only called for what is being deleted
        return asked.timestamp() + self._world.options.deletion_grace_seconds - self._world.now()

    # --- telling ---

    def _hands_off(self, memo: Memo) -> None:
        held, memo.held = memo.held, None
        if held is None:
            return
        held.drop()
        # What was being registered, or was and not yet told, nobody would know of any more.
        untold = held.charge.intent is Intent.KEEP and held.target != memo.told.registered
        if untold and self._world.claims.owner(held.target) in (None, held.charge.desired.owner.key):
            self._clear(memo, held.site, held.target, replace(held.charge.desired, adopts_unstamped=held.charge.ours))

    def _refuse(self, entry: Entry, memo: Memo, reason: Reason, message: str) -> None:
        target = None if reason is Reason.CONFLICT else memo.told.registered
        verdict = Verdict(Status.FALSE, reason, message)
        self._publish(entry, memo, Report(entry.meta.generation, verdict, references=RESOLVED, target=target))

    def _publish(self, entry: Entry, memo: Memo, report: Report) -> None:
        self._world.publisher.publish(entry.key, memo, report)
        self._world.publisher.flush()

    def _announce(self, key: ResourceKey, memo: Memo, reason: EventReason, message: str) -> None:
        _log.warning(reason, namespace=key.namespace, name=key.name, message=message)
        self._world.publisher.announce(key, memo, Announcement(reason, message, warning=True))
        self._world.publisher.flush()


def _unresolved(entry: Entry, memo: Memo, why: str) -> Report:
    verdict = Verdict(Status.FALSE, Reason.REFERENCE_NOT_FOUND, why)
    return Report(entry.meta.generation, verdict, references=verdict, target=memo.told.registered)


def _owns_nothing(memo: Memo) -> bool:
    """Whether an older resource owns what this one names, so that there is nothing of ours to remove."""
    return memo.told.conflict and memo.held is None and memo.told.registered is None


def to_remove(owner: Owner, where: Place) -> Desired:
    """What a removal needs to know of a scheduler: whose it is and where. Its schedule does not matter."""
    return Desired(owner, where, Every(3_600_000, 1), "removed", {"tenantId": "removed"}, {}, adopts_unstamped=True)
