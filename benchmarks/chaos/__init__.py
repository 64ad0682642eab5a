"""Harm to workers and PostgreSQL for minutes on end, then an account of every row: ``python -m benchmarks.chaos``."""
