"""The whole product at random: writes of every format, branches, merges, transactions, undo, clones, crashes.

Each step is done by the lake and by a model of rows (``model.py``). A step that the lake refuses as a
conflict changes nothing. After each step all branches hold what the model says, and ``fsck`` and the doctor
say what is true: that all is well, in the lake and in copies of it, or which tables are ahead of a database
that came back from an older copy. Now and then programs that never heard of Penstock read the default branch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

import penstock
from penstock.cli.commands.doctor import check_lake
from penstock.errors import CommitConflict, EraseRefused, HistoryExpired, PenstockError
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.stores import DATABASE_FILE
from penstock.stores.sqlite import SqliteStore
from penstock.testing.faults import FaultyStore, Point
from tests.erase.tables import ALONE
from tests.lake.restored import copy_database, put_back
from tests.product.model import Bounds, History, ModelCommit, Rows, Tables
from tests.product.readers import Readers

MAIN = "main"
SOURCE, CLONE = "sales.orders", "sales.trial"
"""A table, and a clone of it, which has files of the table for as long as nobody has rewritten them."""
FORMATS = {SOURCE: "delta", CLONE: "delta", "search.vectors": "lance", "exports.events": "parquet"}
CHANGED_BY_ROWS = ("delta", "lance")
ERASABLE = ("delta", "parquet")
VECTORS = "delta.enableDeletionVectors"
PARTS = ("a", "b", "c")
BRANCHES_MAX = 3
DEADLY = (Point.TURN, Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP, Point.FETCH)
SETTINGS = Settings(promote_wait_s=0.1, publish_close_s=0.1)


class Died(BaseException):
    """The process is gone, at the point where this is raised."""


def _die() -> None:
    raise Died


class Machine:
    """A lake, what it should hold, and chance."""

    def __init__(self, place: Path, readers: Readers, seed: int) -> None:
        self._place, self._readers = place, readers
        self._random = random.Random(seed)
        self._row_numbers, self._names = count(1), count(1)
        self._abandoned: list[Lake] = []
        self._erased: dict[str, frozenset[str]] = {key: frozenset() for key in FORMATS}
        """Of each table, commits at which it may not be readable any more."""
        self.counts: Counter[str] = Counter()
        with penstock.init(place):
            pass
        self._open()
        rows = {key: self._new_rows() for key in FORMATS if key != CLONE}
        with self._lake.transaction(message="create") as transaction:
            for key, new_rows in rows.items():
                by = "part" if FORMATS[key] == "delta" else None
                transaction.write(_arrow(new_rows), key, format=FORMATS[key], partition_by=by)
        self._has_vectors = self._random.random() < 0.5
        if self._has_vectors:
            self._lake.delta.set_properties(SOURCE, {VECTORS: "true"})
        self._lake.delta.clone(SOURCE, CLONE)
        rows[CLONE] = rows[SOURCE]
        head = self._lake.branch().head
        self._history = History(ModelCommit(head, rows))
        self._heads = {MAIN: head}
        self._steps: Sequence[tuple[int, Callable[[], None]]] = (
            (6, self._write),
            (3, self._transaction),
            (2, self._change_rows),
            (2, self._compact),
            (1, self._clone),
            (1, self._fork),
            (4, self._merge),
            (2, self._transplant),
            (4, self._revert),
            (2, self._restore),
            (1, self._sweep),
            (1, self._erase),
            (1, self._backup),
            (1, self._go_back),
        )

    def _open(self) -> None:
        self._store = FaultyStore(SqliteStore(str(self._place / DATABASE_FILE)))
        self._lake = penstock.open(self._store, settings=SETTINGS)

    # -- steps -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do something, in a process that may die of it."""
        weights = [weight for weight, _ in self._steps]
        chosen = self._random.choices([step for _, step in self._steps], weights)[0]
        chosen()
        self.check()

    def _write(self) -> None:
        branch, key = self._any_branch(), self._random.choice([*FORMATS])
        is_overwrite = self._random.random() < 0.2
        rows = self._new_rows()
        before = self._tables(branch)
        after = {**before, key: rows if is_overwrite else before[key] | rows}

        def write() -> None:
            self._table(key, branch).write(_arrow(rows), mode="overwrite" if is_overwrite else "append")

        name = "overwrite" if is_overwrite else "append"
        self._land(name, branch, write, after, {key} if is_overwrite else set())

    def _transaction(self) -> None:
        """Write several tables at once, of which some are read and replaced without some of their rows."""
        branch = self._any_branch()
        after = dict(self._tables(branch))
        overwritten = set()
        changes = []
        for key in self._random.sample([*FORMATS], self._random.randrange(2, len(FORMATS) + 1)):
            is_delete = len(after[key]) > 2 and self._random.random() < 0.4
            if is_delete:
                rows = after[key] - {*self._random.sample(sorted(after[key]), 2)}
                after[key] = rows
                overwritten.add(key)
            else:
                rows = self._new_rows()
                after[key] |= rows
            changes.append((key, rows, "overwrite" if is_delete else "append"))

        def write() -> None:
            with self._lake.transaction(branch) as transaction:
                for key, rows, mode in changes:
                    transaction.write(_arrow(rows), key, mode=mode)

        self._land("transaction", branch, write, after, overwritten)

    def _change_rows(self) -> None:
        """Delete rows by a condition, or write some of them anew: into other files, or with vectors."""
        branch = self._any_branch()
        before = self._tables(branch)
        keys = [key for key, rows in before.items() if rows and FORMATS[key] in CHANGED_BY_ROWS]
        if not keys:
            return
        key = self._random.choice(keys)
        chosen = self._random.sample(sorted(before[key]), min(len(before[key]), self._random.randrange(1, 3)))
        where = f"id in ({', '.join(map(str, chosen))})"
        table = self._table(key, branch)
        if self._random.random() < 0.5:
            after = {**before, key: before[key] - {*chosen}}
            self._land("delete", branch, lambda: table.delete(where), after, set())
        else:
            self._land("update", branch, lambda: table.update({"marker": "marker"}, where), before, set())

    def _compact(self) -> None:
        branch, key = self._any_branch(), self._random.choice([*FORMATS])
        before = self._tables(branch)
        self._land("compaction", branch, lambda: self._table(key, branch).optimize(), before, set())

    def _clone(self) -> None:
        """Clone a state of a Delta table for a while: it has the state's rows, and goes its own way."""
        key = self._random.choice((SOURCE, CLONE))
        branch = MAIN if self._random.random() < 0.7 else self._any_branch()
        past = self._random.choice(self._recent(self._any_branch()))
        name = f"trials.t{next(self._names)}"
        before = self._tables(branch)
        try:
            self._lake.delta.clone(key, name, ref=past.id, branch=branch)
        except HistoryExpired:
            assert past.id in self._erased[key], f"commit {past.id} lost {key}"
            self.counts["clone refused"] += 1
            return
        made = self._lake.branch(branch).head
        clone = self._table(name, branch)
        assert self._rows_of(clone) == past.tables[key], f"clone of {key}"
        rows = self._new_rows()
        clone.write(_arrow(rows), mode="append")
        assert self._rows_of(clone) == past.tables[key] | rows, f"clone of {key}"
        if self._random.random() < 0.5:
            self._sweep()
            assert self._rows_of(clone) == past.tables[key] | rows, f"clone of {key}, swept"
        if self._random.random() < 0.5:
            self._lake.branch(branch).drop(name)
        else:
            self._lake.revert(self._lake.branch(branch).head, branch)
            self._lake.revert(made, branch)
        assert not clone.exists
        self._take_head(branch, before, frozenset())
        if branch == MAIN and self._random.random() < 0.8:  # else it keeps its source from being erased
            self._lake.finish_background()
            with penstock.open(self._place, settings=ALONE) as lake, suppress(EraseRefused):
                assert lake.erase(name, dropped=True).finished
            self._take_heads()
        self.counts["clone"] += 1

    def _land(
        self, name: str, branch: str, write: Callable[[], object], after: Tables, overwritten: set[str]
    ) -> None:
        """Write to a branch that nobody else writes to: all of it lands, unless the process dies."""
        died = False
        if self._random.random() < 0.15:
            with self._deadly():
                write()
            died = True
            self.counts["died"] += 1
        else:
            write()
        if died and self._rows_at(branch) == self._tables(branch):
            self._take_head(branch, self._tables(branch), frozenset())
            return
        self._take_head(branch, after, frozenset(overwritten))
        self.counts[name] += 1

    def _fork(self) -> None:
        if len(self._heads) >= BRANCHES_MAX:
            name = self._random.choice([one for one in self._heads if one != MAIN])
            self._lake.branch(name).delete()
            del self._heads[name]
        name, parent = f"dev{next(self._names)}", self._any_branch()
        self._lake.branch(name).create(at=parent)
        self._heads[name] = self._heads[parent]
        self.counts["fork"] += 1

    def _merge(self) -> None:
        if len(self._heads) < 2:
            self._fork()
            return
        source, target = self._random.sample([*self._heads], 2)
        one, other = self._heads[source], self._heads[target]
        bounds = {key: self._history.merge(key, other, one) for key in FORMATS}
        overwritten = self._overwritten_between(one, other)
        self._bring("merge", target, bounds, overwritten, (one,), lambda: self._lake.merge(source, target))

    def _transplant(self) -> None:
        target, source = self._any_branch(), self._any_branch()
        commit = self._random.choice(self._recent(source))
        if not commit.parents:
            return
        bounds = {key: self._history.repeat(key, self._heads[target], commit.id) for key in FORMATS}
        self._bring(
            "transplant",
            target,
            bounds,
            commit.overwritten,
            (),
            lambda: self._lake.transplant(commit.id, target),
        )

    def _revert(self) -> None:
        branch = self._any_branch()
        commit = self._random.choice(self._recent(branch))
        if not commit.parents:
            return
        bounds = {key: self._history.revert(key, self._heads[branch], commit.id) for key in FORMATS}
        # If the revert is undone in its turn, what the commit replaced is replaced again.
        overwritten = commit.overwritten
        self._bring("revert", branch, bounds, overwritten, (), lambda: self._lake.revert(commit.id, branch))

    def _bring(
        self,
        name: str,
        branch: str,
        bounds: dict[str, Bounds],
        overwritten: frozenset[str],
        parents: tuple[str, ...],
        bring: Callable[[], object],
    ) -> None:
        """Do something that may be refused as a conflict, and compare the result with what it may be."""
        try:
            bring()
        except (CommitConflict, HistoryExpired) as refused:
            if isinstance(refused, HistoryExpired) and not any(self._erased.values()):
                raise
            self.counts[f"{name} refused"] += 1
            assert self._lake.branch(branch).head == self._heads[branch], (
                f"a refused {name} changed the branch"
            )
            return
        found = self._rows_at(branch)
        for key, one in bounds.items():
            assert one.allow(found[key]), (
                f"{name} on {branch}: {key} holds {sorted(found[key])}, must hold {sorted(one.must)},"
                f" may hold {sorted(one.may)}"
            )
        self._take_head(branch, found, overwritten, parents)
        self.counts[name] += 1

    def _sweep(self) -> None:
        self._lake.finish_background()
        self._lake.sweep()
        self._lake.sweep_tables(remove_data=True)
        self._lake.sweep_files(remove_data=True)
        self.counts["sweep"] += 1

    def _restore(self) -> None:
        """Set one table, or all of them, to what they were at an earlier commit."""
        branch = self._any_branch()
        commit = self._random.choice(self._recent(branch))
        keys = [*FORMATS] if self._random.random() < 0.3 else [self._random.choice([*FORMATS])]
        wanted = {**self._tables(branch), **{key: commit.tables[key] for key in keys}}
        bounds = {key: Bounds(rows, rows) for key, rows in wanted.items()}

        def restore() -> None:
            if len(keys) == 1:
                self._lake.restore(keys, to=commit.id, branch=branch)
            else:
                self._lake.restore(all=True, to=commit.id, branch=branch)

        self._bring("restore", branch, bounds, frozenset(keys), (), restore)

    def _erase(self) -> None:
        """Make deleted rows of a table unrecoverable, and look for them in every byte."""
        key = self._random.choice([key for key, one in FORMATS.items() if one in ERASABLE])
        self._lake.finish_background()
        with penstock.open(self._place, settings=ALONE) as lake:
            try:
                erased = lake.erase(key)
            except EraseRefused:
                self.counts["erase refused"] += 1
                return
        assert erased.finished, erased.left
        self._take_heads()
        self._erased[key] |= self._history.ids() - {*self._heads.values()}
        alive = frozenset[int]().union(*(self._tables(branch)[key] for branch in self._heads))
        if FORMATS[key] == "delta":  # rows that the clone and its source have both had are in files of both
            alive |= self._history.rows_ever(CLONE if key == SOURCE else SOURCE)
        gone = {marker_of(row): row for row in self._history.rows_ever(key) - alive}
        assert not {row: files for row, files in self._find_markers(gone).items() if files}
        self.counts["erase"] += 1

    def _backup(self) -> None:
        """Back the lake up, in addition to earlier backups, and restore that: all rows are there."""
        target, again = (self._place.with_name(f"{self._place.name}.{one}") for one in ("backup", "restored"))
        self._lake.finish_background()
        made = penstock.backup(self._place, target, verify=True)
        restored = penstock.restore_backup(target, again)
        assert (restored.missing, restored.owns_tables) == ((), False), "the lake is still there"
        with penstock.open(again) as lake:
            for branch in self._heads:
                assert lake.branch(branch).head == self._heads[branch]
                rows = {key: self._rows_of(lake.table(key, branch)) for key in FORMATS}
                assert rows == self._tables(branch), f"{branch} in the restored lake"
            assert diagnose(lake) == WELL, "in a copy, whose tables the lake owns"
        rmtree(again)
        for note in self._place.glob("warehouse/_penstock/data/forks/*"):
            note.unlink()  # of a copy that is gone: else no table can be erased any more
        if self._random.random() < 0.5:
            penstock.expire_backups(self._place, target, made.point.id)
        self.counts["backup"] += 1

    def _go_back(self) -> None:
        """Let the database come back from an older copy for a while: which tables went on is told."""
        copies = [self._place.with_name(f"{self._place.name}.{name}.db") for name in ("older", "newer")]
        self._lake.finish_background()
        copy_database(self._place, copies[0])
        written = set[str]()
        for _ in range(self._random.randrange(3)):
            key, rows, before = self._random.choice([*FORMATS]), self._new_rows(), self._tables(MAIN)
            self._table(key, MAIN).write(_arrow(rows), mode="append")
            self._take_head(MAIN, {**before, key: before[key] | rows}, frozenset())
            written.add(key)
        self._lake.finish_background()
        self._lake.close()
        copy_database(self._place, copies[1])
        put_back(self._place, copies[0])
        ahead = frozenset(key for key in written if FORMATS[key] in ("delta", "lance"))
        with penstock.open(self._place, catch_up=False) as lake:
            diagnosis = diagnose(lake)
            assert {damage.object for damage in lake.fsck().damages} == ahead
        assert diagnosis.ahead == ahead, diagnosis
        assert diagnosis.failed <= {"versions", "Delta tables"}, diagnosis
        put_back(self._place, copies[1])
        for copy in copies:
            copy.unlink()
        self._open()
        self.counts["older database"] += 1

    def _find_markers(self, markers: Mapping[str, int]) -> dict[int, list[str]]:
        """The files below the lake's folder, its database included, that hold the marker of a row."""
        found: dict[int, list[str]] = {row: [] for row in markers.values()}
        for file in self._place.rglob("*"):
            if file.is_file():
                data = file.read_bytes()
                if file.suffix == ".parquet":
                    data += str(pq.read_table(file).to_pylist()).encode()  # its pages are compressed
                for marker, row in markers.items():
                    if marker.encode() in data:
                        found[row].append(file.name)
        return found

    @contextmanager
    def _deadly(self) -> Iterator[None]:
        """The process dies somewhere in what is done here; another one goes on afterwards."""
        for point in DEADLY:
            self._store.at(point, _die, times=None, skip=self._random.randrange(12))
        try:
            with suppress(Died, Exception):  # what a library makes of it is not the point
                yield
        finally:
            for point in Point:  # whatever of it still runs does nothing to the lake any more
                self._store.at(point, _die, times=None)
            self._abandoned.append(self._lake)
            self._open()

    # -- what there is -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Every branch holds what the model says, and so does an earlier commit."""
        for branch in self._heads:
            assert self._rows_at(branch) == self._tables(branch), branch
        past = self._random.choice([*self._history.first_parents(self._heads[self._any_branch()])])
        for key, rows in past.tables.items():
            try:
                found = self._rows_of(self._table(key, past.id))
            except HistoryExpired:
                assert past.id in self._erased[key], f"commit {past.id} lost {key}"
            else:
                assert found == rows, f"commit {past.id} changed"
        assert diagnose(self._lake) == WELL

    def check_everywhere(self) -> None:
        """Programs that never heard of Penstock find the rows of the default branch; nothing is damaged."""
        self._lake.finish_background()
        wanted = self._tables(MAIN)
        for key, format_name in FORMATS.items():
            if format_name in ("delta", "lance"):
                location = self._table(key, MAIN).location
                is_delta, with_vectors = format_name == "delta", self._has_vectors
                readers = self._readers
                read = readers.delta(location, with_vectors) if is_delta else readers.lance(location)
                for reader, rows in read.items():
                    assert rows == wanted[key], f"{reader} reads {key}"
        assert diagnose(self._lake) == WELL
        assert all(line.state == "ok" for line in check_lake(self._lake)), "nothing waits to be published"

    def end(self) -> None:
        self.check_everywhere()
        self._lake.close()
        for lake in self._abandoned:
            with suppress(Died, PenstockError):
                lake.close()

    def _rows_at(self, ref: str) -> dict[str, Rows]:
        return {key: self._rows_of(self._table(key, ref)) for key in FORMATS}

    @staticmethod
    def _rows_of(table: Table) -> Rows:
        ids = table.to_arrow(columns=["id"])["id"].to_pylist()
        assert len(ids) == len({*ids}), f"rows of {table.key} came twice: {sorted(ids)}"
        return frozenset(ids)

    def _table(self, key: str, ref: str) -> Table:
        return self._lake.table(key, ref)

    # -- the model ---------------------------------------------------------------------------------------

    def _tables(self, branch: str) -> dict[str, Rows]:
        return dict(self._history[self._heads[branch]].tables)

    def _take_head(
        self, branch: str, tables: Tables, overwritten: frozenset[str], parents: tuple[str, ...] = ()
    ) -> None:
        """The branch's head is a commit that holds these tables."""
        head = self._lake.branch(branch).head
        if head not in self._history:
            self._history.add(ModelCommit(head, dict(tables), (self._heads[branch], *parents), overwritten))
        self._heads[branch] = head

    def _take_heads(self) -> None:
        """Every branch has a commit on top that changed no row, or none."""
        for branch in self._heads:
            self._take_head(branch, self._tables(branch), frozenset())

    def _overwritten_between(self, one: str, other: str) -> frozenset[str]:
        between = self._history.ancestors(one) - self._history.ancestors(other)
        return frozenset(key for key in FORMATS if self._history.is_overwritten(key, between))

    def _recent(self, branch: str) -> list[ModelCommit]:
        return [*self._history.first_parents(self._heads[branch])][:8]

    # -- chance ------------------------------------------------------------------------------------------

    def _any_branch(self) -> str:
        return self._random.choice([MAIN, *self._heads])

    def _new_rows(self) -> Rows:
        return frozenset(next(self._row_numbers) for _ in range(self._random.randrange(1, 4)))


def _arrow(rows: Rows) -> pa.Table:
    ids = sorted(rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": [PARTS[one % len(PARTS)] for one in ids],
            "marker": [marker_of(one) for one in ids],
        }
    )


class Diagnosis(NamedTuple):
    """What ``fsck`` and the doctor say is wrong with a lake."""

    damages: tuple[str, ...] = ()
    failed: frozenset[str] = frozenset()
    """What the doctor looked at and found to be wrong."""
    ahead: frozenset[str] = frozenset()
    """Tables that have versions which the lake does not know, as the doctor names them."""


WELL = Diagnosis()


def diagnose(lake: Lake) -> Diagnosis:
    lines = [line for line in check_lake(lake) if line.state == "failed"]
    found = {line.name: line.finding for line in lines}
    named = found.get("versions", "").partition("or others: ")[2]
    return Diagnosis(
        tuple(map(str, lake.fsck().damages)), frozenset(found), frozenset(named.split(", ") if named else ())
    )


def marker_of(row: int) -> str:
    """A text that stands in no other row, and is not shortened by any compression."""
    return f"<{random.Random(row).randbytes(12).hex()}>"
