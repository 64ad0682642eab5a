"""How fast the outbox is drained, how late its ticks are, what a worker needs: ``python -m benchmarks.outbox``."""
