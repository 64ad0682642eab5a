"""Reading a program's configuration: one line a fault, by the name of its variable, before anything starts."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsError

S = TypeVar("S", bound=BaseSettings)

#: The exit code for a configuration that cannot be used.
UNUSABLE = 2


def load(settings: type[S], **given: Any) -> S:
    """The settings from the environment; ``given`` are command-line options, which win (None: not given).

    Exits with code 2 and one line a fault on stderr when they cannot be used.
    """
    overrides = {name: value for name, value in given.items() if value not in (None, (), [])}
    try:
        return settings(**overrides)
    except ValidationError as error:
        refuse(faults(error, settings))
    except SettingsError as error:
        # pydantic-settings' own text names the field and not its variable.
        refuse([str(error)])


def refuse(lines: Iterable[str]) -> NoReturn:
    """Print the faults and exit with code 2."""
    for line in lines:
        print(f"tickkeeper: {line}", file=sys.stderr)
    raise typer.Exit(UNUSABLE)


def faults(error: ValidationError, settings: type[BaseSettings]) -> list[str]:
    """One line a fault: the variable, its value unless it is a secret, and the rule."""
    return list(_faults(error, settings))


def variable(settings: type[BaseSettings], field: str) -> str:
    """The environment variable of a field."""
    return f"{settings.model_config.get('env_prefix', '')}{field}".upper()


def _faults(error: ValidationError, settings: type[BaseSettings]) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        place = [str(part) for part in fault["loc"]]
        message = fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        if not place:  # rules between several fields name them themselves, one line each
            yield from message.splitlines()
            continue
        field = place[0].lower()
        name = variable(settings, field)
        if fault["type"] == "missing":
            yield f"{name} is not set"
        else:
            yield f"{name}{_shown(fault['input'], settings, field)}: {message}"


def _shown(value: Any, settings: type[BaseSettings], field: str) -> str:
    """``=value``, for what may be seen."""
    known = settings.model_fields.get(field)
    if known is None or _secret(known.annotation) or isinstance(value, dict | BaseModel | SecretStr | SecretBytes):
        return ""
    text = str(value)
    return f"={text if len(text) <= 100 else text[:99] + '…'}"


def _secret(annotation: Any) -> bool:
    return annotation in (SecretStr, SecretBytes) or any(_secret(part) for part in getattr(annotation, "__args__", ()))
