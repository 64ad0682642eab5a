"""TickKeeper: keeps BullMQ tick schedules alive and drains a Postgres outbox on each tick."""

from importlib.metadata import version

__version__ = version("tickkeeper")
