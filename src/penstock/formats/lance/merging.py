"""Merging: how a table's versions on one branch come to another.

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
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.joining import TableMerge, has_same_names
from penstock.formats.lance.landing import TOLD_MAX, WAY_OUT, VersionWriter, shorten_names
from penstock.formats.lance.names import MAIN, MERGE, REVERT
from penstock.formats.lance.pinning import pin
from penstock.formats.lance.reading import Manifests
from penstock.formats.lance.rehoming import Immovable
from penstock.formats.lance.reversal import Irreversible
from penstock.formats.lance.sides import Numbered, TableSide, includes, is_same
from penstock.formats.lance.standing import LanceStanding, free_chain
from penstock.formats.lance.state import LanceState, state_of, with_state
from penstock.kernel.format import DRY_RUN, Applied, LaterCommit, PrepareAgain, Refused, Since, Table
from penstock.kernel.objects import Objects
from penstock.model.content import content_bytes
from penstock.storage.places import Places


class Means(NamedTuple):
    """What a new version is made with."""

    manifests: Manifests
    places: Places
    now_us: int
    check: Callable[[LanceTable], object]
    """Asked before anything is written to a table's folder: raises if that is not for this lake to do."""


def merge(
    table: Table,
    means: Means,
    target: LanceTable | None,
    base: LanceTable | None,
    source: LanceTable | None,
) -> Applied:
    """The table after a source's changes since a base.

    ``Refused`` if they do not go with what the table is now, ``PrepareAgain`` if that cannot be told without
    table storage.
    """
    if source is None:
        return _drop(table, target, base)
    if target is None:
        return _arrive(table, means, base, source)
    _check_same(target, source)
    if target == base and _may_take(table, target, source):
        return _as_it_is(table, means, source)
    objects = _objects(table)
    here, there = TableSide.of(target, objects), TableSide.of(source, objects)
    if base is None or base.id != target.id:
        newest = there.newest()
        if newest is None or includes(here, there, newest) or is_same(newest, here.newest()):
            return Applied(target)
        raise Refused(f"is on both sides, and nothing is known that both come from; {WAY_OUT}")
    parted = TableSide.of(base, objects)
    bases = [one for one in table.bases if isinstance(one, LanceTable) and one.id == target.id]
    others = [TableSide.of(one, objects) for one in bases if one != base]
    what = ("lance merge", table.is_repeated, *map(content_bytes, (target, base, source, *bases)))
    return _noted(table, what, lambda: _joining(table, means, here).merge(parted, there, others))


def restore(table: Table, means: Means, target: LanceTable | None, wanted: LanceTable | None) -> Applied:
    """The table in a wanted state, by a new version: a chain does not go back. Raises as ``merge``."""
    if wanted is None:
        return Applied(None)
    last = table.last if isinstance(table.last, LanceTable) and table.last.state else None
    was = target if target is not None else last
    if was is None:
        return _arrive(table, means, None, wanted)
    _check_same(was, wanted)
    if was == wanted:
        return Applied(was)
    objects = _objects(table)
    here, there = TableSide.of(was, objects), TableSide.of(wanted, objects)
    if _may_take(table, was, wanted) and _goes_on(here, there):
        return _as_it_is(table, means, wanted)
    what = ("lance restore", *map(content_bytes, (was, wanted)))
    return _noted(table, what, lambda: _restore(table, means, here, there))


def restore_version(table: Table, means: Means, target: LanceTable | None, version: int) -> Applied:
    """The table as it was at an earlier version of its main branch; Lance's own branches and tags stay.

    Raises as ``restore``, and ``VersionNotFound``.
    """
    assert target is not None, "or it has no versions"
    objects = _objects(table)
    here = TableSide.of(target, objects)
    newest, wanted = here.newest(), here.versions.get(MAIN, version)
    if wanted is None or newest is None:
        told = "it has none yet" if newest is None else f"the newest one is {newest.number}"
        raise VersionNotFound(
            f"'{table.key}' has no version {version}; {told}", table=str(table.key), version=version
        )
    if is_same(newest, Numbered(version, wanted)):
        return Applied(target)
    what = ("lance restore version", content_bytes(target), version)
    return _noted(table, what, lambda: _restore(table, means, here, here.until(version, objects)))


def _restore(table: Table, means: Means, here: TableSide, there: TableSide) -> Applied:
    """A new version that is as another state. ``Refused`` if nobody knows what that was."""
    source = there.newest()
    if source is not None:
        try:
            means.manifests.manifest(there.content.location, MAIN, source.number, source.version)
        except Damaged as problem:
            raise Refused(
                f"cannot go back to version {source.number}: {problem.message}; restore another version, or"
                " bring the file back"
            ) from None
    return _joining(table, means, here, REVERT).restore(there)


