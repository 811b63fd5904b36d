"""Joining: what a table becomes when another state of it comes to it, entry by entry of its tree.

Each part goes by itself: the versions of Lance's main branch, those of Lance's other branches, tags, and the
properties. What only one side changed is taken, and what both changed is grafted or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from penstock.formats.lance.grafting import OF_ROWS, PLAIN, SideHistory, Ungraftable, check_operations
from penstock.formats.lance.landing import WAY_OUT, VersionWriter, refusal
from penstock.formats.lance.lineage import Lineage, rewrites_in
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.names import MAIN
from penstock.formats.lance.removals import LaterChanges, LaterLanceVersions, MergedChanges
from penstock.formats.lance.reversal import commit_rows
from penstock.formats.lance.rows import RowSet, all_rows
from penstock.formats.lance.sides import (
    Numbered,
    SidesHistory,
    TableSide,
    beside,
    comes_from,
    compared_versions,
    has_arrived,
    has_undone,
    history_since,
    includes,
    is_same,
    newest_states,
    parted_at,
    standing_versions,
)
from penstock.formats.lance.standing import StandingChain
from penstock.formats.lance.state import (
    Arrived,
    Changes,
    OwnBranch,
    OwnTag,
    Trace,
    Version,
    branch_key,
    branch_of,
    changed,
    keys_differing,
    tag_key,
    version_key,
    version_of,
    with_state,
)
from penstock.kernel.format import Applied, PathClash, Refused
from penstock.kernel.objects import Objects

_ABOUT_TABLES: Final = frozenset(
    (ManifestOperation.CREATE_INDEX, ManifestOperation.PROJECT, ManifestOperation.CONFIG)
)
"""What Lance lets through whatever was done to rows meanwhile."""


class TableMerge:
    """A table while another state of it comes to it. New versions go to a chain."""

    def __init__(
        self,
        objects: Objects,
        here: TableSide,
        chain: StandingChain,
        landing: VersionWriter,
        *,
        is_part: bool,
    ) -> None:
        """``is_part`` tells that not all comes that the other side has, but what one commit did."""
        self._objects, self._here, self._chain, self._landing = objects, here, chain, landing
        self._is_part = is_part
        self._changes: Changes = {}
        self._properties = dict(here.state.properties)
        self._others: Sequence[TableSide] = ()
        self._both_sides = "on both sides"
        """Where or when something else was done to what is to change, as a refusal says it."""
        self._goes_on = False
        """Whether there are versions that are written for the chain."""

    def merge(self, base: TableSide, source: TableSide, others: Sequence[TableSide] = ()) -> Applied:
        """The table with what became of a base on the other side.

        ``others`` are further states that both sides come from, where merges crossed.
        """
        self._others = others
        keys = keys_differing(self._objects, base.state, source.state)
        self._bring_versions(base, source, MAIN)
        for name in _branches_of(keys):
            self._bring_branch(base, source, name)
        self._bring_tags(base.versions.tags(), source)
        self._leave_removed(base, source, keys)
        self._check_dropped()
        was, wanted = base.state.properties, source.state.properties
        for name in was.keys() | wanted.keys():
            self._bring_property(name, was.get(name), wanted.get(name))
        return self._applied()

    def restore(self, wanted: TableSide) -> Applied:
        """The table as it was in a wanted state."""
        source, newest = wanted.newest(), self._here.newest()
        if source is None and newest is not None:
            raise Refused("had no version then, and a version cannot be undone; drop the table instead")
        if source is not None and not is_same(source, newest):
            self._add(self._landing.whole(source, newest, None), MAIN)
        for name in self._here.versions.branches().keys() | wanted.versions.branches().keys():
            if self._here.own(name) == wanted.own(name):
                continue
            if wanted.versions.branch(name) is None:
                self._drop_branch(name)
            elif self._here.versions.branch(name) is None:
                self._take_branch(wanted, name)
            else:
                raise Refused(f"has had Lance's own branch '{name}' changed since, which cannot be undone")
        self._bring_tags(self._here.versions.tags(), wanted)
        self._check_dropped()
        self._properties = dict(wanted.state.properties)
        return self._applied()

    def revert(self, done: TableSide, before: TableSide) -> Applied:
        """The table without what one commit did, which led from one state to another.

        ``Irreversible``, ``Immovable`` or ``Damaged`` if rows cannot be undone, ``Refused`` for all else.
        """
        self._both_sides = "since the commit"
        self._revert_versions(done, before, MAIN)
        for name in _branches_of(keys_differing(self._objects, before.state, done.state)):
            self._revert_branch(done, before, name)
        self._bring_tags(done.versions.tags(), before)
        self._check_dropped()
        was, wanted = done.state.properties, before.state.properties
        for name in was.keys() | wanted.keys():
            self._bring_property(name, was.get(name), wanted.get(name))
        return self._applied()

    def _revert_branch(self, done: TableSide, before: TableSide, name: str) -> None:
        was, wanted, now = (side.own(name) for side in (done, before, self._here))
        if wanted in (was, now):
            return
        if None not in (was[0], wanted[0], now[0]):
            self._revert_versions(done, before, name)
        elif now != was:
            raise Refused(f"has had Lance's own branch '{name}' changed since the commit")
        elif wanted[0] is None:
            self._drop_branch(name)
        else:
            self._take_branch(before, name)

    def _revert_versions(self, done: TableSide, before: TableSide, branch: str) -> None:
        was, wanted, now = (side.newest(branch) for side in (done, before, self._here))
        if is_same(was, wanted) or is_same(now, wanted):
            return
        if was is None or wanted is None or now is None:
            raise Refused("had no version then, and a version cannot be undone; drop the table instead")
        if is_same(now, was):
            self._add(self._landing.whole(wanted, now, None, branch), branch)
            return
        compared = compared_versions([before, done, self._here], branch)
        lineage = self._landing.lineage(rewrites_in(compared), branch)
        own = history_since(done, before, branch)
        commit = commit_rows(lineage, own)
        later: LaterChanges | None = self._later_versions(done, lineage, branch)
        if later is None:
            side = self._landing.side(now, branch)
            later = MergedChanges(lineage, history_since(self._here, done, branch), own, side)
        landed = self._landing.reversed((wanted, was), now, lineage, commit, later, branch)
        if landed is not None:
            self._add(landed, branch)

    def _later_versions(self, done: TableSide, lineage: Lineage, branch: str) -> LaterLanceVersions | None:
        """The versions that came after a state, with that one; ``None`` if it is of another chain.

        One that is the same as that state, and did not come from it, may be of before: versions that follow
        it here may be such that the commit was made on top of.
        """
        was = done.newest(branch)
        assert was is not None
        has_own = self._here.has(was, branch)
        found: list[Numbered] = []
        for one, is_next in standing_versions(self._here, branch):
            if not is_next:
                return None
            found.append(one)
            if is_same(one, was) or (has_own and one.number <= was.number):
                if not has_own and not has_arrived(one, was) and not has_arrived(was, one):
                    return None
                is_undone = not is_same(one, was)
                return LaterLanceVersions(
                    found[::-1], lineage, lambda each: self._landing.side(each, branch), is_undone=is_undone
                )
        return None

    # -- versions ------------------------------------------------------------------------------------------

    def _bring_versions(self, base: TableSide, source: TableSide, branch: str) -> None:
        """What became of one of Lance's branches, on top of what it is here."""
        was, wanted, now = (side.newest(branch) for side in (base, source, self._here))
        if wanted is None or is_same(wanted, was) or is_same(wanted, now):
            return
        is_again = False
        if includes(self._here, source, wanted, branch):
            is_again = self._is_part and has_undone(self._here, wanted, branch)
            if not is_again:
                return
        if is_same(now, was) and self._take(source, now, branch):
            return
        done = history_since(source, base, branch)
        if is_same(now, was):
            compared = compared_versions((self._here, source), branch)
            trace = self._landing.trace_of_whole(wanted, now, done, compared, branch)
            arrived = self._arrived(done, trace, wanted)
            parted = parted_at(source, base, branch)
            self._add(self._landing.whole(wanted, now, arrived, branch, parted), branch)
            return
        if was is None or now is None:
            raise Refused(f"got its first version on both sides; {WAY_OUT}")
        if (landed := self._graft(base, source, done, branch, is_again=is_again)) is not None:
            self._add(landed, branch)

    def _graft(
        self, base: TableSide, source: TableSide, done: SidesHistory, branch: str, *, is_again: bool
    ) -> Numbered | None:
        """What was done on the other side and what was done here, together.

        ``is_again`` tells that it is a commit that was here, and was reverted.
        """
        was, wanted, now = (side.newest(branch) for side in (base, source, self._here))
        assert was is not None
        assert wanted is not None
        assert now is not None
        mine = history_since(self._here, base, branch)
        try:
            is_below = self._goes_below(done, mine, source)
            check_operations(*(one.operations for one in ((mine, done) if is_below else (done, mine))))
        except Ungraftable as problem:
            raise refusal(problem, self._here.content.location) from None
        states = [base, *self._others]
        if not is_again:  # or both have the commit, and nothing of it would come
            states = newest_states(
                [*states, *beside(base, self._here, source, self._objects, branch)], branch
            )
        compared = compared_versions([*states, self._here, source], branch)
        lineage = self._landing.lineage(rewrites_in(compared), branch)
        here, there = (
            _done(lineage, side, one, states, branch) for side, one in ((self._here, mine), (source, done))
        )
        if is_again and here.changes is None:
            raise Refused(
                "had the commit reverted, and more was done since than is remembered; do again what it did,"
                " or revert the commit that reverted it"
            )
        strange: RowSet = {}
        if self._is_part and not is_again and there.changes is not None and there.changes.has_reverts:
            strange = self._rows_elsewhere(lineage, base, branch)
        arrived = self._arrived(done, None, wanted)
        bases = [(one, _removed(lineage, state, states, branch)) for state, one in _newest(states, branch)]
        mover, ground = (wanted, there), (now, here)
        if is_below:
            mover, ground = ground, mover
        return self._landing.grafted(
            bases, mover, ground, now, lineage, arrived, done, branch, is_again=is_again, strange=strange
        )

    def _rows_elsewhere(self, lineage: Lineage, base: TableSide, branch: str) -> RowSet:
        """The rows that another side had and removed since it parted from this one."""
        changes = lineage.changes(lineage.trace(history_since(base, self._here, branch)))
        if changes is None:
            raise Refused(
                "has another history here than where the revert was made, of which more was done than is"
                " remembered; revert here what is to be undone"
            )
        return changes.removed()

    def _goes_below(self, done: SidesHistory, mine: SidesHistory, source: TableSide) -> bool:
        """Whether what was done here is put on top of the other side's newest version.

        So a branch takes in the default one, whatever was done there: it becomes what that is, with its own
        changes. And so what was done on the other side comes that is not about rows.
        """
        ours, theirs = {*mine.operations}, {*done.operations}
        if not OF_ROWS.issuperset(ours):
            return False
        if self._chain.owner and not source.state.owner:
            return not (OF_ROWS if self._is_part else PLAIN).issuperset(theirs)
        others = theirs - OF_ROWS
        may_go = bool(others) and _ABOUT_TABLES.issuperset(others) and not self._is_part
        return may_go and ManifestOperation.REWRITE not in ours  # it would be undone

    def _arrived(self, done: SidesHistory, trace: Trace | None, wanted: Numbered) -> Arrived:
        """What comes with the newest version of the other side."""
        found = Arrived(operations=tuple(sorted(set(done.operations))), taken=done.taken, trace=trace)
        if self._is_part:
            return found
        return msgspec.structs.replace(found, number=wanted.number, id=wanted.id)

    def _take(self, source: TableSide, now: Numbered | None, branch: str) -> bool:
        """Take the versions of the other side as they are, if they were written for this chain."""
        coming: list[Numbered] = []
        for one in source.all(branch):
            if now is not None and one.number <= now.number:
                break
            coming.append(one)
        follows = now is None or source.has(now, branch)
        if not follows or any(one.version.chain != self._chain.folder for one in coming):
            return False
        for one in coming:
            self._add(one, branch)
        return True

    def _add(self, one: Numbered, branch: str) -> None:
        self._changes[version_key(branch, one.number)] = one.version
        self._goes_on = True

    def _leave_removed(self, base: TableSide, source: TableSide, keys: list[bytes]) -> None:
        """Forget versions that were forgotten on the other side, where nothing here leads to them."""
        parted, newest = base.newest(), self._here.newest()
        if parted is None or newest is None or not source.has(parted):
            return  # what the other side does not have may be of a chain that it never had
        needed = {(one.branch, one.version) for one in self._here.versions.tags().values()}
        needed |= {(one.parent, one.version) for one in self._here.versions.branches().values()}
        needed |= {(one.branch, one.version) for one in self._changes.values() if isinstance(one, OwnTag)}
        for key in keys:
            named = version_of(key)
            if named is None or named[0] != MAIN or named in needed or named[1] == newest.number:
                continue
            before = base.versions.get(*named)
            is_gone = before is not None and source.versions.get(*named) is None
            if is_gone and self._here.versions.get(*named) == before:
                self._changes[key] = None

    # -- Lance's own branches and tags ---------------------------------------------------------------------

    def _bring_branch(self, base: TableSide, source: TableSide, name: str) -> None:
        was, wanted, now = (side.own(name) for side in (base, source, self._here))
        if wanted in (was, now):
            return
        sides = [side.newest(name) for side in (base, source, self._here)]
        if now != was and not (now[0] == was[0] and is_same(sides[0], sides[2])):
            if any(one is None or one.version.chain != self._chain.folder for one in sides):
                raise Refused(f"had Lance's own branch '{name}' changed on both sides; {WAY_OUT}")
            self._bring_versions(base, source, name)
            return
        if wanted[0] is None:
            self._drop_branch(name)
        elif wanted[0] == was[0] and not self._chain.owner:
            self._bring_versions(base, source, name)  # those of a line cannot be here as they are
        else:
            self._take_branch(source, name)

    def _take_branch(self, source: TableSide, name: str) -> None:
        """Take one of Lance's own branches as it is on the other side."""
        for one in source.all(name):
            if self._here.has(one, name):
                break
            if not self._chain.owner and one.version.chain:
                raise Refused(
                    f"has versions of Lance's own branch '{name}' on the other side, which cannot be merged:"
                    " its files are in that branch's folder; create it here and do again on it what was done"
                    " there, and delete it there only then: its versions go by that"
                )
            self._changes[version_key(name, one.number)] = one.version
        self._changes[branch_key(name)] = source.versions.branch(name)

    def _drop_branch(self, name: str) -> None:
        for one in self._here.all(name):
            self._changes[version_key(name, one.number)] = None
        self._changes[branch_key(name)] = None

    def _check_dropped(self) -> None:
        """``Refused`` if a tag or a branch of the result leads to a branch that goes: who made it does not
        know."""
        tags, branches = self._here.versions.tags(), self._here.versions.branches()
        known: Changes = {tag_key(name): one for name, one in tags.items()}
        known |= {branch_key(name): one for name, one in branches.items()}
        known |= self._changes
        dropped = {name for name in branches if known[branch_key(name)] is None}
        for one in known.values():
            leads_to = (
                one.branch if isinstance(one, OwnTag) else one.parent if isinstance(one, OwnBranch) else ""
            )
            if leads_to in dropped:
                what = "tagged" if isinstance(one, OwnTag) else "forked"
                raise Refused(
                    f"had Lance's own branch '{leads_to}' dropped on one side, and {what} on the other;"
                    f" {WAY_OUT}"
                )

    def _bring_tags(self, before: Mapping[str, OwnTag], source: TableSide) -> None:
        """Take the tags that differ from what they were before on the other side."""
        wanted, here = source.versions.tags(), self._here.versions.tags()
        for name in before.keys() | wanted.keys():
            was, comes, now = before.get(name), wanted.get(name), here.get(name)
            if comes in (was, now):
                continue
            if now != was:
                clash = PathClash(f"tag '{name}'", _told(was), _told(now))
                raise Refused(f"had one of Lance's own tags changed {self._both_sides}", clashes=[clash])
            self._changes[tag_key(name)] = None if comes is None else self._tag(name, comes, source)

    def _tag(self, name: str, tag: OwnTag, source: TableSide) -> OwnTag:
        """A tag of the other side, at the same version here."""
        there = source.versions.get(tag.branch, tag.version)
        if there is None:
            raise Refused(f"has a tag '{name}' on the other side that leads nowhere; delete it there")
        meant = Numbered(tag.version, there)
        found = self._changes.get(version_key(tag.branch, tag.version))
        if found == there or (found is None and self._here.has(meant, tag.branch)):
            return tag
        if tag.branch == MAIN:
            for one in (*self._landed(), self._here.newest()):
                if one is not None and is_same(one, meant):
                    return msgspec.structs.replace(tag, version=one.number)
        raise Refused(
            f"has a tag '{name}' at version {tag.version} on the other side, and that version does not come"
            " along; delete the tag there, or let it be at the newest version"
        )

    def _landed(self) -> list[Numbered]:
        """The versions that have come to Lance's main branch."""
        named = ((version_of(key), one) for key, one in self._changes.items())
        return [
            Numbered(at[1], one) for at, one in named if at and at[0] == MAIN and isinstance(one, Version)
        ]

    def _bring_property(self, name: str, was: str | None, wanted: str | None) -> None:
        now = self._properties.get(name)
        if wanted in (was, now):
            return
        if now != was:
            clash = PathClash(f"property '{name}'", was or "nothing", now or "nothing")
            raise Refused(f"had a property changed {self._both_sides}", clashes=[clash])
        if wanted is None:
            self._properties.pop(name, None)
        else:
            self._properties[name] = wanted

    # -- the result ----------------------------------------------------------------------------------------

    def _applied(self) -> Applied:
        state, blobs = changed(self._objects, self._here.state, self._changes)
        state = msgspec.structs.replace(state, properties=self._properties)
        if self._goes_on:
            state = msgspec.structs.replace(state, chain=self._chain.folder, owner=self._chain.owner)
        return Applied(with_state(self._here.content, state), blobs)


