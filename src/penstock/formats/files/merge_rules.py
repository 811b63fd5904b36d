"""How tables of files merge: path by path, and whole folders where a side replaced them (rule K2).

What a side did to single paths is the difference of its tree to the common ancestor's. What it replaced is in
its intents: an overwrite means all that is there at its turn, whoever wrote it, so that below a folder that
the source replaced the result is what the source has, and never a union of two jobs' files.

A source that took in the target's state after such an overwrite has it behind it: what the target has written
since then stays. Only if the target has overwritten the same folder since is there no order to go by, and it
is a conflict.

A change that the source brings may be one that the target had too, by a commit that was transplanted. If the
target has decided otherwise since, by a write or by an undo, that stands (``known_changes.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.formats.files import trees
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import (
    MARKER,
    File,
    FilesLayout,
    FilesState,
    decode_state,
    encode_state_into_table,
    is_same,
)
from penstock.formats.files.intents import WriteCondition, WriteIntent, decode_write, encode_write
from penstock.formats.files.known_changes import (
    WAY_OUT,
    find_known_folders,
    find_known_paths,
    find_removals_since,
    find_rewritten,
    find_unknown_removals,
    get_tree_root,
    list_replaced_folders,
)
from penstock.formats.files.layouts import find_difference, unite_layouts
from penstock.formats.files.table_changes import apply_changes, count_remaining_files
from penstock.kernel.format import (
    AppliedChange,
    FormatRefused,
    LaterCommit,
    LaterCommitLookup,
    PathClash,
    Table,
)
from penstock.kernel.objects import Objects
from penstock.model.merges import MergeMode

BOTH = "was changed on both sides"


class MergeStates(NamedTuple):
    """A table where two sides parted, as the source has it, and as the target does."""

    origin: FilesState
    theirs: FilesState
    ours: FilesState


class IncomingChanges(NamedTuple):
    """What is to change in the target: paths with the file that comes or ``None``, and what is there now."""

    changes: dict[str, File | None]
    there: dict[str, File]

    def take_file(self, path: str, now: File | None, file: File | None) -> None:
        self.changes[path] = file
        if now is not None:
            self.there[path] = now


class MergedState(NamedTuple):
    """What a merge makes of a table, and how many paths were looked at."""

    applied: AppliedChange
    paths: int


def merge_files(
    table: Table,
    objects: Objects,
    target: FilesTable | None,
    base: FilesTable | None,
    source: FilesTable,
    intents: Sequence[bytes] | None,
) -> MergedState:
    """A table that both sides changed, with the source's changes on top; ``FormatRefused`` where they clash.

    ``table.paths`` divides it: below a path with the mode ``force`` the result is as the source has it, below
    one with ``drop`` as the target does. Everywhere else both sides' changes come together. A target that has
    no such table is an empty one, and stays without it if nothing comes.
    """
    if target is not None and source.id != target.id and not table.is_strange:
        raise FormatRefused(
            "is a different table on the other side; rename one of the two, or take one side with the "
            "mode 'force' or 'drop'"
        )
    here = encode_state_into_table(source, FilesState()) if target is None else target
    sides = MergeStates(
        FilesState() if base is None else decode_state(base), decode_state(source), decode_state(here)
    )
    coming = _find_forced_changes(table, objects, sides)
    looked_at = 0
    if _merge_mode_of_path(table.paths, "") is MergeMode.NORMAL or any(
        mode is MergeMode.NORMAL for mode in table.paths.values()
    ):
        if target == base:
            # An undo is no write: where nothing was changed, its transplant brings what it brought.
            is_undo = intents is None and table.brings_undone
            _take_all(table, objects, sides, coming, knows_paths=not is_undo)
        elif intents is None:
            raise FormatRefused(f"{BOTH}, and on the source not only by writes of files; {WAY_OUT}")
        elif not _is_ignored([decode_write(intent) for intent in intents], sides.ours):
            looked_at = _replay_source_writes(table, objects, sides, intents, coming)
        elif not coming.changes:
            return MergedState(AppliedChange(target), 0)
    layout = _merge_layouts(objects, sides, coming)
    merged, blobs = apply_changes(objects, sides.ours, coming.changes, coming.there, layout)
    intent, is_opaque = _intent_for_later_merges(table.paths, intents)
    content = None if target is None and not coming.changes else encode_state_into_table(here, merged)
    return MergedState(AppliedChange(content, blobs, intent, is_opaque), looked_at + len(coming.changes))


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
        write.when is not WriteCondition.ALWAYS or prefix.startswith(other) or other.startswith(prefix)
        for write in write_intents
        if is_more_than_files(write)
        for prefix in write.replaced or ("",)
        for other in others
    )
    return encode_write(WriteIntent(replaced=tuple(forced))), is_within or is_left


def is_more_than_files(write: WriteIntent) -> bool:
    """Whether a write does more than add and remove the files that it names: it replaces folders, or has a
    condition."""
    return bool(write.replaced) or write.when is not WriteCondition.ALWAYS


def revert_files(
    table: Table,
    objects: Objects,
    target: FilesTable,
    committed: FilesTable,
    previous: FilesTable,
    since: LaterCommitLookup,
) -> MergedState:
    """A table without what one write did to it, path by path; ``FormatRefused`` where others changed it
    since.

    Of a folder that the write replaced its own files go and the former ones come back, beside what was
    written there since. What later writes said stays: below a folder that was replaced since nothing is left
    to undo, since the former files would have gone then; nor at a path that was written or removed since,
    even if it is now as the write left it. Only the very file that the write added goes also if it came again
    since: by nothing but a repetition of the write.
    """
    sides = MergeStates(decode_state(committed), decode_state(previous), decode_state(target))
    coming = _find_forced_changes(table, objects, sides)
    kept_changes = _find_unchanged_paths(table, objects, sides)
    written = _find_last_writes(objects, since, kept_changes)
    own_files = _find_paths_with_same_file(objects, sides, kept_changes)
    settled = {
        path
        for path, later_commit in written.items()
        if later_commit.intents is not None and not later_commit.is_parallel and path not in own_files
    }
    replaced = _find_outermost_folders(list_replaced_folders(since.after or ()))
    news = _find_changes_of_single_files(table, objects, sides, replaced)
    _check_rewritten(objects, sides, since, news)
    looked_at = _merge_paths(objects, sides, news, coming, settled)
    is_as_left = target == committed and not table.paths
    _check_former(table, coming, since, written, is_as_left)
    _check_taken(table, objects, sides, since, replaced, coming)
    if is_as_left and len(coming.changes) == len(kept_changes):
        return MergedState(AppliedChange(previous), looked_at)
    merged, blobs = apply_changes(
        objects, sides.ours, coming.changes, coming.there, _merge_layouts(objects, sides, coming)
    )
    return MergedState(
        AppliedChange(encode_state_into_table(target, merged), blobs), looked_at + len(coming.changes)
    )


def _find_unchanged_paths(table: Table, objects: Objects, sides: MergeStates) -> list[str]:
    """The paths of a write that are now as it left them."""
    news = _find_changes_of_single_files(table, objects, sides)
    files = trees.find_files(objects, sides.ours.root, [difference.path for difference in news])
    return [difference.path for difference in news if is_same(files.get(difference.path), difference.before)]


def _check_rewritten(
    objects: Objects, sides: MergeStates, since: LaterCommitLookup, news: Sequence[trees.FileDifference]
) -> None:
    """``FormatRefused`` if the files that would come back may hold rows that later commits wrote into other
    files, or removed with a file of the write: these rows would be there twice, or come back."""
    files = {path: file for path, file, after in news if file is not None and after is None}
    now = trees.find_files(objects, sides.ours.root, [*files])
    absent = {path: file for path, file in files.items() if path not in now}
    removals = find_removals_since(objects, since, absent)
    if removals.rewritten:
        raise FormatRefused(
            "has rows of the commit to be reverted in files that a later commit wrote; revert that later "
            f"commit first; {WAY_OUT}",
            clashes=_describe_absent(removals.rewritten),
        )
    replaced = tuple(list_replaced_folders(since.undone))
    refilled = {_get_folder(path) for path, _, after in news if after is not None}
    removed = {
        path
        for path in removals.removed
        if _get_folder(path) in refilled and not path.startswith(replaced) and not _is_marker(path)
    }
    if removed:
        raise FormatRefused(
            "had files of the commit to be reverted removed by a later commit, and the files that would come "
            f"back may hold the same rows; revert that later commit first; {WAY_OUT}",
            clashes=_describe_absent(removed),
        )


def _describe_absent(paths: Iterable[str]) -> list[PathClash]:
    return [PathClash(path, "a file", "no file") for path in sorted(paths)]


def _get_folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_marker(path: str) -> bool:
    return path.rpartition("/")[2] == MARKER


def _find_paths_with_same_file(objects: Objects, sides: MergeStates, paths: Sequence[str]) -> set[str]:
    """Of paths that are as a write left them, those at which its own file is, and no other of equal bytes."""
    files, now = (trees.find_files(objects, side.root, paths) for side in (sides.origin, sides.ours))
    return {path for path, file in files.items() if file == now.get(path)}


def _find_last_writes(
    objects: Objects, since: LaterCommitLookup, paths: Sequence[str]
) -> dict[str, LaterCommit]:
    """The last commit that wrote or removed each of some paths, if any did. A merge only brings files: it
    has each path as one of its parents does."""
    later_commits: dict[str, LaterCommit] = {}
    for commit in since.commits if paths else ():
        now, *before = (get_tree_root(content) for content in (commit.after, *commit.before))
        if now in before:
            continue
        files = trees.find_files(objects, now, paths)
        parents = [trees.find_files(objects, root, paths) for root in before]
        for path in paths:
            if all(files.get(path) != parent.get(path) for parent in parents):
                later_commits[path] = commit
    return later_commits


def _check_former(
    table: Table,
    incoming: IncomingChanges,
    since: LaterCommitLookup,
    written: Mapping[str, LaterCommit],
    is_as_left: bool,
) -> None:
    """``FormatRefused`` if the revert would restore a file that later commits may have removed.

    Commits without write intents, such as another revert, do not record which paths they left alone. If there
    are any, only a table that is still as the write left it is decided by the writes alone.
    """
    former = [
        path
        for path, file in incoming.changes.items()
        if file is not None and _merge_mode_of_path(table.paths, path) is MergeMode.NORMAL
    ]
    is_unknown = since.after is None or since.parallel is None
    if former and is_unknown and not is_as_left:
        raise FormatRefused(
            f"was changed after the commit to be reverted, and not only by writes of files; {WAY_OUT}"
        )
    folders = tuple(
        list_replaced_folders(intent for commit in since.commits for intent in commit.intents or ())
    )
    for path in former:
        if path.startswith(folders) and is_unknown:
            raise FormatRefused(
                f"was changed after the commit to be reverted, and not only by writes of files; {WAY_OUT}"
            )
        if path.startswith(folders):
            raise FormatRefused(
                f"was also overwritten on another branch, in the folder of '{path}'; {WAY_OUT}"
            )
        if path in written and written[path].is_parallel:
            raise FormatRefused(f"was also changed on another branch, at '{path}'; {WAY_OUT}")


def _check_taken(
    table: Table,
    objects: Objects,
    sides: MergeStates,
    since: LaterCommitLookup,
    replaced: Sequence[str],
    incoming: IncomingChanges,
) -> None:
    """``FormatRefused`` if the write replaced folders on a branch, and a merge of it took files that others
    had there: they are no part of what the write did, and would stay away."""
    folders = _find_outermost_folders(list_replaced_folders(since.undone))
    for number, merge in enumerate(since.commits if folders else (), 1):
        for content in merge.other_side:
            had = {
                path: file
                for prefix in folders
                for path, file, _ in trees.find_differences(
                    objects, get_tree_root(content), get_tree_root(merge.after), prefix
                )
                if file is not None and not path.startswith(tuple(replaced))
                if _merge_mode_of_path(table.paths, path) is MergeMode.NORMAL
            }
            becomes = {**trees.find_files(objects, sides.ours.root, [*had]), **incoming.changes}
            written = _find_last_writes(objects, LaterCommitLookup(since.commits[number:]), [*had])
            for path, file in had.items():
                if path not in written and not is_same(becomes.get(path), file):
                    raise FormatRefused(
                        "was overwritten on a branch by the commit to be undone, and the merge of that "
                        f"branch also removed '{path}'; undo the merge instead; {WAY_OUT}"
                    )


def _find_forced_changes(table: Table, objects: Objects, sides: MergeStates) -> IncomingChanges:
    """The changes that make the target equal to the source in folders that are merged with ``FORCE``."""
    coming = IncomingChanges({}, {})
    for prefix in _find_outermost_folders(
        prefix for prefix, mode in table.paths.items() if mode is MergeMode.FORCE
    ):
        for path, now, file in trees.find_differences(objects, sides.ours.root, sides.theirs.root, prefix):
            if _merge_mode_of_path(table.paths, path) is MergeMode.FORCE:
                coming.take_file(path, now, file)
    return coming


def _take_all(
    table: Table, objects: Objects, sides: MergeStates, incoming: IncomingChanges, *, knows_paths: bool
) -> None:
    """The target is as it was: whatever the source did, but for what the target had and has undone, unless
    it ``knows_paths`` by no file, and for paths that are treated otherwise."""
    news = _find_changes_of_single_files(table, objects, sides)
    known_paths = find_known_paths(table, objects, sides.ours.root, news) if knows_paths else ()
    for path, now, file in news:
        if path not in known_paths:
            incoming.take_file(path, now, file)


def _find_changes_of_single_files(
    table: Table, objects: Objects, sides: MergeStates, replaced: Sequence[str] = ()
) -> list[trees.FileDifference]:
    """What the source did to single paths, but below folders that were replaced, and to paths that are
    treated in a way of their own."""
    return [
        difference
        for difference in trees.find_differences(objects, sides.origin.root, sides.theirs.root)
        if not difference.path.startswith(tuple(replaced))
        and _merge_mode_of_path(table.paths, difference.path) is MergeMode.NORMAL
    ]


def _replay_source_writes(
    table: Table, objects: Objects, sides: MergeStates, intents: Sequence[bytes], incoming: IncomingChanges
) -> int:
    """What the source's writes make of the target; how many paths of its own it changed."""
    origin, theirs, ours = (side.root for side in sides)
    folders = set(list_replaced_folders(intents))
    known_folders = find_known_folders(table, objects, origin, theirs, ours, folders)
    replaced = _folders_to_replace(table, intents, known_folders)
    for prefix in replaced:
        for path, now, file in trees.find_differences(objects, sides.ours.root, sides.theirs.root, prefix):
            if _merge_mode_of_path(table.paths, path) is MergeMode.NORMAL:
                incoming.take_file(path, now, file)
    news = _find_changes_of_single_files(table, objects, sides, replaced)
    known_paths = find_known_paths(table, objects, sides.ours.root, news, known_folders)
    looked_at = _merge_paths(objects, sides, news, incoming, known_paths)
    _settle_rewritten(table, objects, sides, replaced, incoming)
    unknown_paths = find_unknown_removals(table, objects, ours, news) - known_paths
    if unknown_paths:
        raise FormatRefused(
            f"never had files that the commit removes; {WAY_OUT}",
            clashes=[PathClash(path, "a file", "no file") for path in sorted(unknown_paths)],
        )
    return looked_at


