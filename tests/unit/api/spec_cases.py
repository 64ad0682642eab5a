"""One table of specs for both judges: the API server with its CRD, and the operator's model.

Each rule has the value at its bound, which passes, and the one beyond, which is refused with a message that names
field and rule. What no CRD can judge is in cron_cases.
"""

from typing import Any

from tests.unit.api.case import ABSENT, Bad, Good, bad, cron, good
from tests.unit.api.cron_cases import CRON

PLAIN = "must hold no control, format, private-use or line-separator characters"
DNS = "must be a DNS subdomain name"
YEAR_MS = 31_536_000_000
DAY_MS = 86_400_000


def _plain_names(field: str) -> list[Bad]:
    """NUL, newline and their like within a name."""
    return [
        bad(f"{field}: U+{ord(char):04X}", field, PLAIN, **{field: f"a{char}b"})
        for char in "\0\n\r\t\x1b\x7f\x85\u00ad\u200b\u200d\u2028\u2029\u202e\ue000\ufeff"
    ]


def _lengths(field: str, most: int) -> list[Good | Bad]:
    """Characters, not bytes: ``å`` is two bytes, U+1F600 is four and, elsewhere, two UTF-16 units."""
    return [
        good(f"{field}: 1 character", **{field: "a"}),
        good(f"{field}: {most} characters", **{field: "a" * most}),
        bad(
            f"{field}: {most + 1} characters",
            field,
            f"must have at most {most} characters",
            f"may not be more than {most} bytes",
            **{field: "a" * (most + 1)},
        ),
        bad(
            f"{field}: empty",
            field,
            "must have at least 1 character",
            "should be at least 1 chars long",
            **{field: ""},
        ),
        bad(f"{field}: a number", field, "must be a string", "must be of type string", **{field: 5}),
    ]


def _name(field: str, most: int) -> list[Good | Bad]:
    return [
        *_lengths(field, most),
        good(f"{field}: {most} letters of two bytes", **{field: "å" * most}),
        good(f"{field}: {most} emoji of four bytes", **{field: "\U0001f600" * most}),
        good(f"{field}: any script, and spaces", **{field: "Ångström 株式会社 ₿"}),
        *_plain_names(field),
    ]


def _required(field: str) -> list[Good | Bad]:
    return [
        bad(f"{field}: absent", field, "is required", "Required value", **{field: ABSENT}),
        bad(f"{field}: null", field, "is required", "Required value", **{field: None}),
    ]


def _integer(field: str, least: int, most: int, **others: Any) -> list[Good | Bad]:
    """A whole number between two bounds; ``field`` may be ``tick.leaseMs``."""

    def at(value: Any) -> dict[str, Any]:
        head, _, tail = field.partition(".")
        return {**others, head: {tail: value} if tail else value}

    too_small, too_large = f"must be at least {least}", f"must be at most {most}"
    below, above = f"should be greater than or equal to {least}", f"should be less than or equal to {most}"
    return [
        good(f"{field}: {least}", **at(least)),
        good(f"{field}: {most}", **at(most)),
        good(f"{field}: {least}.0", **at(float(least))),
        bad(f"{field}: {least - 1}", field, too_small, below, **at(least - 1)),
        bad(f"{field}: {most + 1}", field, too_large, above, **at(most + 1)),
        bad(f"{field}: -5", field, too_small, below, **at(-5)),
        bad(f"{field}: 1e21", field, too_large, "must be of type int64", **at(1e21)),
        bad(f"{field}: {least}.5", field, "must be an integer", "must be of type int64", **at(least + 0.5)),
        bad(f'{field}: "{least}"', field, "must be an integer", "must be of type integer", **at(str(least))),
        bad(f"{field}: true", field, "must be an integer", "must be of type int64", **at(True)),
        bad(f"{field}: []", field, "must be an integer", "must be of type integer", **at([])),
    ]


def _readable_by_cel(cases: list[Good | Bad]) -> list[Good | Bad]:
    """Fields that CEL reads: there 100.0 is no integer, see REFUSED_BY_SERVER_ONLY."""
    return [case for case in cases if not case.name.endswith(".0")]


def _choice(field: str, *choices: str) -> list[Good | Bad]:
    return [
        *(good(f"{field}: {choice}", **{field: choice}) for choice in choices),
        *(
            bad(
                f"{field}: {value!r}",
                field,
                f"must be one of '{choices[0]}' or '{choices[1]}'",
                f'supported values: "{choices[0]}", "{choices[1]}"',
                **{field: value},
            )
            for value in ("", "Replace", choices[0].lower())
        ),
    ]


TENANT = [
    *_name("tenant", 128),
    *_required("tenant"),
    *(good(f"tenant: {tenant}", tenant=tenant) for tenant in ("acme", "org:42", "a@b.c", "{x}", "a/b", "-", " ")),
]
JOB_NAME = [*_name("jobName", 128), *_required("jobName")]

