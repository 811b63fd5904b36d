"""Which changes of a source the target of a merge had before: by a commit that was transplanted, or merged.

The state at which two sides parted is not all that they have in common. A file is written once and belongs to
the commit that added it. So a table that had the file had the change, and what the table has done with the
file since is the later decision: a write may have put its rows into other files, an undo has taken them away.
A file that the commit removed is part of the same change.

In a merge and in a rebase such a decision stands. A transplant brings again what was undone, and nothing
else: where a write took the file, or where files are there that may hold its rows, it brings nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple

from penstock.formats.files import trees
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import MARKER, File, decode_state, is_managed, is_same
from penstock.formats.files.intents import decode_write
from penstock.kernel.format import FormatRefused, LaterCommit, LaterCommitLookup, PathClash, Table
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.objects import EMPTY_ROOT

WAY_OUT: Final = "take one side with the mode 'force' or 'drop', for the table or below a path"


def get_tree_root(content: AnyContent | None) -> ObjectId:
    """The root of a table's tree; that of an empty one where there is no table of files."""
    if isinstance(content, FilesTable) and is_managed(content):
        return decode_state(content).root
    return EMPTY_ROOT


def is_path_changed(own: LaterCommitLookup | None) -> bool:
    """Whether a branch changed the files of a table, also if they are as they were."""
    return own is not None and any(
        change.before != change.after for change in map(TreeChange.from_later_commit, own.commits)
    )


def find_known_paths(
    table: Table,
    objects: Objects,
    ours: ObjectId,
    changes: Sequence[trees.FileDifference],
    known_folders: Collection[str] = (),
) -> set[str]:
    """The paths at which the target had a change of the source, and has decided otherwise since.

    ``known_folders`` are those that the target has as the source replaced them, at least in part. What was
    undone there, and overwritten since, is not brought again.
    ``FormatRefused`` if it cannot be told whether rows that are to come again are there.
    """
    files = trees.find_files(objects, ours, [change.path for change in changes])
    absent = [change for change in changes if not is_same(files.get(change.path), change.after)]
    added = {path: file for path, _, file in absent if file is not None}
    if not added or table.own is None:
        return set()
    removed = {path: file for path, file, after in absent if file is not None and after is None}
    commits = [
        change
        for change in map(TreeChange.from_later_commit, table.own.commits)
        if change.before != change.after
    ]
    if not any(added.keys() & changed for changed in map(partial(_find_changed, objects), commits)):
        return set()  # what is not here, and was never changed, was never here
    tracks = _FileTracks(objects, commits, added, removed, follows_rows=table.brings_undone)
    tracks.follow_commits()
    known_paths = {*tracks.outcomes}
    if table.brings_undone:
        overwritten = {path for path in tracks.overwritten if path.startswith(tuple(known_folders))}
        undone = {path for path, outcome in tracks.outcomes.items() if outcome is FileOutcome.UNDONE}
        known_paths -= undone - overwritten
        clashes = [
            PathClash(path, "no file", file)
            for path, file in sorted(tracks.doubts.items())
            if path not in known_paths
        ]
        if clashes:
            raise FormatRefused(
                "was set to another state after the commit, and may have the commit's rows in other files; "
                f"{WAY_OUT}",
                clashes=clashes,
            )
    together = (tracks.removed_with.get(path, set()) for path in known_paths)
    return known_paths.union(*together)


def find_unknown_removals(
    table: Table, objects: Objects, ours: ObjectId, changes: Iterable[trees.FileDifference]
) -> set[str]:
    """The paths at which a commit that is transplanted removes a file that the target has not, and never
    had."""
    if not table.brings_undone:
        return set()
    removed = {path: file for path, file, after in changes if file is not None and after is None}
    own = () if table.own is None else table.own.commits
    states = (
        ours,
        *(
            root
            for change in map(TreeChange.from_later_commit, own)
            for root in (change.before, change.after)
        ),
    )
    for root in dict.fromkeys(states):
        removed = {
            path: removed[path] for path in removed.keys() - trees.find_files(objects, root, [*removed])
        }
    return {path for path in removed if path.rpartition("/")[2] != MARKER}


