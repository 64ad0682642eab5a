"""Random faults for minutes on end, and whether every schedule still ticks afterwards: ``python -m benchmarks.soak``."""
