import pytest

from tickkeeper.controller.lease import Seen, Turn, decide


@pytest.mark.parametrize(
    ("seen", "now", "turn"),
    [
        (None, 0.0, Turn.CREATE),
        (Seen("me", "t", 0.0, 10.0), 99.0, Turn.RENEW),
        (Seen("other", "t", 0.0, 10.0), 10.0, Turn.WAIT),
        (Seen("other", "t", 0.0, 10.0), 10.1, Turn.TAKE),
        (Seen("", "t", 0.0, 10.0), 0.0, Turn.TAKE),
        (Seen("other", "t", 0.0, 0.0), 0.1, Turn.TAKE),
    ],
)
def test_what_is_free_released_or_run_out_is_taken(seen, now, turn):
    assert decide(seen, "me", now) is turn
