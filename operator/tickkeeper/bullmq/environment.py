"""Types and steps that the settings of operator and worker share: how a Redis is named in the environment."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, SecretStr

from tickkeeper.bullmq.clients import RedisSettings


def listed(value: Any) -> Any:
    """``a,b`` as a list; blanks between do not matter. ValueError where there are commas only."""
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if value.strip() and not parts:
        raise ValueError(f"{value!r} holds no name: must be names with commas between")
    return parts


def _blank_is_unset(value: Any) -> Any:
    # Charts write KEY="" for what was not given.
    return None if isinstance(value, str) and not value.strip() else value


OptionalText = Annotated[str | None, BeforeValidator(_blank_is_unset)]
OptionalSecret = Annotated[SecretStr | None, BeforeValidator(_blank_is_unset)]
OptionalPath = Annotated[Path | None, BeforeValidator(_blank_is_unset)]


def redis_settings(
    url: SecretStr,
    username: str | None,
    password: SecretStr | None,
    *,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
) -> RedisSettings:
    """A Redis from its variables. Raises ValidationError, and OSError for a file that cannot be read."""
    return RedisSettings(
        url=url,
        username=username,
        password=password,
        ca_cert=ca_file.read_text() if ca_file else None,
        client_cert=cert_file.read_text() if cert_file else None,
        client_key=SecretStr(key_file.read_text()) if key_file else None,
    )
