"""How tables of files merge: path by path, and whole folders where a side replaced them (rule K2).

What a side did to single paths is the difference of its tree to the common ancestor's. What it replaced is in
its intents: an overwrite means all that is there at its turn, whoever wrote it, so that below a folder that
the source replaced the result is what the source has, and never a union of two jobs' files.

A source that took in the target's state after such an overwrite has it behind it: what the target has written
since then stays. Only if the target has overwritten the same folder since is there no order to go by, and it
is a conflict.

A file that the source brings may be one that the target had too, by a commit that was transplanted: if a
write of the target has taken it since, it stays away. Its rows may be in what that write put in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.formats.files import trees
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import MARKER, File, FilesState, Layout, is_managed, state_of, with_state
from penstock.formats.files.intents import When, WriteIntent, decode_write, encode_write
from penstock.formats.files.layouts import find_difference, unite_layouts
from penstock.formats.files.table_changes import count_remaining_files, with_changes
from penstock.kernel.format import Applied, LaterCommit, PathClash, Refused, Since, Table
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.merges import MergeMode
from penstock.model.objects import EMPTY_ROOT

BOTH = "was changed on both sides"
WAY_OUT = "take one side's with the mode 'force' or 'drop', for the table or below a path"


class Sides(NamedTuple):
    """A table where two sides parted, as the source has it, and as the target does."""

    origin: FilesState
    theirs: FilesState
    ours: FilesState


class IncomingChanges(NamedTuple):
    """What is to change in the target: paths with the file that comes or ``None``, and what is there now."""

    changes: dict[str, File | None]
    there: dict[str, File]

    def take(self, path: str, now: File | None, file: File | None) -> None:
        self.changes[path] = file
        if now is not None:
            self.there[path] = now


class MergedState(NamedTuple):
    """What a merge makes of a table, and how many paths were looked at."""

    applied: Applied
    paths: int


def merge(
    table: Table,
    objects: Objects,
    target: FilesTable | None,
    base: FilesTable | None,
    source: FilesTable,
    intents: Sequence[bytes] | None,
) -> MergedState:
    """A table that both sides changed, with the source's changes on top; ``Refused`` where they clash.

    ``table.paths`` divides it: below a path with the mode ``force`` the result is as the source has it, below
    one with ``drop`` as the target does. Everywhere else both sides' changes come together. A target that has
    no such table is an empty one, and stays without it if nothing comes.
    """
    if target is not None and source.id != target.id and not table.is_strange:
        raise Refused(
            "is another table here than on the other side; rename one of them, or take one side's with the"
            " mode 'force' or 'drop'"
        )
    here = with_state(source, FilesState()) if target is None else target
    sides = Sides(FilesState() if base is None else state_of(base), state_of(source), state_of(here))
    coming = _forced_changes(table, objects, sides)
    looked_at = 0
    if _mode(table.paths, "") is MergeMode.NORMAL or any(
        mode is MergeMode.NORMAL for mode in table.paths.values()
    ):
        if target == base:
            _take_all(table, objects, sides, coming)
        elif intents is None:
            raise Refused(f"{BOTH}, and on the other side not only by writes; {WAY_OUT}")
        elif not _is_ignored([decode_write(intent) for intent in intents], sides.ours):
            looked_at = _replay(table, objects, sides, intents, coming)
        elif not coming.changes:
            return MergedState(Applied(target), 0)
    layout = _layout(objects, sides, coming)
    merged, blobs = with_changes(objects, sides.ours, coming.changes, coming.there, layout)
    intent, is_opaque = _intent_for_later_merges(table.paths, intents)
    content = None if target is None and not coming.changes else with_state(here, merged)
    return MergedState(Applied(content, blobs, intent, is_opaque), looked_at + len(coming.changes))


def _intent_for_later_merges(
    paths: Mapping[str, MergeMode], intents: Sequence[bytes] | None
) -> tuple[bytes | None, bool]:
    """What the next merge must know of folders that were treated in a way of their own: an intent, or that
    none tells.

    One that was taken from the source was replaced. One that was left must not be replaced later because of
    what the source did to it.
    """
    if not paths:
        return None, False
    forced = [prefix for prefix, mode in paths.items() if mode is MergeMode.FORCE]
    others = [prefix for prefix in paths if prefix not in forced]
    is_within = any(other.startswith(prefix) for prefix in forced for other in others)
    write_intents = None if intents is None else [decode_write(intent) for intent in intents if intent]
    is_left = write_intents is None or any(
        write.when is not When.ALWAYS or prefix.startswith(other) or other.startswith(prefix)
        for write in write_intents
        if is_more_than_files(write)
        for prefix in write.replaced or ("",)
        for other in others
    )
    return encode_write(WriteIntent(replaced=tuple(forced))), is_within or is_left


def is_more_than_files(write: WriteIntent) -> bool:
    """Whether a write does more than add and remove the files that it names: it replaces folders, or has a
    condition."""
    return bool(write.replaced) or write.when is not When.ALWAYS


def revert(
    table: Table, objects: Objects, target: FilesTable, before: FilesTable, after: FilesTable, since: Since
) -> MergedState:
    """A table without what one write did to it, path by path; ``Refused`` where others changed it since.

    Of a folder that the write replaced its own files go and the former ones come back, beside what was
    written there since. What later writes said stays: below a folder that was replaced since nothing is left
    to undo, since the former files would have gone then; nor at a path that was written or removed since,
    even if it is now as the write left it.
    """
    sides = Sides(state_of(before), state_of(after), state_of(target))
    coming = _forced_changes(table, objects, sides)
    kept_changes = _as_left(table, objects, sides)
    written = _last_writes(objects, since, kept_changes)
    settled = {
        path
        for path, later_commit in written.items()
        if later_commit.intents is not None and not later_commit.is_parallel
    }
    replaced = _outermost(_folders(since.after or ()))
    looked_at = _bring_paths(table, objects, sides, replaced, coming, settled)
    is_as_left = target == before and not table.paths
    _check_former(table, coming, since, written, is_as_left)
    _check_taken(table, objects, sides, since, replaced, coming)
    if is_as_left and len(coming.changes) == len(kept_changes):
        return MergedState(Applied(after), looked_at)
    merged, blobs = with_changes(
        objects, sides.ours, coming.changes, coming.there, _layout(objects, sides, coming)
    )
    return MergedState(Applied(with_state(target, merged), blobs), looked_at + len(coming.changes))


def _as_left(table: Table, objects: Objects, sides: Sides) -> list[str]:
    """The paths of a write that are now as it left them."""
    news = [
        difference
        for difference in trees.find_differences(objects, sides.origin.root, sides.theirs.root)
        if _mode(table.paths, difference.path) is MergeMode.NORMAL
    ]
    files = trees.find(objects, sides.ours.root, [difference.path for difference in news])
    return [difference.path for difference in news if _is_same(files.get(difference.path), difference.before)]


def _last_writes(objects: Objects, since: Since, paths: Sequence[str]) -> dict[str, LaterCommit]:
    """The last commit that wrote or removed each of some paths, if any did. A merge only brings files: it
    has each path as one of its parents does."""
    later_commits: dict[str, LaterCommit] = {}
    for commit in since.commits if paths else ():
        now, *before = (_root(content) for content in (commit.after, *commit.before))
        if now in before:
            continue
        files = trees.find(objects, now, paths)
        parents = [trees.find(objects, root, paths) for root in before]
        for path in paths:
            if all(files.get(path) != parent.get(path) for parent in parents):
                later_commits[path] = commit
    return later_commits


def _root(content: AnyContent | None) -> ObjectId:
    """Of a table's tree; that of an empty one where there is no table of files."""
    if isinstance(content, FilesTable) and is_managed(content):
        return state_of(content).root
    return EMPTY_ROOT