EVERY_OR_CRON = [
    *_readable_by_cel(_integer("everyMs", 10, YEAR_MS)),
    bad("everyMs: 0", "everyMs", "must be at least 10", "greater than or equal to 10", everyMs=0),
    bad("everyMs: 1.5", "everyMs", "must be an integer", "must be of type int64", everyMs=1.5),
    bad("everyMs: 31536000001", "everyMs", "at most 31536000000", "equal to 31536000000", everyMs=31536000001),
    bad("both", "", "exactly one of everyMs and cron, not both", cron={"pattern": "* * * * *"}),
    bad("neither", "", "exactly one of everyMs and cron, and has neither", everyMs=ABSENT),
    bad("neither: null", "", "exactly one of everyMs and cron, and has neither", everyMs=None),
    good("everyMs: null beside cron", everyMs=None, cron={"pattern": "* * * * *"}),
    bad("cron: a string", "cron", "must be an object", "must be of type object", everyMs=ABSENT, cron="* * * * *"),
    bad("cron: {}", "cron.pattern", "is required", "Required value", everyMs=ABSENT, cron={}),
]

OFFSET = [
    *_readable_by_cel(_integer("offsetMs", 1, YEAR_MS, everyMs=YEAR_MS)),
    good("offsetMs: everyMs", everyMs=100, offsetMs=100),
    bad("offsetMs: everyMs + 1", "offsetMs", "must be at most everyMs", everyMs=100, offsetMs=101),
    bad("offsetMs: with cron", "offsetMs", "must be absent when cron is set", **cron("* * * * *"), offsetMs=1),
]

QUEUE = [
    *_name("queueName", 255),
    good("queueName: default", queueName=ABSENT),
    bad("queueName: a:b", "queueName", "must not contain ':'", queueName="a:b"),
    bad("queueName: :", "queueName", "must not contain ':'", queueName=":"),
]
PREFIX = [
    *_name("prefix", 255),
    good("prefix: hash tag", prefix="{bull}"),
    good("prefix: with colons", prefix="shop:bull"),
]

SCHEDULER_ID = [
    *_lengths("schedulerId", 255),
    *_plain_names("schedulerId"),
    good("schedulerId: 255 bytes in two-byte letters", schedulerId="å" * 127 + "a"),
    bad("schedulerId: 256 bytes in 128 letters", "schedulerId", "at most 255 bytes", schedulerId="å" * 128),
    good("schedulerId: three colons", schedulerId="a:b:c:d"),
    good("schedulerId: only colons", schedulerId=":::"),
    bad("schedulerId: four colons", "schedulerId", "':' at most 3 times", schedulerId="a:b:c:d:e"),
    good("schedulerId: digits", schedulerId="123"),
    good("schedulerId: digits inside", schedulerId="a:12:b"),
    good("schedulerId: digits and a letter", schedulerId="a:123b"),
    good("schedulerId: a colon at the end", schedulerId="a:"),
    good("schedulerId: other scripts' digits", schedulerId="a:١٢"),
    bad("schedulerId: a:123", "schedulerId", "must not end in ':' and digits", schedulerId="a:123"),
    bad("schedulerId: :0", "schedulerId", "must not end in ':' and digits", schedulerId=":0"),
]

SWITCHES = [
    good("suspend: true", suspend=True),
    good("suspend: false", suspend=False),
    good("suspend: null", suspend=None),
    bad("suspend: a string", "suspend", "must be true or false", "must be of type boolean", suspend="true"),
    bad("suspend: 1", "suspend", "must be true or false", "must be of type boolean", suspend=1),
    *_choice("concurrencyPolicy", "Forbid", "Allow"),
    *_choice("deletionPolicy", "Delete", "Retain"),
]


def _secret(name: Any) -> dict[str, Any]:
    return {"redis": {"secretRef": {"name": name}}}


REDIS = [
    good("secretRef: 1 character", **_secret("a")),
    good("secretRef: 253 characters", **_secret("a" * 253)),
    good("secretRef: dots and dashes", **_secret("redis-1.shop.a")),
    bad("secretRef: 254 characters", "redis.secretRef.name", "at most 253", "more than 253", **_secret("a" * 254)),
    bad("secretRef: empty", "redis.secretRef.name", "at least 1 character", "at least 1 chars", **_secret("")),
    *(
        bad(f"secretRef: {name!r}", "redis.secretRef.name", DNS, **_secret(name))
        for name in ("Redis", "a_b", "a..b", "-a", "a-", ".a", "a.", "a/b", "a\n", "å", "a.-b")
    ),
    bad("secretRef: no name", "redis.secretRef.name", "is required", "Required value", redis={"secretRef": {}}),
    bad("redis: {}", "redis.secretRef", "is required", "Required value", redis={}),
    bad("redis: a string", "redis", "must be an object", "must be of type object", redis="redis://127.0.0.1"),
]

