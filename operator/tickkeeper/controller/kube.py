"""What the operator asks of the Kubernetes API, each call bounded in time.

kopf only watches. Whatever has an effect goes through here, with the preconditions that make a stale view harmless.
"""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import stamina
import structlog
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from tickkeeper.api.resource import API_VERSION, GROUP, KIND, PLURAL, VERSION, ResourceMeta
from tickkeeper.schedules.desired import ResourceKey

_log = structlog.get_logger(__name__)
_Answer = TypeVar("_Answer")

# Each failed attempt is told in our own words; stamina's would be a second line.
stamina.instrumentation.set_on_retry_hooks(())

#: Seconds that one call may take in all.
_BOUND = 15
_MERGE = "application/merge-patch+json"
_PAGE = 500
_COMPONENT = "tickkeeper"


# The package's configuration module is not typed.
_load_kubeconfig: Callable[..., Awaitable[None]] = config.load_kube_config
_load_service_account: Callable[..., None] = config.load_incluster_config


class Gone(Exception):
    """The object no longer exists, or another of the same name took its place."""


class Outdated(Exception):
    """The object has changed since it was read: read it again."""


class NotLeading(Exception):
    """Another operator may act by now: this one writes nothing."""


#: What a call may raise when the API server cannot be asked or refuses, or this process may not write.
API_ERRORS = (ApiException, aiohttp.ClientError, TimeoutError, OSError, NotLeading)


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret's data, decoded, at one resourceVersion."""

    data: Mapping[str, str]
    resource_version: str


