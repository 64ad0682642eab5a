"""What a test of the operator does and sees: TickSchedules of one namespace, schedulers of one prefix."""

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import redis as redis_py
from bullmq import Queue
from kubernetes import client

from embedded.kubernetes import KubeApi
from embedded.redis import Redis as RedisServer
from tests.integration.controller.operator_process import Operator
from tickkeeper.api.resource import API_VERSION, FINALIZER, GROUP, KIND, PLURAL, VERSION
from tickkeeper.bullmq.clients import RedisSettings, connect

HOUR = 3_600_000


class Event(NamedTuple):
    """A Kubernetes event."""

    name: str
    type: str
    reason: str
    message: str


class Cluster:
    """An API server that serves TickSchedules, as its admin sees it."""

    def __init__(self, server: KubeApi, api: client.ApiClient) -> None:
        self.server = server
        self.schedules = client.CustomObjectsApi(api)
        self.core = client.CoreV1Api(api)

    def new_namespace(self) -> str:
        return str(self.core.create_namespace({"metadata": {"generateName": "tick-"}}).metadata.name)

    def clear(self, namespace: str) -> None:
        """Take everything away that a later operator would find."""
        where = (GROUP, VERSION, namespace, PLURAL)
        for body in self.schedules.list_namespaced_custom_object(*where)["items"]:
            name = body["metadata"]["name"]
            try:
                self.schedules.delete_namespaced_custom_object(*where, name)
                self.schedules.patch_namespaced_custom_object(*where, name, {"metadata": {"finalizers": None}})
            except client.ApiException as error:
                if error.status not in (404, 422):  # gone already, or the API server lets nobody write it
                    raise


