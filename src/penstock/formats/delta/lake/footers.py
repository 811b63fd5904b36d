"""What the footer of a Parquet file says of its columns, as statistics need it."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final

from penstock.formats.delta.lake.job_outputs import BOUND_MAX_BYTES, FooterColumn

READERS: Final = 8
"""How many footers are read at once."""

_PACKED: Final = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}


def footer_columns(footer: Any, columns: Sequence[Sequence[str]]) -> tuple[FooterColumn, ...]:
    """What a footer says of columns. Two whose paths it spells alike are passed over."""
    spelled = [".".join(path) for path in columns]
    places: dict[str, int] = {}
    doubtful = {spelling for spelling in spelled if spelled.count(spelling) > 1}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        if name in places:
            doubtful.add(name)
        places[name] = at
    return tuple(
        _read_column_statistics(footer, tuple(path), places[name])
        for path, name in zip(columns, spelled, strict=True)
        if name in places and name not in doubtful
    )


def _read_column_statistics(footer: Any, path: tuple[str, ...], at: int) -> FooterColumn:
    type_ = footer.schema.column(at).physical_type
    nulls, bounds = 0, []
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(at)
        its = chunk.statistics
        if its is None or not its.has_null_count:
            return FooterColumn(path=path, type=type_, nulls=-1)
        nulls += its.null_count
        if its.null_count < chunk.num_values:
            bounds.append(_find_bounds(its, type_))
    if not bounds or None in bounds:
        return FooterColumn(path=path, type=type_, nulls=nulls)
    known_bounds = [bound for bound in bounds if bound is not None]
    low = min((bound[0] for bound in known_bounds), key=lambda value: _make_comparable_value(value, type_))
    high = max((bound[1] for bound in known_bounds), key=lambda value: _make_comparable_value(value, type_))
    return FooterColumn(
        path=path, type=type_, nulls=nulls, min=_encode_bound(low, type_), max=_encode_bound(high, type_)
    )


def _find_bounds(its: Any, type_: str) -> tuple[Any, Any] | None:
    """The smallest and the largest value of a row group, if both are known and mean what they say."""
    if not its.has_min_max or type_ in {"INT96", "BOOLEAN"}:
        return None
    kind = its.logical_type
    if kind is not None and kind.type == "TIMESTAMP" and "microseconds" not in str(kind):
        return None
    low, high = its.min_raw, its.max_raw
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (low, high)):
        return None
    return low, high


def _make_comparable_value(value: Any, type_: str) -> Any:
    return int.from_bytes(value, "big", signed=True) if type_ == "FIXED_LEN_BYTE_ARRAY" else value


def _encode_bound(value: Any, type_: str) -> bytes:
    if type_ in _PACKED:
        return struct.pack(_PACKED[type_], value)
    return bytes(value)[:BOUND_MAX_BYTES]
