"""The rows that a Delta table would have if a proposal landed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import Damaged
from penstock.formats.delta.branch_log.branch_log import BranchLogTip, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.snapshots import DeltaSnapshotCache
from penstock.formats.delta.log.scan import read_rows
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.rows.file_addresses import open_table_place
from penstock.kernel.objects import Objects
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.objects import Blob
from penstock.storage.places import Places

if TYPE_CHECKING:
    from penstock.kernel.checks import BranchProposal
    from penstock.lake.embedded import Embedded


def read_proposed(
    lake: Embedded, commits: CommitReader, proposal: BranchProposal, key: Key, content: DeltaTable
) -> Any:
    """Begin to read the rows, where the lake is."""
    return _read_batches(_read_snapshot(lake, commits, proposal, key, content), lake.places, content)


def read_in_worker(content: DeltaTable, objects: Objects, places: Places) -> Any:
    """Begin to read the rows, in a process that has nothing of the lake but its objects."""
    return _read_batches(
        CommitReader(places).read_snapshot(content, _make_blob_reader(objects)), places, content
    )


def _read_batches(snapshot: LogSnapshot, places: Places, content: DeltaTable) -> Any:
    return read_rows(snapshot, open_table_place(places, content.location, snapshot.metadata.configuration))


def _read_snapshot(
    lake: Embedded, commits: CommitReader, proposal: BranchProposal, key: Key, content: DeltaTable
) -> LogSnapshot:
    """A version that may never be one. So it is not kept with those that are; what it goes on from is."""
    read, base = _make_blob_reader(proposal.objects), lake.read_content_at(proposal.base, key)
    if not isinstance(base, DeltaTable) or not base.state or base.id != content.id:
        base = None
    if base is not None and BranchLogTip.from_line(decode_branch_log(base)).is_on(
        decode_branch_log(content), read
    ):
        before = commits.read_snapshot(base, read)
        return before.append_commits([*commits.read_log_tail(content, before.version, read)])
    return DeltaSnapshotCache(lake.places, commits.read_log_tail).get_snapshot(content, read)


def _make_blob_reader(objects: Objects) -> Callable[[ObjectId], bytes]:
    def read_blob(data: ObjectId) -> bytes:
        stored = objects.get(data)
        if not isinstance(stored, Blob):
            raise Damaged(
                f"object {data.hex()} of the lake is damaged: it holds no bytes", objects=[data.hex()]
            )
        return stored.data

    return read_blob
