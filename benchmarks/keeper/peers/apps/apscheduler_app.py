"""APScheduler with its Redis job store: one process that schedules and runs."""

# mypy: ignore-errors
# Its packages are in an environment of its own.

import os
import time
from pathlib import Path
from urllib.parse import urlparse

from apscheduler.schedulers.blocking import BlockingScheduler


def tick() -> None:
    """One firing."""
    with Path(os.environ["PEER_TICKS"]).open("a") as ticks:
        ticks.write(f"{time.time()}\n")


if __name__ == "__main__":
    where = urlparse(os.environ["PEER_REDIS"])
    scheduler = BlockingScheduler()
    scheduler.add_jobstore("redis", host=where.hostname, port=where.port)
    # By reference, as the job store wants it: this file is run, not imported.
    scheduler.add_job("apscheduler_app:tick", "interval", seconds=1, id="tick", replace_existing=True)
    scheduler.start()