def _check_former(
    table: Table, coming: IncomingChanges, since: Since, written: Mapping[str, LaterCommit], is_as_left: bool
) -> None:
    """``Refused`` if a file would come back of which it cannot be told that it would still be there.

    What did not come by writes, such as another revert, says nothing of the paths that it did not touch. So
    a table that is as the write left it is told by the writes alone, where these left any doubt.
    """
    former = [
        path
        for path, file in coming.changes.items()
        if file is not None and _mode(table.paths, path) is MergeMode.NORMAL
    ]
    is_unknown = since.after is None or since.parallel is None
    if former and is_unknown and not is_as_left:
        raise Refused(f"was changed since then, and not only by writes; {WAY_OUT}")
    folders = tuple(_folders(intent for commit in since.commits for intent in commit.intents or ()))
    for path in former:
        if path.startswith(folders) and is_unknown:
            raise Refused(f"was changed since then, and not only by writes; {WAY_OUT}")
        if path.startswith(folders):
            raise Refused(f"was overwritten on another branch too, where '{path}' was; {WAY_OUT}")
        if path in written and written[path].is_parallel:
            raise Refused(f"was changed on another branch too, where '{path}' was; {WAY_OUT}")


def _check_taken(
    table: Table,
    objects: Objects,
    sides: Sides,
    since: Since,
    replaced: Sequence[str],
    coming: IncomingChanges,
) -> None:
    """``Refused`` if the write replaced folders on a branch, and a merge of it took files that others had
    there: they are no part of what the write did, and would stay away."""
    folders = _outermost(_folders(since.undone))
    for number, merge in enumerate(since.commits if folders else (), 1):
        for content in merge.met:
            had = {
                path: file
                for prefix in folders
                for path, file, _ in trees.find_differences(
                    objects, _root(content), _root(merge.after), prefix
                )
                if file is not None and not path.startswith(tuple(replaced))
                if _mode(table.paths, path) is MergeMode.NORMAL
            }
            becomes = {**trees.find(objects, sides.ours.root, [*had]), **coming.changes}
            written = _last_writes(objects, Since(since.commits[number:]), [*had])
            for path, file in had.items():
                if path not in written and not _is_same(becomes.get(path), file):
                    raise Refused(
                        f"was overwritten on a branch by what is to be undone, and the merge took '{path}' as"
                        f" well; undo the merge instead; {WAY_OUT}"
                    )


