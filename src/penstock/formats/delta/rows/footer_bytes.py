"""The ends of Parquet files, where their footers are."""

from __future__ import annotations

from typing import Final

from penstock.storage.places import Place

TAIL_BYTES: Final = 64 * 1024
"""How much of a file's end is read first: more than most footers need."""

_ENDS_BYTES: Final = 12
"""The magic at the beginning, the footer's size and the magic at the end: no file is shorter."""


def read_footer_bytes(place: Place, name: str, size: int) -> bytes | None:
    """The end of a Parquet file of so many bytes, from before its footer on; ``None`` if it cannot be had.

    It takes one request, and two if the footer is long. Whether it is a footer is told by whoever parses it.
    """
    length = min(size, TAIL_BYTES)
    while True:
        data = place.read_range(name, size - length, length)
        if data is None or len(data) < min(length, _ENDS_BYTES):
            return None
        needed = int.from_bytes(data[-8:-4], "little") + _ENDS_BYTES
        if needed <= length or length == size:
            return bytes(data)
        length = min(size, needed)
