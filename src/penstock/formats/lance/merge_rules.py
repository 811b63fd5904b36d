"""How Lance tables merge, are restored and reverted: what becomes of a table's versions on another branch.

Versions that were written for the target's own chain come as they are: those of a transaction, if nobody
overtook it. Everything else comes as one new version, since the versions of another chain mean files at other
places: the source's newest one if the target has not changed, or else what can be grafted. A default branch
only goes forward, so that a state of earlier is a new version too.

Lance's own tags merge one by one, and so do Lance's own branches as far as their files are where the target's
would be. What would have to be left behind is a reason to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.errors import Damaged, ManagedElsewhere, VersionNotFound
from penstock.formats.lance.branch_chains import WriteTarget, find_free_chain
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.merge_sides import NumberedVersion, TableSide, includes_version, is_same_version
from penstock.formats.lance.names import MAIN, MERGE, REVERT
from penstock.formats.lance.relocation import UnknownPlacement
from penstock.formats.lance.reversal import IrreversibleCommit
from penstock.formats.lance.state import LanceState, decode_state, encode_state_into_table
from penstock.formats.lance.table_merge import TableMerge, has_same_names
from penstock.formats.lance.version_pins import write_pin
from penstock.formats.lance.version_writer import TOLD_MAX, WAY_OUT, VersionWriter, shorten_names
from penstock.kernel.format import (
    DRY_RUN,
    AppliedChange,
    FormatRefused,
    LaterCommit,
    LaterCommitLookup,
    Table,
)
from penstock.kernel.objects import Objects
from penstock.model.content import encode_checked_content
from penstock.storage.places import Places


class MergeContext(NamedTuple):
    """What merge rules need to write a new version: manifests, places, the time and a check."""

    manifests: ManifestReader
    places: Places
    now_us: int
    check: Callable[[LanceTable], object]
    """Called before anything is written to a table's folder: raises if this lake may not write there."""


def merge_table(
    table: Table,
    context: MergeContext,
    target: LanceTable | None,
    base: LanceTable | None,
    source: LanceTable | None,
) -> AppliedChange:
    """The table after a source's changes since a base.

    ``FormatRefused`` if they do not go with what the table is now, ``PrepareAgain`` if that cannot be told
    without table storage.
    """
    if source is None:
        return _drop_table(table, target, base)
    if target is None:
        return _add_table(table, context, base, source)
    _require_same_table(target, source)
    if target == base and _may_take_source(table, target, source):
        return _take_source(table, context, source)
    objects = _open_table_objects(table)
    here, side = TableSide.from_table(target, objects), TableSide.from_table(source, objects)
    if base is None or base.id != target.id:
        newest = side.find_newest()
        if (
            newest is None
            or includes_version(here, side, newest)
            or is_same_version(newest, here.find_newest())
        ):
            return AppliedChange(target)
        raise FormatRefused(f"exists on both sides, but without a common version to merge from; {WAY_OUT}")
    parted = TableSide.from_table(base, objects)
    bases = [base for base in table.bases if isinstance(base, LanceTable) and base.id == target.id]
    others = [TableSide.from_table(content, objects) for content in bases if content != base]
    what = ("lance merge", table.is_repeated, *map(encode_checked_content, (target, base, source, *bases)))
    return table.read_once(what, lambda: _begin_merge(table, context, here).merge_table(parted, side, others))


def restore_table(
    table: Table, context: MergeContext, target: LanceTable | None, after: LanceTable | None
) -> AppliedChange:
    """The table in a wanted state, by a new version: a chain does not go back. Raises as ``merge``."""
    if after is None:
        return AppliedChange(None)
    last = table.last if isinstance(table.last, LanceTable) and table.last.state else None
    before = target if target is not None else last
    if before is None:
        return _add_table(table, context, None, after)
    _require_same_table(before, after)
    if before == after:
        return AppliedChange(before)
    objects = _open_table_objects(table)
    here, side = TableSide.from_table(before, objects), TableSide.from_table(after, objects)
    if _may_take_source(table, before, after) and _is_extended_by(here, side):
        return _take_source(table, context, after)
    what = ("lance restore", *map(encode_checked_content, (before, after)))
    return table.read_once(what, lambda: _restore_state(table, context, here, side))