def _forced_changes(table: Table, objects: Objects, sides: Sides) -> IncomingChanges:
    """The changes that make the target equal to the source in folders that are merged with ``FORCE``."""
    coming = IncomingChanges({}, {})
    for prefix in _outermost(prefix for prefix, mode in table.paths.items() if mode is MergeMode.FORCE):
        for path, now, file in trees.find_differences(objects, sides.ours.root, sides.theirs.root, prefix):
            if _mode(table.paths, path) is MergeMode.FORCE:
                coming.take(path, now, file)
    return coming


def _take_all(table: Table, objects: Objects, sides: Sides, coming: IncomingChanges) -> None:
    """The target did nothing: whatever the source did, but for paths that are treated otherwise."""
    for path, now, file in trees.find_differences(objects, sides.ours.root, sides.theirs.root):
        if _mode(table.paths, path) is MergeMode.NORMAL:
            coming.take(path, now, file)


def _replay(
    table: Table, objects: Objects, sides: Sides, intents: Sequence[bytes], coming: IncomingChanges
) -> int:
    """What the source's writes make of the target; how many paths of its own it changed."""
    replaced = _replaced_folders(table, intents)
    for prefix in replaced:
        for path, now, file in trees.find_differences(objects, sides.ours.root, sides.theirs.root, prefix):
            if _mode(table.paths, path) is MergeMode.NORMAL:
                coming.take(path, now, file)
    return _bring_paths(table, objects, sides, replaced, coming, _taken_here(table, objects, sides, replaced))


def _taken_here(table: Table, objects: Objects, sides: Sides, replaced: Sequence[str]) -> set[str]:
    """The paths of files that the source brings, and that the target had as well and has removed since."""
    news = {
        path: file
        for path, old_file, file in trees.find_differences(objects, sides.origin.root, sides.theirs.root)
        if file is not None and old_file is None and not path.startswith(tuple(replaced))
    }
    ours = trees.find(objects, sides.ours.root, [*news])
    absent = [path for path in news if path not in ours]
    removed: set[str] = set()
    for commit in table.own.commits if absent and table.own is not None else ():
        (before,), after = map(_root, commit.before), _root(commit.after)
        if before not in (after, EMPTY_ROOT):
            files, remaining = trees.find(objects, before, absent), trees.find(objects, after, absent)
            removed |= {path for path in files if _is_same(files[path], news[path]) and path not in remaining}
    return removed


