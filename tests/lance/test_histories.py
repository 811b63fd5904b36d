"""Random histories of Lance tables: batches, branches, merges, transactions, deaths; against sets of rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import CommitConflict, PenstockError
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.stores import DATABASE_FILE
from penstock.stores.sqlite import SqliteStore
from penstock.testing.faults import FaultyStore, Point
from tests.chance import RecordCounts
from tests.lance.collecting import Collecting
from tests.lance.history_model import Change, Tables, applied, merged, shown

lance = pytest.importorskip("lance")

# Threads of those who died end by what they died of.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

MAIN = "main"
TABLES = ("a", "b", "c")
BRANCHES_MAX = 3
HASTY = Settings(promote_wait_s=0.1, publish_close_s=0.1)
"""Who died may still seem to be promoting, for a while; nobody waits for them here."""
DEADLY = (Point.TURN, Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP, Point.FETCH)


class Died(BaseException):
    """The process is gone, at the point where this is raised."""


def _die() -> None:
    raise Died


def _nothing() -> None:
    pass


class History:
    """A lake, what it should hold, and chance."""

    def __init__(self, place: Path, seed: int) -> None:
        self._place, self._chance, self._numbers = place, random.Random(seed), count()
        self._rows = count(1)
        self._unsure: Callable[[], None] = _nothing
        """What the statement under way means for the model."""
        self.happened: Counter[str] = Counter()
        with penstock.open(place) as lake:
            lake.branch().create_namespace("h")
        self._left: list[Lake] = []
        self._open()
        start = [Change(name, frozenset([next(self._rows)])) for name in TABLES]
        for one in start:
            self._write(self._lake.lance(), one, mode="create")
        self._branches: dict[str, Tables] = {MAIN: applied({}, start)}
        self._past: list[dict[str, list[int]]] = [shown(self._branches[MAIN])]

    def _open(self) -> None:
        self._store = FaultyStore(SqliteStore(str(self._place / DATABASE_FILE)))
        self._lake = penstock.open(self._store, settings=HASTY)

    # -- what happens --------------------------------------------------------------------------------------

    def step(self) -> None:
        chosen = self._chance.choices(
            (self._statement, self._batch, self._transaction, self._fork, self._merge),
            (4, 4, 4, 1, 4),
        )[0]
        if chosen in (self._statement, self._batch) and self._chance.random() < 0.2:
            self._dying(chosen)
        else:
            chosen()
        if len(self._past) == 1 or shown(self._branches[MAIN]) != self._past[-1]:
            self._past.append(shown(self._branches[MAIN]))

    def _statement(self, branch: str | None = None) -> Callable[[], None]:
        """One statement of Lance's; says what it means for the model, for who cannot know if it landed."""
        branch = branch or self._any_branch()
        change = self._change(self._branches[branch])
        return self._landing("statement", branch, [change], lambda: self._write(self._ns(branch), change))

    def _batch(self) -> Callable[[], None]:
        branch = self._any_branch()
        tables = self._chance.sample(TABLES, self._chance.randrange(2, len(TABLES) + 1))
        changes = [self._change(self._branches[branch], table) for table in tables]

        def commit() -> None:
            collecting = Collecting(self._ns(branch))
            for one in changes:
                self._write(collecting, one)
            collecting.commit()

        return self._landing("batch", branch, changes, commit)

    def _landing(
        self, what: str, branch: str, changes: Sequence[Change], do: Callable[[], None]
    ) -> Callable[[], None]:
        def note() -> None:
            self._branches[branch] = applied(self._branches[branch], changes)

        self._unsure = note
        do()
        note()
        self.happened[what] += 1
        return note

    def _transaction(self) -> None:
        """Several statements in one, with or without somebody else who writes meanwhile."""
        target, policy = self._any_branch(), self._chance.choice(("snapshot", "rebase"))
        transaction = self._lake.transaction(target, policy=policy)
        mine = self._branches[target]
        for _ in range(self._chance.randrange(1, 4)):
            change = self._change(mine)
            self._write(self._ns(transaction.branch), change)
            mine = applied(mine, [change])
        assert self._rows_at(transaction.branch) == shown(mine), "a transaction reads what it wrote"
        if self._chance.random() < 0.4:
            self._statement(target)
        assert self._rows_at(target) == shown(self._branches[target]), "nobody else sees it"
        if self._chance.random() < 0.2:
            transaction.abort()
            self.happened["aborted"] += 1
            return
        try:
            transaction.land()
        except CommitConflict:
            self.happened[f"refused, {policy}"] += 1
        else:
            self._branches[target] = merged(self._branches[target], mine)
            self.happened[f"landed, {policy}"] += 1

    def _fork(self) -> None:
        if len(self._branches) > BRANCHES_MAX:
            name = self._chance.choice([one for one in self._branches if one != MAIN])
            self._lake.branch(name).delete()
            del self._branches[name]
        name, parent = f"dev{next(self._numbers)}", self._any_branch()
        self._lake.branch(name).create(at=parent)
        self._branches[name] = self._branches[parent]
        self.happened["fork"] += 1

    def _merge(self) -> None:
        if len(self._branches) < 2:
            return self._fork()
        source, target = self._chance.sample(list(self._branches), 2)
        if self._chance.random() < 0.5:
            source, target = next(one for one in (source, target) if one != MAIN), MAIN
        try:
            self._lake.branch(source).merge_into(target)
        except CommitConflict:
            self.happened["merge refused"] += 1
        else:
            self._branches[target] = merged(self._branches[target], self._branches[source])
            self.happened["merge"] += 1
        return None

    def _dying(self, do: Callable[[], Callable[[], None]]) -> None:
        """Do something in a process that dies somewhere in it: then it has happened, or it has not."""
        before = dict(self._branches)
        for point in DEADLY:
            self._store.at(point, _die, times=None, skip=self._chance.randrange(12))
        self._unsure = _nothing
        with suppress(Died, Exception):  # what Lance makes of it is nobody's to read
            do()
        self._store.heal()
        for point in Point:  # whatever of it still runs does nothing to the lake any more
            self._store.at(point, _die, times=None)
        self._left.append(self._lake)
        self._open()
        self._branches = dict(before)
        old = {name: shown(tables) for name, tables in before.items()}
        self._unsure()
        new = {name: shown(tables) for name, tables in self._branches.items()}
        found = {name: self._rows_at(name) for name in before}
        assert found in (old, new), "half of it has happened"
        if found == old:
            self._branches = before
        self.happened["died"] += 1

    # -- what there is -------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every branch holds what it should, at one commit; readers past the lake see what was once so."""
        for branch, tables in self._branches.items():
            assert self._rows_at(self._lake.branch(branch).head) == shown(tables), branch
        for name in TABLES:
            direct = self._direct(name)
            assert any(direct == past[name] for past in self._past), "a reader saw what nobody committed"

    def end(self) -> None:
        self._lake.close()
        with penstock.open(self._place):
            pass  # which finishes what those before have left
        with penstock.open(self._place) as self._lake:
            self.check()
            assert {name: self._direct(name) for name in TABLES} == shown(self._branches[MAIN])
            assert not self._lake.fsck().damages
        for one in self._left:
            with suppress(Died, PenstockError):
                one.close()

    def _direct(self, name: str) -> list[int]:
        where = self._lake.lance().describe_table({"id": ["h", name]}).location
        return _rows(lance.dataset(where))

    def _rows_at(self, ref: str) -> dict[str, list[int]]:
        namespace = self._ns(ref)
        return {
            name: _rows(lance.dataset(namespace_client=namespace, table_id=["h", name])) for name in TABLES
        }

    def _ns(self, ref: str) -> Any:
        return self._lake.lance(ref)

    # -- chance --------------------------------------------------------------------------------------------

    def _any_branch(self) -> str:
        return self._chance.choice([MAIN, *self._branches])

    def _change(self, tables: Tables, table: str | None = None) -> Change:
        table = table or self._chance.choice(TABLES)
        rows = sorted(tables[table].rows)
        if len(rows) > 2 and self._chance.random() < 0.35:
            return Change(table, deleted=frozenset(self._chance.sample(rows, self._chance.randrange(1, 3))))
        return Change(table, added=frozenset(next(self._rows) for _ in range(self._chance.randrange(1, 4))))

    @staticmethod
    def _write(namespace: Any, change: Change, mode: str = "append") -> None:
        table = ["h", change.table]
        if change.deleted:
            dataset = lance.dataset(namespace_client=namespace, table_id=table)
            dataset.delete(f"k in ({', '.join(map(str, sorted(change.deleted)))})")
        else:
            data = pa.table({"k": pa.array(sorted(change.added), pa.int64())})
            lance.write_dataset(data, namespace_client=namespace, table_id=table, mode=mode)


