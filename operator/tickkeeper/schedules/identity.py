"""Names that are derived, so that the same resource always means the same scheduler and the same phase."""

import hashlib
import string
import zlib

#: BullMQ puts the id into Redis keys and job ids; 255 bytes keeps both readable and bounded.
MAX_SCHEDULER_ID_BYTES = 255

_PLAIN = frozenset(string.ascii_letters + string.digits + "-")


def derive_scheduler_id(job_name: str, tenant: str) -> str:
    """The scheduler id of a (jobName, tenant) pair: injective, of ``[A-Za-z0-9_.-]`` only.

    Both parts are escaped one-to-one, so the joining ``.`` cannot come from inside one: ``mail.eu`` of ``acme`` is
    not ``mail`` of ``eu.acme``. An id over 255 bytes is cut and ends in ``..`` and a SHA-256, which no short one can.
    """
    full = f"{_escape(job_name)}.{_escape(tenant)}"
    if len(full) <= MAX_SCHEDULER_ID_BYTES:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()
    return f"{full[: MAX_SCHEDULER_ID_BYTES - len(digest) - 2].rstrip('.')}..{digest}"


def _escape(text: str) -> str:
    """``_`` becomes ``__``, any other byte outside ``[A-Za-z0-9-]`` becomes ``_`` and two hex digits."""
    return "".join(
        char if char in _PLAIN else "__" if char == "_" else "".join(f"_{byte:02x}" for byte in char.encode())
        for char in text
    )


def derive_offset_ms(uid: str, every_ms: int) -> int:
    """A phase in 1 … everyMs that stays with the resource: healing keeps it, and schedules spread.

    Never 0, which BullMQ takes for "unset" and replaces by the time of the registration.
    """
    return 1 + zlib.crc32(uid.encode()) % every_ms