def _replaced_folders(table: Table, intents: Sequence[bytes]) -> list[str]:
    """The folders that the source replaced since the sides parted; ``Refused`` if no order tells."""
    if table.crossed is None:
        return _outermost(_folders(intents))
    earlier = Counter(table.crossed.earlier)
    replaced = _outermost(_folders((Counter(intents) - earlier).elements()))
    behind = [folder for folder in _folders(earlier) if not folder.startswith(tuple(replaced))]
    if behind and table.crossed.target is None:
        raise Refused(f"{BOTH}, and here not only by writes; {WAY_OUT}")
    ours = _folders(table.crossed.target or ())
    for prefix in behind:
        if any(other.startswith(prefix) or prefix.startswith(other) for other in ours):
            where = f" below '{prefix}'" if prefix else ""
            raise Refused(f"was overwritten on both sides{where}, and they met in between; {WAY_OUT}")
    return replaced


def _folders(intents: Iterable[bytes]) -> list[str]:
    return [prefix for intent in intents if intent for prefix in decode_write(intent).replaced]


def _bring_paths(
    table: Table,
    objects: Objects,
    sides: Sides,
    replaced: Sequence[str],
    coming: IncomingChanges,
    settled: Collection[str] = (),
) -> int:
    """What the source did to single paths, and how many; ``Refused`` with every path that both changed.

    Nothing is brought below folders that were replaced, nor to paths that are settled otherwise.
    """
    news = [
        difference
        for difference in trees.find_differences(objects, sides.origin.root, sides.theirs.root)
        if not difference.path.startswith(tuple(replaced))
        and difference.path not in settled
        and _mode(table.paths, difference.path) is MergeMode.NORMAL
    ]
    files = trees.find(objects, sides.ours.root, [difference.path for difference in news])
    clashes: list[PathClash] = []
    for path, old_file, file in news:
        now = files.get(path)
        if _is_same(now, file):
            continue
        if _is_same(now, old_file) or path.rpartition("/")[2] == MARKER:
            coming.take(path, now, file)
        else:
            clashes.append(PathClash(path, _describe_file(path, old_file), _describe_file(path, now)))
    if clashes:
        raise Refused(BOTH, clashes=clashes)
    return len(news)


def _is_ignored(writes: Sequence[WriteIntent], state: FilesState) -> bool:
    """Whether nothing is to happen, since a write was only for an empty table and it is not; else ``Refused``
    if it was."""
    is_empty = state.files == 0
    for write in writes:
        if write.when is not When.ALWAYS and not is_empty:
            if write.when is When.IGNORE and len(writes) == 1:
                return True
            raise Refused(f"has files by now, and the other side wrote to it as an empty one; {WAY_OUT}")
        if write.when is not When.ALWAYS:
            is_empty = False
        elif "" in write.replaced:
            is_empty = True
    return False


def _outermost(prefixes: Iterable[str]) -> list[str]:
    """Folders without those that lie in another one of them."""
    outermost: list[str] = []
    for prefix in sorted(set(prefixes)):
        if not (outermost and prefix.startswith(outermost[-1])):
            outermost.append(prefix)
    return outermost


def _is_same(file: File | None, other: File | None) -> bool:
    return file is other or (file is not None and other is not None and file.is_same_as(other))


def _mode(paths: Mapping[str, MergeMode], path: str) -> MergeMode:
    """How a path is to be merged: as the longest folder above it says."""
    if not paths:
        return MergeMode.NORMAL
    above = [prefix for prefix in paths if path.startswith(prefix)]
    return paths[max(above, key=len)] if above else MergeMode.NORMAL


def _describe_file(path: str, file: File | None) -> str:
    if file is None:
        return "no file"
    return f"{file.at(path)}, {file.size} byte{'' if file.size == 1 else 's'}"


def _layout(objects: Objects, sides: Sides, coming: IncomingChanges) -> Layout:
    """How the files are to be read afterwards: as the source says, if none of the target's is left.

    Files of two layouts in one table could not be read as one.
    """
    origin, theirs, ours = (side.layout for side in sides)
    brings = any(file is not None for file in coming.changes.values())
    remaining_files = count_remaining_files(objects, sides.ours, coming.there)
    if not remaining_files and (brings or theirs != origin):
        return theirs
    if not brings:
        return ours
    if (mixed := find_difference(ours, theirs)) is not None:
        raise Refused(
            f"{BOTH}, and holds files {mixed.one} here, but the other side has {mixed.other}; {WAY_OUT}"
        )
    if theirs != origin:
        return unite_layouts(ours, theirs)
    # Nothing was said of the layout, but the files that come may have columns that are not here.
    return msgspec.structs.replace(ours, schema=unite_layouts(ours, theirs).schema) if ours.schema else ours
