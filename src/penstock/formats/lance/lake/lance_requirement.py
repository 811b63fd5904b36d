"""Whether Lance is there: it is an extra of Penstock, which whoever has no Lance tables does without."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from penstock.errors import InvalidRequest

PACKAGES: Final = ("lance", "lance_namespace", "lance_namespace_urllib3_client", "pydantic", "pyarrow")
INSTALL: Final = "pip install 'penstock[lance]'"


def is_installed() -> bool:
    """Whether all of Lance's packages are there. Nothing is loaded by that."""
    return all(find_spec(name) is not None for name in PACKAGES)


def require_lance() -> None:
    """``InvalidRequest`` if Lance's packages are not installed."""
    if not is_installed():
        raise InvalidRequest(f"Lance tables need the library pylance: {INSTALL}", extra="lance")
