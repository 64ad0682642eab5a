"""A bare kopf handler that keeps a table of what it is told, and says so once the table is complete.

``bare_watch.py KUBECONFIG COUNT`` prints one line of JSON, then waits for the end of its standard input.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import kopf


async def main(kubeconfig: str, count: int) -> None:
    """Watch until ``count`` resources are known."""
    os.environ["KUBECONFIG"] = kubeconfig
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    table: dict[tuple[str | None, str], Mapping[str, Any]] = {}
    complete = asyncio.Event()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event("tickkeeper.dev", "v1alpha1", "tickschedules", registry=registry)
    async def changed(namespace: str | None, name: str, body: Mapping[str, Any], **_: Any) -> None:
        table[namespace, name] = dict(body)
        if len(table) >= count:
            complete.set()

    operator = asyncio.create_task(kopf.operator(registry=registry, settings=settings, clusterwide=True))
    await complete.wait()
    print(json.dumps({"known": len(table)}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    operator.cancel()
    os._exit(0)  # without kopf's own long good-bye


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