def _settle_rewritten(
    table: Table, objects: Objects, sides: MergeStates, replaced: Sequence[str], incoming: IncomingChanges
) -> None:
    """Take files of the target whose rows the source has written into others; ``FormatRefused`` if neither
    side has a file any more, and one of them has written its rows into others."""
    own_root, origin, theirs = sides.ours.root, sides.origin.root, sides.theirs.root
    brought = [path for path, file in incoming.changes.items() if file is not None]
    rewritten = find_rewritten(
        table, objects, origin, theirs, own_root, brought if table.brings_undone else ()
    )
    for path, file in rewritten.still_here.items():
        if (
            not path.startswith(tuple(replaced))
            and _merge_mode_of_path(table.paths, path) is MergeMode.NORMAL
        ):
            incoming.take_file(path, file, None)
    clashes = [
        PathClash(path, "a file", "no file")
        for path in sorted(rewritten.on_both_sides)
        if not path.startswith(tuple(replaced)) and _merge_mode_of_path(table.paths, path) is MergeMode.NORMAL
    ]
    if clashes:
        raise FormatRefused(
            "has files that one side rewrote into others, and the other side removed or rewrote as well; "
            f"{WAY_OUT}",
            clashes=clashes,
        )


def _folders_to_replace(table: Table, intents: Sequence[bytes], known: Collection[str]) -> list[str]:
    """The folders that the source replaced since the sides parted, but those of which the target has that
    already; ``FormatRefused`` if no order tells."""
    if table.criss_cross is None:
        return _find_outermost_folders(
            folder for folder in list_replaced_folders(intents) if folder not in known
        )
    earlier = Counter(table.criss_cross.earlier)
    later = list_replaced_folders((Counter(intents) - earlier).elements())
    replaced = _find_outermost_folders(folder for folder in later if folder not in known)
    behind = [
        folder
        for folder in list_replaced_folders(earlier)
        if not folder.startswith(tuple(replaced)) and folder not in known
    ]
    if behind and table.criss_cross.target is None:
        raise FormatRefused(f"{BOTH}, and on the target not only by writes of files; {WAY_OUT}")
    ours = list_replaced_folders(table.criss_cross.target or ())
    for prefix in behind:
        if any(other.startswith(prefix) or prefix.startswith(other) for other in ours):
            where = f" below '{prefix}'" if prefix else ""
            raise FormatRefused(
                f"was overwritten on both sides{where}, with merges between them in the meantime; {WAY_OUT}"
            )
    return replaced