def _rows(dataset: Any) -> list[int]:
    return sorted(dataset.to_table()["k"].to_pylist())


def run(place: Path, seed: int, steps: int) -> Counter[str]:
    history = History(place, seed)
    for number in range(steps):
        history.step()
        if number % 10 == 9:
            history.check()
    history.end()
    return history.happened


def test_a_random_history_ends_as_sets_of_rows_say(tmp_path: Path) -> None:
    happened = run(tmp_path / "lake", 20261101, 40)
    assert happened["statement"]
    assert happened["merge"]
    assert happened["died"]


@pytest.mark.verify
def test_random_histories_in_which_everything_happens_end_as_sets_of_rows_say(tmp_path: Path) -> None:
    happened = sum((run(tmp_path / f"lake{n}", 20261101 + n, 40) for n in range(4)), Counter[str]())
    for what in ("statement", "batch", "landed, snapshot", "landed, rebase", "fork", "merge", "died"):
        assert happened[what], f"there was no {what}"


@pytest.mark.reliability
@pytest.mark.parametrize("turn", range(4))
def test_long_random_histories_end_as_sets_of_rows_say(
    tmp_path: Path, seed: int, turn: int, record_counts: RecordCounts
) -> None:
    for number in range(5 * turn, 5 * turn + 5):
        record_counts(run(tmp_path / f"lake{number}", seed + number, 150))
