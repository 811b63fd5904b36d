"""Checks whether what a transaction has read of a Delta table is unchanged.

It goes by the commits that came since: what they added and removed, but for files that were only written
anew with the same rows. Where a transaction has looked for rows by conditions, only files count that can have
such rows, by their partition values and statistics. In doubt a file counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.branch_log import BranchLogTip, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.net_change import NetStep
from penstock.formats.delta.branch_log.prepared_table import read_steps
from penstock.formats.delta.branch_log.ratification import KnownDefinition, read_declared
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.protocol.actions import Add, CommitInfo, FileKey, Metadata, Remove
from penstock.formats.delta.protocol.commit_summary import describe_commit, list_first_names
from penstock.formats.delta.protocol.transaction import find_last_action
from penstock.formats.delta.rows.pruning import FilePruner
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.schema import parse_schema
from penstock.kernel.format import READ_AND_CHANGED, FormatRefused, Table
from penstock.model.nessie import DeltaTable

OTHER_LINE: Final = "the branch was moved, so its versions since then are different ones"
NO_ROWS: Final = "no rows"
"""The part of a table that is read by who looks at its columns and properties alone."""
FORGOTTEN: Final = "its log no longer contains what was changed"

PART_TOLD_CHARS: Final = 100
"""So much of a condition is told."""

FileAction: TypeAlias = Add | Remove


def check_seen(
    table: Table, commits: CommitReader, before: DeltaTable, now: DeltaTable, parts: Sequence[str] | None
) -> None:
    """``FormatRefused`` if rows that were seen in an older state of a table may be others now.

    ``parts`` are conditions, of which one that cannot be understood selects all rows. ``PrepareAgain`` if it
    cannot be told without table storage.
    """
    line, tip = decode_branch_log(now), BranchLogTip.from_line(decode_branch_log(before))
    if why := _explain_changed_read(table, commits, before, now, tip, parts):
        expected, actual = f"version {tip.version}", f"version {line.latest}"
        shown_parts = [part[:PART_TOLD_CHARS] for part in parts or () if part != NO_ROWS]
        where = f" where {list_first_names(shown_parts, ' or ')}" if shown_parts else ""
        raise FormatRefused(
            f"{READ_AND_CHANGED}{where}: {why}", expected=expected, found=actual, found_version=line.latest
        )


def _explain_changed_read(
    table: Table,
    commits: CommitReader,
    old_content: DeltaTable,
    now: DeltaTable,
    tip: BranchLogTip,
    parts: Sequence[str] | None,
) -> str:
    line = decode_branch_log(now)
    if old_content.location != now.location or not tip.is_on(line, table.read):
        return OTHER_LINE
    before, after = (
        read_declared(table, decode_branch_log(old_content).declared),
        read_declared(table, line.declared),
    )
    if changes := _find_changed_declarations(before, after):
        return f"{list_first_names(changes, ' and ')} changed"
    if parts is not None and set(parts) == {NO_ROWS}:
        return ""
    since = _list_commits_after(table, commits, now, tip)
    if since is None:
        return FORGOTTEN
    selection = _ReadSelection(table, commits, old_content, before.metadata, parts)
    for step, files in _find_changed_files(
        since, selection.files_present_before(_find_short_lived_files(since))
    ):
        if adds := selection.select_files(files):
            return _describe_step(step, adds)
    return ""


def _list_commits_after(
    table: Table, commits: CommitReader, now: DeltaTable, tip: BranchLogTip
) -> list[NetStep] | None:
    """The commits of a table after a version; ``None`` if its log has not all of them any more."""
    forgotten = ("delta forgotten", now.location, tip)
    if forgotten in table.notes:
        return None
    try:
        return read_steps(table, commits, now, tip.version, decode_branch_log(now).latest)
    except VersionNotFound:
        table.notes[forgotten] = True  # or its turn would send it back to look, again and again
        return None


def _find_changed_declarations(before: KnownDefinition, after: KnownDefinition) -> list[str]:
    """The changed properties of a table on which all of its rows depend."""
    old_metadata, now = before.metadata, after.metadata
    if old_metadata == now and before.protocol == after.protocol:
        return []
    changes = {
        "its schema": old_metadata.schema_string != now.schema_string,
        "its partition columns": old_metadata.partition_columns != now.partition_columns,
        "its properties": old_metadata.configuration != now.configuration,
        "its protocol": before.protocol != after.protocol,
    }
    return [name for name, is_changed in changes.items() if is_changed] or ["its metadata"]


def _find_short_lived_files(since: Sequence[NetStep]) -> set[FileKey]:
    """Files that were added with new rows, and removed with them, in whichever order."""
    files = [
        action
        for step in since
        for action in step.actions
        if isinstance(action, Add | Remove) and action.data_change
    ]
    return {file.key for file in files if isinstance(file, Add)} & {
        file.key for file in files if isinstance(file, Remove)
    }


def _find_changed_files(
    since: Sequence[NetStep], had: Collection[FileKey] = frozenset()
) -> list[tuple[NetStep, list[FileAction]]]:
    """The file actions of commits that added or removed rows, by commit.

    A file that came with new rows and went with them again is neither, unless the table ``had`` it before.
    One that was only rewritten has its rows still, in another file.
    """
    fresh: dict[FileKey, int] = {}
    steps: list[tuple[NetStep, list[FileAction]]] = []
    dropped: set[tuple[int, FileKey]] = set()
    for number, step in enumerate(since):
        files: list[FileAction] = [
            action for action in step.actions if isinstance(action, Add | Remove) and action.data_change
        ]
        for file in files:
            if isinstance(file, Remove) and (came := fresh.pop(file.key, None)) is not None:
                dropped |= {(came, file.key), (number, file.key)}
        fresh |= {file.key: number for file in files if isinstance(file, Add) and file.key not in had}
        steps.append((step, files))
    return [
        (step, [file for file in files if (number, file.key) not in dropped])
        for number, (step, files) in enumerate(steps)
    ]


class _ReadSelection:
    """The files that can have rows which a transaction has looked for."""

    def __init__(
        self,
        table: Table,
        commits: CommitReader,
        before: DeltaTable,
        metadata: Metadata,
        parts: Sequence[str] | None,
    ) -> None:
        self._table, self._commits, self._was = table, commits, before
        self._pruners = _parse_pruners(metadata, parts)
        """``None`` if all rows were looked for."""
        self._is_partitioned = bool(metadata.partition_columns)

    def select_files(self, files: Sequence[FileAction]) -> list[FileAction]:
        if self._pruners is None:
            return list(files)
        doubtful = {file.key for file in files if isinstance(file, Remove) and self._is_doubtful(file)}
        adds = (self._find_files_before(doubtful) if doubtful else None) or {}
        return [file for file in files if self._is_selected(adds.get(file.key) or file)]

    def files_present_before(self, keys: Collection[FileKey]) -> Collection[FileKey]:
        """The files, of those given, that were live in the state that was read, or may have been."""
        before = self._find_files_before(keys) if keys else {}
        return keys if before is None else before.keys()

    def _is_doubtful(self, remove: Remove) -> bool:
        """Whether a file may be selected only because its removal does not say enough of it."""
        return (remove.stats is None or remove.partition_values is None) and self._is_selected(remove)

    def _is_selected(self, file: FileAction) -> bool:
        if isinstance(file, Remove):
            if file.partition_values is None and self._is_partitioned:
                return True
            file = Add(
                path=file.path,
                partition_values=file.partition_values or {},
                size=0,
                modification_time=0,
                data_change=True,
                stats=file.stats,
            )
        return any(pruner.may_match(file) for pruner in self._pruners or ())

    def _find_files_before(self, keys: Collection[FileKey]) -> dict[FileKey, Add] | None:
        """What the state that was seen says of files; ``None`` if its log is gone, and they stay in doubt."""

        def read_files() -> dict[FileKey, Add] | None:
            try:
                files = self._commits.read_snapshot(self._was, self._table.read).read_files()
            except VersionNotFound:
                return None
            return {file.key: file for file in files if file.key in keys}

        key = (
            "delta seen",
            self._was.location,
            BranchLogTip.from_line(decode_branch_log(self._was)),
            *sorted(keys, key=repr),
        )
        return self._table.read_once(key, read_files)


def _parse_pruners(metadata: Metadata, parts: Sequence[str] | None) -> list[FilePruner] | None:
    if parts is None:
        return None
    try:
        schema = parse_schema(metadata.schema_string)
        return [FilePruner(parse_predicate(part, schema), metadata) for part in parts if part != NO_ROWS]
    except InvalidRequest:
        return None


def _describe_step(step: NetStep, files: Sequence[FileAction]) -> str:
    """Describe what a commit did to some files, with their names."""
    info = find_last_action(step.actions, CommitInfo)
    commit = describe_commit([*([] if info is None else [info]), *files])
    return f"version {step.version} {commit} ({list_first_names(sorted({file.key.path for file in files}))})"