_FULL = 16 * 1024
_ALL = "must be at most 16384 bytes in all"
DATA = [
    good("data: {}", data={}),
    good("data: text of any kind", data={"a b/c": "\0\n\u2028", "": ""}),
    good("data: 16 KiB with its key", data={"k": "x" * (_FULL - 1)}),
    bad("data: 16 KiB and a byte", "data", _ALL, data={"k": "x" * _FULL}),
    bad("data: a long key", "data", _ALL, data={"k" * (_FULL + 1): ""}),
    good("data: 16 KiB in two values", data={"a": "x" * (_FULL - 1002), "b": "x" * 1000}),
    bad("data: 16 KiB and a byte in two values", "data", _ALL, data={"a": "x" * (_FULL - 1001), "b": "x" * 1000}),
    good("data: 16 KiB in two-byte letters", data={"å": "å" * (_FULL // 2 - 1)}),
    bad("data: bytes count, not letters", "data", _ALL, data={"å": "å" * (_FULL // 2)}),
    bad("data: 20 KiB in twenty values", "data", _ALL, data={f"key{n}": "x" * 1024 for n in range(20)}),
    bad("data: 20 KiB", "data.blob", "at most 16384", "more than 16384", data={"blob": "x" * (20 * 1024)}),
    good("data: 256 keys", data={f"key{n}": "x" for n in range(256)}),
    bad("data: 257 keys", "data", "at most 256 items", "at most 256 items", data={f"k{n}": "x" for n in range(257)}),
    bad("data: tenantId", "data", "must not have the key tenantId", data={"tenantId": "x"}),
    bad("data: tickkeeper", "data", "must not have the key tickkeeper", data={"tickkeeper": "x"}),
    good("data: nearly reserved", data={"tenantid": "x", "tickkeeper2": "y"}),
    bad("data: a number", "data.a", "must be a string", "must be of type string", data={"a": 1}),
    bad("data: an object", "data.a", "must be a string", "must be of type string", data={"a": {"b": "c"}}),
    bad("data: a list", "data", "must be a map", "must be of type object", data=["a"]),
]

_KINDS = "tick.kinds"
TICK = [
    good("tick: {}", tick={}),
    good("tick: null", tick=None),
    bad("tick: a string", "tick", "must be an object", "must be of type object", tick="all"),
    *_integer("tick.leaseMs", 1_000, DAY_MS),
    *_integer("tick.batchSize", 1, 10_000),
    *_integer("tick.timeBudgetMs", 10, DAY_MS),
    good("kinds: one", tick={"kinds": ["mail.welcome"]}),
    good("kinds: a hundred", tick={"kinds": [f"kind{n}" for n in range(100)]}),
    good("kinds: 128 characters", tick={"kinds": ["å" * 128]}),
    bad("kinds: none", _KINDS, "at least 1 item", "should have at least 1 items", tick={"kinds": []}),
    bad("kinds: 101", _KINDS, "at most 100 items", "at most 100 items", tick={"kinds": [f"k{n}" for n in range(101)]}),
    bad("kinds: 129 characters", f"{_KINDS}[1]", "at most 128", "more than 128", tick={"kinds": ["a", "a" * 129]}),
    bad("kinds: empty name", f"{_KINDS}[0]", "at least 1 character", "at least 1 chars", tick={"kinds": [""]}),
    bad("kinds: newline", f"{_KINDS}[1]", PLAIN, tick={"kinds": ["a", "b\n"]}),
    bad("kinds: twice", _KINDS, "must not be listed twice", "Duplicate value", tick={"kinds": ["a", "b", "a"]}),
    bad("kinds: a number", f"{_KINDS}[0]", "must be a string", "must be of type string", tick={"kinds": [1]}),
    bad("kinds: a string", _KINDS, "must be a list", "must be of type array", tick={"kinds": "mail"}),
]

UNKNOWN = [
    good("unknown field", fromANewerVersion={"limit": 3}),
    good("unknown field of tick", tick={"fromANewerVersion": [1], "batchSize": 5}),
    good("unknown field of cron", **cron("* * * * *", jitterMs=5)),
    # A field's Python name is no field of the resource.
    good("unknown field every_ms", every_ms=1),
]

CASES: list[Good | Bad] = [
    *TENANT,
    *EVERY_OR_CRON,
    *CRON,
    *JOB_NAME,
    *QUEUE,
    *PREFIX,
    *SCHEDULER_ID,
    *OFFSET,
    *SWITCHES,
    *REDIS,
    *DATA,
    *TICK,
    *UNKNOWN,
]

#: What no kubectl or Helm sends: 100.0 is an integer to OpenAPI, but no rule in CEL will read it.
REFUSED_BY_SERVER_ONLY = [
    good("server only: everyMs 100.0", everyMs=100.0),
    good("server only: offsetMs 1.0", everyMs=100, offsetMs=1.0),
    good("server only: everyMs 100.0 beside offsetMs", everyMs=100.0, offsetMs=1),
]
