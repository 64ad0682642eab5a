"""The account: what became of every row that was enqueued."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.chaos.site import Site

_HEAD = ("tenant", "kind", "enqueued", "delivered", "dead", "left", "lost", "again", "out of order")


@dataclass(frozen=True, slots=True)
class Enqueued:
    """One row that its producer committed."""

    id: int
    tenant: str
    kind: str
    key: str | None
    #: it asks to be given up
    dies: bool = False

    @property
    def once(self) -> bool:
        """Whether its effect may happen once only: it is in the same database."""
        return self.kind.startswith("effect.")


@dataclass(slots=True)
class Line:
    """Of one tenant and kind. ``again``: deliveries beyond the first, and effects of rows that are dead or left."""

    tenant: str
    kind: str
    enqueued: int = 0
    delivered: int = 0
    dead: int = 0
    left: int = 0
    lost: int = 0
    again: int = 0
    swapped: int = 0
    #: dead although it did not ask for it, or delivered although it did
    unasked: int = 0

    @property
    def cells(self) -> tuple[str, ...]:
        """For the table."""
        counts = (self.enqueued, self.delivered, self.dead, self.left, self.lost, self.again, self.swapped)
        return (self.tenant, self.kind, *map(str, counts))


@dataclass(slots=True)
class Account:
    """``faults``: what must not be, in words."""

    lines: list[Line] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def table(self) -> str:
        """One line for each tenant and kind."""
        rows: list[Sequence[str]] = [_HEAD, *(line.cells for line in self.lines)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def account(
    enqueued: Iterable[Enqueued],
    *,
    effects: Sequence[int],
    accepted: Sequence[int],
    dead: Iterable[int],
    left: Iterable[int],
) -> Account:
    """Draw it up. ``effects`` and ``accepted`` (by the receiver) are ids of rows in the order in which they came.

    Delivery by HTTP is at least once: a row may come again, but the first arrivals of a key must be in order. An effect
    in the same database must be there once, or not at all where its row is dead.
    """
    buried, waiting = frozenset(dead), frozenset(left)
    calls = {True: Counter(effects), False: Counter(accepted)}
    lines: dict[tuple[str, str], Line] = {}
    by_id: dict[int, Enqueued] = {}
    done = Account()
    for row in enqueued:
        by_id[row.id] = row
        line = lines.setdefault((row.tenant, row.kind), Line(row.tenant, row.kind))
        times, gone = calls[row.once][row.id], row.id in buried or row.id in waiting
        line.enqueued += 1
        line.delivered += times > 0
        line.dead += row.id in buried
        line.left += row.id in waiting
        line.lost += times == 0 and not gone
        line.unasked += row.dies != (row.id in buried) and row.id not in waiting
        line.again += max(0, times - (0 if row.once and gone else 1))
    for once, ids in ((True, effects), (False, accepted)):
        for (tenant, kind), swapped in _out_of_order(ids, by_id, once=once).items():
            lines[tenant, kind].swapped += swapped
    done.lines = [lines[name] for name in sorted(lines)]
    for line in done.lines:
        done.faults += _faults(line)
    if strange := (set(effects) | set(accepted)) - by_id.keys():
        done.faults.append(f"{len(strange)} rows were delivered that nobody enqueued: {sorted(strange)[:5]}")
    return done


def _out_of_order(ids: Sequence[int], by_id: Mapping[int, Enqueued], *, once: bool) -> Counter[tuple[str, str]]:
    """First deliveries after that of a later row of their key, by tenant and kind. Ids are drawn in a key's order."""
    highest: dict[tuple[str, str], int] = defaultdict(int)
    seen: set[int] = set()
    swapped: Counter[tuple[str, str]] = Counter()
    for row_id in ids:
        row = by_id.get(row_id)
        if row is None or row.key is None or row_id in seen or row.once != once:
            continue
        seen.add(row_id)
        if row_id < highest[row.tenant, row.key]:
            swapped[row.tenant, row.kind] += 1
        highest[row.tenant, row.key] = max(highest[row.tenant, row.key], row_id)
    return swapped


def _faults(line: Line) -> list[str]:
    where = f"{line.tenant} {line.kind}"
    found = []
    if line.lost:
        found.append(f"{where}: {line.lost} rows are neither delivered nor dead")
    if line.unasked:
        found.append(f"{where}: {line.unasked} rows are dead that did not ask for it, or are not that did")
    if line.left:
        found.append(f"{where}: {line.left} rows were still there in the end")
    if line.swapped:
        found.append(f"{where}: {line.swapped} rows came after a later one of their key")
    if line.again and line.kind.startswith("effect."):
        found.append(f"{where}: {line.again} effects too many")
    return found


def of(site: Site) -> Account:
    """Read what there is, and draw it up."""
    with site.admin() as connection:
        enqueued = connection.execute(
            "SELECT row_id, tenant_id, kind, key, dies FROM enqueued ORDER BY row_id"
        ).fetchall()
        effects = connection.execute("SELECT row_id FROM effects ORDER BY place").fetchall()
        dead = connection.execute("SELECT id FROM tickkeeper.outbox_dead").fetchall()
        left = connection.execute("SELECT id FROM tickkeeper.outbox").fetchall()
    rows = [
        Enqueued(_int(id_), str(tenant), str(kind), None if key is None else str(key), bool(dies))
        for id_, tenant, kind, key, dies in enqueued
    ]
    return account(
        rows,
        effects=[_int(id_) for (id_,) in effects],
        accepted=list(site.receiver.accepted),
        dead=[_int(id_) for (id_,) in dead],
        left=[_int(id_) for (id_,) in left],
    )


def _int(value: object) -> int:
    return int(str(value))
