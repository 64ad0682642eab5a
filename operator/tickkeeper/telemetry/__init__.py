"""What a process says of itself: logs without credentials, metrics, probes."""