def _merge_paths(
    objects: Objects,
    sides: MergeStates,
    differences: Iterable[trees.FileDifference],
    incoming: IncomingChanges,
    settled: Collection[str],
) -> int:
    """What the source did to single paths, and how many; ``FormatRefused`` with every path that both changed.

    Nothing is brought to paths that are settled otherwise.
    """
    news = [difference for difference in differences if difference.path not in settled]
    files = trees.find_files(objects, sides.ours.root, [difference.path for difference in news])
    clashes: list[PathClash] = []
    for path, old_file, file in news:
        now = files.get(path)
        if is_same(now, file):
            continue
        if is_same(now, old_file) or _is_marker(path):
            incoming.take_file(path, now, file)
        else:
            clashes.append(PathClash(path, _describe_file(path, old_file), _describe_file(path, now)))
    if clashes:
        raise FormatRefused(BOTH, clashes=clashes)
    return len(news)


def _is_ignored(writes: Sequence[WriteIntent], state: FilesState) -> bool:
    """Whether nothing is to happen, since a write was only for an empty table and it is not; else
    ``FormatRefused`` if it was."""
    is_empty = state.files == 0
    for write in writes:
        if write.when is not WriteCondition.ALWAYS and not is_empty:
            if write.when is WriteCondition.IGNORE and len(writes) == 1:
                return True
            raise FormatRefused(
                f"has files now, but the other side wrote to it on the condition that it is empty; {WAY_OUT}"
            )
        if write.when is not WriteCondition.ALWAYS:
            is_empty = False
        elif "" in write.replaced:
            is_empty = True
    return False


