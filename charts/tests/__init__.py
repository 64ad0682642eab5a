"""The chart: its rendering, what an API server says of it, its alerts and documents. ``make chart-lint``."""
