"""The operator as a process: its settings, its probes, its end."""

import json

from tests.integration.controller.conftest import Alone


def test_retention_and_cap_are_the_operators_settings(alone: Alone) -> None:
    scene = alone(
        RETENTION_COMPLETED_COUNT="7", RETENTION_FAILED_AGE_SECONDS="60", MAX_LEN_EVENTS="77", CLUSTER_ID="mine"
    )
    scene.create_ready()
    with scene.server.client() as raw:
        opts = json.loads(scene.record(raw)["opts"])
        assert opts["removeOnComplete"] == {"count": 7, "age": 86_400}
        assert opts["removeOnFail"] == {"count": 1000, "age": 60}
        assert raw.hget(scene.key("meta"), "opts.maxLenEvents") == "77"
        assert scene.stamp(raw)["cluster"] == "mine"
