"""The operator's process: its parts put together, its probes, its end within the grace period."""

import asyncio
import gc
import os
import signal
import time
from contextlib import suppress
from typing import Any
from uuid import uuid4

import structlog

from tickkeeper import __version__
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.controller import handlers, kube
from tickkeeper.controller.keeper import Keeper
from tickkeeper.controller.lease import Lease
from tickkeeper.controller.metrics import OperatorMetrics
from tickkeeper.controller.publish import Publisher
from tickkeeper.controller.references import References
from tickkeeper.controller.settings import OperatorSettings
from tickkeeper.controller.site import Site
from tickkeeper.controller.sites import Sites
from tickkeeper.controller.world import Options, World
from tickkeeper.controller.writer import Writer
from tickkeeper.telemetry.http import Health, TelemetryServer

_log = structlog.get_logger(__name__)

#: A loop that has not come round for so long is stuck: the kubelet should start the process again.
_STUCK_SECONDS = 60.0
#: Seconds after which what the start has made is there to stay.
_SETTLED_SECONDS = 60.0


async def run(settings: OperatorSettings) -> None:
    """Run the operator until SIGTERM or SIGINT. Raises what ended it otherwise."""
    stop = asyncio.Event()
    _stop_on_signals(stop)
    # kopf looks at the variable too, where it lists what it can log in with.
    if settings.kubeconfig is not None:
        os.environ["KUBECONFIG"] = settings.kubeconfig
    async with kube.connect(settings.kubeconfig) as api:
        main = asyncio.create_task(_serve(settings, api, stop), name="operator")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({main, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not main.done():
            await _end(main, settings.grace_seconds)
        stopping.cancel()
        if not main.done():
            # Something holds on beyond the grace period; waiting longer would only bring the kubelet's SIGKILL.
            _log.error("stop_forced", grace_seconds=settings.grace_seconds)
            os._exit(0)
        if not main.cancelled():
            main.result()  # a fault, if there was one


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _end(main: asyncio.Task[None], grace: float) -> None:
    _log.info("stopping", grace_seconds=grace)
    asyncio.get_running_loop().set_exception_handler(_at_the_end)
    main.cancel()
    with suppress(asyncio.CancelledError, TimeoutError):
        async with asyncio.timeout(grace):
            await asyncio.shield(asyncio.gather(main, return_exceptions=True))


def _at_the_end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if "asyncgen" in context:  # kopf's watch, left in the middle of an event: its clean-up fails (1.45.2)
        return
    loop.default_exception_handler(context)


async def _serve(settings: OperatorSettings, api: kube.Kube, stop: asyncio.Event) -> None:
    metrics = OperatorMetrics()
    lease = _lease(settings, api) if settings.leader_election else None
    leading = lease.leading if lease is not None else _always()
    may_write = lease.may_write if lease is not None else lambda: True
    api.may_write = may_write
    writer = Writer(api, identity=settings.identity, per_second=settings.status_writes_per_second)
    keeper: Keeper

    def make_site(redis: RedisSettings) -> Site:
        return Site(
            redis,
            report=keeper.report,
            sweep_seconds=settings.sweep_seconds,
            max_len_events=settings.max_len_events,
            may_write=may_write,
            timed=metrics.timed,
            bounds=settings.bounds(),
        )

    world = World(
        options=Options(
            cluster=settings.cluster_id or await _cluster_id(api),
            namespaces=settings.namespaces,
            template_opts=settings.retention().opts(),
            allow=settings.allow(),
            deletion_grace_seconds=settings.deletion_grace_seconds,
        ),
        kube=api,
        references=References(api, settings.redis(), fresh=settings.secret_refresh_seconds),
        publisher=Publisher(writer),
        sites=Sites(make_site),
    )
    keeper = Keeper(world)
    metrics.watch(world, writer, leading)
    server = TelemetryServer(
        settings.http_host,
        settings.http_port,
        live=lambda: _live(keeper, world),
        ready=lambda: _ready(keeper),
        registry=metrics.registry,
    )
    await server.start()
    _log.info(
        "operator_started",
        version=__version__,
        cluster=world.options.cluster,
        namespaces=settings.namespaces or "all",
        http=f"{server.address[0]}:{server.address[1]}",
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(keeper.run(leading), name="keeper")
            if lease is not None:
                group.create_task(lease.run(), name="lease")
            group.create_task(writer.run(), name="writer")
            group.create_task(_watch(keeper, api, settings, stop), name="watch")
            group.create_task(_spare_the_collector(keeper), name="memory")
    finally:
        # Last: nothing of ours writes any more once the lease is another's.
        if lease is not None:
            await lease.release()
        await server.stop()


async def _spare_the_collector(keeper: Keeper) -> None:
    """Take what lives as long as the process out of the garbage collector's sight: going through all of it holds up
    a heal by about a tenth of a second."""
    await keeper.synced.wait()
    for pause in (0.0, _SETTLED_SECONDS):
        await asyncio.sleep(pause)
        gc.collect()
        gc.freeze()


def _lease(settings: OperatorSettings, api: kube.Kube) -> Lease:
    return Lease(
        api.leases,
        namespace=settings.namespace_of_lease,
        name=settings.lease_name,
        # A replica that was killed and started again is another one: its old lease must run out.
        identity=f"{settings.identity}_{uuid4().hex[:8]}",
    )


def _always() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _watch(keeper: Keeper, api: kube.Kube, settings: OperatorSettings, stop: asyncio.Event) -> None:
    # For named namespaces kopf looks for the CRD once, at its start. Otherwise it looks again at each change of a CRD,
    # but discovery may name what that serves only after the last of them (seen): by then kopf would watch nothing.
    await keeper.synced.wait()
    await kube.until_answered(api.discover)
    ready = asyncio.Event()
    watching = asyncio.create_task(
        handlers.watch(keeper, kubeconfig=settings.kubeconfig, namespaces=settings.namespaces, ready=ready),
        name="kopf",
    )
    started = asyncio.create_task(ready.wait(), name="kopf ready")
    try:
        await asyncio.wait({started, watching}, return_when=asyncio.FIRST_COMPLETED)
        # kopf has put its own handlers of signals in place of ours, and would end only itself.
        _stop_on_signals(stop)
        await watching
    finally:
        started.cancel()
        watching.cancel()
    # It ends without a fault only on a signal that came before ours were back.
    stop.set()


async def _cluster_id(api: kube.Kube) -> str:
    """The uid of kube-system: it lives as long as the cluster does. TICKKEEPER_CLUSTER_ID spares the question."""
    return await kube.until_answered(lambda: api.namespace_uid("kube-system"))


def _live(keeper: Keeper, world: World) -> Health:
    """Alive: the loops come round. Never whether Redis is there: a restart would not bring it back."""
    now = time.monotonic()
    stuck = [site.name for site in world.sites if now - site.last_beat > _STUCK_SECONDS]
    if keeper.synced.is_set() and now - keeper.last_beat > _STUCK_SECONDS:
        stuck.append("keeper")
    return Health(ok=not stuck, detail={"stuck": ", ".join(stuck)} if stuck else {})


def _ready(keeper: Keeper) -> Health:
    ready = keeper.synced.is_set()
    return Health(ok=ready, detail={} if ready else {"waiting": "the list of TickSchedules"})
