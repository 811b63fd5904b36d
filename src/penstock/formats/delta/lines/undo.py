"""Undoing a commit to a Delta table by its files, whatever came after it.

What the commit added goes, as far as it is still there, and what it removed comes back. Later appends and
changes of other files are no conflict. A conflict is, with the files and the commit named:

- a later commit wrote rows of the commit into other files: nobody could find them there;
- the commit wrote rows anew, and its files were changed since: what it had removed holds these rows, too;
- a file of which it had deleted rows by a vector is gone;
- what it changed of the metadata was changed since, or is used by files that came since.

What later commits *said* counts, too: where partitions were replaced since, nothing comes back, because it
would have gone then. Rows that a later deletion vector deleted in the same file stay deleted.

The same serves to do a commit again that was undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

import msgspec

from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.lines.commits import Commits
from penstock.formats.delta.lines.difference import ROW_ID_DOMAIN
from penstock.formats.delta.lines.line import Terms, Tip, line_of
from penstock.formats.delta.lines.net import RESTORE, FileActionT, Net, Step
from penstock.formats.delta.lines.next_versions import Extend, NextVersions, stamp
from penstock.formats.delta.lines.ratifying import Known, known
from penstock.formats.delta.lines.replacements import Replacement, in_sum
from penstock.formats.delta.lines.replacing import removal
from penstock.formats.delta.lines.standing import (
    Standing,
    begin,
    in_force,
    noted,
    parted_at,
    steps,
    steps_but_appends,
)
from penstock.formats.delta.lines.undo_metadata import Undone, undo_metadata
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Remove,
)
from penstock.formats.delta.protocol.added_columns import can_hold, missing_columns
from penstock.formats.delta.protocol.deeds import some
from penstock.formats.delta.protocol.transaction import Partitions, Reads, Region, last
from penstock.formats.delta.rows.inside import name_inside
from penstock.formats.delta.rows.vectors import Rows, inline_vector, rows_of
from penstock.kernel.format import Applied, LaterCommit, Refused, Since, Table
from penstock.model.content import DeltaTable

FEW_LATER: Final = 64
"""Up to so many later versions are looked through for files; with more of them the table itself is asked."""
INLINE_MAX_BYTES: Final = 256 * 1024
"""How large a deletion vector may be that an undo makes: it is part of the commit."""

MERGED: Final = {"operation": "MERGE BRANCH", "operationParameters": {}}
_REVERTED: Final = "revertedVersion"
"""In a ``commitInfo``, the version that the commit undoes."""
_REPEATED: Final = "repeatedVersion"
"""The one that it does again."""

File: TypeAlias = Add | Remove
"""A file of a state: the action that added it, or the one that removed it afterwards."""


class Shift(NamedTuple):
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


class Later(NamedTuple):
    """A version that came after the commit."""

    step: Step
    tip: Tip
    commit: LaterCommit | None = None
    """The lake's commit that brought it, where that is known without a search."""

    @property
    def is_undo(self) -> bool:
        """Whether it only brought files back and took files away: it wrote no rows into others."""
        info = last(self.step.actions, CommitInfo)
        return info is not None and info.operation == RESTORE

    @property
    def undoes(self) -> int | None:
        """The version that it undid, of the line on which that was."""
        return self._parameter(_REVERTED) if self.is_undo else None

    @property
    def repeats(self) -> int | None:
        """The version that it did again, likewise."""
        return self._parameter(_REPEATED)

    def _parameter(self, name: str) -> int | None:
        info = last(self.step.actions, CommitInfo)
        found = None if info is None else info.fields.get("operationParameters")
        told = found.get(name) if isinstance(found, dict) else None
        return int(told) if isinstance(told, str) and told.isdecimal() else None

    @property
    def is_sum(self) -> bool:
        """Whether it may be what several versions of another line came to."""
        info = last(self.step.actions, CommitInfo)
        return info is not None and info.operation == MERGED["operation"]

    @property
    def adds(self) -> list[Add]:
        return [one for one in self.step.actions if isinstance(one, Add)]

    @property
    def removes(self) -> list[Remove]:
        return [one for one in self.step.actions if isinstance(one, Remove)]

    def may_carry(self) -> bool:
        """Whether rows of files that it removed may be in those that it added."""
        replaced_blindly = self.step.terms.replaces is not None and self.step.terms.reads.nothing
        return not self.is_undo and not replaced_blindly


