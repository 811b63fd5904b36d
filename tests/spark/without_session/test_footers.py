"""Statistics are made of what a footer says, and of nothing else."""

from __future__ import annotations

import json

from penstock.formats.delta.lake.footer_stats import encode_footer_stats
from penstock.formats.delta.lake.job_outputs import BOUND_MAX_BYTES, FooterColumn, ParquetOutput
from penstock.formats.delta.rows.stats import StatsLeaf


def test_a_long_text_is_cut_as_if_all_of_it_were_known() -> None:
    for first in ("", "a"):  # the second is cut in the middle of a character
        cut = (first + "é" * 400).encode()[:BOUND_MAX_BYTES]
        column = FooterColumn(path=("t",), type="BINARY", nulls=0, min=cut, max=cut)
        told = json.loads(encode_footer_stats(_file(column), [_leaf("t", "string")]))
        begin = (first + "é" * 32)[:32]
        assert told["minValues"] == {"t": begin}
        assert told["maxValues"] == {"t": begin + "\U0010ffff"}


def test_what_is_not_told_is_not_made_up() -> None:
    silent = FooterColumn(path=("t",), type="INT32", nulls=-1)
    told = json.loads(encode_footer_stats(_file(silent), [_leaf("t", "integer"), _leaf("u", "long")]))
    assert told == {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {}}


def _leaf(name: str, kind: str) -> StatsLeaf:
    return StatsLeaf((name,), kind, (name,))


def _file(column: FooterColumn) -> ParquetOutput:
    return ParquetOutput(
        name="x", partition="", is_change=False, size=1, modified_ms=1, rows=3, columns=(column,)
    )
