"""What the variables ROWS, RUNS and QUICK ask for, the same for each benchmark."""

from collections.abc import Mapping, Sequence


def rows_asked(names: str, known: Sequence[str]) -> list[str]:
    """The rows that ROWS names, in their own order; all of them where it is empty. Raises ValueError for others."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    if unknown := wanted - set(known):
        raise ValueError(f"ROWS={names}: {', '.join(sorted(unknown))} is none of {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


def runs_asked(environment: Mapping[str, str]) -> int | None:
    """RUNS, None where it is empty. Raises ValueError with the value and the rule."""
    runs = environment.get("RUNS")
    if not runs:
        return None
    if not runs.isdecimal() or int(runs) < 1:
        raise ValueError(f"RUNS={runs}: a whole number of at least 1")
    return int(runs)


def is_quick(environment: Mapping[str, str]) -> bool:
    """Whether QUICK asks for tiny sizes."""
    return environment.get("QUICK", "") not in ("", "0")
