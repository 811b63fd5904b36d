"""Describes commits in words: how many files of which partitions were added and removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from penstock.formats.delta.protocol.transaction import find_last_action

_FileT = TypeVar("_FileT", Add, Remove)

SHOWN: Final = 3
"""How many names of a kind are told."""
_VERBS: Final = {"DELETE": "deleted", "UPDATE": "updated", "MERGE": "merged"}
"""What operations do to rows of files that they write anew."""


def describe_commit(actions: Sequence[Action]) -> str:
    """What a commit did, as the end of a sentence: ``appended 12 files to day=2026-11-14``."""
    info = find_last_action(actions, CommitInfo)
    operation = None if info is None else info.operation
    adds = [action for action in actions if isinstance(action, Add)]
    removes = [action for action in actions if isinstance(action, Remove)]
    phrases = [
        _describe_row_changes(_files_with_data_change(adds), _files_with_data_change(removes), operation),
        _describe_rewritten(_files_without_data_change(adds), _files_without_data_change(removes)),
        "changed the metadata" if find_last_action(actions, Metadata) is not None else "",
        "changed the protocol" if find_last_action(actions, Protocol) is not None else "",
        *(f"recorded {describe_batch(action)}" for action in actions if isinstance(action, Txn)),
        *(f"wrote the domain '{action.domain}'" for action in actions if isinstance(action, DomainMetadata)),
    ]
    return list_first_names([phrase for phrase in phrases if phrase], " and ") or "changed nothing"


class FileCounts(NamedTuple):
    """How many files commits brought and took, all together."""

    added: int
    removed: int

    @classmethod
    def from_commits(cls, commits: Iterable[Sequence[Action]]) -> FileCounts:
        """Of commits in their order: what came and went again is neither."""
        added: set[FileKey] = set()
        removed: set[FileKey] = set()
        for actions in commits:
            gone = {action.key for action in actions if isinstance(action, Remove)}
            come = {action.key for action in actions if isinstance(action, Add)}
            removed |= gone - added
            added -= gone
            added |= come - removed
            removed -= come
        return cls(len(added), len(removed))

    def __str__(self) -> str:
        if not any(self):
            return "no files added or removed"
        phrases = [format_file_count(self.added, "added")] if self.added else []
        if self.removed:
            phrases.append(
                f"{self.removed} removed" if phrases else format_file_count(self.removed, "removed")
            )
        return ", ".join(phrases)


def format_file_count(files: int, verb: str = "") -> str:
    return f"{files} file{'' if files == 1 else 's'}{' ' if verb else ''}{verb}"


def list_partitions(files: Iterable[Add | Remove]) -> tuple[str, ...]:
    """The partitions of files, as far as they are known: ``day=2026-11-14``."""
    values = [file.partition_values for file in files if file.partition_values]
    return tuple(
        sorted({"/".join(f"{name}={text or 'null'}" for name, text in value.items()) for value in values})
    )


def describe_batch(txn: Txn) -> str:
    return f"batch {txn.version} of the application '{txn.app_id}'"


def list_first_names(names: Sequence[str], before_last: str = ", ") -> str:
    """The first few of some names, and how many there are besides."""
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
    return before_last.join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _describe_row_changes(adds: Sequence[Add], removes: Sequence[Remove], operation: str | None) -> str:
    """Describe the changes of rows: files appended, removed, rewritten."""
    if not removes:
        return f"appended {format_file_count(len(adds))}{_describe_partitions(adds, ' to ')}" if adds else ""
    gone = f"{format_file_count(len(removes))}{_describe_partitions(removes, ' of ')}"
    if not adds:
        return f"removed {gone}"
    if operation in _VERBS:
        return f"{_VERBS[operation]} rows in {gone}"
    return f"replaced {gone} by {len(adds)}"


def _describe_rewritten(adds: Sequence[Add], removes: Sequence[Remove]) -> str:
    """What became of files whose rows did not change."""
    if not adds and not removes:
        return ""
    files = removes or adds
    files_text = f"{format_file_count(len(files))}{_describe_partitions(files, ' of ')}"
    return (
        f"rewrote {files_text} as {len(adds)} with the same rows"
        if adds and removes
        else f"rewrote the metadata of {files_text}"
    )


def _describe_partitions(files: Sequence[Add | Remove], verb: str) -> str:
    partitions = list_first_names(list_partitions(files))
    return f"{verb}{partitions}" if partitions else ""


def _files_with_data_change(files: Sequence[_FileT]) -> list[_FileT]:
    return [file for file in files if file.data_change]


def _files_without_data_change(files: Sequence[_FileT]) -> list[_FileT]:
    return [file for file in files if not file.data_change]
