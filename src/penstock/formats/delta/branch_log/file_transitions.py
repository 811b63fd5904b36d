"""What lies between two states of a table, file by file, told from the commits since their lines parted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from penstock.formats.delta.branch_log.net_change import NetStep
from penstock.formats.delta.protocol.actions import Add, FileKey, Remove
from penstock.formats.delta.protocol.lint_files import Lookup

File: TypeAlias = Add | Remove
"""A file of a state: the action that added it, or the one that removed it afterwards."""
Files: TypeAlias = dict[str, tuple[str | None] | None]
"""Of some decoded paths, the id of the deletion vector of each that is a file of the table, if it has one;
``None`` stands for those that are none."""


class FileTransition(NamedTuple):
    """What a commit made of a file; ``None`` stands for no file."""

    before: File | None
    after: File | None
    data_change: bool

    @property
    def is_new(self) -> bool:
        return self.before is None

    @property
    def is_gone(self) -> bool:
        return self.after is None


def find_transitions(
    steps: Iterable[NetStep],
    here: Iterable[NetStep],
    live_at_parting: Lookup,
) -> dict[str, FileTransition]:
    """The files that differ, by their decoded paths: ``before`` is what each is after the commits ``steps``,
    ``after`` what it is after those ``here``. ``live_at_parting`` is asked which of some files were there
    before either."""
    theirs, mine = _collect_named_files(steps), _collect_named_files(here)
    paths = theirs.keys() | mine.keys()
    unclear = {path for path in paths if _is_unclear(path, theirs, mine)}
    were = live_at_parting(sorted(unclear)) if unclear else {}
    shifts: dict[str, FileTransition] = {}
    for path in paths:
        parted: File | None = _make_first_removal(path, theirs, mine)
        if path in unclear and path in were:
            parted = _make_first_action(path, theirs, mine)  # it was only added once more
        before = theirs[path].last if path in theirs else parted
        after = mine[path].last if path in mine else parted
        if get_file_key(before) != get_file_key(after):
            changes = any(side[path].data_change for side in (theirs, mine) if path in side)
            shifts[path] = FileTransition(before, after, changes)
    return shifts


def files_before(steps: Iterable[NetStep]) -> Files:
    """What the files that commits name were right before these: each was checked when it was ratified.

    What is removed was there, with that deletion vector. What is added was not; where it may have been, it is
    left out.
    """
    first_actions = (
        (path, named_file.first)
        for path, named_file in _collect_named_files(steps).items()
        if not named_file.is_unclear
    )
    return {path: (first.key.vector,) if isinstance(first, Remove) else None for path, first in first_actions}


def list_brought_files(step: NetStep) -> Iterator[FileKey]:
    """The files that a commit brought: with new rows, or with those of files that it removed. What is only
    said anew of a file that stays is not among them."""
    rewrites = any(isinstance(action, Remove) for action in step.actions)
    return (
        action.key for action in step.actions if isinstance(action, Add) and (action.data_change or rewrites)
    )


def get_file_key(file: File | None) -> FileKey | None:
    return None if file is None else file.key


def collect_paths(files: Iterable[File]) -> set[str]:
    return {file.key.path for file in files}


class _NamedFile(NamedTuple):
    """What commits say of a file, first and last."""

    first: File
    last: Add | None
    data_change: bool
    is_unclear: bool
    """It was added first, and may have been there before."""


def _collect_named_files(several: Iterable[NetStep]) -> dict[str, _NamedFile]:
    named_files: dict[str, _NamedFile] = {}
    for step in several:
        for kind in (Remove, Add):
            for action in step.actions:
                if isinstance(action, kind):
                    path = action.key.path
                    is_unclear = isinstance(action, Add) and step.may_repeat(action)
                    old_named_file = named_files.get(path) or _NamedFile(action, None, False, is_unclear)
                    named_files[path] = old_named_file._replace(
                        last=action if isinstance(action, Add) else None,
                        data_change=old_named_file.data_change or action.data_change,
                    )
    return named_files


def _is_unclear(path: str, *sides: Mapping[str, _NamedFile]) -> bool:
    """Whether no side tells if a file was there before."""
    return all(side[path].is_unclear for side in sides if path in side)


def _make_first_removal(path: str, *sides: Mapping[str, _NamedFile]) -> Remove | None:
    """A file where two lines parted, by what the first commit says that removed it."""
    firsts = (side[path].first for side in sides if path in side)
    return next((first for first in firsts if isinstance(first, Remove)), None)


def _make_first_action(path: str, *sides: Mapping[str, _NamedFile]) -> File:
    return next(side[path].first for side in sides if path in side)
