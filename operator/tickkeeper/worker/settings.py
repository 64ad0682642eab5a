"""The worker's settings: ``TICKKEEPER_*`` variables; the common ones are options of ``tickkeeper worker`` too."""

import socket
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.bullmq.environment import OptionalPath, OptionalSecret, OptionalText, listed, redis_settings
from tickkeeper.outbox.dsn import Dsn
from tickkeeper.outbox.mnemora.store import DEFAULT_LEASE as MNEMORA_LEASE
from tickkeeper.outbox.mnemora.store import DEFAULT_SCHEMA as MNEMORA_SCHEMA
from tickkeeper.outbox.postgres import DEFAULT_LEASE
from tickkeeper.outbox.queries import DEFAULT_SCHEMA, check_schema_name
from tickkeeper.worker.limits import DEFAULT_BATCH_SIZE, DEFAULT_HANDLER_CONCURRENCY, DEFAULT_LANES, Limits
from tickkeeper.worker.pressure import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS, Pressure
from tickkeeper.worker.runner import QueueOptions

List = Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)]
Milliseconds = Annotated[int, Field(ge=100, le=86_400_000)]


class WorkerSettings(BaseSettings):
    """What ``tickkeeper worker`` reads. Raises pydantic's ValidationError, which never shows a secret."""

    model_config = SettingsConfigDict(env_prefix="TICKKEEPER_", hide_input_in_errors=True, extra="ignore", frozen=True)

    redis_url: SecretStr = Field(description="redis://host:6379/0, or rediss://")
    redis_username: OptionalText = None
    redis_password: OptionalSecret = None
    redis_ca_file: OptionalPath = Field(None, description="PEM file of the authority of Redis' certificate")
    redis_cert_file: OptionalPath = Field(None, description="PEM file of our client certificate")
    redis_key_file: OptionalPath = Field(None, description="PEM file of its key")

    database_url: SecretStr = Field(description="postgresql://user:password@host/database")
    database_schema: str | None = Field(
        None, description=f"default: {DEFAULT_SCHEMA}, or {MNEMORA_SCHEMA} with the store mnemora"
    )
    store: Literal["tickkeeper", "mnemora"] = Field("tickkeeper", description="whose outbox table it is")
    dead_heads: Literal["skip", "block"] = Field(
        "skip", description="a row that goes to the dead letters: skipped, or it blocks its ordering_key"
    )
    database_connections: int = Field(4, ge=1, le=100, description="at most, per process")
    transaction_connections: int = Field(
        4, ge=1, le=100, description="beside those, for handlers with transaction=True: so many at once"
    )

    queue: List = Field((), description="queue to work, default ticks; goes before TICKKEEPER_QUEUES")
    queues: List = Field((), description="queues to work, with commas between")
    prefix: str = Field("bull", min_length=1, description="BullMQ's key prefix, the same for operator and workers")
    concurrency: int = Field(10, ge=1, le=1000, description="ticks at once, per queue")
    handler_concurrency: int = Field(
        DEFAULT_HANDLER_CONCURRENCY, ge=1, le=1000, description="handlers at once, per tick"
    )
    lanes: int = Field(
        DEFAULT_LANES, ge=1, le=16, description="batches at once, per tick: the next is claimed while one is handled"
    )
    max_rows: int = Field(
        DEFAULT_MAX_ROWS, ge=1, le=1_000_000, description="claimed at once, per process; beyond that no claim is made"
    )
    max_bytes: int = Field(
        DEFAULT_MAX_BYTES, ge=1024, le=2**40, description="of their payloads, roughly; one claim may go beyond it"
    )
    handlers: List = Field((), description="modules with handlers, with commas between")
    routes: OptionalPath = Field(None, description="file of HTTP routes, YAML or JSON")
    handler_timeout_seconds: float = Field(60.0, gt=0, le=86_400, description="for handlers that set none themselves")
    batch_size: int = Field(DEFAULT_BATCH_SIZE, ge=1, le=10_000)
    lease_seconds: float | None = Field(
        None,
        ge=1,
        le=86_400,
        description=f"default: {DEFAULT_LEASE.seconds}, or {MNEMORA_LEASE.seconds} with the store mnemora",
    )
    time_budget_seconds: float = Field(30.0, ge=0.01, le=86_400, description="of ticks without an interval (cron)")
    default_tenant: OptionalText = Field(None, max_length=128, description="tenant of ticks that carry none")
    concurrency_policy: Literal["Forbid", "Allow"] = Field("Forbid", description="for ticks that carry none")

    lock_duration_ms: Milliseconds = 30_000
    lock_renew_ms: Milliseconds | None = Field(None, description="default: half of the lock's duration")
    stalled_interval_ms: Milliseconds = 30_000
    max_stalled_count: int = Field(1, ge=0, le=1000)
    running_ttl_seconds: float | None = Field(
        None,
        ge=1,
        le=86_400,
        description="how long a killed tick holds its schedule up",
    )

    grace_seconds: float = Field(25.0, ge=1, le=3600, description="from SIGTERM to the end of the process")
    http_host: str = Field("127.0.0.1", min_length=1, description="address of probes and metrics")
    http_port: int = Field(8080, ge=0, le=65_535, description="their port; 0 takes a free one")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("queue", "queues")
    @classmethod
    def _queue_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if bad := [name for name in names if ":" in name]:
            raise ValueError(f"a queue's name must not hold ':' ({', '.join(bad)})")
        return names

    @field_validator("redis_url")
    @classmethod
    def _redis_address(cls, url: SecretStr) -> SecretStr:
        try:
            RedisSettings(url=url)
        except ValidationError as error:
            raise ValueError(_first(error)) from None
        return url

    @field_validator("database_url")
    @classmethod
    def _database_address(cls, url: SecretStr) -> SecretStr:
        Dsn(url.get_secret_value())
        return url

    @field_validator("database_schema")
    @classmethod
    def _schema_name(cls, name: str | None) -> str | None:
        return None if name is None else check_schema_name(name)

    @field_validator("redis_ca_file", "redis_cert_file", "redis_key_file", "routes")
    @classmethod
    def _readable(cls, path: Path | None) -> Path | None:
        if path is not None:
            try:
                path.open("rb").close()
            except OSError as error:
                raise ValueError(f"cannot be read: {error.strerror}") from None
        return path

    @model_validator(mode="after")
    def _times_fit(self) -> "WorkerSettings":
        faults = []
        if self.renew_ms * 2 > self.lock_duration_ms:
            faults.append(
                f"TICKKEEPER_LOCK_RENEW_MS={self.renew_ms}: must be at most half of"
                f" TICKKEEPER_LOCK_DURATION_MS={self.lock_duration_ms}, so that one late renewal loses no lock"
            )
        if self.lock_duration_ms > self.stalled_interval_ms:
            faults.append(
                f"TICKKEEPER_STALLED_INTERVAL_MS={self.stalled_interval_ms}: must be at least"
                f" TICKKEEPER_LOCK_DURATION_MS={self.lock_duration_ms}, so that the job of a killed worker is put back"
                " within two intervals"
            )
        if self.dead_heads == "block" and self.store == "mnemora":
            faults.append(
                "TICKKEEPER_DEAD_HEADS=block: must be skip with TICKKEEPER_STORE=mnemora, which has no ordering_key"
            )
        try:
            self.redis()
        except ValidationError as error:
            faults.append(f"TICKKEEPER_REDIS_*: {_first(error)}")
        if faults:
            raise ValueError("\n".join(faults))
        return self

    @property
    def renew_ms(self) -> int:
        """bullmq's renewal window; locks are renewed at each half of it."""
        return self.lock_renew_ms or self.lock_duration_ms // 2

    @property
    def running_ttl(self) -> float:
        """Seconds. Longer than the lock: it outlives a lost one until the job may have been started again elsewhere;
        no longer than two stalled intervals, within which the work of a killed worker goes on."""
        return self.running_ttl_seconds or (self.lock_duration_ms + self.stalled_interval_ms) / 1000

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queues to work, each once; ``queue`` goes before ``queues``."""
        return tuple(dict.fromkeys(self.queue or self.queues or ("ticks",)))

    @property
    def schema_name(self) -> str:
        """The database schema of the outbox."""
        return self.database_schema or (MNEMORA_SCHEMA if self.store == "mnemora" else DEFAULT_SCHEMA)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show."""
        given = (self.redis_url, self.redis_password, self.database_url)
        return tuple(secret.get_secret_value() for secret in given if secret is not None)

    def redis(self) -> RedisSettings:
        """Where the queues are. Raises ValidationError, OSError."""
        return redis_settings(
            self.redis_url,
            self.redis_username,
            self.redis_password,
            ca_file=self.redis_ca_file,
            cert_file=self.redis_cert_file,
            key_file=self.redis_key_file,
        )

    def queue_options(self) -> QueueOptions:
        """bullmq's settings."""
        return QueueOptions(
            prefix=self.prefix,
            concurrency=self.concurrency,
            lock_duration_ms=self.lock_duration_ms,
            lock_renew_ms=self.renew_ms,
            stalled_interval_ms=self.stalled_interval_ms,
            max_stalled_count=self.max_stalled_count,
            worker_name=socket.gethostname(),
        )

    def pressure(self) -> Pressure:
        """What bounds all ticks of the process together."""
        return Pressure(max_rows=self.max_rows, max_bytes=self.max_bytes)

    def limits(self) -> Limits:
        """What bounds a tick that says nothing itself."""
        return Limits(
            lease=None if self.lease_seconds is None else timedelta(seconds=self.lease_seconds),
            batch_size=self.batch_size,
            budget=timedelta(seconds=self.time_budget_seconds),
            concurrency=self.handler_concurrency,
            lanes=self.lanes,
        )


def _first(error: ValidationError) -> str:
    return error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