def find_known_folders(
    table: Table,
    objects: Objects,
    origin: ObjectId,
    theirs: ObjectId,
    ours: ObjectId,
    folders: Iterable[str],
) -> set[str]:
    """Of folders that the source replaced, those that a commit of the target replaced with the same files.

    That the folder is to have these files and no others was said by one commit, which both sides have: said
    again, it would take what was written there since.
    """
    known_folders: set[str] = set()
    own = () if table.own is None else table.own.commits
    for folder in folders:
        commits = [
            TreeChange.from_later_commit(commit)
            for commit in own
            if any(folder.startswith(other) for other in list_replaced_folders(commit.intents or ()))
        ]
        if not commits:
            continue
        added = {
            path: file
            for path, _, file in trees.find_differences(objects, origin, theirs, folder)
            if file is not None
        }
        came = [path for commit in commits for path in _find_new(objects, commit, added)]
        if came and table.brings_undone:
            changes = [trees.FileDifference(path, None, added[path]) for path in came]
            files = trees.find_files(objects, ours, came)
            is_there = any(is_same(files.get(path), added[path]) for path in came)
            came = [*came] if is_there else [*find_known_paths(table, objects, ours, changes)]
        if came:
            known_folders.add(folder)
    return known_folders


def list_replaced_folders(intents: Iterable[bytes]) -> list[str]:
    """The folders that some writes replaced."""
    return [prefix for intent in intents if intent for prefix in decode_write(intent).replaced]


def _find_changed(objects: Objects, commit: TreeChange) -> set[str]:
    """The paths that a commit changed."""
    return {change.path for change in trees.find_differences(objects, commit.before, commit.after)}


def _find_new(objects: Objects, commit: TreeChange, files: Mapping[str, File]) -> list[str]:
    """The paths of those of some files that a commit added."""
    before, after = (trees.find_files(objects, root, [*files]) for root in (commit.before, commit.after))
    return [
        path
        for path, file in files.items()
        if is_same(after.get(path), file) and not is_same(before.get(path), file)
    ]


class FileOutcome(Enum):
    """What became of the rows of a file that a table had."""

    HELD = auto()
    """They may be in files that the table has."""
    REPLACED = auto()
    """A write took them."""
    UNDONE = auto()
    """An undo took them."""


class TreeChange(NamedTuple):
    """What a commit made of the tree of a table."""

    before: ObjectId
    after: ObjectId
    is_write: bool
    is_merge: bool
    replaced: tuple[str, ...] = ()
    """The folders that it replaced."""

    @classmethod
    def from_later_commit(cls, commit: LaterCommit) -> TreeChange:
        after = get_tree_root(commit.after)
        # Of a commit whose parents have expired, it is not known what it changed.
        before = get_tree_root(commit.before[0]) if commit.before else after
        is_write = commit.intents is not None and not commit.is_merge
        return cls(
            before, after, is_write, commit.is_merge, tuple(list_replaced_folders(commit.intents or ()))
        )

    def find_files(self, objects: Objects) -> _ChangedFiles:
        differences = [*trees.find_differences(objects, self.before, self.after)]
        removed = {
            path: file
            for path, file, after in differences
            if file is not None and after is None and not path.startswith(self.replaced)
        }
        added = {path: file for path, _, file in differences if file is not None}
        return _ChangedFiles(removed, added, self.is_write)

    @property
    def is_undo(self) -> bool:
        """Whether it brought the table into a given state."""
        return not self.is_write and not self.is_merge


