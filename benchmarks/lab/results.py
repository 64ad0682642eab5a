"""The files of raw figures."""

import json
import math
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from embedded.versions import table as versions


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "parts": {part.name: part.version for part in versions()},
    }


def keep(kind: str, document: dict[str, Any], folder: Path) -> Path:
    """Write a document of raw figures; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{kind}-{now:%Y%m%dT%H%M%SZ}.json"
    whole = {"at": now.isoformat(timespec="seconds"), **document}
    path.write_text(json.dumps(_finite(whole), indent=1, allow_nan=False) + "\n")
    return path


def _finite(value: Any) -> Any:
    """JSON has no infinity: what never came is null."""
    match value:
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case float():
            return value if math.isfinite(value) else None
    return value
