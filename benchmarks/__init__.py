"""Measurements that the project holds itself to; see docs/benchmarks.md. Nothing here is in the distribution."""
