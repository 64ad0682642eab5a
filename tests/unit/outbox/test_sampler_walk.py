"""Parts of a large outbox, put together."""

from tickkeeper.outbox.sampler_walk import Part, Walk


def part(ready: int, *tenants: str, due_at: float | None = None, last: bool = False) -> Part:
    return Part(ready, 1, 2, 3, 4, due_at, None, tenants, None if last else (tenants[-1], "mail"))


def test_nothing_is_known_at_first() -> None:
    walk = Walk()
    assert (walk.known(), walk.whole, walk.behind) == (None, False, (None, None))


def test_a_first_round_is_told_as_far_as_it_got() -> None:
    walk = Walk()
    walk.add(part(5, "a", "b", due_at=7.0))
    assert (walk.whole, walk.behind) == (False, ("b", "mail"))
    walk.add(part(6, "c", due_at=3.0))
    assert walk.known() == Part(11, 2, 4, 6, 8, 3.0, None, ("a", "b", "c"))


def test_later_rounds_are_told_when_they_are_whole() -> None:
    walk = Walk()
    walk.add(part(5, "a"))
    walk.add(part(6, "b", last=True))
    assert (walk.whole, walk.behind) == (True, (None, None))
    walk.add(part(0, "a"))
    known = walk.known()
    assert known is not None
    assert known.ready == 11
    walk.add(part(1, "c", last=True))
    known = walk.known()
    assert known is not None
    assert (known.ready, known.tenants) == (1, ("a", "c"))


def test_an_empty_part_ends_a_round() -> None:
    walk = Walk()
    walk.add(part(5, "a"))
    walk.add(Part(0, 0, 0, 0, 0, None, None, ()))
    assert walk.whole
    assert walk.behind == (None, None)


def test_records_are_read() -> None:
    whole = Part.read((1, 2, 3, 4, 10.0, 5, 20.0, ["a"]), 100.0)
    assert whole == Part(1, 2, 3, 4, 5, 90.0, 80.0, ("a",), None)
    assert Part.read((1, 2, 3, 4, None, 0, None, ["a"], "a", "mail"), 100.0).end == ("a", "mail")
    assert Part.read((1, 2, 3, 4, None, 0, None, ["a"], None, None), 100.0).end is None
