"""What the API server says of a spec."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The object as it would be stored, or (field, message) of each refusal."""

    stored: dict[str, Any] | None
    refusals: tuple[tuple[str, str], ...] = ()
    #: the whole refusal, as kubectl prints it
    message: str = ""


Judge = Callable[[Any], Answer]
