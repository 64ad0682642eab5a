"""The operator's settings: ``TICKKEEPER_*`` variables."""

import os
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tickkeeper.bullmq.address import parse
from tickkeeper.bullmq.clients import Bounds, RedisSettings
from tickkeeper.bullmq.environment import OptionalPath, OptionalSecret, OptionalText, listed, redis_settings
from tickkeeper.schedules.allow import AllowList
from tickkeeper.schedules.wanted import Retention

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class OperatorSettings(BaseSettings):
    """What ``tickkeeper operator`` reads. Raises pydantic's ValidationError, which never shows a secret."""

    model_config = SettingsConfigDict(env_prefix="TICKKEEPER_", hide_input_in_errors=True, extra="ignore", frozen=True)

    redis_url: OptionalSecret = Field(None, description="Redis of schedules without redis.secretRef; none: refused")
    redis_username: OptionalText = None
    redis_password: OptionalSecret = None
    redis_ca_file: OptionalPath = Field(None, description="PEM file of the authority of Redis' certificate")
    redis_cert_file: OptionalPath = Field(None, description="PEM file of our client certificate")
    redis_key_file: OptionalPath = Field(None, description="PEM file of its key")
    redis_timeout_seconds: float = Field(1.5, ge=0.1, le=30, description="longest wait for one answer of Redis")

    kubeconfig: OptionalText = Field(None, description="default: the pod's service account, then KUBECONFIG")
    namespaces: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = Field(
        (), description="namespaces to watch, with commas between; default all"
    )
    cluster_id: OptionalText = Field(
        None, max_length=128, description="whose schedules these are in a shared Redis; default kube-system's uid"
    )

    leader_election: bool = Field(False, description="of several replicas one acts, by a Lease")
    lease_name: str = Field("tickkeeper-operator", min_length=1, max_length=253)
    lease_namespace: OptionalText = Field(None, description="default: the pod's own")
    pod_name: OptionalText = Field(None, description="this replica's name; default the host's")

    allow_file: OptionalPath = Field(None, description="YAML file: what each namespace may name in a shared Redis")

    sweep_seconds: float = Field(5.0, ge=0.5, le=300, description="between two full checks")
    deletion_grace_seconds: float = Field(
        60.0, ge=0, le=3600, description="how long a deletion waits for a Redis or a Secret that is gone"
    )
    secret_refresh_seconds: float = Field(
        30.0, ge=1, le=3600, description="after which the Secret of a redis.secretRef is read again, whatever happened"
    )
    status_writes_per_second: float = Field(50.0, ge=1, le=1000)
    max_len_events: int = Field(1000, ge=10, le=1_000_000, description="cap of a queue's events stream")
    retention_completed_count: int = Field(100, ge=0, le=1_000_000)
    retention_completed_age_seconds: int = Field(86_400, ge=1, le=31_536_000)
    retention_failed_count: int = Field(1000, ge=0, le=1_000_000)
    retention_failed_age_seconds: int = Field(604_800, ge=1, le=31_536_000)

    grace_seconds: float = Field(10.0, ge=1, le=600, description="from SIGTERM to the end of the process")
    http_host: str = Field("127.0.0.1", min_length=1, description="address of probes and metrics")
    http_port: int = Field(8080, ge=0, le=65_535, description="their port; 0 takes a free one")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("kubeconfig")
    @classmethod
    def _kubeconfig_is_there(cls, paths: str | None) -> str | None:
        for path in paths.split(os.pathsep) if paths else ():
            try:
                Path(path).expanduser().open("rb").close()
            except OSError as error:
                raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        return paths

    @field_validator("redis_url")
    @classmethod
    def _redis_url_fits(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parse(url.get_secret_value())
        return url

    @model_validator(mode="after")
    def _redis_fits(self) -> "OperatorSettings":
        try:
            self.redis()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"TICKKEEPER_REDIS_*: {first['msg'].removeprefix('Value error, ')}") from None
        except OSError as error:
            raise ValueError(f"TICKKEEPER_REDIS_*: {error.filename} cannot be read: {error.strerror}") from None
        return self

    @model_validator(mode="after")
    def _allow_list_fits(self) -> "OperatorSettings":
        try:
            self.allow()
        except ValidationError as error:
            raise ValueError("\n".join(f"TICKKEEPER_ALLOW_FILE: {_told(fault)}" for fault in error.errors())) from None
        except (OSError, yaml.YAMLError) as error:
            raise ValueError(
                f"TICKKEEPER_ALLOW_FILE={self.allow_file} cannot be read: {' '.join(str(error).split())}"
            ) from None
        return self

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show."""
        return tuple(secret.get_secret_value() for secret in (self.redis_url, self.redis_password) if secret)

    @property
    def identity(self) -> str:
        """This process, among its replicas."""
        return self.pod_name or socket.gethostname()

    @property
    def namespace_of_lease(self) -> str:
        """Where the Lease lies."""
        if self.lease_namespace:
            return self.lease_namespace
        return _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.exists() else "default"

    def redis(self) -> RedisSettings | None:
        """The operator's own Redis. Raises ValidationError, OSError."""
        if self.redis_url is None:
            return None
        return redis_settings(
            self.redis_url,
            self.redis_username,
            self.redis_password,
            ca_file=self.redis_ca_file,
            cert_file=self.redis_cert_file,
            key_file=self.redis_key_file,
        )

    def allow(self) -> AllowList:
        """What namespaces may name. Raises ValueError (with field and rule) and OSError."""
        if self.allow_file is None:
            return AllowList()
        return AllowList.model_validate(yaml.safe_load(self.allow_file.read_text()) or {})

    def bounds(self) -> Bounds:
        """Time-outs of every Redis."""
        return Bounds(reply=self.redis_timeout_seconds)

    def retention(self) -> Retention:
        """What finished ticks a queue keeps."""
        return Retention(
            completed_count=self.retention_completed_count,
            completed_age_seconds=self.retention_completed_age_seconds,
            failed_count=self.retention_failed_count,
            failed_age_seconds=self.retention_failed_age_seconds,
        )


def _told(fault: Any) -> str:
    return f"{'.'.join(map(str, fault['loc'])) or 'the file'}: {fault['msg']}"