class _FileTracks:
    """Files that are to come, followed through the commits of a branch."""

    def __init__(
        self,
        objects: Objects,
        commits: Sequence[TreeChange],
        added: Mapping[str, File],
        removed: Mapping[str, File],
        *,
        follows_rows: bool,
    ) -> None:
        """``follows_rows`` also follows rows into files that writes put in place of these."""
        self._objects, self._commits = objects, commits
        self._added, self._removed = added, removed
        self._holders: dict[str, list[tuple[File, set[str]]]] = {
            path: [(file, {path})] for path, file in added.items()
        }
        """Files that may hold rows of files that are to come, by their paths, with the paths of these."""
        undone = [number for number, commit in enumerate(commits) if commit.is_undo]
        self._followed = undone[-1] + 1 if follows_rows and undone else 0
        """So many commits: after the last undo, it does not matter which file holds rows."""
        self.outcomes: dict[str, FileOutcome] = {}
        """Of the files that the branch had, by their paths."""
        self._ends: dict[str, FileOutcome] = {}
        """How commits ended files on whichever branch, or replaced their folders where the files were not."""
        self.overwritten: set[str] = set()
        """Paths in folders that writes replaced after the file there was undone."""
        self.removed_with: dict[str, set[str]] = {}
        """Paths that were removed where the file at a path came."""
        self.doubts: dict[str, str] = {}
        """Files that an undo brought from elsewhere when it took the file at a path."""

    def follow_commits(self) -> None:
        for number, commit in enumerate(self._commits):
            paths = [*self._holders, *self._removed]
            before = trees.find_files(self._objects, commit.before, paths)
            after = trees.find_files(self._objects, commit.after, paths)
            had, lost = self._find_held(before), self._find_held(before, without=after)
            if lost and number < self._followed:
                self._follow_rows(number, commit, lost)
            has = self._find_held(after)
            if lost and commit.is_write and number < self._followed:
                has |= self._find_held(self._find_holders(commit.after))
            self._note_removed(before, after, has - had)
            for path in has:
                self.outcomes[path] = FileOutcome.HELD
                self.doubts.pop(path, None)
                self.overwritten.discard(path)
            if commit.is_write and commit.replaced:
                others = {path for path in self._added.keys() - had if path.startswith(commit.replaced)}
                self._ends = dict.fromkeys(others, FileOutcome.REPLACED) | self._ends
            for path in had - has:
                self._note_end(path, commit)
            if commit.is_write:
                self.overwritten |= {
                    path
                    for path, outcome in self.outcomes.items()
                    if outcome is FileOutcome.UNDONE and path.startswith(commit.replaced)
                }

    def _find_held(self, files: Mapping[str, File], without: Mapping[str, File] | None = None) -> set[str]:
        """The paths whose rows some files may hold; only by files that others do not have, if these are
        given."""
        return {
            path
            for holder, file in files.items()
            if without is None or not is_same(file, without.get(holder))
            for held_file, paths in self._holders.get(holder, ())
            if is_same(file, held_file)
            for path in paths
        }

    def _find_holders(self, root: ObjectId) -> dict[str, File]:
        return trees.find_files(self._objects, root, [*self._holders])

    def _follow_rows(self, number: int, commit: TreeChange, lost: set[str]) -> None:
        """Note the files into which a commit may have put rows of files that it removed."""
        if commit.is_merge:  # it brings what others did
            return
        new = {
            path: file
            for path, _, file in trees.find_differences(self._objects, commit.before, commit.after)
            if file is not None
        }
        if commit.is_write:
            for path, file in new.items():
                self._holders.setdefault(path, []).append((file, set(lost)))
            return
        strange = self._find_strange(number, new)
        if strange is not None:
            self.doubts |= dict.fromkeys(lost, strange)

    def _find_strange(self, number: int, files: Mapping[str, File]) -> str | None:
        """One of some files that the branch did not have before a commit."""
        remaining = dict(files)
        for commit in self._commits[:number]:
            for root in (commit.before, commit.after):
                found_files = trees.find_files(self._objects, root, [*remaining])
                remaining = {
                    path: file for path, file in remaining.items() if not is_same(found_files.get(path), file)
                }
        return next(iter(sorted(remaining)), None)

    def _note_removed(
        self, before: Mapping[str, File], after: Mapping[str, File], come: Iterable[str]
    ) -> None:
        """Note which of the files that are to go went where files came that are to come."""
        removed = {
            path
            for path, file in self._removed.items()
            if is_same(before.get(path), file) and path not in after
        }
        for path in come if removed else ():
            if is_same(after.get(path), self._added[path]):
                self.removed_with.setdefault(path, set()).update(removed)

    def _note_end(self, path: str, commit: TreeChange) -> None:
        if not commit.is_merge:
            self._ends[path] = FileOutcome.UNDONE if commit.is_undo else FileOutcome.REPLACED
        if path in self._ends:  # a merge brings how a commit of another branch has ended it
            self.outcomes[path] = self._ends[path]
        else:  # that commit is the source's: what the source did since is the later decision
            self.outcomes.pop(path, None)


# -- rows that a side wrote into other files ---------------------------------------------------------------


