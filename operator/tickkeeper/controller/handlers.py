"""kopf watches; what it sees goes into the keeper's table. Nothing here has an effect of its own.

Handlers of ``on.event`` are never retried and need no annotation on the resources: 10,000 resources are known after
7 s, where create, update and resume handlers took 73 s and one write each (measured).
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import Any

import kopf

from tickkeeper.api.resource import GROUP, PLURAL, VERSION
from tickkeeper.controller.keeper import Keeper


class _NoDiffBase(kopf.DiffBaseStorage):
    """No last-handled configuration: nobody asks what changed since."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """No progress of handlers: those of events are never tried again."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class _Endless:
    """Seconds between the tries of one request, without end.

    kopf's own list ends after 54 s, and kopf with it, and so the process: a balancer without backends answers 503 for
    as long as the control plane is upgraded, and an operator that has ended heals nothing meanwhile.
    """

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 1.0, 2.0, 3.0), repeat(5.0))


def registry_for(keeper: Keeper, kubeconfig: str | None) -> kopf.OperatorRegistry:
    """kopf's handlers, bound to one keeper."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if kubeconfig is not None:
            return kopf.login_with_kubeconfig(**kwargs)
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(type: str | None, body: Mapping[str, Any], **_: Any) -> None:  # noqa: A002 - kopf's name
        keeper.observe(dict(body), deleted=type == "DELETED")

    return registry


def settings(namespaces: tuple[str, ...] = ()) -> kopf.OperatorSettings:
    """kopf's settings; each that is not its default has its reason."""
    own = kopf.OperatorSettings()
    own.persistence.finalizer = f"{GROUP}/unused"  # never set: no handler of ours needs one
    # on.event needs neither; making the last-handled configuration of each event was 9 % of the CPU after a start.
    own.persistence.progress_storage = _NoProgress()
    own.persistence.diffbase_storage = _NoDiffBase()
    # A resource's task and queue of events end this long after its event. With the default of 1 s, those of ten
    # thousand resources listed at once all live at once.
    own.queueing.idle_timeout = 0.05
    own.watching.server_timeout = 600  # the server ends a watch after ten minutes, so that none is forgotten
    own.watching.client_timeout = 660  # and we do when it does not
    # A connection that stays open and brings nothing is given up: bookmarks come about once a minute.
    own.watching.inactivity_timeout = 70
    own.watching.connect_timeout = 10
    own.watching.chunk_size = 100  # of a list: its bodies are held, as text and parsed, until each is handled
    own.watching.reconnect_backoff = 1  # the default of 0.1 s is a storm against a server that is starting
    own.networking.request_timeout = 30
    own.networking.connect_timeout = 10
    own.networking.error_backoffs = _Endless()
    own.posting.enabled = False  # events are the keeper's: on transitions only
    # Cluster-wide it scans, since the CRD may be installed after the operator. For named namespaces it would list all
    # of them, which a Role does not allow.
    own.scanning.disabled = bool(namespaces)
    return own


async def watch(keeper: Keeper, *, kubeconfig: str | None, namespaces: tuple[str, ...], ready: asyncio.Event) -> None:
    """Watch until cancelled; set ``ready`` once kopf has started (and taken the signals to itself)."""
    # One line for each event of the watch says nothing: what follows from it is logged by the keeper.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    await kopf.operator(
        registry=registry_for(keeper, kubeconfig),
        settings=settings(namespaces),
        namespaces=namespaces,
        clusterwide=not namespaces,
        standalone=True,
        ready_flag=ready,
    )
