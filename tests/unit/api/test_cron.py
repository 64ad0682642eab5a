"""Cron against the calendar: hard cases D11 and D12, and a brute-force walk as the oracle.

In 2026 Stockholm goes from +01:00 to +02:00 on 29 March at 02:00 and back on 25 October at 03:00.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tickkeeper.api.cron import CronError, check_pattern, check_time_zone, interval_ms, next_fire_ms

STOCKHOLM = "Europe/Stockholm"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def fires(pattern: str, after: str, count: int, zone: str = STOCKHOLM) -> list[str]:
    """The next fires as local times, each asked for by its own call, as operator and workers do."""
    found, last = [], ms(after)
    for _ in range(count):
        last = next_fire_ms(pattern, zone, last)
        found.append(datetime.fromtimestamp(last / 1000, ZoneInfo(zone)).isoformat(timespec="minutes"))
    return found


def test_d11_a_daily_tick_fires_once_where_the_hour_repeats():
    assert fires("30 2 * * *", "2026-10-24T12:00+02:00", 3) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
        "2026-10-27T02:30+01:00",
    ]


@pytest.mark.parametrize("after", ["02:00", "02:10", "02:30", "02:59"])
def test_d11_asked_within_the_second_pass_a_daily_tick_is_over(after):
    assert fires("30 2 * * *", f"2026-10-25T{after}+01:00", 1) == ["2026-10-26T02:30+01:00"]


def test_d11_a_half_hourly_tick_keeps_the_repeated_hour():
    assert fires("*/30 * * * *", "2026-10-25T01:30+02:00", 6) == [
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T02:30+01:00",
        "2026-10-25T03:00+01:00",
        "2026-10-25T03:30+01:00",
    ]


def test_d11_d12_a_daily_tick_whose_time_does_not_exist_fires_right_after_the_gap():
    assert fires("30 2 * * *", "2026-03-28T12:00+01:00", 2) == ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]


def test_d11_a_half_hourly_tick_leaps_the_gap_with_the_clock():
    assert fires("*/30 * * * *", "2026-03-29T01:00+01:00", 3) == [
        "2026-03-29T01:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-29T03:30+02:00",
    ]


@pytest.mark.parametrize("after", ["2026-03-28T02:30+01:00", "2026-03-29T01:59+01:00", "2026-03-29T00:00+00:00"])
def test_d12_the_answer_does_not_depend_on_when_it_is_asked(after):
    assert fires("30 2 * * *", after, 1) == ["2026-03-29T03:00+02:00"]


def test_d12_two_times_in_the_gap_are_one_tick():
    assert fires("0,30 2 * * *", "2026-03-28T12:00+01:00", 2) == ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]


def test_utc_knows_no_daylight_saving():
    assert fires("30 2 * * *", "2026-10-24T12:00+00:00", 2, "UTC") == [
        "2026-10-25T02:30+00:00",
        "2026-10-26T02:30+00:00",
    ]


@pytest.mark.parametrize(
    ("after", "fire"),
    [
        ("2026-01-01T00:00:00.000+00:00", "2026-01-01T00:05+00:00"),
        ("2026-01-01T00:04:59.999+00:00", "2026-01-01T00:05+00:00"),
        ("2026-01-01T00:05:00.000+00:00", "2026-01-01T00:10+00:00"),
        ("2026-01-01T00:05:00.001+00:00", "2026-01-01T00:10+00:00"),
    ],
)
def test_the_next_fire_is_strictly_later(after, fire):
    assert fires("*/5 * * * *", after, 1, "UTC") == [fire]


def test_both_day_fields_must_match_when_one_starts_with_a_star():
    assert fires("0 0 13 * FRI", "2026-01-01T00:00+00:00", 3, "UTC") == [
        "2026-01-02T00:00+00:00",
        "2026-01-09T00:00+00:00",
        "2026-01-13T00:00+00:00",
    ]
    assert fires("0 0 */2 * FRI", "2026-01-01T00:00+00:00", 2, "UTC") == [
        "2026-01-09T00:00+00:00",
        "2026-01-23T00:00+00:00",
    ]


def test_leap_days_are_worth_the_wait():
    assert fires("0 0 29 2 *", "2096-03-01T00:00+00:00", 1, "UTC") == ["2104-02-29T00:00+00:00"]
    # 29 February on a Monday, over the year 2100 that has none: 40 years.
    assert fires("0 0 * 2 MON#5", "2072-03-01T00:00+00:00", 1, "UTC") == ["2112-02-29T00:00+00:00"]


def test_the_interval_is_the_distance_of_the_next_two_fires():
    assert interval_ms("0 3 * * *", "UTC", ms("2026-01-01T00:00+00:00")) == DAY_MS
    assert interval_ms("0 8,20 * * *", "UTC", ms("2026-01-01T00:00+00:00")) == 12 * HOUR_MS
    assert interval_ms("0 3 * * *", STOCKHOLM, ms("2026-03-28T01:00+01:00")) == 23 * HOUR_MS
    assert interval_ms("0 3 * * *", STOCKHOLM, ms("2026-10-24T01:00+02:00")) == 25 * HOUR_MS


@pytest.mark.parametrize("pattern", ["R * * * *", "@daily", "* * * * * *", "5-1 * * * *", "0 0 31 2 *", "", "x"])
def test_a_bad_pattern_is_never_evaluated(pattern):
    for ask in (
        lambda: check_pattern(pattern),
        lambda: next_fire_ms(pattern, "UTC", 0),
        lambda: interval_ms(pattern, "UTC", 0),
    ):
        with pytest.raises(CronError) as refused:
            ask()
        assert refused.value.field == "pattern"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "Europe", "../UTC", "localtime", "/etc/localtime", "utc\n"])
def test_an_unknown_zone_is_never_used(zone):
    for ask in (lambda: check_time_zone(zone), lambda: next_fire_ms("* * * * *", zone, 0)):
        with pytest.raises(CronError) as refused:
            ask()
        assert refused.value.field == "timeZone"


@pytest.mark.parametrize("after", [10**15, 10**18, -(10**18), ms("9999-12-31T23:59+00:00")])
def test_times_that_no_date_can_hold_are_refused(after):
    with pytest.raises(CronError, match="year"):
        next_fire_ms("0 3 * * *", STOCKHOLM, after)


def _part(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    # Of two ends: cronsim takes 5-5/2 for 5/2, which goes on to the end.
    ascending = st.lists(number, min_size=2, max_size=2, unique=True).map(lambda ends: f"{min(ends)}-{max(ends)}")
    base = st.one_of(st.just("*"), number.map(str), ascending)
    stepped = st.tuples(base, st.integers(1, 30)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.lists(st.one_of(base, stepped), min_size=1, max_size=3).map(",".join)


# Changes of half an hour (Lord Howe) are left out: cronsim leaps whole hours, and may miss the first half hour.
ZONES = st.sampled_from(["UTC", STOCKHOLM, "America/New_York", "Asia/Kolkata", "America/Sao_Paulo", "Pacific/Auckland"])
MOMENTS = st.integers(ms("2026-01-01T00:00+00:00"), ms("2027-01-01T00:00+00:00"))
NEAR_CHANGES = st.sampled_from(["2026-03-29T01:00+00:00", "2026-10-25T01:00+00:00"]).flatmap(
    lambda change: st.integers(ms(change) - 3 * HOUR_MS, ms(change) + 3 * HOUR_MS)
)


@given(minute=_part(0, 59), hour=_part(0, 23), zone=ZONES, after=MOMENTS | NEAR_CHANGES)
@example(minute="30", hour="2", zone=STOCKHOLM, after=ms("2026-10-25T02:10+01:00"))
def test_fires_are_strictly_later_ordered_and_the_same_however_asked(minute, hour, zone, after):
    pattern = f"{minute} {hour} * * *"
    first = next_fire_ms(pattern, zone, after)
    second = next_fire_ms(pattern, zone, first)
    assert after < first < second
    assert next_fire_ms(pattern, zone, first - 1) == first, "asked just before, it is still the next"
    assert next_fire_ms(pattern, zone, (after + first) // 2) == first, "and from anywhere between"
    assert interval_ms(pattern, zone, after) == second - first


def _matches(part: str, least: int, most: int, value: int) -> bool:
    for item in part.split(","):
        base, _, step = item.partition("/")
        start, _, end = base.partition("-")
        low = least if base == "*" else int(start)
        high = most if base == "*" or (step and not end) else int(end or start)
        if low <= value <= high and (value - low) % int(step or 1) == 0:
            return True
    return False


@given(minute=_part(0, 59), hour=_part(0, 23), zone=ZONES, after=MOMENTS | NEAR_CHANGES)
def test_a_wall_clock_pattern_is_what_a_walk_over_the_minutes_finds(minute, hour, zone, after):
    assume(minute.startswith("*") or hour.startswith("*"))
    local = ZoneInfo(zone)
    moment = datetime.fromtimestamp(after // 60_000 * 60, UTC)
    for _ in range(2 * 24 * 60):
        moment += timedelta(minutes=1)
        wall = moment.astimezone(local)
        if _matches(minute, 0, 59, wall.minute) and _matches(hour, 0, 23, wall.hour):
            break
    assert next_fire_ms(f"{minute} {hour} * * *", zone, after) == moment.timestamp() * 1000


@given(
    st.lists(st.text("0123456789*/,-#LWRHMONJA ?", max_size=8), min_size=5, max_size=5).map(" ".join)
    | st.tuples(_part(0, 59), _part(0, 23), _part(1, 31), _part(1, 12), _part(0, 7)).map(" ".join)
)
def test_what_passes_the_check_can_always_be_evaluated(pattern):
    try:
        check_pattern(pattern)
    except CronError:
        return
    found = [next_fire_ms(pattern, STOCKHOLM, ms("2026-01-01T00:00+00:00"))]
    for _ in range(3):
        found.append(next_fire_ms(pattern, STOCKHOLM, found[-1]))
    assert all(earlier < later for earlier, later in pairwise(found))
