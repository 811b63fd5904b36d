"""What lies between two states of a Delta table: which files come and go, and what that is in rows and bytes.

Where one state goes on from the other, the commits in between tell, so that it costs what they changed. Else
the files of both are gone through.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.formats.delta.branch_log.branch_log import BranchLog, BranchLogTip, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.file_transitions import find_transitions
from penstock.formats.delta.branch_log.prepared_table import make_lookup_at_version, read_steps
from penstock.formats.delta.branch_log.ratification import read_declared
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Add, DeletionVector, FileKey, Remove, decode_path
from penstock.formats.delta.rows.file_addresses import check_inside, open_table_place
from penstock.formats.delta.rows.vectors import get_vector_file_name
from penstock.kernel.format import PrepareAgain, Table
from penstock.model.decoders import get_json_decoder
from penstock.model.merges import ChangeSummary
from penstock.model.nessie import DeltaTable

COMMITS_SEARCHED: Final = 64
"""In so many of the newest commits the statistics of removed files are looked for, before all files are."""


class FileChanges(NamedTuple):
    """The files that only one of two states has."""

    added: dict[FileKey, Add]
    removed: dict[FileKey, Add | Remove]


def compare_files(
    table: Table, commits: CommitReader, before: DeltaTable | None, after: DeltaTable | None
) -> FileChanges:
    """What leads from one state to another. Raises what reading their logs does."""
    if before is None or after is None or before.id != after.id:
        added, removed = (_list_all_files(table, commits, content) for content in (after, before))
        return FileChanges(added, {**removed})
    old_line, becomes = decode_branch_log(before), decode_branch_log(after)
    if BranchLogTip.from_line(old_line).is_on(becomes, table.read):
        return _compare_files_by_commits(table, commits, after, old_line)
    old, new = (commits.read_snapshot(content, table.read) for content in (before, after))
    return FileChanges(
        {add.key: add for add in _list_files_only_in(new, old)},
        {add.key: add for add in _list_files_only_in(old, new)},
    )


def _list_all_files(table: Table, commits: CommitReader, content: DeltaTable | None) -> dict[FileKey, Add]:
    if content is None:
        return {}
    return {add.key: add for add in commits.read_snapshot(content, table.read).read_files()}


def _compare_files_by_commits(
    table: Table, commits: CommitReader, after: DeltaTable, old_line: BranchLog
) -> FileChanges:
    """What the commits after a version come to: what came and went again is neither, nor what was there."""
    since = read_steps(table, commits, after, old_line.latest, decode_branch_log(after).latest)
    shifts = find_transitions(
        (), since, make_lookup_at_version(table, commits, after, old_line.latest)
    ).values()
    added = {shift.after.key: shift.after for shift in shifts if isinstance(shift.after, Add)}
    return FileChanges(
        added, {shift.before.key: shift.before for shift in shifts if shift.before is not None}
    )


def _list_files_only_in(snapshot: LogSnapshot, other: LogSnapshot) -> Iterator[Add]:
    digests = {key.digest for key in other.file_keys()}
    return (add for add in snapshot.read_files() if add.key.digest not in digests)


def summarize_change(
    table: Table, commits: CommitReader, before: DeltaTable | None, after: DeltaTable | None
) -> ChangeSummary:
    """What a change does to a table. What cannot be read is not known."""
    versions = ChangeSummary(
        version_before=None if before is None else decode_branch_log(before).latest,
        version_after=None if after is None else decode_branch_log(after).latest,
    )
    try:
        added, removed = compare_files(table, commits, before, after)
        removed = _add_statistics(table, commits, before, removed)
    except (PenstockError, PrepareAgain):
        return versions
    come = {key.path: add for key, add in added.items()}
    gone = {key.path: add for key, add in removed.items()}
    stay = come.keys() & gone.keys()
    rows_added, rows_removed = _count_changed_rows(come, gone, stay)
    return msgspec.structs.replace(
        versions,
        files_added=len(come.keys() - stay),
        files_removed=len(gone.keys() - stay),
        files_changed=len(stay),
        rows_added=rows_added,
        rows_removed=rows_removed,
        bytes_added=_sum_if_known(add.size for path, add in come.items() if path not in stay),
        bytes_removed=_sum_if_known(add.size for path, add in gone.items() if path not in stay),
    )


def _count_changed_rows(
    come: dict[str, Add], gone: dict[str, Add | Remove], stay: Collection[str]
) -> tuple[int | None, int | None]:
    """How many rows come and go. A file that stays has more or fewer deleted rows than before."""
    added = [_count_rows(add) for path, add in come.items() if path not in stay]
    removed = [_count_rows(add) for path, add in gone.items() if path not in stay]
    for path in stay:
        more = _count_deleted(gone[path]) - _count_deleted(come[path])
        added.append(max(0, more))
        removed.append(max(0, -more))
    return _sum_if_known(added), _sum_if_known(removed)


def _count_deleted(add: Add | Remove) -> int:
    return 0 if add.deletion_vector is None else add.deletion_vector.cardinality


def _count_rows(add: Add | Remove) -> int | None:
    """The rows of a file that are not deleted, if its statistics tell."""
    if not add.stats:
        return None
    try:
        rows = _decode_statistics(add.stats).num_records
    except (msgspec.MsgspecError, RecursionError):
        return None
    return None if rows is None or rows < 0 else rows - _count_deleted(add)


class _Statistics(msgspec.Struct, rename="camel"):
    num_records: int | None = None


_decode_statistics = get_json_decoder(_Statistics).decode


def _sum_if_known(numbers: Iterable[int | None]) -> int | None:
    """A sum, if all of it is known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _add_statistics(
    table: Table, commits: CommitReader, before: DeltaTable | None, removed: dict[FileKey, Add | Remove]
) -> dict[FileKey, Add | Remove]:
    """Removed files as they were added: to remove one says nothing about its rows."""
    remaining_file_keys = {key for key, add in removed.items() if not add.stats}
    adds: dict[FileKey, Add] = {}
    if before is None or not remaining_file_keys:
        return removed
    line = decode_branch_log(before)
    with suppress(PenstockError):  # the log may not have all of these commits any more
        for version in range(line.latest, max(-1, line.latest - COMMITS_SEARCHED), -1):
            entry = line.find_entry(version, table.read)
            for action in commits.read_actions(table, before.location, version, entry):
                if isinstance(action, Add) and action.key in remaining_file_keys:
                    adds[action.key] = action
            remaining_file_keys -= adds.keys()
            if not remaining_file_keys:
                break
    if remaining_file_keys:
        adds |= {
            add.key: add
            for add in commits.read_snapshot(before, table.read).read_files()
            if add.key in remaining_file_keys
        }
    return {**removed, **adds}


def missing_files(
    table: Table, commits: CommitReader, before: DeltaTable | None, after: DeltaTable
) -> Sequence[str]:
    """Of the files that one state has and another has not, those that are gone."""
    names: dict[str, None] = {}
    for add in compare_files(table, commits, before, after).added.values():
        names |= dict.fromkeys(_list_file_names(add))
    metadata = read_declared(table, decode_branch_log(after).declared).metadata
    place = open_table_place(commits.places, after.location, metadata.configuration)
    inside: list[str] = []
    for name in names:
        with suppress(UnsupportedFeature):  # what nobody could read is not looked at
            inside.append(check_inside(name, place))
    return place.missing(inside)


def _list_file_names(add: Add) -> Iterator[str]:
    yield decode_path(add.path)
    vector: DeletionVector | None = add.deletion_vector
    if vector is None:
        return
    if vector.storage_type == "p":
        yield decode_path(vector.path_or_inline_dv)
    elif vector.storage_type == "u":
        with suppress(ValueError):
            yield get_vector_file_name(vector)