def restore_table_version(
    table: Table, context: MergeContext, target: LanceTable | None, version: int
) -> AppliedChange:
    """The table as it was at an earlier version of its main branch; Lance's own branches and tags stay.

    Raises as ``restore``, and ``VersionNotFound``.
    """
    assert target is not None, "or it has no versions"
    objects = _open_table_objects(table)
    here = TableSide.from_table(target, objects)
    newest, wanted_version = here.find_newest(), here.versions.get_version(MAIN, version)
    if wanted_version is None or newest is None:
        state_of_versions = "it has none yet" if newest is None else f"the newest one is {newest.number}"
        raise VersionNotFound(
            f"'{table.key}' has no version {version}; {state_of_versions}",
            table=str(table.key),
            version=version,
        )
    if is_same_version(newest, NumberedVersion(version, wanted_version)):
        return AppliedChange(target)
    what = ("lance restore version", encode_checked_content(target), version)
    return table.read_once(
        what, lambda: _restore_state(table, context, here, here.cut_at_version(version, objects))
    )


def _restore_state(table: Table, context: MergeContext, here: TableSide, side: TableSide) -> AppliedChange:
    """A new version that is as another state. ``FormatRefused`` if nobody knows what that was."""
    source = side.find_newest()
    if source is not None:
        try:
            context.manifests.read_manifest(side.content.location, MAIN, source.number, source.version)
        except Damaged as problem:
            raise FormatRefused(
                f"cannot be restored to version {source.number}: {problem.message}; restore another "
                "version, or bring the file back from a backup"
            ) from None
    return _begin_merge(table, context, here, REVERT).restore_table(side)


def revert_table(
    table: Table,
    context: MergeContext,
    target: LanceTable | None,
    committed: LanceTable | None,
    previous: LanceTable | None,
    since: LaterCommitLookup,
) -> AppliedChange:
    """The table without the commit that made ``committed`` of ``previous``. Raises as ``merge``."""
    if target is None or committed is None or previous is None or target.id != committed.id:
        return _revert_existence(table, context, target, committed, previous, since)
    _require_same_table(committed, previous)
    if is_same_state(table, target, committed):
        return restore_table(table, context, target, previous)
    objects = _open_table_objects(table)
    here, old_side, side = (
        TableSide.from_table(content, objects) for content in (target, committed, previous)
    )

    def apply_revert() -> AppliedChange:
        try:
            return _begin_merge(table, context, here, REVERT).revert_table(old_side, side)
        except IrreversibleCommit as problem:
            raise _describe_clash(problem, objects, since, here.content.location) from None
        except UnknownPlacement as problem:
            raise FormatRefused(f"{problem}; {_suggest_resolutions()}") from None
        except Damaged as problem:
            raise FormatRefused(
                "cannot get back the rows that the commit removed, because their files were cleaned up: "
                f"{problem.message}; {_LEAVE_IT}"
            ) from None

    return table.read_once(
        ("lance revert", *map(encode_checked_content, (target, committed, previous))), apply_revert
    )


def _revert_existence(
    table: Table,
    context: MergeContext,
    target: LanceTable | None,
    content: LanceTable | None,
    before: LanceTable | None,
    since: LaterCommitLookup,
) -> AppliedChange:
    """The commit created, dropped or replaced the table, or another one did so since."""
    if target is None and before is None:
        return AppliedChange(None)
    if target is not None and before is not None and target.id == before.id:
        return AppliedChange(target)  # the commit dropped it, and it came back since
    if target is None and content is None:
        return restore_table(table, context, None, before)
    if target is None:
        later = _describe_commits(commit for commit in since.commits if commit.after is None)
        raise FormatRefused(
            f"was dropped or renamed after the commit to be reverted{later}; revert the later change "
            "first, and then "
            "this commit"
        )
    if content is not None and before is None and target.id == content.id:
        if is_same_state(table, target, content):
            return AppliedChange(None)
        later = _describe_commits(since.commits)
        raise FormatRefused(
            f"was created or renamed by the commit, and changed since{later}; drop the table to undo "
            "both, or leave it as it is with the mode 'drop' (drops the change, not the table)"
        )
    raise FormatRefused(
        "is not the table that the commit changed; rename it, then revert the commit, or leave it as it "
        "is with the mode 'drop' (drops the change, not the table)"
    )


