"""What a Redis error means to the person who reads the condition."""

import asyncio

from redis import exceptions as redis_errors

_A_CLUSTER = "this Redis is a cluster: its url must begin with redis+cluster:// and the prefix must hold a {hash tag}"

_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (redis_errors.AuthenticationError, "Redis refused the user name or password"),
    (redis_errors.AuthorizationError, "Redis refused the user name or password"),
    (redis_errors.NoPermissionError, "the Redis user lacks a permission"),
    (redis_errors.BusyLoadingError, "Redis is loading its data"),
    (redis_errors.ReadOnlyError, "this Redis is a read-only replica"),
    (redis_errors.OutOfMemoryError, "Redis is out of memory and refuses writes"),
    (redis_errors.MaxConnectionsError, "no connection is free"),
    (redis_errors.ClusterCrossSlotError, _A_CLUSTER),
    (redis_errors.MovedError, _A_CLUSTER),
    (redis_errors.TimeoutError, "Redis did not answer in time"),
    (redis_errors.ConnectionError, "no connection to Redis"),
    (TimeoutError, "Redis did not answer in time"),
    (OSError, "no connection to Redis"),
)

#: Answers that redis-py has no class for, by their first word.
_PREFIXES = {
    "READONLY": "this Redis is a read-only replica",
    "LOADING": "Redis is loading its data",
    "MASTERDOWN": "this replica has lost its master",
    "NOAUTH": "Redis wants a password",
    "WRONGPASS": "Redis refused the user name or password",
    "NOPERM": "the Redis user lacks a permission",
    "OOM": "Redis is out of memory and refuses writes",
    "NOREPLICAS": "Redis has too few replicas and refuses writes",
    "MISCONF": "Redis cannot save its data and refuses writes",
    "MOVED": _A_CLUSTER,
    "CROSSSLOT": _A_CLUSTER,
    "CLUSTERDOWN": "the Redis cluster is down",
}

REDIS_ERRORS = (redis_errors.RedisError, OSError, TimeoutError, asyncio.TimeoutError)


def explain(error: BaseException) -> str:
    """One sentence: the cause, then Redis' own words. Never a credential: Redis' answers hold none."""
    text = " ".join(str(error).split())
    for word, meaning in _PREFIXES.items():
        if text.startswith(word) or f" {word} " in f" {text} ":
            return f"{meaning} ({text})"
    for kind, meaning in _KINDS:
        if isinstance(error, kind):
            return f"{meaning} ({text})" if text else meaning
    return text or type(error).__name__


def is_access_error(error: BaseException) -> bool:
    """Whether other credentials might mend it."""
    if isinstance(error, redis_errors.AuthenticationError | redis_errors.NoPermissionError):
        return True
    return str(error).startswith(("NOAUTH", "WRONGPASS", "NOPERM"))


def is_refused(error: BaseException) -> bool:
    """Whether nobody listens there, or only until its data is loaded: a try that costs next to nothing."""
    if isinstance(error, redis_errors.BusyLoadingError | ConnectionRefusedError):
        return True
    cause = error.__cause__ or error.__context__
    return isinstance(error, redis_errors.ConnectionError | OSError) and cause is not None and is_refused(cause)


def is_site_wide(error: BaseException) -> bool:
    """Whether an answer to one write says that no write would succeed: then it is Redis' state, not the schedule's."""
    if isinstance(
        error,
        redis_errors.ReadOnlyError | redis_errors.BusyLoadingError | redis_errors.OutOfMemoryError,
    ):
        return True
    return is_access_error(error) or any(word in str(error) for word in _SITE_WIDE)


_SITE_WIDE = ("READONLY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "OOM command not allowed")