class Kube:
    """The API server, as one identity. Make one with ``connect``."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._custom = client.CustomObjectsApi(api)
        #: asked before each write: a process that stood still wakes with old news, and would write it over newer
        self.may_write: Callable[[], bool] = lambda: True

    async def schedules(self, namespaces: tuple[str, ...] = ()) -> AsyncIterator[Mapping[str, Any]]:
        """All TickSchedules, a page at a time; of every namespace where none is named."""
        for namespace in namespaces or (None,):
            token: str | None = None
            while token != "":
                page = await self._page(namespace, token)
                for body in page["items"]:
                    yield body
                token = page["metadata"].get("continue") or ""

    async def _page(self, namespace: str | None, token: str | None) -> Mapping[str, Any]:
        where: dict[str, Any] = {"group": GROUP, "version": VERSION, "plural": PLURAL, "limit": _PAGE}
        if token:
            where["_continue"] = token
        if namespace is None:
            call = self._custom.list_cluster_custom_object_without_preload_content(**where, _request_timeout=_BOUND)
        else:
            call = self._custom.list_namespaced_custom_object_without_preload_content(
                **where, namespace=namespace, _request_timeout=_BOUND
            )
        return _mapping(json.loads(await _answer(call)))

    async def discover(self) -> None:
        """Find TickSchedules in discovery, which names them a little later than they are served.

        Raises ApiException (404) where it does not.
        """
        groups = await self._get("/apis")
        served = await self._get(f"/apis/{GROUP}/{VERSION}")
        known = GROUP in {group["name"] for group in groups["groups"]}
        if not known or PLURAL not in {resource["name"] for resource in served["resources"]}:
            raise ApiException(status=404, reason=f"{PLURAL}.{GROUP} not discovered")

    async def get_schedule(self, key: ResourceKey) -> Mapping[str, Any]:
        """One TickSchedule. Raises Gone."""
        with _translated():
            found = await self._custom.get_namespaced_custom_object(**_named(key), _request_timeout=_BOUND)
        return _mapping(found)

    async def write_status(self, key: ResourceKey, uid: str, status: Mapping[str, Any]) -> None:
        """Merge ``status`` in, on the object with this uid only.

        Raises Gone, NotLeading, and Outdated where another took its name.
        """
        self._check_leading()
        body = {"metadata": {"uid": uid}, "status": status}
        with _translated(conflict=Outdated):
            await _answer(
                self._custom.patch_namespaced_custom_object_status_without_preload_content(
                    **_named(key), body=body, _request_timeout=_BOUND, _content_type=_MERGE
                )
            )

    async def write_finalizers(self, meta: ResourceMeta, finalizers: tuple[str, ...]) -> Mapping[str, Any]:
        """Replace the finalizers of the very version that was read. Raises Gone, Outdated and NotLeading."""
        self._check_leading()
        key = ResourceKey(meta.namespace, meta.name)
        body = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "finalizers": list(finalizers),
            }
        }
        with _translated(conflict=Outdated):
            found = await _answer(
                self._custom.patch_namespaced_custom_object_without_preload_content(
                    **_named(key), body=body, _request_timeout=_BOUND, _content_type=_MERGE
                )
            )
        return _mapping(json.loads(found))

    async def read_secret(self, namespace: str, name: str) -> Secret:
        """A Secret. Raises Gone when there is none; a value that is not UTF-8 counts as absent."""
        with _translated():
            found = await self._get(f"/api/v1/namespaces/{quote(namespace)}/secrets/{quote(name)}")
        data = {key: text for key, value in (found.get("data") or {}).items() if (text := _decoded(value)) is not None}
        return Secret(data, str(found["metadata"].get("resourceVersion", "")))

    async def namespace_uid(self, name: str) -> str:
        """A namespace's uid: that of kube-system tells clusters apart."""
        with _translated():
            found = await self._get(f"/api/v1/namespaces/{quote(name)}")
        return str(found["metadata"].get("uid", ""))

    async def _get(self, path: str) -> Mapping[str, Any]:
        return await self._call("GET", path)

    async def _call(self, method: str, path: str, body: Any = None) -> Mapping[str, Any]:
        """Call the API by a path: the package's class for core/v1 imports 254 models, 25 MB and 0.7 s at each start."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        request = await self._api.param_serialize(
            method, path, query_params=[], header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        return _mapping(json.loads(await _answer(self._api.call_api(*request, _request_timeout=_BOUND))))

    @property
    def leases(self) -> client.CoordinationV1Api:
        """The API of Leases."""
        return client.CoordinationV1Api(self._api)

    async def post_event(
        self,
        key: ResourceKey,
        uid: str,
        *,
        warning: bool,
        reason: str,
        message: str,
        identity: str,
        at: datetime,
    ) -> None:
        """Record a core/v1 Event on a TickSchedule; ``at`` is when it happened. Raises NotLeading."""
        self._check_leading()
        time = at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        event: Any = {
            "metadata": {"generateName": f"{key.name[:200]}.", "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid,
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1000],
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": identity,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
        await self._call("POST", f"/api/v1/namespaces/{quote(key.namespace)}/events", event)

    def _check_leading(self) -> None:
        if not self.may_write():
            raise NotLeading


@asynccontextmanager
async def connect(kubeconfig: str | None = None) -> AsyncIterator[Kube]:
    """The API server of ``kubeconfig``, of the pod's own service account, or of the user's kubeconfig.

    Raises ``config.ConfigException`` where there is none of them.
    """
    settings = client.Configuration()
    if kubeconfig is not None:
        await _load_kubeconfig(config_file=kubeconfig, client_configuration=settings)
    else:
        try:
            _load_service_account(client_configuration=settings)
        except config.ConfigException:
            await _load_kubeconfig(client_configuration=settings)
    async with client.ApiClient(settings) as api:
        yield Kube(api)


async def until_answered(call: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """The answer to what nothing can begin without, asked for again and again, with back-off and jitter."""
    attempts = stamina.retry_context(
        on=API_ERRORS, attempts=None, timeout=None, wait_initial=0.2, wait_max=3.0, wait_jitter=0.5
    )
    async for attempt in attempts:
        with attempt:
            try:
                return await call()
            except API_ERRORS as error:
                _log.warning("api_server_asked_again", error=explain(error))
                raise
    raise AssertionError  # the attempts have no end


def explain(error: BaseException) -> str:
    """One line: what the API server said, or why it was not asked."""
    if isinstance(error, NotLeading):
        return "this operator's Lease is not renewed"
    if isinstance(error, ApiException):
        return f"the API server answered {error.status} {error.reason}"
    if isinstance(error, ssl.SSLError):
        return f"TLS to the API server failed ({error.reason})"
    return f"no answer from the API server ({type(error).__name__})"


class _translated:  # noqa: N801 - reads as a phrase where it is used
    """404 becomes Gone, 409 what the caller says."""

    def __init__(self, conflict: type[Exception] | None = None) -> None:
        self._conflict = conflict

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, ApiException):
            return
        if error.status == 404:
            raise Gone(explain(error)) from None
        if error.status == 409 and self._conflict is not None:
            raise self._conflict(explain(error)) from None


async def _answer(call: Awaitable[Any]) -> bytes:
    """The body of a call whose answer the package need not turn into models: that took longer than the call."""
    response = await call
    body: bytes = await response.read()
    if response.status >= 300:
        raise ApiException(status=response.status, reason=response.reason)
    return body


def _named(key: ResourceKey) -> dict[str, Any]:
    return {"group": GROUP, "version": VERSION, "plural": PLURAL, "namespace": key.namespace, "name": key.name}


def _mapping(found: Any) -> Mapping[str, Any]:
    assert isinstance(found, Mapping)
    return found


def _decoded(value: str | bytes) -> str | None:
    try:
        return base64.b64decode(value).decode()
    except ValueError:
        return None