def _describe_clash(
    problem: IrreversibleCommit, objects: Objects, since: LaterCommitLookup, location: str
) -> FormatRefused:
    """Why a commit cannot be undone, with data files and the commits that are in the way."""
    shown_files = shorten_names([name.removeprefix(f"{location}/") for name in problem.files])
    commits = [commit for commit in since.commits if _has_made_any_version(commit, problem.versions, objects)]
    later = _describe_commits(commits)
    files = f" ({shown_files})" if shown_files else ""
    return FormatRefused(f"{problem.why}{files}{later}; {_suggest_resolutions(len(commits))}")


def _has_made_any_version(commit: LaterCommit, versions: Sequence[NumberedVersion], objects: Objects) -> bool:
    """Whether a commit brought one of some versions to a table."""
    if not isinstance(commit.after, LanceTable) or not commit.after.state:
        return False
    after = TableSide.from_table(commit.after, objects)
    before = [
        TableSide.from_table(content, objects)
        for content in commit.before
        if isinstance(content, LanceTable) and content.state
    ]
    return any(
        after.has_version(version) and not any(each.has_version(version) for each in before)
        for version in versions
    )


def _describe_commits(commits: Iterable[LaterCommit]) -> str:
    """The commits that are in the way, the newest first."""
    named = [commit.describe() for commit in commits][::-1]
    more = f" and {len(named) - TOLD_MAX} more" if len(named) > TOLD_MAX else ""
    return f", by {', '.join(named[:TOLD_MAX])}{more}" if named else ""


_LEAVE_IT: Final = "leave the table as it is with the mode 'drop' (drops the change, not the table)"
_REVERT_THAT: Final = "revert that commit, and then this one, or "
_REVERT_THOSE: Final = "revert those commits, the newest one first, and then this one, or "


def _suggest_resolutions(commits: int = 0) -> str:
    first = {0: "", 1: _REVERT_THAT}.get(commits, _REVERT_THOSE)
    return (
        f"{first}reset the table to its state before this commit, without any later change, with the mode "
        f"'force', or {_LEAVE_IT}"
    )


def is_same_state(table: Table, target: LanceTable, before: LanceTable) -> bool:
    """Whether a table is what it was in a state of earlier, by whatever versions it came to be that again."""
    if target.id != before.id:
        return False
    here, side = (TableSide.from_table(content, _open_table_objects(table)) for content in (target, before))
    return is_same_version(here.find_newest(), side.find_newest()) and has_same_names(here, side)


def explain_unmovable(before: LanceTable, after: LanceTable) -> str | None:
    """Why a default branch may not jump from one state of a table to another, if so.

    What a tree has is not looked at here: only a state with the same versions is surely none of earlier.
    """
    state, other = decode_state(before), decode_state(after)
    if before.id == after.id and _list_versions(state) == _list_versions(other):
        return None
    return "would have versions that differ from those that readers have already seen"


def _list_versions(state: LanceState) -> tuple[object, ...]:
    return state.root, state.recent, state.chain


# --- one side has no table --------------------------------------------------------------------------------


def _drop_table(table: Table, target: LanceTable | None, base: LanceTable | None) -> AppliedChange:
    """The source has dropped the table, or given it another name."""
    if target is None:
        return AppliedChange(None)
    if base is not None and base.id == target.id:
        if base == target:
            return AppliedChange(None)
        here, parted = (
            TableSide.from_table(content, _open_table_objects(table)) for content in (target, base)
        )
        if is_same_version(here.find_newest(), parted.find_newest()) and has_same_names(here, parted):
            return AppliedChange(None)
    raise FormatRefused(
        "was dropped or renamed on the other side, and changed here; drop or rename it here too, or keep "
        "it with the mode 'drop' (drops the change, not the table)"
    )


