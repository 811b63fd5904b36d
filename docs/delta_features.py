"""What a lake does with Delta tables of each feature: the registry behind the page of the reference.

``tests/interop/test_feature_matrix.py`` does every operation on a table of every feature, with both writers,
and fails where the outcome is not what stands here; Delta Spark reads back what was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

OPERATIONS: Final = (
    "create",
    "adopt",
    "append",
    "overwrite",
    "delete",
    "update",
    "merge",
    "branch and merge",
    "revert",
    "restore",
    "release",
)
"""What is done to a table, one after the other."""

WRITERS: Final = ("Arrow", "Spark")

LOG_FEATURES: Final = "log features"
FEATURES: Final = {
    "columnMapping (name)": "columns mapped by name, one of them renamed",
    "columnMapping (id)": "columns mapped by their ids, one of them renamed",
    "rowTracking": "rows with ids that they keep",
    "checkConstraints": "a CHECK constraint",
    "invariants": "a NOT NULL column",
    "generatedColumns": "a column that is computed from another",
    "identityColumns": "a column with numbers of rows",
    "allowColumnDefaults": "a column with a default",
    "typeWidening": "a column that was widened",
    "clustering": "clustered by a column",
    "deletionVectors": "deletion vectors",
    "changeDataFeed": "a change data feed",
    "timestampNtz": "a column of times without a zone",
    "variantType": "a column of variants",
    "variantShredding": "variants, some of them shredded",
    "icebergCompatV1": "suits Iceberg; partitioned",
    "icebergCompatV2": "suits Iceberg; partitioned",
    "icebergCompatV2 (arrays)": "suits Iceberg; with an array",
    "icebergCompatV3": "suits Iceberg; partitioned, with row tracking",
    "materializePartitionColumns": "files hold their partition columns",
    LOG_FEATURES: "`inCommitTimestamp`, `v2Checkpoint`, `vacuumProtocolCheck`, `checkpointProtection`",
}
"""The tables, with what each of them has."""


class Cell(NamedTuple):
    """An operation on a table of a feature that is not simply done."""

    is_refused: bool
    """By the name of the feature, and nothing is written; else there is no such operation."""
    why: str
    """And the way out."""


_BY_LAKE: Final = Cell(False, "`lake.delta.create` takes the column's expression, Spark's writer does not")
_SHREDDED: Final = Cell(True, "Arrow reads no shredded variants: `penstock.spark` does")

EXCEPTIONS: Final[dict[tuple[str, str, str], Cell]] = {
    **{
        (name, "Spark", "create"): _BY_LAKE
        for name in ("generatedColumns", "identityColumns", "allowColumnDefaults")
    },
    ("invariants", "Spark", "create"): Cell(
        False, "Spark's writer makes columns nullable: `lake.delta.set_not_null`"
    ),
    ("clustering", "Spark", "create"): Cell(False, "`lake.delta.cluster_by` after the table is created"),
    ("typeWidening", "Spark", "create"): Cell(False, "a new table has no column that was widened"),
    ("typeWidening", "Arrow", "create"): Cell(False, "a new table has no column that was widened"),
    ("identityColumns", "Spark", "merge"): Cell(
        True, "Spark numbers no rows that a merge inserts: `table.merge`"
    ),
    **{("variantShredding", "Arrow", name): _SHREDDED for name in ("delete", "update", "merge")},
}
"""What is not simply done: by feature, writer and operation."""


INTRODUCTION: Final = """
# Features of Delta tables

What a lake does with a table of each feature, by Arrow (the methods of a table) and by Spark
(`penstock.spark`). Every cell is a test: the operations are done one after the other, on a table that Delta
Spark made and the lake adopted, and Delta Spark reads back what each of them did. `create` makes a table of
the feature in the lake. After `release` Delta Spark writes the table again.

✓ works · **r** is refused by name and nothing is written; a note says why, and what to do · – there is
no such operation

Features that keep a table from being adopted are told by their names: `catalogManaged` and its kin, where
another catalogue decides about commits, `icebergWriterCompatV1` and `V3` while they are enabled, collations,
geospatial types, and whatever this Penstock does not know.
"""


def features_page() -> Iterator[str]:
    """The page of the reference."""
    yield from INTRODUCTION.strip().splitlines()
    yield ""
    notes: list[str] = []
    for writer in WRITERS:
        yield f"## {writer}"
        yield ""
        yield f"| table | {' | '.join(OPERATIONS)} |"
        yield "|---|" + ":-:|" * len(OPERATIONS)
        for name, what in FEATURES.items():
            cells = [_mark(EXCEPTIONS.get((name, writer, operation)), notes) for operation in OPERATIONS]
            yield f"| {_title(name, what)} | {' | '.join(cells)} |"
        yield ""
    yield "## Notes"
    yield ""
    for number, note in enumerate(notes, 1):
        yield f"{number}. {note}"


def _title(name: str, what: str) -> str:
    feature, _, more = name.partition(" ")
    if name == LOG_FEATURES:
        return what
    return f"`{feature}`{' ' if more else ''}{more}: {what}"


def _mark(cell: Cell | None, notes: list[str]) -> str:
    if cell is None:
        return "✓"
    if cell.why not in notes:
        notes.append(cell.why)
    return f"{'**r**' if cell.is_refused else '–'} ({notes.index(cell.why) + 1})"
