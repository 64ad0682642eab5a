"""celery-redbeat: a beat that keeps its schedule in Redis, and a worker.

``celery -A celery_redbeat_app beat --scheduler redbeat.RedBeatScheduler`` and ``celery -A celery_redbeat_app worker``.
"""

# mypy: ignore-errors
# Its packages are in an environment of its own.

import os
import time
from pathlib import Path

from celery import Celery

app = Celery("peer", broker=os.environ["PEER_REDIS"])
app.conf.redbeat_redis_url = os.environ["PEER_REDIS"]
app.conf.task_ignore_result = True
app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": 1.0}}


@app.task(name="tick")
def tick() -> None:
    """One firing."""
    with Path(os.environ["PEER_TICKS"]).open("a") as ticks:
        ticks.write(f"{time.time()}\n")