def _add_table(
    table: Table, context: MergeContext, base: LanceTable | None, source: LanceTable
) -> AppliedChange:
    """The source has a table that is not here."""
    if base is not None and base.id == source.id:
        side, parted = (
            TableSide.from_table(content, _open_table_objects(table)) for content in (source, base)
        )
        if is_same_version(side.find_newest(), parted.find_newest()) and has_same_names(side, parted):
            return AppliedChange(None)
        raise FormatRefused(
            "was dropped or renamed here, and changed on the other side; restore it with the mode 'force', "
            "or leave it dropped with 'drop'"
        )
    if isinstance(table.last, LanceTable) and table.last.state:
        return restore_table(table, context, None, source)
    state = decode_state(source)
    if state.owner and not WriteTarget.from_table(table).owner:
        empty = LanceState(is_private=state.is_private, properties=state.properties, first=state.first)
        start = encode_state_into_table(source, empty)
        here, side = (
            TableSide.from_table(content, _open_table_objects(table)) for content in (start, source)
        )
        what = ("lance arrival", encode_checked_content(source))
        return table.read_once(what, lambda: _begin_merge(table, context, here).merge_table(here, side))
    return _take_source(table, context, source)


# --- both sides have it -----------------------------------------------------------------------------------


def _may_take_source(table: Table, target: LanceTable, source: LanceTable) -> bool:
    """Whether a branch can go on from the source's state as it is, in whatever chain that is.

    The default branch, and one that has a chain of its own already, must stay in it.
    """
    owner = WriteTarget.from_table(table).owner
    if decode_state(source).owner == owner:
        return True
    return owner != b"" and decode_state(target).owner != owner


def _take_source(table: Table, context: MergeContext, source: LanceTable) -> AppliedChange:
    """The source's state, whose versions are pinned where they are of a line that is not this branch's."""
    if decode_state(source).owner in (b"", WriteTarget.from_table(table).owner):
        return AppliedChange(source)

    def pin_source() -> AppliedChange:
        side, place = (
            TableSide.from_table(source, _open_table_objects(table)),
            context.places.open_place(source.location),
        )
        with suppress(ManagedElsewhere):  # a fork has its tables with the lake that it is of
            if DRY_RUN not in table.notes:
                context.check(source)
                for branch in (MAIN, *side.versions.list_branches()):
                    newest = side.find_newest(branch)
                    if newest is not None and newest.version.chain:
                        write_pin(place, newest, branch, context.now_us)
        return AppliedChange(source)

    return table.read_once(("lance pinned", encode_checked_content(source)), pin_source)


def _is_extended_by(here: TableSide, side: TableSide) -> bool:
    """Whether another state is this one with further versions."""
    newest = here.find_newest()
    return newest is None or side.has_version(newest)


def _require_same_table(target: LanceTable, source: LanceTable) -> None:
    if target.id != source.id:
        raise FormatRefused(
            "is another table on the other side; rename one of them, or keep this one with the mode "
            "'drop' (drops the change, not the table). To take the other one, drop this one first, then "
            "merge"
        )


def _begin_merge(table: Table, context: MergeContext, here: TableSide, kind: str = "") -> TableMerge:
    context.check(here.content)
    standing, location = WriteTarget.from_table(table), here.content.location
    place = context.places.open_place(location)
    chain = find_free_chain(place, standing, here.content, here.state, here.versions)
    attempt = "-".join(part for part in (standing.transaction or MERGE, kind) if part)
    is_dry = DRY_RUN in table.notes
    landing = VersionWriter(
        context.places, context.manifests, location, chain, attempt, context.now_us, is_dry=is_dry
    )
    return TableMerge(_open_table_objects(table), here, chain, landing, is_part=table.is_repeated)


def _open_table_objects(table: Table) -> Objects:
    assert table.objects is not None
    return table.objects
