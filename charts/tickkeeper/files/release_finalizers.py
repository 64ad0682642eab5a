# ruff: noqa: INP001 - run as a script
"""Takes the operator's finalizer off the TickSchedules that remain after an uninstall: nobody else would."""

import asyncio
import os
import time
from typing import Any

from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

FINALIZER = "tickkeeper.dev/scheduler"
RESOURCE: dict[str, Any] = {"group": "tickkeeper.dev", "version": "v1alpha1", "plural": "tickschedules"}
NAMESPACES = [name for name in os.environ.get("NAMESPACES", "").split(",") if name]
# Operators that are still stopping may set it again: look until nothing has been left for so many seconds.
QUIET_SECONDS = float(os.environ.get("QUIET_SECONDS", "3"))


async def held(api: client.CustomObjectsApi) -> list[dict[str, Any]]:
    """The TickSchedules that still have the finalizer; none where the CRD is gone."""
    pages: list[dict[str, Any]] = []
    try:
        for namespace in NAMESPACES or [""]:
            more: dict[str, Any] | None = {}
            while more is not None:
                where = RESOURCE | {"limit": 500} | more
                page: Any
                if namespace:
                    page = await api.list_namespaced_custom_object(**where, namespace=namespace)
                else:
                    page = await api.list_cluster_custom_object(**where)
                pages += page["items"]
                token = page["metadata"].get("continue")
                more = {"_continue": token} if token else None
    except ApiException as error:
        if error.status == 404:
            return []
        raise
    return [item for item in pages if FINALIZER in item["metadata"].get("finalizers", [])]


async def release(api: client.CustomObjectsApi, item: dict[str, Any]) -> None:
    """Take it off this very version; a newer one is met in the next round."""
    meta = item["metadata"]
    rest = [name for name in meta["finalizers"] if name != FINALIZER]
    try:
        await api.patch_namespaced_custom_object(
            **RESOURCE,
            namespace=meta["namespace"],
            name=meta["name"],
            body={"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": rest}},
            _content_type="application/merge-patch+json",
        )
        print(f"released {meta['namespace']}/{meta['name']}", flush=True)
    except ApiException as error:
        if error.status not in (404, 409):
            raise


async def main() -> None:
    config.load_incluster_config()  # type: ignore[no-untyped-call]
    async with client.ApiClient() as connection:
        api = client.CustomObjectsApi(connection)
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_SECONDS:
            if found := await held(api):
                quiet_since = time.monotonic()
                for start in range(0, len(found), 20):
                    await asyncio.gather(*(release(api, item) for item in found[start : start + 20]))
            else:
                await asyncio.sleep(0.5)


asyncio.run(main())
