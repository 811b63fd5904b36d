"""Where a table is, as Spark spells it.

The lake names a local table by its path and one in a bucket by the URL that the vendor uses. Hadoop's file
systems have schemes of their own, and take a path as it is: nothing in it is percent-encoded.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

SCHEMES: Final = {"s3": "s3a", "gs": "gs", "az": "wasbs"}
"""The scheme of Hadoop's file system for each of the lake's."""


def spark_address(location: str) -> str:
    """A table's location for Spark."""
    if "://" not in location:
        return f"file://{location}"
    parts = urlsplit(location)
    return f"{SCHEMES.get(parts.scheme, parts.scheme)}://{parts.netloc}{unquote(parts.path)}"