def _find_outermost_folders(prefixes: Iterable[str]) -> list[str]:
    """Folders without those that lie in another one of them."""
    outermost: list[str] = []
    for prefix in sorted(set(prefixes)):
        if not (outermost and prefix.startswith(outermost[-1])):
            outermost.append(prefix)
    return outermost


def _merge_mode_of_path(paths: Mapping[str, MergeMode], path: str) -> MergeMode:
    """How a path is to be merged: as the longest folder above it says."""
    if not paths:
        return MergeMode.NORMAL
    above = [prefix for prefix in paths if path.startswith(prefix)]
    return paths[max(above, key=len)] if above else MergeMode.NORMAL


def _describe_file(path: str, file: File | None) -> str:
    if file is None:
        return "no file"
    return f"{file.address_at(path)}, {file.size} byte{'' if file.size == 1 else 's'}"


def _merge_layouts(objects: Objects, sides: MergeStates, incoming: IncomingChanges) -> FilesLayout:
    """How the files are to be read afterwards: as the source says, if none of the target's is left.

    Files of two layouts in one table could not be read as one.
    """
    origin, theirs, ours = (side.layout for side in sides)
    brings = any(file is not None for file in incoming.changes.values())
    remaining_files = count_remaining_files(objects, sides.ours, incoming.there)
    if not remaining_files and (brings or theirs != origin):
        return theirs
    if not brings:
        return ours
    if (mixed := find_difference(ours, theirs)) is not None:
        raise FormatRefused(
            f"{BOTH}, and has files {mixed.one} here, but the other side has {mixed.other}; {WAY_OUT}"
        )
    if theirs != origin:
        return unite_layouts(ours, theirs)
    # Nothing was said of the layout, but the files that come may have columns that are not here.
    return msgspec.structs.replace(ours, schema=unite_layouts(ours, theirs).schema) if ours.schema else ours
