"""The ids that rows keep when they are written to other files.

On the default branch these are the ids that rows have. Rows that came on another branch get others when they
land, so those that they have there are not written down. Once their file has landed, the default branch tells
which they have got.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import Denied, RequestError
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.row_ids import FileRowIds, ids_by_path, row_columns_of

if TYPE_CHECKING:
    from penstock.formats.delta.lake.answers import TableVersions
    from penstock.lake.lake import Lake


def final_row_ids(lake: Lake, now: TableVersions, files: Sequence[Add]) -> dict[str, FileRowIds] | None:
    """Of some files of a table as it is ``now`` on a branch, those whose rows have ids that they keep, with
    these, by decoded paths; ``None`` if the table does not track rows."""
    _, metadata = now.parse_declared()
    if row_columns_of(metadata) is None:
        return None
    fork = now.latest_version if now.fork is None else now.fork
    by_path = ids_by_path(files)
    final = {path: ids for path, ids in by_path.items() if ids.version <= fork}
    own = by_path.keys() - final.keys()
    return {**final, **_landed_row_ids(lake, now, own)} if own else final


def _landed_row_ids(lake: Lake, now: TableVersions, paths: set[str]) -> dict[str, FileRowIds]:
    """The ids of those files that are in the table on the default branch."""
    with suppress(RequestError, Denied):  # it is not there, or not for this reader
        snapshot = lake.at(lake.default_branch).outside_read_set.table(now.key).snapshot()
        if snapshot.location == now.location:
            return ids_by_path(file for file in snapshot.files() if file.key.path in paths)
    return {}
