"""The Python side's handler of mnemora's rows: its effect is the same line that mnemora's peer writes."""

import asyncio
import os
from pathlib import Path

from tickkeeper.worker import Row, handler


@handler("embed", "extract")
async def embed(row: Row) -> None:
    line = f"{os.environ['NAME']} {row.payload['memoryId']}\n".encode()
    descriptor = os.open(Path(os.environ["EFFECTS"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line)
    os.close(descriptor)
    await asyncio.sleep(float(os.environ["WORK_MS"]) / 1000)
