"""The table's rows, by name, in the order in which they are measured. Each has servers of its own."""

from collections.abc import Callable

from benchmarks.keeper.result import Row
from benchmarks.outbox.rows import drain, held, latency, lateness, memory, once, ordered, peers, sampler, two
from benchmarks.outbox.sizes import Sizes

PLAYS: dict[str, Callable[[Sizes], Row]] = {
    "drain": drain.play,
    "drain-peers": peers.play,
    "two-workers": two.play,
    "exactly-once-batch": once.play_batch,
    "exactly-once-single": once.play_single,
    "ordered": ordered.play,
    "latency": latency.play,
    "lateness": lateness.play,
    "held-snapshot": held.play,
    "sampler": sampler.play,
    "memory": memory.play,
}

NAMES = tuple(PLAYS)
