"""``python -m demo``: a schedule on real parts, taken away in each of the ways that happen, and back by itself."""
