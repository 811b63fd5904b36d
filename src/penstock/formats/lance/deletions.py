"""Files of deleted rows: which places of a fragment hold rows that are deleted.

There are two kinds: an Arrow file with a column of numbers, which Lance writes for a few rows, and a roaring
bitmap. Both are read, and the second one is written.
"""

from __future__ import annotations

from io import BytesIO

from penstock.errors import InvalidRequest
from penstock.formats.lance.row_sets import Ranges, list_numbers, make_ranges
from penstock.formats.roaring import pack_numbers, read_numbers


def read_deletions(name: str, data: bytes) -> Ranges:
    """The places in a file of deleted rows. ``ValueError`` if it is none."""
    if name.endswith(".bin"):
        return make_ranges(read_numbers(data))
    return make_ranges(_read_arrow(data))


def pack_deletions(places: Ranges) -> bytes:
    """The bytes of a file of deleted rows, of the kind whose name ends with ``bin``."""
    return pack_numbers(list_numbers(places))


def _read_arrow(data: bytes) -> list[int]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise InvalidRequest(
            "Lance tables with deleted rows need the library pyarrow to be merged: pip install"
            " 'penstock[lance]'"
        ) from None
    table = pa.ipc.open_file(BytesIO(data)).read_all()
    if table.num_columns != 1:
        raise ValueError(f"the deletion file has {table.num_columns} columns instead of one")
    row_numbers: list[int] = table.column(0).to_pylist()
    return row_numbers
