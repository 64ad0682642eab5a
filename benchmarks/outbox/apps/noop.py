"""One call a row that does nothing."""

from tickkeeper.worker import Row, handler


@handler("bench.row")
async def nothing(_row: Row) -> None:
    """Do nothing."""
