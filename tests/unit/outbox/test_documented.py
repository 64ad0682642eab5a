"""docs/outbox.md and docs/handlers.md name exactly what there is."""

import dataclasses
import re
from inspect import signature
from pathlib import Path

import typer

from tickkeeper.cli.outbox import outbox
from tickkeeper.outbox import NewRow, Row, enqueue

DOCS = Path(__file__).parents[3] / "docs"
#: Of nearly every command, and said once above the table.
COMMON = {"--schema", "--json"}


def first_cells(document: str, head: str) -> list[str]:
    """The first cell of each row of the table whose first head it is."""
    table = (DOCS / document).read_text().split(f"\n| {head} |")[1].split("\n\n")[0]
    return [re.split(r"(?<!\\)\|", line)[1].strip() for line in table.splitlines()[2:]]


def test_the_outbox_commands_and_their_options_are_documented() -> None:
    told: dict[str, set[str]] = {}
    for cell in first_cells("outbox.md", "command"):
        name = cell.strip("`").split()[0]
        told[name] = told.get(name, set()) | set(re.findall(r"--[a-z-]+", cell))
    group = typer.main.get_command(outbox)
    there = {
        name: {option for each in command.params for option in each.opts if option.startswith("--")} - COMMON
        for name, command in group.commands.items()
    }
    assert told == there


def test_the_arguments_of_enqueue_are_documented() -> None:
    told = [name for cell in first_cells("outbox.md", "argument") for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(told) == sorted(set(signature(enqueue).parameters) - {"conn"})
    assert sorted(told[:-2]) == sorted(each.name for each in dataclasses.fields(NewRow))


def test_the_fields_of_a_row_are_documented() -> None:
    told = [name for cell in first_cells("handlers.md", "field") for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(told) == sorted(each.name for each in dataclasses.fields(Row))
