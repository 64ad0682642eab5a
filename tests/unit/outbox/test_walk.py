"""Where a drain goes on."""

from datetime import UTC, datetime

from tickkeeper.outbox.walk import Walks

T0 = datetime(2026, 1, 1, tzinfo=UTC)
OF = ("acme", "mail")


def _walks(*, took: float = 0.0, rows: int = 500) -> Walks:
    walks = Walks()
    assert walks.place(OF, 0.0) is None
    walks.went(OF, behind=None, last=(T0, 500), rows=rows, began=0.0, ended=took)
    return walks


def test_it_goes_on_where_the_last_claim_ended():
    walks = _walks()
    assert walks.place(OF, 0.1) == (T0, 500)
    walks.went(OF, behind=(T0, 500), last=(T0, 1_000), rows=500, began=0.1, ended=0.1)
    assert walks.place(OF, 0.1) == (T0, 1_000)
    assert walks.place(("acme", "call"), 0.1) is None


def test_a_lane_that_is_slower_does_not_lead_back():
    walks = _walks()
    walks.went(OF, behind=(T0, 500), last=(T0, 1_500), rows=500, began=0.1, ended=0.1)
    walks.went(OF, behind=(T0, 500), last=(T0, 1_000), rows=500, began=0.1, ended=0.1)
    assert walks.place(OF, 0.1) == (T0, 1_500)


def test_from_time_to_time_it_begins_at_the_oldest_row():
    walks = _walks()
    walks.went(OF, behind=(T0, 500), last=(T0, 1_000), rows=500, began=0.19, ended=0.19)
    assert walks.place(OF, 0.2) is None
    # Rows turned up there meanwhile: it goes on behind them, and not where it had been.
    walks.went(OF, behind=None, last=(T0, 20), rows=500, began=0.2, ended=0.2)
    assert walks.place(OF, 0.3) == (T0, 20)


def test_beginning_at_the_oldest_row_takes_a_tenth_of_the_time_at_most_but_happens():
    assert _walks(took=0.1).place(OF, 1.0) == (T0, 500)
    assert _walks(took=0.1).place(OF, 1.2) is None
    assert _walks(took=9.0).place(OF, 13.0) == (T0, 500)
    assert _walks(took=9.0).place(OF, 14.1) is None


def test_small_claims_always_begin_at_the_oldest_row():
    assert _walks(rows=99).place(OF, 0.1) is None


def test_it_ends_with_what_was_found_and_with_rows_that_come_back():
    walks = _walks()
    walks.over(OF)
    assert walks.place(OF, 0.1) is None
    walks.went(OF, behind=(T0, 500), last=(T0, 1_000), rows=500, began=0.0, ended=0.0)
    assert walks.place(OF, 0.1) is None
    walks = _walks()
    walks.forget()
    assert walks.place(OF, 0.1) is None


def test_tenants_are_bounded():
    walks = Walks()
    for number in range(3_000):
        walks.went(number, behind=None, last=(T0, number), rows=500, began=0.0, ended=0.0)
    assert len(walks._of) <= 1_000
