"""The Redis servers in use: one Site for each distinct connection, for as long as it has charges."""

import asyncio
from collections.abc import Callable, Iterator

from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.controller.site import Site

MakeSite = Callable[[RedisSettings], Site]


class Sites:
    """Starts a Site when its Redis is first needed and ends it when nothing is left to look after."""

    def __init__(self, make: MakeSite) -> None:
        self._make = make
        self._sites: dict[RedisSettings, tuple[Site, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None

    def open(self, group: asyncio.TaskGroup) -> None:
        """Run the sites' loops in ``group``: one that ends by a fault ends the group."""
        self._group = group

    def get(self, settings: RedisSettings) -> Site:
        """The site of a connection."""
        known = self._sites.get(settings)
        if known is not None:
            return known[0]
        assert self._group is not None, "not open"
        site = self._make(settings)
        self._sites[settings] = (site, self._group.create_task(site.run(), name=f"site {site.name}"))
        return site

    def at(self, address: str) -> Site | None:
        """A site of the Redis at ``address``, whatever its credentials."""
        return next((site for site in self if site.name == address), None)

    def close_idle(self, keep: RedisSettings | None) -> None:
        """End the sites without charges; ``keep`` is the operator's own Redis."""
        for settings, (site, task) in tuple(self._sites.items()):
            if not site.charges and settings != keep:
                task.cancel()
                del self._sites[settings]

    def __iter__(self) -> Iterator[Site]:
        """All sites in use."""
        return iter([site for site, _ in self._sites.values()])
