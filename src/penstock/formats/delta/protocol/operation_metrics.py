"""The figures of a commit that people find in its history, under the names that Delta Spark gives them.

They are counted from what the commit says of files, so that every writer's commits have them. A figure that
does not follow from that, such as how many rows an update changed, is the writer's to tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.formats.delta.protocol.actions import Action, Add, Cdc, Remove
from penstock.model.decoders import json_decoder

METRICS: Final = "operationMetrics"
WRITES: Final = frozenset({"WRITE", "STREAMING UPDATE", "CREATE TABLE AS SELECT"})
MERGE_NAMES: Final = {
    "numAddedFiles": "numTargetFilesAdded",
    "numRemovedFiles": "numTargetFilesRemoved",
    "numAddedBytes": "numTargetBytesAdded",
    "numRemovedBytes": "numTargetBytesRemoved",
    "numAddedChangeFiles": "numTargetChangeFilesAdded",
}
"""How a MERGE calls them."""


class _FileRows(msgspec.Struct):
    """What is read of the statistics of a file."""

    num_records: int | None = msgspec.field(default=None, name="numRecords")


def operation_metrics(operation: str | None, actions: Iterable[Action]) -> dict[str, str]:
    """The figures of a commit, all of them as text; none if it says nothing of files."""
    adds, removes, feed = list[Add](), list[Remove](), 0
    for action in actions:
        if isinstance(action, Add):
            adds.append(action)
        elif isinstance(action, Remove):
            removes.append(action)
        elif isinstance(action, Cdc):
            feed += 1
    if not adds and not removes:
        return {}
    added_rows = _count_rows(adds)
    added_bytes = sum(add.size for add in adds)
    if operation in WRITES and not removes:
        rows = {} if added_rows is None else {"numOutputRows": added_rows}
        return _as_text({"numFiles": len(adds), "numOutputBytes": added_bytes, **rows})
    figures = {
        "numAddedFiles": len(adds),
        "numRemovedFiles": len(removes),
        "numAddedBytes": added_bytes,
        "numRemovedBytes": sum(remove.size or 0 for remove in removes),
        "numAddedChangeFiles": feed,
    }
    removed_rows = _count_rows(removes)
    if operation == "DELETE" and added_rows is not None and removed_rows is not None:
        figures["numDeletedRows"] = removed_rows - added_rows
    if operation == "MERGE":
        figures = {MERGE_NAMES[name]: count for name, count in figures.items()}
    return _as_text(figures)


def _count_rows(files: Iterable[Add | Remove]) -> int | None:
    """How many rows files have, without those that are deleted in them; ``None`` if one does not tell."""
    count = 0
    for file in files:
        try:
            rows = json_decoder(_FileRows).decode(file.stats).num_records if file.stats else None
        except msgspec.MsgspecError:
            return None
        if rows is None:
            return None
        count += rows - (0 if file.deletion_vector is None else file.deletion_vector.cardinality)
    return count


def _as_text(figures: dict[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in figures.items()}
