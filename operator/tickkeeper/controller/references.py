"""Which Redis a resource means: the operator's own, or the one its Secret names."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.controller.kube import API_ERRORS, Gone, Kube, Secret, explain
from tickkeeper.telemetry.redaction import redactor

#: Seconds after which a Secret is read again while something is wrong with it.
_FRESH_WHEN_WRONG = 3.0

SecretKey = tuple[str, str]


class ReferenceNotFound(Exception):
    """The Redis that a resource names cannot be known; the message says what is missing."""


@dataclass(slots=True)
class _Known:
    settings: RedisSettings | None
    fault: str | None
    read_at: float
    version: str = ""


@dataclass(slots=True)
class References:
    """Secrets that were read, and what they say."""

    kube: Kube
    default: RedisSettings | None
    _clock: Callable[[], float] = time.monotonic
    #: seconds after which a Secret is read again, whatever happened: rotation is noticed
    fresh: float = 30.0
    _known: dict[SecretKey, _Known] = field(default_factory=dict)
    _doubted: set[SecretKey] = field(default_factory=set)
    _reading: dict[SecretKey, asyncio.Lock] = field(default_factory=dict)

    async def resolve(self, namespace: str, spec: TickScheduleSpec) -> RedisSettings:
        """The Redis of a spec. Raises ReferenceNotFound; what was known of a Secret lasts while it cannot be read."""
        if spec.redis is None:
            if self.default is None:
                raise ReferenceNotFound(
                    "spec.redis.secretRef is not set and the operator has no Redis of its own (TICKKEEPER_REDIS_URL)"
                )
            return self.default
        return await self._read((namespace, spec.redis.secret_ref.name))

    def at(self, address: str) -> RedisSettings | None:
        """The settings of the Redis at ``address``, where it is the operator's own or a Secret that was read."""
        known = (self.default, *(known.settings for known in self._known.values()))
        return next((s for s in known if s is not None and str(s.address) == address), None)

    def forget(self, key: SecretKey) -> None:
        """Read a Secret again at its next use: its credentials were refused."""
        self._known.pop(key, None)

    def doubt(self, key: SecretKey) -> None:
        """The Redis that a Secret names does not answer: it may name the wrong one, and be mended any moment."""
        self._doubted.add(key)

    def trust(self, key: SecretKey) -> None:
        """It answers."""
        self._doubted.discard(key)

    def is_stale(self, key: SecretKey) -> bool:
        """Whether the next use reads the Secret again."""
        known = self._known.get(key)
        if known is None:
            return True
        wrong = known.fault is not None or key in self._doubted
        return self._clock() - known.read_at > (min(_FRESH_WHEN_WRONG, self.fresh) if wrong else self.fresh)

    async def _read(self, key: SecretKey) -> RedisSettings:
        # Many resources may name one Secret: it is read once for all of them.
        async with self._reading.setdefault(key, asyncio.Lock()):
            known = self._known.get(key)
            if known is None or self.is_stale(key):
                known = await self._look_up(key, known)
                self._known[key] = known
        if known.settings is None:
            raise ReferenceNotFound(known.fault or "")
        return known.settings

    async def _look_up(self, key: SecretKey, before: _Known | None) -> _Known:
        namespace, name = key
        try:
            secret = await self.kube.read_secret(namespace, name)
        except Gone:
            return _Known(None, f"spec.redis.secretRef: there is no Secret {name} in {namespace}", self._clock())
        except API_ERRORS as error:
            if before is not None and before.settings is not None:
                return replace(before, read_at=self._clock())  # what it said last is better than nothing
            fault = f"spec.redis.secretRef: the operator cannot read the Secret {name} of {namespace}: {explain(error)}"
            return _Known(None, fault, self._clock())
        try:
            settings = settings_of(secret.data)
        except ReferenceNotFound as fault:
            told = f"spec.redis.secretRef: the Secret {name} of {namespace}: {fault}"
            return _Known(None, told, self._clock(), secret.resource_version)
        _learn(secret)
        return _Known(settings, None, self._clock(), secret.resource_version)


def settings_of(data: Mapping[str, str]) -> RedisSettings:
    """What a Secret's keys say. Raises ReferenceNotFound with the key and the rule, never a value."""
    if not data.get("url"):
        raise ReferenceNotFound("it has no key url")
    try:
        return RedisSettings.model_validate(
            {
                "url": data["url"].strip(),
                "username": data.get("username") or None,
                "password": data.get("password") or None,
                "ca_cert": data.get("ca.crt") or None,
                "client_cert": data.get("tls.crt") or None,
                "client_key": data.get("tls.key") or None,
            }
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ReferenceNotFound(first["msg"].removeprefix("Value error, ")) from None


def _learn(secret: Secret) -> None:
    for key in ("url", "password", "tls.key"):
        if value := secret.data.get(key):
            redactor.learn(value.strip())
