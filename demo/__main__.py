"""``python -m demo``. KEEP=1 leaves everything running until Ctrl-C; CLUSTER=current uses kubectl's cluster."""

import os
import signal
import sys
import traceback
from contextlib import ExitStack
from types import FrameType

from demo.keep import how_to_use
from demo.parts import Parts
from demo.scenes import SCENES
from demo.stage import SceneFailed, Stage
from demo.timeline import Timeline, make_timeline, say, wrap
from demo.watch import Watch
from embedded.errors import MissingPart, PartFailed

_OFF = ("", "0", "no", "false")


class Interrupted(BaseException):
    """A signal asks for the end; the exit code tells which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def main() -> int:
    """Play it all. 0: ``demo: ok``; 1: what went wrong was told; 2: unusable settings; 128 + n: signal n."""
    keep = os.environ.get("KEEP", "").lower() not in _OFF
    cluster = os.environ.get("CLUSTER", "")
    if cluster not in ("", "current"):
        print(f"demo: CLUSTER={cluster}: must be current, or unset for the embedded API server", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with ExitStack() as ending:
        timeline = make_timeline()
        try:
            try:
                code = _play(timeline, ending, keep=keep, current_cluster=cluster == "current")
            finally:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # the end is bounded in time, and must be whole
                timeline.close()
        except Interrupted as interrupted:
            say("demo: interrupted; ending what was started")
            return interrupted.exit_code
    return code


def _play(timeline: Timeline, ending: ExitStack, *, keep: bool, current_cluster: bool) -> int:
    parts = Parts(current_cluster=current_cluster)
    ending.callback(parts.close)
    now = "the parts"
    try:
        timeline.doing("", "getting the parts; the first time this may take minutes")
        parts.prepare()
        timeline.doing("", "starting Redis, PostgreSQL and the Kubernetes API")
        parts.start_servers()
        timeline.title("TickKeeper on " + ", ".join(parts.versions))
        timeline.line("", "three servers, on 127.0.0.1 only", "they answer; CRD, RBAC and the outbox's schema applied")
        timeline.doing("", "starting the operator and a worker")
        parts.start_programs()
        account = "the operator as the account of deploy/rbac.yaml"
        timeline.line("", "tickkeeper operator, tickkeeper worker", f"both ready; {account}")
        stage = _stage(parts, timeline, ending)
        for scene in SCENES:
            now = f"{scene.label} {scene.done}".strip()
            timeline.doing(scene.label, scene.done)
            seen = scene.play(stage)
            timeline.line(scene.label, scene.done, seen.text, seen.healed, seen.tick)
        now = "the end"
        timeline.line("", "all in all", _summary(stage))
    except Exception as error:  # noqa: BLE001 - whatever it was, it is told with the logs beside it
        timeline.close()
        _tell_failure(now, error, parts)
        code = 1
    else:
        timeline.close()
        say("demo: ok")
        code = 0
    if keep and parts.programs:
        say(how_to_use(parts, schedules_again=code == 0))
        signal.pause()
    return code


def _stage(parts: Parts, timeline: Timeline, ending: ExitStack) -> Stage:
    watch = Watch(parts.watching_client)
    watch.start()
    ending.callback(watch.close)
    timeline.follow(watch)
    return Stage(parts, watch, ending.enter_context(parts.redis.client()))


def _summary(stage: Stage) -> str:
    database = stage.parts.database
    ids = sorted(database.enqueued)
    delivered = database.delivered(ids).rows
    stage.check(delivered == len(ids), f"{len(ids) - delivered} rows were not delivered")
    ticks = tuple(stage.watch.ticks)
    failed = [tick for tick in ticks if tick.failed]
    told = f", {len(failed)} failed: {failed[-1].failed}" if failed else ""
    return (
        f"{len(ticks)} ticks{told}; {len(ids)} rows enqueued, all delivered, {database.delivered_twice()} of them twice"
    )


def _tell_failure(where: str, error: Exception, parts: Parts) -> None:
    if not isinstance(error, MissingPart | PartFailed | SceneFailed):
        traceback.print_exception(error)
    for program in parts.programs:
        say(f"the last lines of tickkeeper {program.name}:\n{wrap(program.last_lines())}")
    say(f"demo: failed at {where}: {error}")


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


if __name__ == "__main__":
    sys.exit(main())
