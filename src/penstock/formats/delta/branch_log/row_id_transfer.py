"""Ids of rows that go from one line of a table to another.

Every line gives ids of its own to the rows that come there. The default branch's are those of the table's
log. What a branch gives is for its own readers, and far above all others: when its files land elsewhere they
get the ids that follow there, and the version that they land as. So no id is given twice in a log, and no
branch waits for another.

What was there when two lines parted has the same ids on both, and keeps them wherever it goes: with another
deletion vector, undone, restored, merged.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.net_change import FileActionT, NetChange, NetStep
from penstock.formats.delta.branch_log.prepared_table import find_parting_version, read_steps
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.protocol.actions import Add, DomainMetadata, Remove
from penstock.formats.delta.protocol.row_ids import FileRowIds, collect_row_ids, get_row_ids, highest_row_id
from penstock.kernel.format import Table
from penstock.model.nessie import DeltaTable


def transfer_row_ids(
    table: Table, commits: CommitReader, stays: DeltaTable, comes: DeltaTable, net: NetChange
) -> NetChange:
    """A net change of one line, ``comes``, as another one takes it, ``stays``.

    Files that both have, from before they parted or by an earlier merge, have the ids of the one that stays.
    The others have none: they get them when they land. ``PrepareAgain`` as ``read_steps``.
    """
    files: list[Add | Remove] = [*net.removes, *net.adds, *net.spared]
    if all(file.base_row_id is None for file in files):
        return net
    parted = find_parting_version(decode_branch_log(stays), decode_branch_log(comes), table.read)

    def is_own(file: Add | Remove) -> bool:
        """Whether a file came after the lines parted, with ids that count nowhere else."""
        ids = get_row_ids(file)
        return ids is None or (ids.is_provisional and ids.version > parted)

    if not any(map(is_own, files)):
        return net
    landed = _collect_row_ids_since(table, commits, stays, parted)

    def transfer_file_ids(file: FileActionT) -> FileActionT:
        if not is_own(file):
            return file
        ids = landed.get(file.key.path)
        return msgspec.structs.replace(
            file,
            base_row_id=None if ids is None else ids.base,
            default_row_commit_version=None if ids is None else ids.version,
        )

    return msgspec.structs.replace(
        net,
        removes=tuple(map(transfer_file_ids, net.removes)),
        adds=tuple(map(transfer_file_ids, net.adds)),
        spared=tuple(map(transfer_file_ids, net.spared)),
    )


def find_first_mark(content: DeltaTable, since: Sequence[NetStep]) -> int | None:
    """How far ids were given by the first version of a table that comes to the default branch for the first
    time, by its steps from that version on; ``None`` if it comes back.

    These ids are final on whichever branch the table was created: no line is older. Those that files of a
    clone may have written down are below the mark as well.
    """
    if decode_branch_log(content).fork_version >= 0 or not since:
        return None
    domains = {action.domain: action for action in since[0].actions if isinstance(action, DomainMetadata)}
    return highest_row_id(domains)


def _collect_row_ids_since(
    table: Table, commits: CommitReader, stays: DeltaTable, parted: int
) -> dict[str, FileRowIds]:
    """The ids of all files that came to a line after a version, by decoded paths; of none, if its log does
    not reach back so far."""
    lost = ("delta lost row ids", stays.location, parted)
    if lost in table.notes:
        return {}
    try:
        since = read_steps(table, commits, stays, parted, decode_branch_log(stays).latest)
    except VersionNotFound:
        table.notes[lost] = True
        return {}
    return collect_row_ids(action for step in since for action in step.actions)