class RewrittenFiles(NamedTuple):
    """Files that the source removed."""

    still_here: dict[str, File]
    """Files that the target has by a commit that both sides have, and whose rows the source wrote into
    others."""
    on_both_sides: set[str]
    """Paths of files that the target removed as well, and whose rows one of the two wrote into others."""


def find_rewritten(
    table: Table,
    objects: Objects,
    origin: ObjectId,
    theirs: ObjectId,
    ours: ObjectId,
    brought_again: Collection[str],
) -> RewrittenFiles:
    """What became of rows in files that the source removed, where both sides had the files.

    ``brought_again`` are paths at which a transplant brings what the target had, and has undone.
    """
    source_writes = (
        [*map(TreeChange.from_later_commit, table.theirs.commits)] if table.theirs is not None else []
    )
    if table.is_repeated:
        source_writes = [TreeChange(origin, theirs, is_write=True, is_merge=False)]
    source_changes = [write.find_files(objects) for write in source_writes if write.is_write]
    source_changes = [files for files in source_changes if files.removed]
    if not source_changes:
        return RewrittenFiles({}, set())
    own_commits = () if table.own is None else table.own.commits
    own_changes = [change.find_files(objects) for change in map(TreeChange.from_later_commit, own_commits)]
    removed: dict[str, File] = {}
    rewritten: set[str] = set()
    for files in source_changes:
        is_brought = not files.added.keys().isdisjoint(brought_again)
        if is_brought or not _has_any(objects, own_changes, ours, files.added):
            removed |= files.removed
            rewritten |= files.find_rewritten(files.removed)
    remaining = trees.find_files(objects, theirs, [*removed])
    removed = {path: file for path, file in removed.items() if not is_same(remaining.get(path), file)}
    if not removed:
        return RewrittenFiles({}, set())
    first, now = (trees.find_files(objects, root, [*removed]) for root in (origin, ours))
    still_here = {
        path: now[path]
        for path, file in removed.items()
        if path in rewritten and is_same(now.get(path), file) and not is_same(first.get(path), file)
    }
    absent = {path: file for path, file in removed.items() if path not in now}
    had = {path for path, file in absent.items() if is_same(first.get(path), file)}
    rewritten_here: set[str] = set()
    for files in own_changes if absent else ():
        gone = files.find_removed(absent)
        had |= gone
        rewritten_here |= files.find_rewritten(gone)
    return RewrittenFiles(still_here, (had & rewritten) | rewritten_here)


class LaterRemovals(NamedTuple):
    """What later commits did to files that a table had, by their paths."""

    removed: set[str]
    """Those that writes removed, but not with a folder."""
    rewritten: set[str]
    """Of these, those whose rows the writes may have written into others."""


def find_removals_since(
    objects: Objects, since: LaterCommitLookup, files: Mapping[str, File]
) -> LaterRemovals:
    """What became of files that a table had, by commits since then."""
    removals = LaterRemovals(set(), set())
    for change in map(TreeChange.from_later_commit, since.commits if files else ()):
        if change.is_write:
            changed = change.find_files(objects)
            gone = changed.find_removed(files)
            removals.removed.update(gone)
            removals.rewritten.update(changed.find_rewritten(gone))
    return removals


class _ChangedFiles(NamedTuple):
    """The files that a commit removed by their paths, and not with a folder, and those that it added."""

    removed: dict[str, File]
    added: dict[str, File]
    is_write: bool

    def find_removed(self, files: Mapping[str, File]) -> set[str]:
        """The paths of those of some files that it removed."""
        return {
            path for path in files.keys() & self.removed.keys() if is_same(files[path], self.removed[path])
        }

    def find_rewritten(self, removed: Iterable[str]) -> set[str]:
        """Of paths that it removed, those in folders to which it added files: what has the same partition may
        have the same rows."""
        folders = {path.rpartition("/")[0] for path in self.added} if self.is_write else set()
        return {path for path in removed if path.rpartition("/")[0] in folders}


def _has_any(
    objects: Objects, own: Iterable[_ChangedFiles], ours: ObjectId, files: Mapping[str, File]
) -> bool:
    """Whether the target has one of some files, or had it: then it has the commit that added them."""
    now = trees.find_files(objects, ours, [*files])
    return any(
        is_same(target_files[path], files[path])
        for target_files in (now, *(changed.added for changed in own))
        for path in files.keys() & target_files.keys()
    )
