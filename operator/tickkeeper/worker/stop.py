"""How a tick is told to end early."""

import asyncio


class Stop:
    """First softly (start nothing new, let handlers finish), then hard (cut handlers, hand the rows back).

    The first reason given is the one that is reported.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._cut = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """True once nothing new may start."""
        return self.reason is not None

    @property
    def cutting(self) -> bool:
        """True once handlers are cut."""
        return self._cut.is_set()

    def soft(self, reason: str) -> None:
        """Start nothing new."""
        self.reason = self.reason or reason

    def hard(self, reason: str) -> None:
        """Cut what runs."""
        self.soft(reason)
        self._cut.set()

    async def cut(self) -> None:
        """Wait until handlers are to be cut."""
        await self._cut.wait()
