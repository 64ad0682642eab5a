"""The seam to the sampler of gauges: how long its samples take."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

from embedded.errors import PartFailed


def samples(dsn: str, count: int) -> list[tuple[float, dict[str, Any]]]:
    """Take ``count``; for each the milliseconds that its caller waits, and what it says. The first one is not counted:
    it connects. Raises PartFailed where this installation has no sampler."""
    try:
        from tickkeeper.outbox.sampler import OutboxSampler
    except ImportError as error:
        raise PartFailed(f"no sampler to measure: {error}") from None

    async def take() -> list[tuple[float, dict[str, Any]]]:
        taken = []
        async with OutboxSampler(dsn) as sampler:
            for _ in range(count + 1):
                started = time.perf_counter()
                sample = await sampler.sample(alone=False)
                waited = (time.perf_counter() - started) * 1000
                if sample is None:
                    raise PartFailed("the sampler gave no sample")
                taken.append((waited, asdict(sample)))
        return taken[1:]

    return asyncio.run(take())
