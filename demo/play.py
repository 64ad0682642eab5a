"""The demo from its parts to its last line."""

import signal
import traceback
from contextlib import ExitStack, suppress

from demo.keep import how_to_use
from demo.parts import Parts
from demo.scenes import SCENES
from demo.signals import Interrupted
from demo.stage import SceneFailed, Stage
from demo.timeline import Timeline, make_timeline, say, wrap
from demo.watch import Watch
from embedded.errors import MissingPart, PartFailed


def play(*, keep: bool, current_cluster: bool) -> int:
    """Everything, and its end; the exit code. What is started is ended, whatever is raised."""
    timeline = make_timeline()
    with ExitStack() as ending:
        parts = Parts(current_cluster=current_cluster)
        ending.callback(parts.close)
        ending.callback(timeline.close)
        code = _play(parts, timeline)
        if keep and parts.programs:
            say(how_to_use(parts, went_well=code == 0))
            with suppress(Interrupted):
                signal.pause()
    if code == 0:
        say("demo: ok")  # last, so that it speaks for the end of the parts too
    return code


def _play(parts: Parts, timeline: Timeline) -> int:
    try:
        _start(parts, timeline)
        with ExitStack() as ending:
            _play_scenes(parts, timeline, ending)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is told with the logs beside it
        timeline.close()
        _tell_failure(timeline.now, error, parts)
        return 1
    timeline.close()
    return 0


def _start(parts: Parts, timeline: Timeline) -> None:
    timeline.doing("", "getting the parts (minutes, the first time)")
    parts.prepare()
    timeline.doing("", "starting Redis, PostgreSQL and the Kubernetes API")
    parts.start_servers()
    timeline.title("TickKeeper on " + ", ".join(parts.versions))
    timeline.line("", "servers, all on 127.0.0.1", "they answer; CRD, RBAC and the outbox's schema are in place")
    timeline.doing("", "starting the operator and a worker")
    parts.start_programs()
    seen = "both ready; the operator has the rights of deploy/rbac.yaml"
    timeline.line("", "tickkeeper operator, tickkeeper worker", seen)


def _play_scenes(parts: Parts, timeline: Timeline, ending: ExitStack) -> None:
    watch = Watch(parts.watching_client)
    watch.start()
    ending.callback(watch.close)
    timeline.follow(watch)
    stage = Stage(parts, watch, ending.enter_context(parts.redis.client()))
    for scene in SCENES:
        timeline.doing(scene.label, scene.done)
        seen = scene.play(stage)
        timeline.line(scene.label, scene.done, seen.text, seen.back, seen.tick)
    timeline.doing("", "the sums")
    timeline.line("", "all in all", _summary(stage))


def _summary(stage: Stage) -> str:
    database = stage.parts.database
    ids = sorted(database.enqueued)
    delivered = database.delivered(ids).rows
    stage.check(delivered == len(ids), f"{len(ids) - delivered} rows were not delivered")
    ticks = tuple(stage.watch.ticks)
    failed = [tick for tick in ticks if tick.failed]
    told = f", {len(failed)} failed: {failed[-1].failed}" if failed else ""
    twice = database.delivered_twice()
    return f"{len(ticks)} ticks{told}; {len(ids)} rows enqueued, all delivered, {twice} of them twice"


def _tell_failure(where: str, error: Exception, parts: Parts) -> None:
    if not isinstance(error, MissingPart | PartFailed | SceneFailed):
        traceback.print_exception(error)
    for program in parts.programs:
        say(f"the last lines of tickkeeper {program.name}:\n{wrap(program.last_lines())}")
    doing = where.partition(" (")[0]  # what it was doing, without its explanation
    say(f"demo: failed at {doing}: {error}")
