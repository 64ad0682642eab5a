"""``python -m embedded versions`` and ``python -m embedded prepare``: what the parts are here, and getting them."""

import sys

from embedded.errors import MissingPart, PartFailed
from embedded.versions import prepare, table

_USAGE = """usage: python -m embedded versions              what each part is here, or what is missing and the remedy
       python -m embedded prepare [PART ...]    download or build what is not there yet (default: every part)"""


def main(argv: list[str]) -> int:
    """Run one command; the exit code is 0, 1 (a part is missing or failed) or 2 (wrong usage)."""
    match argv:
        case ["versions"]:
            return _versions()
        case ["prepare", *names]:
            return _prepare(names)
    print(_USAGE, file=sys.stderr)
    return 2


def _versions() -> int:
    parts = table()
    width = max(len(part.name) for part in parts)
    for part in parts:
        told = f"{part.version}  ({part.where})" if part.version else f"missing: {part.remedy}"
        print(f"{part.name:<{width}}  {told}")
    return 0 if all(part.version for part in parts) else 1


def _prepare(names: list[str]) -> int:
    try:
        prepare(names)
    except (MissingPart, PartFailed) as error:
        print(f"embedded: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("embedded: interrupted; nothing half-made is kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
