"""The outbox table of mnemora (npm ``@mnemora/postgres`` 1.0.0) as a store: shared with its own Node workers."""

from tickkeeper.outbox.mnemora.store import MnemoraOutbox

__all__ = ["MnemoraOutbox"]
