"""Random faults for minutes on end, and whether every schedule ticks in the end: ``python -m benchmarks.soak``."""
