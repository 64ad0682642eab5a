"""rq-scheduler: this registers the job; ``rqscheduler --interval 1`` enqueues it, and an rq worker runs it."""

# mypy: ignore-errors
# Its packages are in an environment of its own.

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from redis import Redis
from rq_scheduler import Scheduler


def tick() -> None:
    """One firing."""
    with Path(os.environ["PEER_TICKS"]).open("a") as ticks:
        ticks.write(f"{time.time()}\n")


if __name__ == "__main__":
    scheduler = Scheduler(connection=Redis.from_url(os.environ["PEER_REDIS"]))
    scheduler.schedule(
        scheduled_time=datetime.now(UTC), func="rq_scheduler_app.tick", interval=1, repeat=None, id="tick", result_ttl=5
    )
