"""Registers one scheduler again and again until it is killed: ``python -m tests.integration.bullmq.registrar URL``."""

import asyncio
import sys

from tests.integration.bullmq.conftest import desired
from tickkeeper.bullmq.apply import Applier
from tickkeeper.bullmq.clients import RedisSettings, connect
from tickkeeper.schedules.desired import Every
from tickkeeper.schedules.plan import Plan, State, Step


async def main(url: str) -> None:
    client = connect(RedisSettings(url=url))
    applier = Applier(client, max_len_events=1000)
    while True:
        await applier.apply(desired(schedule=Every(200, 7)), Plan(State.MISSING, (Step.UPSERT,)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
