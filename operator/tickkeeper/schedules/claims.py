"""Which resource a scheduler belongs to when several name it: the oldest."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tickkeeper.schedules.desired import Place, ResourceKey


class Target(NamedTuple):
    """A scheduler's place in the world: which Redis (its address), and where in it."""

    redis: str
    place: Place


class Claim(NamedTuple):
    """A resource's age, as a sort key: the oldest creationTimestamp, then the uid, decides."""

    created: str
    uid: str
    key: ResourceKey


@dataclass(slots=True)
class Claims:
    """All resources that name a scheduler, by what they name."""

    _claims: dict[Target, set[Claim]] = field(default_factory=dict)
    _targets: dict[ResourceKey, tuple[Target, Claim]] = field(default_factory=dict)

    def claim(self, target: Target, claim: Claim) -> set[ResourceKey]:
        """A resource names ``target`` from now on. Returns the other resources whose standing may have changed."""
        current = self._targets.get(claim.key)
        if current == (target, claim):
            return set()
        changed = self.release(claim.key)
        self._targets[claim.key] = (target, claim)
        claims = self._claims.setdefault(target, set())
        changed.update(other.key for other in claims)
        claims.add(claim)
        return changed

    def release(self, key: ResourceKey) -> set[ResourceKey]:
        """A resource names nothing any more. Returns the others whose standing may have changed."""
        target, claim = self._targets.pop(key, (None, None))
        if target is None or claim is None:
            return set()
        claims = self._claims[target]
        claims.discard(claim)
        if not claims:
            del self._claims[target]
        return {other.key for other in claims}

    def owner(self, target: Target) -> ResourceKey | None:
        """Who may write ``target``."""
        claims = self._claims.get(target)
        return min(claims).key if claims else None