def revert(
    table: Table,
    means: Means,
    target: LanceTable | None,
    done: LanceTable | None,
    before: LanceTable | None,
    since: Since,
) -> Applied:
    """The table without what one commit did, which made ``done`` of ``before``. Raises as ``merge``."""
    if target is None or done is None or before is None or target.id != done.id:
        return _revert_existence(table, means, target, done, before, since)
    _check_same(done, before)
    if is_as(table, target, done):
        return restore(table, means, target, before)
    objects = _objects(table)
    here, was, wanted = (TableSide.of(one, objects) for one in (target, done, before))

    def reverted() -> Applied:
        try:
            return _joining(table, means, here, REVERT).revert(was, wanted)
        except Irreversible as problem:
            raise _describe_clash(problem, objects, since, here.content.location) from None
        except Immovable as problem:
            raise Refused(f"{problem}; {_ways_out()}") from None
        except Damaged as problem:
            raise Refused(
                f"cannot get back what the commit removed, since it was cleaned up: {problem.message};"
                f" {_LEAVE_IT}"
            ) from None

    return _noted(table, ("lance revert", *map(content_bytes, (target, done, before))), reverted)


def _revert_existence(
    table: Table,
    means: Means,
    target: LanceTable | None,
    done: LanceTable | None,
    before: LanceTable | None,
    since: Since,
) -> Applied:
    """The commit created, dropped or replaced the table, or another one did so since."""
    if target is None and before is None:
        return Applied(None)
    if target is not None and before is not None and target.id == before.id:
        return Applied(target)  # the commit dropped it, and it came back since
    if target is None and done is None:
        return restore(table, means, None, before)
    if target is None:
        later = _describe_commits(one for one in since.commits if one.after is None)
        raise Refused(f"was dropped or renamed since{later}; revert that first, and then this commit")
    if done is not None and before is None and target.id == done.id:
        if is_as(table, target, done):
            return Applied(None)
        later = _describe_commits(since.commits)
        raise Refused(
            f"was created or renamed by the commit, and changed since{later}; drop the table to have neither,"
            " or leave it as it is with the mode 'drop'"
        )
    raise Refused(
        "is another table now than the commit had; rename it, and revert the commit then, or leave it as it"
        " is with the mode 'drop'"
    )


def _describe_clash(problem: Irreversible, objects: Objects, since: Since, location: str) -> Refused:
    """Why a commit cannot be undone, with data files and the commits that are in the way."""
    told = shorten_names([name.removeprefix(f"{location}/") for name in problem.files])
    commits = [one for one in since.commits if _made_any(one, problem.versions, objects)]
    later = _describe_commits(commits)
    return Refused(f"{problem.why}{f' ({told})' if told else ''}{later}; {_ways_out(len(commits))}")


def _made_any(commit: LaterCommit, versions: Sequence[Numbered], objects: Objects) -> bool:
    """Whether a commit brought one of some versions to a table."""
    if not isinstance(commit.after, LanceTable) or not commit.after.state:
        return False
    after = TableSide.of(commit.after, objects)
    before = [
        TableSide.of(one, objects) for one in commit.before if isinstance(one, LanceTable) and one.state
    ]
    return any(after.has(one) and not any(each.has(one) for each in before) for one in versions)


def _describe_commits(commits: Iterable[LaterCommit]) -> str:
    """The commits that are in the way, the newest first."""
    named = [one.describe() for one in commits][::-1]
    more = f" and {len(named) - TOLD_MAX} more" if len(named) > TOLD_MAX else ""
    return f", by {', '.join(named[:TOLD_MAX])}{more}" if named else ""


_LEAVE_IT: Final = "leave the table as it is with the mode 'drop'"
_REVERT_THAT: Final = "revert that commit, and then this one, or "
_REVERT_THOSE: Final = "revert those commits, the newest one first, and then this one, or "


def _ways_out(commits: int = 0) -> str:
    first = {0: "", 1: _REVERT_THAT}.get(commits, _REVERT_THOSE)
    return (
        f"{first}set the table to what it was before this commit, without anything that came since, with the"
        f" mode 'force', or {_LEAVE_IT}"
    )


def is_as(table: Table, target: LanceTable, was: LanceTable) -> bool:
    """Whether a table is what it was in a state of earlier, by whatever versions it came to be that again."""
    if target.id != was.id:
        return False
    here, there = (TableSide.of(one, _objects(table)) for one in (target, was))
    return is_same(here.newest(), there.newest()) and has_same_names(here, there)


def why_not_move(before: LanceTable, after: LanceTable) -> str | None:
    """Why a default branch may not jump from one state of a table to another, if so.

    What a tree has is not looked at here: only a state with the same versions is surely none of earlier.
    """
    one, other = state_of(before), state_of(after)
    if before.id == after.id and _versions_of(one) == _versions_of(other):
        return None
    return "would have other versions, and those that it has are there for everybody"


