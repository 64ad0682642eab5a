"""The cron half of the table in spec_cases."""

from tests.unit.api.case import bad, cron, good

FIVE = "must have exactly 5 fields"

_GOOD_PATTERNS = (
    "* * * * *",
    "*/5 * * * *",
    "0 0 1 1 0",
    "59 23 31 12 7",
    "00 05 01 01 00",
    "0,15,30-45/5 8-18/2 * * MON-FRI",
    "30 2 * jan,DEC sun",
    "0 0 L * *",
    "0 0 1,LW * *",
    "0 12 * * 5L,MON#2,0#5",
    "5/15 * * * *",
    "*/99 * * * *",
    "0  0   * * *",
    "0 0 29 2 *",
)
_BAD_PATTERNS = {
    "minute (field 1 of 5)": (
        "R * * * *",
        "H * * * *",
        "H/5 * * * *",
        "60 * * * *",
        "-1 * * * *",
        "*/0 * * * *",
        "*/ * * * *",
        "1- * * * *",
        "1,,2 * * * *",
        "1, * * * *",
        "*-5 * * * *",
        "1/2/3 * * * *",
        "000 * * * *",
        "? * * * *",
        "a * * * *",
        "٣ * * * *",
        "*\t* * * * *",
    ),
    "hour (field 2 of 5)": ("0 24 * * *", "0 R * * *", "0 R(1-5) * * *", "0 1.5 * * *"),
    "day of month (field 3 of 5)": ("0 0 0 * *", "0 0 32 * *", "0 0 15W * *", "0 0 L/2 * *", "0 0 ? * *"),
    "month (field 4 of 5)": ("0 0 * 0 *", "0 0 * 13 *", "0 0 * JANUARY *", "0 0 * MON *", "0 0 * \u017fep *"),
    "day of week (field 5 of 5)": ("0 0 * * 8", "0 0 * * MON#6", "0 0 * * L", "0 0 * * MONL", "0 0 * * JAN"),
    FIVE: (
        "*",
        "* * * *",
        "* * * * * *",
        "0 */5 * * * *",
        "@reboot",
        "@daily",
        "@every 5s",
        " * * * * *",
        "* * * * * ",
        "*\t*\t*\t*\t*",
        " ",
    ),
}
_512_CHARACTERS = "* * * * " + "1," * 251 + "01"

CRON = [
    *(good(f"cron: {pattern}", **cron(pattern)) for pattern in _GOOD_PATTERNS),
    *(
        bad(f"cron: {pattern!r}", "cron.pattern", rule, **cron(pattern))
        for rule, patterns in _BAD_PATTERNS.items()
        for pattern in patterns
    ),
    bad("cron: empty", "cron.pattern", "at least 1 character", "at least 1 chars", **cron("")),
    bad("cron: a number", "cron.pattern", "must be a string", "must be of type string", **cron(5)),
    good("cron: 512 characters", **cron(_512_CHARACTERS)),
    bad("cron: 513 characters", "cron.pattern", "at most 512", "more than 512", **cron(_512_CHARACTERS + "1")),
    *(
        good(f"timeZone: {zone}", **cron("* * * * *", timeZone=zone))
        for zone in ("UTC", "Etc/GMT+5", "Europe/Stockholm", "America/Argentina/Ushuaia", "America/Port-au-Prince")
    ),
    good("timeZone: null", **cron("* * * * *", timeZone=None)),
    *(
        bad(
            f"timeZone: {zone!r}",
            "cron.timeZone",
            "must be the name of an IANA time zone",
            **cron("* * * * *", timeZone=zone),
        )
        for zone in ("../../etc/passwd", "/etc/localtime", "Europe/", "Europe//Oslo", "Europe Oslo", "UTC\n", "å", " ")
    ),
    bad("timeZone: empty", "cron.timeZone", "at least 1", "at least 1 chars", **cron("* * * * *", timeZone="")),
    bad(
        "timeZone: 65 characters", "cron.timeZone", "at most 64", "more than 64", **cron("* * * * *", timeZone="A" * 65)
    ),
]

_FIRES = "must be a pattern that fires"
_ZONE = "the time zone database has no such zone"
#: The API server lets these in; the operator answers them with InvalidSpec.
JUDGED_BY_OPERATOR = [
    *(
        bad(f"operator only: {pattern}", "cron.pattern", f"{_FIRES} ({why})", **cron(pattern))
        for pattern, why in (
            ("30-10 * * * *", "30-10, the minute, has a range that descends"),
            ("0 22-2 * * *", "22-2, the hour, has a range that descends"),
            ("0 0 * * FRI-MON", "FRI-MON, the day of week, has a range that descends"),
            ("0 0 31 2 *", "none of its months, 2, has a day 31"),
            ("0 0 30,31 FEB *", "none of its months, FEB, has a day 30,31"),
            ("0 0 31 4,6,9,11 *", "none of its months, 4,6,9,11, has a day 31"),
            ("0 0 */30 2 MON#5", "not once in 50 years"),
        )
    ),
    *(
        bad(f"operator only: {zone}", "cron.timeZone", _ZONE, **cron("* * * * *", timeZone=zone))
        for zone in ("Mars/Olympus", "europe/stockholm", "Europe", "localtime", "posixrules", "right/UTC", "Factory")
    ),
]
