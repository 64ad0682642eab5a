"""End to end: the image and the chart on a real cluster (kind). `make e2e`, `make e2e LEVEL=full`."""