def has_same_names(one: TableSide, other: TableSide) -> bool:
    """Whether all is the same on two sides beside the versions of Lance's main branch."""
    branches = one.versions.branches()
    return (
        one.state.properties == other.state.properties
        and one.versions.tags() == other.versions.tags()
        and branches == other.versions.branches()
        and all(one.own(name) == other.own(name) for name in branches)
    )


def _newest(states: Sequence[TableSide], branch: str) -> Iterator[tuple[TableSide, Numbered]]:
    """The newest version of each of some states, those that are the same once."""
    known: list[Numbered] = []
    for state in states:
        one = state.newest(branch)
        if one is not None and one not in known:
            known.append(one)
            yield state, one


def _done(
    lineage: Lineage, side: TableSide, history: SidesHistory, states: Sequence[TableSide], branch: str
) -> SideHistory:
    trace = lineage.trace(history)
    unknown = [state for state in states if not comes_from(side, state, branch)]
    return SideHistory(
        frozenset(history.operations),
        lineage.changes(trace),
        ManifestOperation.UPDATE in history.operations and (trace is None or trace.has_inserts),
        frozenset(history.taken),
        not unknown,
        _left_out(lineage, side, unknown, branch),
    )


def _left_out(lineage: Lineage, side: TableSide, states: Sequence[TableSide], branch: str) -> RowSet | None:
    """The rows that some states have put in the place of others, and a side has not; ``None`` if unknown."""
    found: list[RowSet] = []
    for state in states:
        changes = lineage.changes(lineage.trace(history_since(state, side, branch)))
        if changes is None:
            return None
        found += [change.added for change in changes.updates.values()]
    return all_rows(found)


def _removed(lineage: Lineage, state: TableSide, others: Sequence[TableSide], branch: str) -> RowSet:
    """The rows that a state has removed and another one may have."""
    found: list[RowSet] = []
    for other in others:
        if other is not state:
            changes = lineage.changes(lineage.trace(history_since(state, other, branch)))
            found.append({} if changes is None else changes.removed())
    return all_rows(found)


def _branches_of(keys: list[bytes]) -> list[str]:
    """Lance's own branches, but the main one, that keys of a tree are about."""
    versions = {named[0] for key in keys if (named := version_of(key)) is not None}
    branches = {name for key in keys if (name := branch_of(key)) is not None}
    return sorted((versions | branches) - {MAIN})


def _told(tag: OwnTag | None) -> str:
    return "no version" if tag is None else f"version {tag.version}"