class Scene:
    """One namespace, one prefix, one Redis and the operator that looks after them."""

    def __init__(self, cluster: Cluster, namespace: str, redis: RedisServer, operator: Operator) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.prefix = namespace
        self.server = redis
        self.operator = operator

    # --- resources ---

    def spec(self, **changes: Any) -> dict[str, Any]:
        """Hourly, and half an hour from its slots, so that no test crosses one; None removes a field."""
        fields = {
            "tenant": "acme",
            "jobName": "drain",
            "prefix": self.prefix,
            "everyMs": HOUR,
            "offsetMs": 1 + (int(time.time() * 1000) + HOUR // 2) % HOUR,
            **changes,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def create(self, name: str = "acme", *, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": self.spec(**spec),
        }
        return self.cluster.schedules.create_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, body)

    def create_ready(self, name: str = "acme", **spec: Any) -> dict[str, Any]:
        """Create one and wait until it is registered."""
        self.create(name, **spec)
        self.until_condition("Registered", "True", name=name)
        return self.get(name)

    def patch(self, name: str = "acme", **spec: Any) -> dict[str, Any]:
        """Merge fields into the spec; None removes one."""
        return self._patch(name, {"spec": spec})

    def annotate(self, name: str = "acme", **annotations: str | None) -> None:
        """Set annotations of ours; None removes one."""
        wanted = {f"{GROUP}/{key}": value for key, value in annotations.items()}
        self._patch(name, {"metadata": {"annotations": wanted}})

    def _patch(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.cluster.schedules.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name, body)

    def delete(self, name: str = "acme") -> None:
        self.cluster.schedules.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)

    def find(self, name: str = "acme") -> dict[str, Any] | None:
        try:
            return self.cluster.schedules.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise

    def get(self, name: str = "acme") -> dict[str, Any]:
        found = self.find(name)
        assert found is not None, f"no TickSchedule {name}"
        return found

    def until_gone(self, name: str = "acme", seconds: float = 20.0) -> None:
        self.until(lambda: self.find(name) is None, seconds, f"{name} is gone")

    def status(self, name: str = "acme") -> dict[str, Any]:
        return self.get(name).get("status", {})

    def alter_status(self, name: str = "acme", **status: Any) -> None:
        """Change the status, as somebody else who may."""
        where = (GROUP, VERSION, self.namespace, PLURAL)
        self.cluster.schedules.patch_namespaced_custom_object_status(*where, name, {"status": status})

    def heals(self, name: str = "acme") -> int:
        return int(self.status(name).get("heals", 0))

    def condition(self, kind: str, name: str = "acme") -> dict[str, Any]:
        conditions = self.status(name).get("conditions", [])
        # A test may have stored something else than conditions.
        found = (each for each in conditions if isinstance(each, dict) and each["type"] == kind and "status" in each)
        return next(found, {"status": None, "reason": None, "message": ""})

    def until_condition(
        self,
        kind: str,
        status: str,
        reason: str | None = None,
        *,
        says: str = "",
        name: str = "acme",
        seconds: float = 20.0,
    ) -> dict[str, Any]:
        """Wait until a condition is so for the present generation, and its message matches ``says``."""
        return self.until(lambda: self.holds(kind, status, reason, says=says, name=name), seconds, f"{kind}={status}")

    def holds(
        self, kind: str, status: str, reason: str | None = None, *, says: str = "", name: str = "acme"
    ) -> dict[str, Any] | None:
        """The condition, where it is so for the present generation."""
        body = self.get(name)
        for each in body.get("status", {}).get("conditions", []):
            if (
                not isinstance(each, dict)
                or each["type"] != kind
                or each.get("observedGeneration") != body["metadata"]["generation"]
            ):
                continue
            if each["status"] == status and reason in (None, each["reason"]) and re.search(says, each["message"]):
                return each
        return None

    def finalized(self, name: str = "acme") -> bool:
        return FINALIZER in self.get(name)["metadata"].get("finalizers", [])

    def secret(self, name: str = "redis", **data: str) -> None:
        """Create a Secret, or replace all of its data. ``ca_crt`` stands for ``ca.crt``."""
        encoded = {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()}
        body = {"metadata": {"name": name}, "data": encoded}
        try:
            self.cluster.core.create_namespaced_secret(self.namespace, body)
        except client.ApiException as error:
            if error.status != 409:
                raise
            self.cluster.core.replace_namespaced_secret(name, self.namespace, body)

    def events(self, reason: str | None = None, name: str | None = None) -> list[Event]:
        found = [
            Event(each.involved_object.name, each.type, each.reason, each.message)
            for each in self.cluster.core.list_namespaced_event(self.namespace).items
        ]
        return [each for each in found if reason in (None, each.reason) and name in (None, each.name)]

    def until_event(self, reason: str, says: str = "", *, name: str | None = None, seconds: float = 20.0) -> Event:
        def look() -> Event | None:
            return next((each for each in self.events(reason, name) if re.search(says, each.message)), None)

        return self.until(look, seconds, f"an event {reason} that says {says!r}")

    def told_once(self, reason: str, name: str | None = None) -> Event:
        """Wait for an event; there must be no second one."""
        found = self.until(lambda: self.events(reason, name), what=f"an event {reason}")
        assert len(found) == 1, self.picture()
        return found[0]

    # --- Redis ---

    def key(self, name: str, queue: str = "ticks", prefix: str | None = None) -> str:
        return f"{prefix or self.prefix}:{queue}:{name}"

    def score(self, raw: redis_py.Redis, id_: str = "drain.acme", **where: str) -> int | None:
        score = raw.zscore(self.key("repeat", **where), id_)
        return None if score is None else int(score)

    def record(self, raw: redis_py.Redis, id_: str = "drain.acme", **where: str) -> dict[str, str]:
        return raw.hgetall(self.key(f"repeat:{id_}", **where))

    def stamp(self, raw: redis_py.Redis, id_: str = "drain.acme", **where: str) -> dict[str, Any]:
        return json.loads(self.record(raw, id_, **where)["data"])["tickkeeper"]

    def left(self, raw: redis_py.Redis, prefix: str | None = None) -> set[str]:
        """Keys of the prefix that could tick again: not a queue's own history."""
        keys = raw.scan_iter(f"{prefix or self.prefix}:*", count=1000)
        return {key for key in keys if key.rsplit(":", 1)[1] not in {"meta", "id", "events", "marker"}}

    # --- another writer ---

    def driver_starts(self, id_: str = "drain.acme", every: int = 60_000, queue: str = "ticks", **data: Any) -> None:
        """What an application does that registers its clock itself: no stamp, no retention."""
        self._as_driver(queue, lambda bull: bull.upsertJobScheduler(id_, {"every": every}, "drain", data or None))

    def driver_stops(self, id_: str = "drain.acme", queue: str = "ticks") -> None:
        """What its last replica does."""
        self._as_driver(queue, lambda bull: bull.removeJobScheduler(id_))

    def _as_driver(self, queue: str, call: Callable[[Queue], Any]) -> None:
        async def act() -> None:
            redis = connect(RedisSettings(url=self.server.url))
            try:
                await call(Queue(queue, {"connection": redis, "prefix": self.prefix}))
            finally:
                await redis.aclose()

        asyncio.run(act())

    # --- waiting ---

    def until(self, condition: Callable[[], Any], seconds: float = 20.0, what: str = "") -> Any:
        """Wait until something holds and return it; a failure shows the resources and the log's end."""
        deadline = time.monotonic() + seconds
        while not (held := condition()):
            assert self.operator.running or condition(), f"the operator ended\n{self.operator.tail}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.picture()}"
            time.sleep(0.03)
        return held

    def picture(self) -> str:
        """The state of everything, for the message of a failure."""
        bodies = self.cluster.schedules.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)["items"]
        told = [json.dumps({"name": each["metadata"]["name"], "status": each.get("status")}) for each in bodies]
        return "\n".join([*told, *map(str, self.events()), self.operator.tail])
