"""``tickkeeper crd``: print the CustomResourceDefinition."""

import typer

from tickkeeper.api.crd import crd_yaml


def crd() -> None:
    """Print the CustomResourceDefinition of TickSchedule as YAML, for kubectl apply -f -."""
    typer.echo(crd_yaml(), nl=False)