def undo(
    table: Table,
    commits: Commits,
    target: DeltaTable,
    was: DeltaTable,
    wanted: DeltaTable,
    since: Since,
    now_ms: int,
    extend: Extend,
) -> Applied:
    """The table without what made ``was`` of ``wanted``. ``Refused`` with all that stands against it."""
    told = {"operation": RESTORE, "operationParameters": {_REVERTED: str(line_of(was).latest)}}
    return _Undo(table, commits, target, was, wanted, was, since, now_ms).applied(extend, told)


def redo(
    table: Table,
    commits: Commits,
    target: DeltaTable,
    base: DeltaTable,
    source: DeltaTable,
    now_ms: int,
    extend: Extend,
) -> Applied:
    """The table with what made ``source`` of ``base`` once more, if that was undone since; else as it is."""
    told = {**MERGED, "operationParameters": {_REPEATED: str(line_of(source).latest)}}
    again = _Undo(table, commits, target, base, source, source, None, now_ms)
    return again.applied(extend, told) if again.was_undone() else Applied(target)


class _Undo:
    """What takes a table from one state of it to another, brought to what it is now."""

    def __init__(
        self,
        table: Table,
        commits: Commits,
        target: DeltaTable,
        was: DeltaTable,
        wanted: DeltaTable,
        newest: DeltaTable,
        since: Since | None,
        now_ms: int,
    ) -> None:
        """``newest`` is the later one of the two states, after which others came."""
        begin(table, target.location, target)
        self._table, self._commits, self._now_ms = table, commits, now_ms
        self._target, self._was, self._wanted, self._newest = target, was, wanted, newest
        self._since = since
        self._problems: list[str] = []
        self._standing = Standing(table, commits, target, stamp(table, now_ms))

    # -- what is asked ------------------------------------------------------------------------------------

    def applied(self, extend: Extend, told: Mapping[str, Any]) -> Applied:
        try:
            net = self._net()
        except VersionNotFound as problem:
            self._table.notes[self._lost] = problem.message  # at the turn nobody may look for it again
            raise self._refused([f"{problem.message}, so that it cannot be told what came since"]) from None
        if self._problems:
            raise self._refused(self._problems)
        if not net.actions and not net.undone and not net.replacements:
            return Applied(self._target)
        line = line_of(self._target)
        versions = NextVersions(self._table, self._commits, self._target, line, self._now_ms, extend, told)
        return versions.all([net], self._standing)

    def was_undone(self) -> bool:
        """Whether one of the later commits undid the change: it took files away that the change had brought,
        brought some back, or says so."""
        paths = set(self._shifts)
        own = self._own_replacements
        is_declared = known(self._table, line_of(self._was).declared) != self._now
        for one in self._later:
            if one.is_undo and (
                own & {each.id for each in one.step.undone}
                or paths & (_paths(one.adds) | _paths(one.removes))
                or (not paths and is_declared and last(one.step.actions, Metadata) is not None)
            ):
                return True
        return False

    @property
    def _lost(self) -> tuple[object, ...]:
        return ("delta lost", self._target.location, Tip.of(line_of(self._target)))

    # -- the change ---------------------------------------------------------------------------------------

    @cached_property
    def _parted(self) -> int:
        lines = line_of(self._wanted), line_of(self._was)
        return parted_at(*lines, self._table.read)

    def _steps_to(self, content: DeltaTable) -> list[Step]:
        return steps(self._table, self._commits, content, self._parted, line_of(content).latest)

    @cached_property
    def _own_steps(self) -> list[Step]:
        """The commits that led to the newer one of the two states."""
        return self._steps_to(self._newest)

    @cached_property
    def _own_replacements(self) -> set[bytes]:
        return {one.id for step in self._own_steps for one in step.replacements}

    @cached_property
    def _shifts(self) -> dict[str, Shift]:
        """What is to be undone, file by file."""
        there, here = _named(self._steps_to(self._wanted)), _named(self._steps_to(self._was))
        unclear = {path for path in there.keys() | here.keys() if self._is_unclear(path, there, here)}
        were = self._live_at_parting(sorted(unclear)) if unclear else {}
        found: dict[str, Shift] = {}
        for path in there.keys() | here.keys():
            parted: File | None = _first(path, there, here)
            if path in unclear and path in were:
                parted = _added(path, there, here)  # it was only told anew
            before = there[path].last if path in there else parted
            after = here[path].last if path in here else parted
            if _key(before) != _key(after):
                changes = any(side[path].data_change for side in (there, here) if path in side)
                found[path] = Shift(before, after, changes)
        return found

    @staticmethod
    def _is_unclear(path: str, *sides: Mapping[str, _Named]) -> bool:
        """Whether a file that was added without new rows may have been there before."""
        return all(side[path].first is None and side[path].is_unclear for side in sides if path in side)

    def _live_at_parting(self, paths: Sequence[str]) -> Mapping[str, str | None]:
        if self._parted < 0:
            return {}

        def read() -> Mapping[str, str | None]:
            return self._commits.snapshot(self._newest, self._table.read, self._parted).live(paths)

        tip = Tip.at(line_of(self._newest), self._parted, self._table.read)
        return noted(self._table, ("delta parted", self._target.location, tip, *paths), read)

    @cached_property
    def _is_on_line(self) -> bool:
        return Tip.of(line_of(self._newest)).is_on(line_of(self._target), self._table.read)

    # -- what came since ----------------------------------------------------------------------------------

    @cached_property
    def _later(self) -> list[Later]:
        """The versions that came after the change and did more than to append: on this branch's line, and on
        branches on which it was."""
        since = self._landed_at[1], line_of(self._target).latest
        return self._with_branches(steps_but_appends(self._table, self._commits, self._target, *since))

    @cached_property
    def _later_with_appends(self) -> list[Later]:
        since = self._landed_at[1], line_of(self._target).latest
        return self._with_branches(steps(self._table, self._commits, self._target, *since))

    @cached_property
    def _touches(self) -> dict[str, list[tuple[Later, File]]]:
        """What later versions did to the files of the change."""
        found: dict[str, list[tuple[Later, File]]] = {}
        for later in self._later:
            files: list[File] = [*later.removes, *later.adds]
            for one in files:
                if (path := one.key.path) in self._shifts:
                    found.setdefault(path, []).append((later, one))
        return found

    @cached_property
    def _landed_at(self) -> tuple[int, int]:
        """The version of this branch's line before the change came to it, and the one with which it was
        there: a merge may have brought it, in sum with others."""
        line, read = line_of(self._target), self._table.read
        parted = parted_at(line_of(self._newest), line, read)
        if self._is_on_line:
            return self._parted, parted
        for commit in self._since.commits if self._since is not None else ():
            after = commit.after
            if commit.met and isinstance(after, DeltaTable) and after.id == self._target.id and after.state:
                tip = Tip.of(line_of(after))
                if tip.version > parted and tip.is_on(line, read):
                    before = [line_of(one).latest for one in commit.before if self._is_here(one, tip)]
                    return max(before, default=parted), tip.version
        return parted, parted

    def _is_here(self, content: object, until: Tip) -> TypeGuard[DeltaTable]:
        """Whether a content is a state of the table on this branch's line, before a version of it."""
        if not isinstance(content, DeltaTable) or content.id != self._target.id or not content.state:
            return False
        tip = Tip.of(line_of(content))
        return tip.version < until.version and tip.is_on(line_of(self._target), self._table.read)

    def _with_branches(self, here: Sequence[Step]) -> list[Later]:
        """Versions of this branch's line, and before each that a merge brought those of which it is the sum:
        it does not name files that they brought back and wrote anew."""
        line, read = line_of(self._target), self._table.read
        left = [Later(step, Tip.at(line, step.version, read)) for step in here]
        if self._since is None or (self._is_on_line and not any(one.is_sum for one in left)):
            return left
        found: list[Later] = []
        for commit in self._since.commits:
            after = commit.after
            if not isinstance(after, DeltaTable) or not after.state or after.id != self._target.id:
                continue
            tip = Tip.of(line_of(after))
            if not tip.is_on(line, read):
                found += self._on_branch(commit, after)
                continue
            found += (one for one in left if one.step.version <= tip.version)
            left = [one for one in left if one.step.version > tip.version]
        return [*found, *left]

    def _on_branch(self, commit: LaterCommit, after: DeltaTable) -> list[Later]:
        """The versions of another line that a commit brought there."""
        before = commit.before[0] if len(commit.before) == 1 else None
        if commit.is_beside or not isinstance(before, DeltaTable) or not before.state:
            return []
        until, came, read = line_of(after), Tip.of(line_of(before)), self._table.read
        if not came.is_on(until, read):
            return []
        since = steps(self._table, self._commits, after, came.version, until.latest)
        return [Later(one, Tip.at(until, one.version, read), commit) for one in since]

    @cached_property
    def _live(self) -> dict[str, str | None]:
        """Those files of the change that the table has now, each with the id of its vector."""
        few = line_of(self._target).latest - line_of(self._newest).latest <= FEW_LATER
        if self._is_on_line and few:
            side = self._was if self._newest is self._was else self._wanted
            told = {
                path: None if one is None else (one.key.vector,)
                for path, shift in self._shifts.items()
                for one in (shift.after if side is self._was else shift.before,)
            }
            self._standing.was_told(line_of(side).latest, told)
        return self._standing.live(self._shifts.keys())

    @cached_property
    def _now(self) -> Known:
        return known(self._table, line_of(self._target).declared)

    # -- what to do ---------------------------------------------------------------------------------------

    def _net(self) -> Net:
        if self._lost in self._table.notes:
            raise VersionNotFound(self._table.notes[self._lost])
        metadata = self._metadata()
        removes, adds = self._files(metadata or self._now.metadata)
        state: tuple[Action, ...] = (*([] if metadata is None else [metadata]), *self._domains())
        paths = frozenset(_paths(removes) | _paths(adds))
        replacements, undone, replaces = self._replacements()
        return Net(
            state=state,
            removes=tuple(removes),
            adds=tuple(adds),
            terms=Terms(
                Reads(files=paths), replaces, changes_data=any(one.data_change for one in removes + adds)
            ),
            replacements=replacements,
            undone=undone,
        )

    def _replacements(
        self,
    ) -> tuple[tuple[Replacement, ...], tuple[Replacement, ...], tuple[Partitions, ...] | None]:
        """The replacements that come into force again by this, those that go, and where all files go."""
        done = in_sum([*in_force(self._own_steps).values()])
        gone = in_sum(list({one.id: one for step in self._own_steps for one in step.undone}.values()))
        if self._newest is not self._was:  # it is done again, and replaces what is there
            where = [step.terms.replaces for step in self._own_steps if step.terms.replaces is not None]
            parts = tuple(part for each in where for part in each)
            return done, gone, None if not where else () if () in where else parts
        known_ids = in_force([one.step for one in self._later]) if done or gone else {}
        return tuple(one for one in gone if one.id not in known_ids), done, None

    def _files(self, metadata: Metadata) -> tuple[list[Remove], list[Add]]:
        time_ms = stamp(self._table, self._now_ms)
        goes = {path: one for path, one in self._shifts.items() if one.is_new and path in self._live}
        returns = {path: one for path, one in self._shifts.items() if one.is_gone and path not in self._live}
        masked = {path: one for path, one in self._shifts.items() if not one.is_new and not one.is_gone}
        only_goes = not returns and not masked and goes.keys() == self._shifts.keys()
        if only_goes and self._are_as_left(goes) and not self._own_replacements:
            return [self._removal(path, one, time_ms) for path, one in goes.items()], []
        self._check_carried()
        self._check_taken()
        kept = {path: one for path, one in returns.items() if self._comes_back(path, one)}
        if goes and len(kept) < len(returns) and self._is_rewriting:
            missing = some(sorted(returns.keys() - kept.keys()))
            self._problem(f"rows of {missing}, which it wrote anew, were replaced since and do not come back")
        returns = kept
        found = self._found([*returns, *masked])
        if returns or masked:
            self._check_columns(metadata)
        removes = [self._removal(path, one, time_ms) for path, one in goes.items()]
        adds = [_telling(found[path], one) for path, one in returns.items() if path in found]
        for path, one in masked.items():
            if (changed := self._unmasked(path, one, found.get(path))) is not None:
                removes.append(_telling(removal(changed[0], time_ms), one))
                adds.append(_telling(changed[1], one))
        if adds:
            self._check_rewritten()
        return removes, adds

    @cached_property
    def _is_rewriting(self) -> bool:
        """Whether rows of files that the change removed may be in those that it added."""
        blindly = all(
            step.terms.replaces is not None and step.terms.reads.nothing for step in self._own_steps
        )
        return not blindly and any(one.is_new for one in self._shifts.values())

    def _are_as_left(self, shifts: Mapping[str, Shift]) -> bool:
        return all(
            one.after is not None and self._live.get(path, _ABSENT) == one.after.key.vector
            for path, one in shifts.items()
        )

    def _removal(self, path: str, shift: Shift, time_ms: int) -> Remove:
        """The action that takes a file away that is there, with whatever vector."""
        file = shift.after
        assert file is not None
        if file.key.vector != self._live[path]:
            file = self._as_now(path)
        gone = (
            removal(file, time_ms)
            if isinstance(file, Add)
            else msgspec.structs.replace(file, deletion_timestamp=time_ms)
        )
        return _telling(gone, shift)

    def _as_now(self, path: str) -> Add:
        """A file of the table as it is now, which a later version has brought."""
        for later in reversed(self._later):
            for add in later.adds:
                if add.key == (path, self._live[path]):
                    return add
        key = FileKey(path, self._live[path])
        return self._standing.files_in(self._target, [key])[key]

    def _found(self, paths: Sequence[str]) -> dict[str, Add]:
        """Files as they were in the state that is wanted, with all that is known of them."""
        files = {path: self._shifts[path].before for path in paths}
        found = {path: one for path, one in files.items() if isinstance(one, Add)}
        wanted = {one.key: path for path, one in files.items() if isinstance(one, Remove)}
        there = self._standing.files_in(self._wanted, wanted.keys()) if wanted else {}
        return found | {wanted[key]: add for key, add in there.items()}

    def _comes_back(self, path: str, shift: Shift) -> bool:
        """Whether a file that the change removed is to be there again: not where its partition was replaced
        since, nor where it was brought back before and others removed it since."""
        is_undone = self._was_brought_back(path)
        new = {path: one for path, one in self._shifts.items() if one.is_new}
        if new and self._are_as_left(new):
            is_undone = False  # what it wrote in its place is there
        assert shift.before is not None
        return not is_undone and not self._is_replaced(shift.before.partition_values)

    def _was_brought_back(self, path: str) -> bool:
        """Whether the change is undone for a file that it removed: it came back since, and did not go because
        that was undone, or the change done again."""
        is_undone = False
        passed: list[tuple[Later, bool, bool]] = []
        """Versions, with whether the change was undone before and after them."""
        own = line_of(self._newest).latest if self._is_on_line else -1
        for later, one in self._touches.get(path, ()):
            was = is_undone
            undoes, repeats = later.undoes, later.repeats
            if isinstance(one, Add):
                is_undone = True
            elif undoes is not None:
                befores = [before for each, before, _ in reversed(passed) if each.step.version == undoes]
                is_undone = befores[0] if befores else was and undoes < own
            elif repeats is not None:
                afters = [after for each, _, after in reversed(passed) if each.step.version == repeats]
                is_undone = afters[0] if afters else was and repeats != own
            elif later.is_undo:
                is_undone = False
            passed.append((later, was, is_undone))
        return is_undone

    @cached_property
    def _regions(self) -> list[Region]:
        """Where files were replaced since, by commits that were not undone."""
        later = [one.step for one in self._later]
        own = self._own_replacements
        # One that was only done again by files is as old as when it was first done.
        done = {one.id for step in later if step.terms.replaces is not None for one in step.replacements}
        places = [one.partitions for one in in_force(later).values() if one.id in done - own]
        places += [
            step.terms.replaces for step in later if step.terms.replaces is not None and not step.replacements
        ]
        schema_string = self._now.metadata.schema_string
        return [Region(schema_string, one or (Partitions(),)) for one in places]

    def _is_replaced(self, values: Mapping[str, str | None] | None) -> bool:
        return any(region.holds(dict(values or {})) for region in self._regions)

    # -- deletion vectors ---------------------------------------------------------------------------------

    def _unmasked(self, path: str, shift: Shift, before: Add | None) -> tuple[Add, Add] | None:
        """A file as it is, and with the rows back that the change deleted by a vector; ``None`` if nothing is
        left to do."""
        changes = self._vectors_since(path, shift)
        if path not in self._live:
            if not self._is_replaced(None if shift.before is None else shift.before.partition_values):
                touches = self._touches.get(path, [])
                told = self._describe(touches[-1][0] if touches else None)
                self._problem(f"{told} removed {path}, of which it deleted rows")
            return None
        if before is None:
            self._problem(f"it cannot be told what {path} was before")
            return None
        now = shift.after if shift.after is not None and not changes else None
        current = now if isinstance(now, Add) else self._as_now(path)
        if not changes and _key(current) == _key(shift.after):
            return current, before
        return self._with_rows_of(path, shift, before, current, changes)

    def _vectors_since(self, path: str, shift: Shift) -> list[_Masking]:
        """How later versions changed the vector of a file, but for the one that brought the change here."""
        found: list[_Masking] = []
        touches = self._touches.get(path, [])
        for (later, gone), (same, come) in pairwise(touches):
            if later is same and isinstance(gone, Remove) and isinstance(come, Add):
                is_landing = not found and _key(gone) == _key(shift.before) and not later.is_undo
                if not is_landing or _key(come) != _key(shift.after):
                    found.append(_Masking(gone, come, later))
        return found

    def _with_rows_of(
        self, path: str, shift: Shift, before: Add, current: Add, changes: Sequence[_Masking]
    ) -> tuple[Add, Add] | None:
        def read() -> Rows | str | None:
            try:
                return self._rows_left(before, shift, current, changes)
            except ValueError as problem:
                return f"the deleted rows of {path} cannot be read: {problem}"

        keys = _key(shift.before), _key(shift.after), _key(current)
        left = noted(self._table, ("delta vector", self._target.location, path, *keys, len(changes)), read)
        if isinstance(left, str):
            self._problem(left)
        if left is None or isinstance(left, str):
            return None
        if left.bits == 0 and before.deletion_vector is None:
            return current, before
        vector = inline_vector(left)
        if vector is not None and vector.size_in_bytes > INLINE_MAX_BYTES:
            self._problem(f"the deletion vector of {path} would be too large for a commit")
            return None
        stats = msgspec.json.encode({"numRecords": left.total, "tightBounds": False}).decode()
        return current, msgspec.structs.replace(before, deletion_vector=vector, stats=stats)

    def _rows_left(self, before: Add, shift: Shift, current: Add, changes: Sequence[_Masking]) -> Rows | None:
        """The rows that stay deleted; ``None`` if they are those that are deleted now.

        Rows count that the change deleted, or brought back, and on which nobody decided since.
        """
        place = self._commits.places.at(self._target.location)

        def bits(file: File | None) -> int:
            vector = None if file is None else file.deletion_vector
            return rows_of(before, vector, place.read_range, lambda path: name_inside(path, place.url)).bits

        was, became, now = bits(shift.before), bits(shift.after), bits(current)
        deleted, returned = became & ~was, was & ~became
        before_each: dict[int, tuple[int, int]] = {}
        """Of each version, the rows that counted before it."""
        for gone, come, later in changes:
            earlier, after = bits(gone), bits(come)
            came, went = earlier & ~after, after & ~earlier
            counted = deleted, returned
            deleted, returned = deleted & ~came, returned & ~went
            if later.is_undo:  # it may have undone what had undone the change
                all_rows = became & ~was, was & ~became
                then = all_rows if later.undoes is None else before_each.get(later.undoes, all_rows)
                deleted, returned = deleted | (then[0] & went), returned | (then[1] & came)
            before_each[later.step.version] = counted
        left = (now & ~deleted) | returned
        if left == now:
            return None
        return Rows(left, rows_of(before, None, place.read_range, str).total)

    # -- what stands against it ---------------------------------------------------------------------------

    def _check_carried(self) -> None:
        """A problem for each version that wrote rows of files of the change into others which are there."""
        own = {path for path, shift in self._shifts.items() if not shift.is_gone}
        carried: dict[str, int] = {}
        """Files with the place of the version that wrote them."""
        known = -1
        while known < len(carried):  # versions of several lines have no order of their own
            known = len(carried)
            for number, later in enumerate(self._later):
                gone = {
                    one.key.path
                    for one in later.removes
                    if one.key.path in carried
                    or (one.key.path in own and one.key != _key(self._shifts[one.key.path].before))
                }
                if gone and later.may_carry():
                    removed = _paths(later.removes)
                    news = (one.key.path for one in later.adds if one.key.path not in removed)
                    carried |= {path: number for path in news if path not in self._shifts | carried}
        live = self._standing.live(carried.keys()) if carried else {}
        for number in sorted({one for path, one in carried.items() if path in live}):
            later = self._later[number]
            rewritten = sorted(path for path, one in carried.items() if one == number and path in live)
            sources = sorted(_paths(later.removes) & (own | carried.keys()))
            self._problem(f"{self._describe(later)} wrote rows of {some(sources)} into {some(rewritten)}")

    def _check_rewritten(self) -> None:
        """A problem if the change wrote rows anew, and what it wrote was changed since: what is to come back
        holds the same rows."""
        changed = [
            path
            for path, one in self._shifts.items()
            if one.is_new and one.after is not None and self._live.get(path, _ABSENT) != one.after.key.vector
        ]
        if not self._is_rewriting or not changed:
            return
        later = next((one for one in reversed(self._later) if _paths(one.removes) & set(changed)), None)
        self._problem(f"{self._describe(later)} changed {some(sorted(changed))}, which it wrote")

    def _check_taken(self) -> None:
        """A problem if the change replaced partitions, and a merge or a transplant of it took files that
        others had there: they are no part of the change, and would stay away."""
        own = self._own_replacements
        if not own:
            return
        if self._is_on_line:
            version = line_of(self._newest).latest
            for later in self._later:
                if later.repeats == version:
                    self._check_taken_by(later, "did it again")
            return
        line, read = line_of(self._target), self._table.read
        for step in steps(self._table, self._commits, self._target, *self._landed_at):
            later = Later(step, Tip.at(line, step.version, read))
            if not own & {one.id for one in step.replacements}:
                continue
            self._check_taken_by(later, "brought it here")

    def _check_taken_by(self, later: Later, what: str) -> None:
        places = [one.partitions for step in self._own_steps for one in step.replacements]
        regions = [Region(self._now.metadata.schema_string, one or (Partitions(),)) for one in places]
        removes = (
            one
            for one in later.removes
            if any(region.holds(one.partition_values or {}) for region in regions)
        )
        taken = sorted(_paths(removes) - self._shifts.keys() - _paths(later.adds))
        gone = set(taken) - self._standing.live(taken).keys()
        if gone:
            self._problem(
                f"{self._describe(later)} {what}, and took {some(sorted(gone))} as well: revert that commit"
                " instead"
            )

    def _check_columns(self, metadata: Metadata) -> None:
        """A problem if files come back whose columns the table has not any more."""
        then = known(self._table, line_of(self._wanted).declared).metadata
        if then.partition_columns != metadata.partition_columns:
            self._problem("the table is partitioned in another way by now")
        elif not can_hold(metadata.schema_string, then.schema_string):
            names = missing_columns(metadata.schema_string, then.schema_string)
            told = some([f"'{name}'" for name in names]) or "others"
            self._problem(f"the table does not have the columns of the rows that come back any more: {told}")

    # -- metadata and domains -----------------------------------------------------------------------------

    def _metadata(self) -> Metadata | None:
        """What the table's metadata becomes, if that is not what it is."""
        then, undone = (
            known(self._table, line_of(one).declared).metadata for one in (self._wanted, self._was)
        )
        if then == undone:
            return None
        found: Undone = undo_metadata(then, undone, self._now.metadata, self._files_since)
        for name in found.changed_since:
            changes = (
                one for one in self._later_with_appends if last(one.step.actions, Metadata) is not None
            )
            later = next(changes, None)
            self._problem(f"{name} was changed since, by {self._describe(later)}")
        for what, files in found.used.items():
            paths = set(files)
            later = next((one for one in self._later_with_appends if _paths(one.adds) & paths), None)
            self._problem(f"{what}: {some(sorted(files))}, from {self._describe(later)}")
        return found.metadata if found.metadata != self._now.metadata else None

    def _files_since(self) -> list[Add]:
        """The files of the table that came since the change, and not by it."""
        adds = {one.key.path: one for later in self._later_with_appends for one in later.adds}
        others = {path: one for path, one in adds.items() if path not in self._shifts}
        live = self._standing.live(others.keys()) if others else {}
        return [one for path, one in others.items() if path in live]

    def _domains(self) -> list[DomainMetadata]:
        names = {
            one.domain
            for step in self._own_steps
            for one in step.actions
            if isinstance(one, DomainMetadata) and one.domain != ROW_ID_DOMAIN
        }
        if not names:
            return []
        for later in self._later:
            both = {one.domain for one in later.step.actions if isinstance(one, DomainMetadata)} & names
            if both and not later.is_undo:
                told = some(sorted(f"'{name}'" for name in both))
                self._problem(f"the domain {told} was changed since, by {self._describe(later)}")

        def read() -> list[DomainMetadata]:
            then = self._commits.snapshot(self._wanted, self._table.read).domains
            now = self._commits.snapshot(self._target, self._table.read).domains
            gone = (DomainMetadata(domain=name, configuration="", removed=True) for name in names)
            found = [then.get(one.domain, one) for one in gone]
            return [one for one in found if now.get(one.domain) != (None if one.removed else one)]

        tips = Tip.of(line_of(self._wanted)), Tip.of(line_of(self._target))
        return noted(self._table, ("delta domains", self._target.location, *tips), read)

    # -- how it is told -----------------------------------------------------------------------------------

    def _problem(self, why: str) -> None:
        if why not in self._problems:
            self._problems.append(why)

    def _describe(self, later: Later | None) -> str:
        """A version as a conflict names it, with the lake's commit that brought it."""
        if later is None:
            return "a later version"
        info = last(later.step.actions, CommitInfo)
        operation = f" ({info.operation})" if info is not None and info.operation else ""
        commit = later.commit or self._commit_of(later.tip)
        brought = "" if commit is None else f" of {commit.describe()}"
        return f"version {later.step.version}{operation}{brought}"

    def _commit_of(self, tip: Tip) -> LaterCommit | None:
        """The commit of the lake that brought a version to this branch."""
        read = self._table.read

        def has(content: object) -> bool:
            return (
                isinstance(content, DeltaTable) and bool(content.state) and tip.is_on(line_of(content), read)
            )

        for one in self._since.commits if self._since is not None else ():
            if has(one.after) and not any(map(has, one.before)):
                return one
        return None

    def _refused(self, problems: Sequence[str]) -> Refused:
        before, then, now = (
            f"version {line_of(one).latest}" for one in (self._wanted, self._was, self._target)
        )
        shown = "; ".join(problems[:_SHOWN]) + (
            f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        )
        is_redo = self._newest is not self._was
        what, ways = ("brought again", WAYS_TO_REDO) if is_redo else ("undone", WAYS_TO_UNDO)
        return Refused(
            f"cannot be {what} by its files ({before} became {then}, and is {now} now): {shown}; {ways}",
            expected=then,
            found=now,
        )


