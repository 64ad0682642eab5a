"""Cron: five fields, an IANA time zone, cronsim's evaluation (Debian cron's, daylight saving included).

The grammar is narrower than cronsim's and is told as regular expressions, so that the CRD can judge it as well; what
only an evaluation can tell (descending ranges, dates that never come, time zones) is ``check``'s.

Daylight saving: a job at fixed times (minute and hour both start without ``*``) runs once where an hour repeats, in
its first pass, and right after the gap where its time does not exist; every other job follows the clock on the wall,
so it runs in both passes of a repeated hour.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from tickkeeper.api.rules import Rule, matches

#: Files of a zoneinfo folder that are no zones: they depend on the machine.
_NOT_ZONES = frozenset({"Factory", "localtime", "posixrules"})
_UTC_NAMES = frozenset({"UTC", "Etc/UTC"})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A fixed start for "does it ever fire": the answer must not change with the day on which it is asked. cronsim looks
#: 50 years ahead, more than the longest wait there is (a certain weekday on 29 February: 40 years, around 2100).
_REFERENCE = datetime(2000, 1, 1, tzinfo=UTC)


_CAN_FIRE = "must be a pattern that fires"


class CronError(ValueError):
    """A pattern or a time zone that cannot be evaluated; ``field`` is ``pattern`` or ``timeZone``.

    The message is the rule that it breaks.
    """

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(rule)
        self.field = field


def _field(value: str, special: str = "") -> str:
    """A list of ``*``, values, ranges and steps, or of ``special`` items."""
    step = r"(?:/(?:0?[1-9]|[1-9][0-9]))?"
    item = rf"(?:\*|(?:{value})(?:-(?:{value}))?){step}"
    if special:
        item = rf"(?:{item}|{special})"
    return rf"{item}(?:,{item})*"


_MONTHS = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_WEEKDAY = "0?[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT"

#: what each of the five fields is called, its grammar, and that grammar in words
_FIELDS = (
    ("minute", _field("[0-5]?[0-9]"), "0-59"),
    ("hour", _field("2[0-3]|[01]?[0-9]"), "0-23"),
    ("day of month", _field("3[01]|[12][0-9]|0?[1-9]", "LW?"), "1-31, L (last day) or LW (last weekday)"),
    ("month", _field(f"1[0-2]|0?[1-9]|{_MONTHS}"), "1-12 or JAN-DEC"),
    (
        "day of week",
        _field(_WEEKDAY, f"[0-7]L|(?:{_WEEKDAY})#[1-5]"),
        "0-7 (0 and 7 are Sunday), SUN-SAT, 5L (last Friday) or FRI#2 (second Friday)",
    ),
)

_FIVE_FIELDS = matches(
    r"[^ ]+(?: +[^ ]+){4}",
    "must have exactly 5 fields with spaces between them: minute, hour, day of month, month, day of week"
    " (no seconds, no words like @daily)",
)


def _field_rule(position: int, name: str, grammar: str, words: str) -> Rule:
    rule = matches(
        rf"(?:[^ ]+ +){{{position}}}(?:{grammar})(?: .*)?",
        f"must have a valid {name} (field {position + 1} of 5): {words}; *, lists, ranges and steps of these"
        " (R, H and ? are not supported)",
        ignore_case=True,
    )
    # A pattern of four fields is told once that it has four, and not also that each one is out of place.
    return Rule(
        message=rule.message,
        cel=f"!({_FIVE_FIELDS.cel}) || {rule.cel}",
        holds=lambda pattern: not _FIVE_FIELDS.holds(pattern) or rule.holds(pattern),
    )


#: What the CRD and the operator both ask of a pattern.
PATTERN_RULES = (
    _FIVE_FIELDS,
    *(_field_rule(position, *field) for position, field in enumerate(_FIELDS)),
)

#: What the CRD can say of a time zone's name; whether there is such a zone is the operator's to know.
TIME_ZONE_FORM = matches(
    r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*", "must be the name of an IANA time zone, such as Europe/Stockholm"
)


def check_pattern(pattern: str) -> None:
    """Raise CronError where ``pattern`` is not valid or never fires."""
    for rule in PATTERN_RULES:
        if not rule.holds(pattern):
            raise CronError("pattern", rule.message)
    try:
        next(CronSim(pattern, _REFERENCE))
    except CronSimError:
        raise CronError("pattern", f"{_CAN_FIRE} ({_why_not(pattern)})") from None
    except StopIteration:
        raise CronError("pattern", f"{_CAN_FIRE} (not once in 50 years)") from None


def _why_not(pattern: str) -> str:
    """What is left for cronsim to refuse once the grammar holds: a range that descends, or a day that never comes."""
    parts = pattern.split()
    for position, (name, _, _) in enumerate(_FIELDS):
        alone = ["*"] * len(_FIELDS)
        alone[position] = parts[position]
        try:
            CronSim(" ".join(alone), _REFERENCE)
        except CronSimError:
            return f"{parts[position]}, the {name}, has a range that descends"
    return f"none of its months, {parts[3]}, has a day {parts[2]}"


def check_time_zone(time_zone: str) -> None:
    """Raise CronError where the time zone database has no such zone."""
    if time_zone in _NOT_ZONES or time_zone not in _zone_names():
        raise CronError("timeZone", f"{TIME_ZONE_FORM.message}; the time zone database has no such zone")


def next_fire_ms(pattern: str, time_zone: str, after_ms: int) -> int:
    """The first fire strictly after ``after_ms``; both in ms since the epoch.

    Raises CronError where the pattern or the zone is not valid, or ``after_ms`` is beyond what a date can hold.
    """
    return next(_fires_ms(pattern, time_zone, after_ms))


def interval_ms(pattern: str, time_zone: str, after_ms: int) -> int:
    """The distance in ms between the next two fires after ``after_ms``; raises as ``next_fire_ms``."""
    fires = _fires_ms(pattern, time_zone, after_ms)
    first = next(fires)
    return next(fires) - first


def _fires_ms(pattern: str, time_zone: str, after_ms: int) -> Iterator[int]:
    """The fires after ``after_ms``, in order."""
    _checked_pattern(pattern)
    last = after_ms
    try:
        start = (_EPOCH + timedelta(milliseconds=after_ms)).astimezone(_zone(time_zone))
        for fire in CronSim(pattern, start):
            fire_ms = (fire - _EPOCH) // timedelta(milliseconds=1)
            # Within the second pass of a repeated hour cronsim answers with the first pass, which is over.
            if fire_ms > last:
                last = fire_ms
                yield fire_ms
    except OverflowError as error:
        raise CronError("pattern", f"must fire before the year 10000: {error}") from None
    raise CronError("pattern", f"{_CAN_FIRE} (not once in 50 years)")


# Every tick asks again, and the check costs up to a walk through 50 years.
_checked_pattern = lru_cache(maxsize=4096)(check_pattern)


@lru_cache(maxsize=1024)
def _zone(time_zone: str) -> tzinfo:
    if time_zone in _UTC_NAMES:
        return UTC  # cronsim spares itself all daylight-saving work for exactly this object
    check_time_zone(time_zone)
    return ZoneInfo(time_zone)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones())
