"""Statistics of a file that Spark wrote, from what its Parquet footer says.

The rules are those of ``formats.delta.rows.stats``; here the values come as the footer's bytes. A footer has
no bounds for a column with NaN, for very long texts, and for times in the old type of 96 bits. Of arrays and
maps it counts other nulls than Delta does, so nothing is said of them.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from penstock.formats.delta.lake.job_outputs import BOUND_MAX_BYTES, FooterColumn, ParquetOutput
from penstock.formats.delta.rows.stats import StatsLeaf, cut_largest, cut_smallest, encode_bound, encode_stats
from penstock.formats.rows.schema import Type

_NUMBERS: Final = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}
_WITHOUT_BOUNDS: Final = frozenset({"binary", "boolean"})


def select_footer_leaves(leaves: Sequence[StatsLeaf]) -> tuple[StatsLeaf, ...]:
    """Those of which a footer says what statistics need."""
    return tuple(leaf for leaf in leaves if isinstance(leaf.kind, str))


def encode_footer_stats(file: ParquetOutput, leaves: Sequence[StatsLeaf]) -> str:
    """What ``add.stats`` holds for a file."""
    columns_by_path = {column.path: column for column in file.columns}
    return encode_stats(file.rows, _read_figures(leaves, columns_by_path))


def _read_figures(
    leaves: Sequence[StatsLeaf], columns: dict[tuple[str, ...], FooterColumn]
) -> Iterator[tuple[StatsLeaf, int | None, Any, Any]]:
    for leaf in leaves:
        if (column := columns.get(leaf.stored)) is not None:
            nulls = column.nulls if column.nulls >= 0 else None
            yield leaf, nulls, _find_smallest_value(leaf.kind, column), _find_largest_value(leaf.kind, column)


def _find_smallest_value(kind: Type, column: FooterColumn) -> Any:
    value = _decode_bound(kind, column.type, column.min)
    return cut_smallest(value) if isinstance(value, str) else encode_bound(kind, value)


def _find_largest_value(kind: Type, column: FooterColumn) -> Any:
    value = _decode_bound(kind, column.type, column.max)
    return cut_largest(value) if isinstance(value, str) else encode_bound(kind, value)


def _decode_bound(kind: Type, type_: str, data: bytes | None) -> Any:
    """The value that a bound stands for; ``None`` if it stands for none that is certain."""
    if data is None or not isinstance(kind, str) or kind in _WITHOUT_BOUNDS:
        return None
    if kind == "string":
        return _decode_text(data)
    if type_ in _NUMBERS:
        (value,) = struct.unpack(_NUMBERS[type_], data)
    elif type_ in {"FIXED_LEN_BYTE_ARRAY", "BINARY"}:
        value = int.from_bytes(data, "big", signed=True)
    else:
        return None
    return _decode_decimal(kind, value) if kind.startswith("decimal") else value


def _decode_text(data: bytes) -> str | None:
    """The text, or its beginning. Spark writes texts that are not UTF-8 as they are; they have no order
    here."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) < BOUND_MAX_BYTES)
    except UnicodeDecodeError:
        return None


def _decode_decimal(kind: str, unscaled: int) -> Decimal:
    scale = int(kind.rstrip(") ").rpartition(",")[2])
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
