"""values.schema.json: the shape of values.yaml, with the bounds of the settings that the values become."""

from collections.abc import Mapping
from typing import Any

from pydantic_settings import BaseSettings

from charts.tools.values import load
from tickkeeper.controller.settings import OperatorSettings
from tickkeeper.worker.settings import WorkerSettings

_STRINGS = {"type": "array", "items": {"type": "string", "minLength": 1}}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_PORTS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65_535}}
_PATTERNS = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
_FREE: dict[str, Any] = {"type": "object"}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}

#: By the key's name, wherever it is; of Kubernetes' own objects the API server judges the rest.
_SHAPES = {
    "resources": _FREE,
    "strategy": _FREE,
    "affinity": _FREE,
    "behavior": _FREE,
    "podSecurityContext": _FREE,
    "securityContext": _FREE,
    "commonLabels": _TEXTS,
    "nodeSelector": _TEXTS,
    "podAnnotations": _TEXTS,
    "podLabels": _TEXTS,
    "labels": _TEXTS,
    "alertLabels": _TEXTS,
    "annotations": _TEXTS,
    "tolerations": _OBJECTS,
    "topologySpreadConstraints": _OBJECTS,
    "env": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "value": {"type": "string"}, "valueFrom": _FREE},
            "additionalProperties": False,
        },
    },
    "envFrom": _OBJECTS,
    "volumes": _OBJECTS,
    "volumeMounts": _OBJECTS,
    "metrics": _OBJECTS,
    "imagePullSecrets": _OBJECTS,
    "metricsFrom": _OBJECTS,
    "workerEgress": _OBJECTS,
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "logLevel": {"enum": ["debug", "info", "warning", "error"]},
    "logFormat": {"enum": ["json", "console"]},
    "store": {"enum": ["tickkeeper", "mnemora"]},
    "concurrencyPolicy": {"enum": ["Forbid", "Allow"]},
    "deadHeads": {"enum": ["skip", "block"]},
    "replicas": {"type": "integer", "minimum": 0},
    "redisPorts": _PORTS,
    "postgresPorts": _PORTS,
    "apiServerPorts": _PORTS,
    "port": {"type": "integer", "minimum": 1024, "maximum": 65_535},
    "queues": {"type": "array", "items": {"type": "string", "pattern": "^[^:]+$"}, "minItems": 1, "uniqueItems": True},
    "watchNamespaces": _STRINGS | {"uniqueItems": True},
    "modules": _STRINGS,
    "disabled": _STRINGS,
    "overdueSeconds": {"type": "integer", "minimum": 60},
    "redisHosts": _STRINGS,
    "interval": {"type": "string", "pattern": "^([0-9]+(ms|[smhd]))+$"},
    "schema": {"type": "string", "pattern": "^([a-z_][a-z0-9_]{0,62})?$"},
    "runAsUser": {"type": "integer", "minimum": 1},
    "timeoutSeconds": {"type": "integer", "minimum": 10, "maximum": 3600},
    "minReplicas": {"type": "integer", "minimum": 1},
    "maxReplicas": {"type": "integer", "minimum": 1},
    "targetCPUUtilization": {"type": "integer", "minimum": 0},
    "rules": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["namespaces"],
            "additionalProperties": False,
            "properties": {
                "namespaces": _PATTERNS,
                "prefixes": _PATTERNS,
                "queueNames": _PATTERNS,
                "schedulerIds": _PATTERNS,
            },
        },
    },
    "inline": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["kinds", "url"],
            "additionalProperties": False,
            "properties": {
                "kinds": {"type": ["string", "array"]},
                "url": {"type": "string", "pattern": "^https?://"},
                "secretEnv": {"type": "string"},
                "secretFile": {"type": "string"},
                "timeoutMs": {"type": "integer", "minimum": 100, "maximum": 600_000},
                "headers": _TEXTS,
            },
        },
    },
}

#: Values that become settings: their bounds are those of the program.
_OPERATOR = {
    "sweepSeconds": "sweep_seconds",
    "deletionGraceSeconds": "deletion_grace_seconds",
    "statusWritesPerSecond": "status_writes_per_second",
    "maxLenEvents": "max_len_events",
    "completedCount": "retention_completed_count",
    "completedAgeSeconds": "retention_completed_age_seconds",
    "failedCount": "retention_failed_count",
    "failedAgeSeconds": "retention_failed_age_seconds",
    "graceSeconds": "grace_seconds",
}
_WORKER = {
    "concurrency": "concurrency",
    "handlerConcurrency": "handler_concurrency",
    "lanes": "lanes",
    "batchSize": "batch_size",
    "connections": "database_connections",
    "graceSeconds": "grace_seconds",
}


def schema() -> dict[str, Any]:
    """The JSON schema of the chart's values: no key that values.yaml does not have."""
    defaults = load()
    top = _object(
        {key: value for key, value in defaults.items() if key not in ("operator", "workers", "workerDefaults")}
    )
    properties = top["properties"]
    properties["operator"] = _object(defaults["operator"], bounds=_bounds(OperatorSettings, _OPERATOR))
    pool = _object(defaults["workerDefaults"], bounds=_bounds(WorkerSettings, _WORKER) | _LEASE)
    properties["workerDefaults"] = pool
    named = pool | {"properties": {"name": _POOL_NAME} | pool["properties"], "required": ["name"]}
    properties["workers"] = {"type": "array", "items": named}
    properties["clusterId"] = {"type": "string", "maxLength": 128}
    properties["global"] = _FREE  # Helm's own, where this chart is part of another
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "tickkeeper"} | top


_POOL_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$"}
_LEASE = {"leaseSeconds": {"type": "number", "anyOf": [{"const": 0}, {"minimum": 1, "maximum": 86_400}]}}


def _object(values: Mapping[str, Any], bounds: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: _value(key, value, bounds or {}) for key, value in values.items()},
    }


def _value(key: str, value: Any, bounds: Mapping[str, Any]) -> dict[str, Any]:
    if key in bounds:
        return dict(bounds[key])
    if key in _SHAPES and not isinstance(value, bool):
        return _SHAPES[key]
    match value:
        case bool():
            return {"type": "boolean"}
        case dict():
            return _object(value, bounds)
        case str():
            return {"type": "string"}
    raise TypeError(f"values.yaml: nothing is said about the type of {key}")


def _bounds(settings: type[BaseSettings], names: Mapping[str, str]) -> dict[str, Any]:
    fields = settings.model_json_schema()["properties"]
    taken = ("type", "minimum", "maximum")
    return {
        value: {rule: fields[name][rule] for rule in taken if rule in fields[name]} for value, name in names.items()
    }
