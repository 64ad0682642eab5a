"""Whether a tenant's next claim may look for plain rows only. Pure, but for what it has learned."""

_FIRST_PAUSE = 4
_LONGEST_PAUSE = 64
_MOST_TENANTS = 1_000


class PlainRows:
    """The quick way to claim is in vain where a row is not plain, so after that it rests for some claims.

    The rest doubles each time, up to 64 claims, and is forgotten with the first success.
    """

    def __init__(self) -> None:
        self._resting: dict[str, tuple[int, int]] = {}

    def likely(self, tenant_id: str) -> bool:
        """Ask once for each claim."""
        left, pause = self._resting.get(tenant_id, (0, 0))
        if not left:
            return True
        self._resting[tenant_id] = left - 1, pause
        return False

    def found(self, tenant_id: str) -> None:
        """The rows were plain, or there were none."""
        self._resting.pop(tenant_id, None)

    def missed(self, tenant_id: str) -> None:
        """One of them was not."""
        pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self._resting.get(tenant_id, (0, 0))[1]))
        if len(self._resting) >= _MOST_TENANTS:
            self._resting.clear()
        self._resting[tenant_id] = pause, pause
