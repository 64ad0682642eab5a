"""A worker of one process: notes each row that it starts, then handles it; one kind of payload kills the process.

Arguments: the file to note rows in. The dsn comes by DSN. Ends with 0 once the outbox is empty.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta

from tickkeeper.outbox import PostgresOutbox

LEASE = timedelta(seconds=1)


async def main() -> None:
    notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
    async with PostgresOutbox(os.environ["DSN"]) as store:
        while await store.kinds("acme"):
            taken = await store.claim("acme", kinds=None, limit=500, lease=LEASE)
            for row in taken.rows:
                os.write(notes, f"{row.id}\n".encode())
                if row.payload == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
            await store.ack(taken.lease_id, [row.id for row in taken.rows])
            if not taken.rows:
                await asyncio.sleep(0.05)


asyncio.run(main())
