"""When a claim looks for plain rows only."""

from tickkeeper.outbox.plain import PlainRows


def _claims(plain: PlainRows, tenant: str, count: int) -> list[bool]:
    return [plain.likely(tenant) for _ in range(count)]


def test_after_a_miss_it_rests_longer_each_time_and_not_for_ever() -> None:
    plain = PlainRows()
    assert plain.likely("acme")
    for pause in (4, 8, 16, 32, 64, 64):
        plain.missed("acme")
        assert _claims(plain, "acme", pause + 1) == [False] * pause + [True]


def test_a_success_ends_the_rest() -> None:
    plain = PlainRows()
    plain.missed("acme")
    plain.missed("acme")
    plain.found("acme")
    assert plain.likely("acme")
    plain.missed("acme")
    assert _claims(plain, "acme", 5) == [False] * 4 + [True]


def test_tenants_do_not_mind_one_another_and_are_bounded() -> None:
    plain = PlainRows()
    plain.missed("acme")
    assert plain.likely("globex")
    for number in range(3_000):
        plain.missed(str(number))
    assert len(plain._resting) <= 1_000
