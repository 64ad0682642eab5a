"""How quickly schedules are healed, and what keeping ten thousand of them costs: ``python -m benchmarks.keeper``."""