def _versions_of(state: LanceState) -> tuple[object, ...]:
    return state.root, state.recent, state.chain


# --- one side has no table --------------------------------------------------------------------------------


def _drop(table: Table, target: LanceTable | None, base: LanceTable | None) -> Applied:
    """The source has dropped the table, or given it another name."""
    if target is None:
        return Applied(None)
    if base is not None and base.id == target.id:
        if base == target:
            return Applied(None)
        here, parted = (TableSide.of(one, _objects(table)) for one in (target, base))
        if is_same(here.newest(), parted.newest()) and has_same_names(here, parted):
            return Applied(None)
    raise Refused(
        "was dropped or renamed on the other side, and changed here; drop or rename it here too, or keep it"
        " with the mode 'drop'"
    )


def _arrive(table: Table, means: Means, base: LanceTable | None, source: LanceTable) -> Applied:
    """The source has a table that is not here."""
    if base is not None and base.id == source.id:
        there, parted = (TableSide.of(one, _objects(table)) for one in (source, base))
        if is_same(there.newest(), parted.newest()) and has_same_names(there, parted):
            return Applied(None)
        raise Refused(
            "was dropped or renamed here, and changed on the other side; bring it back with the mode 'force',"
            " or leave it with 'drop'"
        )
    if isinstance(table.last, LanceTable) and table.last.state:
        return restore(table, means, None, source)
    state = state_of(source)
    if state.owner and not LanceStanding.of(table).owner:
        empty = LanceState(is_private=state.is_private, properties=state.properties, first=state.first)
        start = with_state(source, empty)
        here, there = (TableSide.of(one, _objects(table)) for one in (start, source))
        what = ("lance arrival", content_bytes(source))
        return _noted(table, what, lambda: _joining(table, means, here).merge(here, there))
    return _as_it_is(table, means, source)


# --- both sides have it -----------------------------------------------------------------------------------


def _may_take(table: Table, target: LanceTable, source: LanceTable) -> bool:
    """Whether a branch can go on from the source's state as it is, in whatever chain that is.

    The default branch, and one that has a chain of its own already, must stay in it.
    """
    owner = LanceStanding.of(table).owner
    if state_of(source).owner == owner:
        return True
    return owner != b"" and state_of(target).owner != owner


def _as_it_is(table: Table, means: Means, source: LanceTable) -> Applied:
    """The source's state, whose versions are pinned where they are of a line that is not this branch's."""
    if state_of(source).owner in (b"", LanceStanding.of(table).owner):
        return Applied(source)

    def pinned() -> Applied:
        there, place = TableSide.of(source, _objects(table)), means.places.at(source.location)
        with suppress(ManagedElsewhere):  # a fork has its tables with the lake that it is of
            if DRY_RUN not in table.notes:
                means.check(source)
                for branch in (MAIN, *there.versions.branches()):
                    newest = there.newest(branch)
                    if newest is not None and newest.version.chain:
                        pin(place, newest, branch, means.now_us)
        return Applied(source)

    return _noted(table, ("lance pinned", content_bytes(source)), pinned)


def _goes_on(here: TableSide, there: TableSide) -> bool:
    """Whether another state is this one with further versions."""
    newest = here.newest()
    return newest is None or there.has(newest)


def _check_same(target: LanceTable, source: LanceTable) -> None:
    if target.id != source.id:
        raise Refused(
            "is another table on the other side; rename one of them, or keep this one with the mode 'drop'."
            " To have the other one, drop this one first, and merge then"
        )


def _joining(table: Table, means: Means, here: TableSide, kind: str = "") -> TableMerge:
    means.check(here.content)
    standing, location = LanceStanding.of(table), here.content.location
    place = means.places.at(location)
    chain = free_chain(place, standing, here.content, here.state, here.versions)
    attempt = "-".join(one for one in (standing.transaction or MERGE, kind) if one)
    is_dry = DRY_RUN in table.notes
    landing = VersionWriter(
        means.places, means.manifests, location, chain, attempt, means.now_us, is_dry=is_dry
    )
    return TableMerge(_objects(table), here, chain, landing, is_part=table.is_repeated)


def _noted(table: Table, what: tuple[object, ...], work: Callable[[], Applied]) -> Applied:
    """What was found and staged for a request before its turn; at the turn nothing else counts."""
    if what not in table.notes:
        if not table.may_read:
            raise PrepareAgain
        try:
            table.notes[what] = work()
        except Refused as refused:
            table.notes[what] = refused
    found: Applied | Refused = table.notes[what]
    if isinstance(found, Refused):
        raise found
    return found


def _objects(table: Table) -> Objects:
    assert table.objects is not None
    return table.objects
