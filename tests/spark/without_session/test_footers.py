"""Statistics are made of what a footer says, and of nothing else."""

from __future__ import annotations

import json

from penstock.formats.delta.rows.stats import Leaf
from penstock.formats.delta.spark.job.footers import stats_of
from penstock.formats.delta.spark.job.jobs import BOUND_MAX_BYTES, Column, WrittenFile


def test_a_long_text_is_cut_as_if_all_of_it_were_known() -> None:
    for first in ("", "a"):  # the second is cut in the middle of a character
        cut = (first + "é" * 400).encode()[:BOUND_MAX_BYTES]
        column = Column(path=("t",), type="BINARY", nulls=0, min=cut, max=cut)
        told = json.loads(stats_of(_file(column), [Leaf(("t",), "string")]))
        begin = (first + "é" * 32)[:32]
        assert told["minValues"] == {"t": begin}
        assert told["maxValues"] == {"t": begin + "\U0010ffff"}


def test_what_is_not_told_is_not_made_up() -> None:
    silent = Column(path=("t",), type="INT32", nulls=-1)
    told = json.loads(stats_of(_file(silent), [Leaf(("t",), "integer"), Leaf(("u",), "long")]))
    assert told == {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {}}


def _file(column: Column) -> WrittenFile:
    return WrittenFile(
        name="x", partition="", is_change=False, size=1, modified_ms=1, rows=3, columns=(column,)
    )
