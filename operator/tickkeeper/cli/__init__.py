"""The command line: ``tickkeeper operator | worker | outbox | crd``."""

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from tickkeeper import __version__

#: Command -> module below this package. Only the one asked for is imported: a worker needs no Kubernetes client.
_COMMANDS = {"operator": "operator", "worker": "worker", "outbox": "outbox", "crd": "crd"}


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Keep BullMQ tick schedules alive, and drain a Postgres outbox on each tick."""


def build(only: str | None = None) -> typer.Typer:
    """The application; with ``only``, just that command is imported."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    for name, module in _COMMANDS.items():
        if only in (None, name):
            command = getattr(import_module(f"tickkeeper.cli.{module}"), name)
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name)(command)
    return app


def main() -> None:
    """Run the command line."""
    # libpq's own way to ask for it, which poolers take: psycopg reads times in no other style than this, and a database
    # or a role may have another as its default.
    os.environ["PGDATESTYLE"] = "ISO"
    named = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    build(named if named in _COMMANDS else None)()
