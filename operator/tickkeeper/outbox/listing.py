"""Rows of an outbox, page by page, at any size of it."""

import base64
import binascii
import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from tickkeeper.outbox.looking import Look, OutboxLooks

State = Literal["ready", "leased", "scheduled", "behind", "dead"]

#: Rows of one page at most.
MAX_LISTED = 10_000
#: Rows that one statement examines.
_EXAMINED = 20_000
#: Seconds for it.
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Listed:
    """One row without its payload. ``due``: its own due time, None for a dead one; ``error``: its beginning."""

    id: int
    tenant_id: str
    kind: str
    state: State
    attempts: int
    max_attempts: int
    created_at: datetime
    due: datetime | None
    lease_until: datetime | None
    suspect: bool
    dedup_key: str | None
    ordering_key: str | None
    payload_bytes: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, and where the next page begins: None at the end. A page may be short, or empty, and not the last."""

    rows: tuple[Listed, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows: of a tenant, of a kind, in a state (None: living rows in any state)."""

    tenant_id: str | None = None
    kind: str | None = None
    state: State | None = None

    def __post_init__(self) -> None:
        """ValueError for a state that is none."""
        if self.state is not None and self.state not in get_args(State):
            raise ValueError(f"state is {self.state!r}: must be one of {', '.join(get_args(State))}")


async def page(looks: OutboxLooks, wanted: Filter, *, limit: int, cursor: str | None = None) -> Page:
    """The rows after ``cursor``, by tenant, kind, due time and id; dead ones by id.

    One statement over a bounded number of rows. ValueError: the limit, or a cursor of another listing; raises as
    ``OutboxStore`` does.
    """
    if not 1 <= limit <= MAX_LISTED:
        raise ValueError(f"limit is {limit}: must be 1 to {MAX_LISTED}")
    dead = wanted.state == "dead"
    values = {"tenant_id": wanted.tenant_id, "kind": wanted.kind, "limit": limit, "examined": _EXAMINED}
    last = _read(cursor, dead=dead)
    if dead:
        values |= {"last_id": last[0]}
    else:
        tenant, kind, due, last_id = last
        values |= {"state": wanted.state, "last_tenant": tenant, "last_kind": kind, "last_due": due, "last_id": last_id}

    async def look(look: Look) -> list[Any]:
        return await look.all("list_dead" if dead else "list_live", **values)

    rows, end = [], None
    for part, row_id, tenant, kind, state, due, *rest in await looks.run(look, seconds=_PATIENCE):
        if part:
            rows.append(Listed(row_id, tenant, kind, state, *rest))
        else:
            end = _written([row_id] if dead else [tenant, kind, due, row_id])
    return Page(tuple(rows), end)


def _written(place: list[Any]) -> str:
    # JSON has no infinity, and rows behind the first of their key have no other due time here.
    plain = [None if each == math.inf else each for each in place]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def _read(cursor: str | None, *, dead: bool) -> list[Any]:
    if cursor is None:
        return [None] * (1 if dead else 4)
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if dead:
            (row_id,) = place
            return [int(row_id)]
        tenant, kind, due, row_id = place
        return [str(tenant), str(kind), math.inf if due is None else float(due), int(row_id)]
    except (ValueError, TypeError, binascii.Error):
        raise ValueError(f"cursor is {cursor[:40]!r}: must be one that this listing gave") from None
