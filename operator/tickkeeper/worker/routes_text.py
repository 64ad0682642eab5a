"""The text of a routes file: YAML or JSON, without the surprises of either, and on which line each thing stands."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import yaml

#: Where in the file something is: keys and indexes, from the top.
Place = Sequence[Any]
LineOf = Callable[[Place], int | None]


class TextError(ValueError):
    """The text cannot be read; the message says why, and where."""


def parse(text: bytes, *, is_json: bool) -> tuple[Any, LineOf]:
    """What the text says, and a function that gives the line of a place in it (None where that is not known).

    Raises TextError: it is neither, a key is given twice, or it is nested too deeply.
    """
    try:
        if is_json:
            return json.loads(text, object_pairs_hook=_pairs), lambda _: None
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_doubles(root)
        return yaml.safe_load(text), lambda place: _line(root, place)
    except TextError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise TextError(f"is neither YAML nor JSON: {where}{error.problem or ''}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise TextError(f"cannot be read: {[*str(error).splitlines(), type(error).__name__][0]}") from None
    except RecursionError:
        raise TextError("is nested too deeply") from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise TextError(f"key {key!r} is given twice")
        found[key] = value
    return found


def _refuse_doubles(node: yaml.Node | None, known: set[int] | None = None) -> None:
    known = set() if known is None else known
    if id(node) in known:
        return  # an alias
    known.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            # `<<` takes over what an anchor has, and may come more than once.
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise TextError(f"line {line}: key {key.value!r} is given twice, first on line {seen[key.value]}")
                seen[key.value] = line
            _refuse_doubles(value, known)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _refuse_doubles(each, known)


def _line(root: yaml.Node | None, place: Place) -> int | None:
    node, line = root, None
    for part in place:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if getattr(key, "value", None) == str(part)]
            if not found:
                break
            key, node = found[0]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line