_FIRST: Final = "revert the named commit first, the newest first if there are several"
_LEAVE: Final = "or leave the table as it is with the mode 'drop'"
WAYS_TO_UNDO: Final = (
    f"{_FIRST}; or bring the table back to what it was before, without anything that came since, with the"
    f" mode 'force'; {_LEAVE}"
)
WAYS_TO_REDO: Final = (
    f"{_FIRST}; or bring the table back to what it was then, without anything that came since, with the mode"
    f" 'force'; {_LEAVE}"
)
_SHOWN: Final = 5
"""So many problems are told."""
_ABSENT: Final = ""
"""No id of a vector, and not ``None`` either: stands for a file that is not there."""


class _Masking(NamedTuple):
    """A change of a file's deletion vector."""

    gone: Remove
    come: Add
    later: Later


class _Named(NamedTuple):
    """What commits say of a file, first and last."""

    first: Remove | None
    last: Add | None
    data_change: bool
    is_unclear: bool
    """It was added first, without new rows: it may have been there before."""


def _named(several: Iterable[Step]) -> dict[str, _Named]:
    found: dict[str, _Named] = {}
    for step in several:
        for kind in (Remove, Add):
            for action in step.actions:
                if isinstance(action, kind):
                    path, is_add = action.key.path, isinstance(action, Add)
                    first = action if isinstance(action, Remove) else None
                    was = found.get(path, _Named(first, None, False, is_add and not action.data_change))
                    found[path] = was._replace(
                        last=action if isinstance(action, Add) else None,
                        data_change=was.data_change or action.data_change,
                    )
    return found


def _first(path: str, *sides: Mapping[str, _Named]) -> Remove | None:
    """A file where two lines parted, by what the first commit says that removed it."""
    return next((side[path].first for side in sides if path in side and side[path].first is not None), None)


def _added(path: str, *sides: Mapping[str, _Named]) -> Add | None:
    return next((side[path].last for side in sides if path in side and side[path].last is not None), None)


def _key(file: File | None) -> FileKey | None:
    return None if file is None else file.key


def _paths(files: Iterable[File]) -> set[str]:
    return {one.key.path for one in files}


def _telling(action: FileActionT, shift: Shift) -> FileActionT:
    """An action that changes rows if the change did."""
    return msgspec.structs.replace(action, data_change=shift.data_change)
