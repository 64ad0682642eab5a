"""The table's rows. Those that need the same schedules share a scene, since setting one up takes minutes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.keeper.result import Row
from benchmarks.keeper.rows import held, hundred, peers, ten_thousand, thousand, ticking
from benchmarks.keeper.sizes import Sizes

Play = Callable[[Sizes, frozenset[str]], Iterator[Row]]


@dataclass(frozen=True, slots=True)
class Scene:
    """Rows that are measured one after another on the same servers."""

    rows: tuple[str, ...]
    play: Play


SCENES = (
    Scene(held.ROWS, held.play),
    Scene(hundred.ROWS, hundred.play),
    Scene(thousand.ROWS, thousand.play),
    Scene(ticking.ROWS, ticking.play),
    Scene(ten_thousand.ROWS, ten_thousand.play),
    Scene(peers.ROWS, peers.play),
)

NAMES = tuple(name for scene in SCENES for name in scene.rows)
