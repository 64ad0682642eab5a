from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.schedules.samples import TARGET
from tickkeeper.schedules.claims import Claim, Claims, Target
from tickkeeper.schedules.desired import Place, ResourceKey

OTHER = Target(TARGET.redis, Place("bull", "ticks", "other"))


def claim(name, created="2026-01-01T00:00:00Z", uid=None):
    return Claim(created, uid or f"uid-{name}", ResourceKey("apps", name))


OLD, NEW = claim("old"), claim("new", "2026-01-02T00:00:00Z")


def test_who_names_it_alone_owns_it():
    claims = Claims()
    assert claims.owner(TARGET) is None
    assert claims.claim(TARGET, NEW) == set()
    assert claims.owner(TARGET) == NEW.key


def test_the_oldest_owns_it_whoever_came_first():
    claims = Claims()
    claims.claim(TARGET, NEW)
    assert claims.claim(TARGET, OLD) == {NEW.key}, "the one that loses must be told"
    assert claims.owner(TARGET) == OLD.key


def test_of_one_age_the_uid_decides():
    claims = Claims()
    claims.claim(TARGET, claim("a", uid="2"))
    claims.claim(TARGET, claim("b", uid="1"))
    assert claims.owner(TARGET) == ResourceKey("apps", "b")


def test_the_next_takes_over_when_the_owner_goes():
    claims = Claims()
    claims.claim(TARGET, OLD)
    claims.claim(TARGET, NEW)
    assert claims.release(OLD.key) == {NEW.key}
    assert claims.owner(TARGET) == NEW.key
    assert claims.release(NEW.key) == set()
    assert claims.owner(TARGET) is None
    assert claims.release(NEW.key) == set()


def test_moving_tells_those_at_the_old_place_and_those_at_the_new():
    claims = Claims()
    claims.claim(TARGET, OLD)
    claims.claim(TARGET, NEW)
    claims.claim(OTHER, claim("third"))
    assert claims.claim(OTHER, OLD) == {NEW.key, ResourceKey("apps", "third")}
    assert claims.owner(TARGET) == NEW.key


def test_naming_the_same_again_changes_nothing():
    claims = Claims()
    claims.claim(TARGET, OLD)
    claims.claim(TARGET, NEW)
    assert claims.claim(TARGET, NEW) == set()


def test_a_recreated_resource_has_a_new_age():
    claims = Claims()
    claims.claim(TARGET, OLD)
    claims.claim(TARGET, NEW)
    claims.claim(TARGET, claim("old", "2026-01-03T00:00:00Z", uid="another"))
    assert claims.owner(TARGET) == NEW.key


def test_another_redis_is_another_place():
    claims = Claims()
    claims.claim(TARGET, OLD)
    claims.claim(Target("redis://elsewhere:6379/0", TARGET.place), NEW)
    assert claims.owner(Target("redis://elsewhere:6379/0", TARGET.place)) == NEW.key


class AgainstAModel(RuleBasedStateMachine):
    """Claims, beside a plain dictionary of who names what."""

    def __init__(self):
        super().__init__()
        self.claims = Claims()
        self.model = {}

    @rule(name=st.sampled_from("abcd"), age=st.integers(0, 3), where=st.sampled_from([TARGET, OTHER]))
    def claim(self, name, age, where):
        mine = claim(name, str(age))
        before = self.owners()
        told = self.claims.claim(where, mine)
        self.model[mine.key] = (where, mine)
        self.changes_are_told(before, told, by=mine.key)

    @rule(name=st.sampled_from("abcd"))
    def release(self, name):
        key = ResourceKey("apps", name)
        before = self.owners()
        told = self.claims.release(key)
        self.model.pop(key, None)
        self.changes_are_told(before, told, by=key)

    def owners(self):
        found = {}
        for target in (TARGET, OTHER):
            claims = [mine for where, mine in self.model.values() if where == target]
            found[target] = min(claims).key if claims else None
        return found

    def changes_are_told(self, before, told, *, by):
        """Whoever gains or loses a place must be looked at again; who asked for it knows."""
        after = self.owners()
        for target, owner in before.items():
            if owner != after[target]:
                assert {owner, after[target]} - {None, by} <= told

    @invariant()
    def owners_agree(self):
        assert {target: self.claims.owner(target) for target in (TARGET, OTHER)} == self.owners()


TestAgainstAModel = AgainstAModel.TestCase
