"""What the doctor knows of a database: gathered here, judged in ``doctor``."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tickkeeper.outbox.looking import Look, OutboxLooks
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.sampler import OutboxSampler, Sample
from tickkeeper.outbox.store import SchemaError
from tickkeeper.outbox.values import Pause
from tickkeeper.outbox.version import code_version, misfit

T = TypeVar("T")

#: Seconds for each statement.
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Server:
    """The server and what it gives our role's sessions; times in seconds, 0: none."""

    version_number: int
    version: str
    encoding: str
    in_recovery: bool
    user: str
    backend_pid: int
    isolation: str
    read_only: bool
    replication_role: str
    autovacuum: bool
    track_counts: bool
    statement_timeout: float
    lock_timeout: float


@dataclass(frozen=True, slots=True)
class Index:
    """An index of the schema."""

    name: str
    table: str
    usable: bool
    columns: tuple[str, ...]
    predicate: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table of rows; ``vacuumed``: seconds since, None for never or unknown."""

    name: str
    options: tuple[str, ...]
    live: int
    dead: int
    updates: int
    hot_updates: int
    vacuumed: float | None


@dataclass(frozen=True, slots=True)
class Grant:
    """A right on an object of the schema, and whether our role has it. ``on``: SCHEMA, TABLE or FUNCTION."""

    on: str
    name: str
    privilege: str
    given: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known. None, or empty: could not be asked, and ``unasked`` says why."""

    schema: str
    server: Server
    #: the session that answered is not the one that was opened: a pooler stands between
    pooled: bool
    #: what of the connection string a pooler, or a fail-over, does not get along with
    options: tuple[str, ...]
    schema_exists: bool
    version: tuple[int, int | None] | None
    indexes: tuple[Index, ...] = ()
    triggers: tuple[tuple[str, bool], ...] = ()
    tables: tuple[Table, ...] = ()
    grants: tuple[Grant, ...] = ()
    #: keys that wait for a dead row, a tenant and a row of them
    blocks: tuple[int, str | None, int | None] = (0, None, None)
    pauses: tuple[Pause, ...] = ()
    sample: Sample | None = None
    unasked: dict[str, str] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether the schema is there and of a version that this code works with."""
        return self.version is not None and misfit(self.schema, *self.version) is None

    @property
    def current(self) -> bool:
        """Whether it is the code's own version."""
        return self.version is not None and self.version[0] == code_version()


async def gather(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> Facts:
    """Ask the database. Raises ValueError (the dsn, the schema's name) and StoreUnavailable (no answer at all)."""
    async with OutboxLooks(dsn, schema=schema, patience=60.0) as looks:
        facts = await looks.run(lambda look: _Gathering(look, dsn, schema).run(), seconds=_PATIENCE, checked=False)
    if not facts.fits:
        return facts
    async with OutboxSampler(dsn, schema=schema) as sampler:
        try:
            sample = await sampler.sample(alone=False)
        except (SchemaError, psycopg.Error) as error:
            return replace(facts, unasked={**facts.unasked, "rows": _said(error)})
    return replace(facts, sample=sample)


class _Gathering:
    """One transaction of questions; what fails is noted and left out."""

    def __init__(self, look: Look, dsn: str, schema: str) -> None:
        self._look = look
        self._dsn = dsn
        self._schema = schema
        self._unasked: dict[str, str] = {}

    async def run(self) -> Facts:
        server = Server(*await self._look.one("doctor_server"))
        exists, versioned = await self._look.one("doctor_schema", schema=self._schema)
        facts = Facts(
            schema=self._schema,
            server=server,
            pooled=server.backend_pid != self._look.backend_pid,
            options=_hostile(self._dsn),
            schema_exists=exists,
            version=None,
            unasked=self._unasked,
        )
        if not versioned:
            return facts
        found = await self._asked("schema_version", lambda each: (int(each[0]), each[1]))
        named = {"schema": self._schema}
        blocks = await self._asked("doctor_blocks", tuple)
        return replace(
            facts,
            version=found[0] if found else None,
            indexes=await self._asked(
                "doctor_indexes", lambda each: Index(each[0], each[1], each[2], tuple(each[3]), each[4]), **named
            ),
            triggers=await self._asked("doctor_triggers", lambda each: (each[0], each[1]), **named),
            tables=await self._asked("doctor_tables", lambda each: Table(each[0], tuple(each[1]), *each[2:]), **named),
            grants=await self._asked("doctor_grants", lambda each: Grant(*each), **named),
            blocks=blocks[0] if blocks else (0, None, None),
            pauses=await self._asked("paused", lambda each: Pause(*each)),
        )

    async def _asked(self, query: str, shape: Callable[[Any], T], **values: Any) -> tuple[T, ...]:
        try:
            async with self._look.apart():
                return tuple([shape(record) for record in await self._look.all(query, **values)])
        except psycopg.Error as error:
            self._unasked[query] = _said(error)
            return ()


def _said(error: Exception) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or type(error).__name__).split())


def _hostile(dsn: str) -> tuple[str, ...]:
    """Names of the connection string's parts that do harm; never their values."""
    parts = conninfo_to_dict(dsn)
    found = []
    if parts.get("options"):
        found.append("options")
    if parts.get("target_session_attrs") in ("read-only", "standby", "prefer-standby"):
        found.append("target_session_attrs")
    return tuple(found)
