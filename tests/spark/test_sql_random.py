"""Random programs of SQL statements, by two sessions, against a model that is nothing but rows in memory.

Branches, views, time travel, and transactions of both sessions, which may be in conflict. After every
statement all tables of all branches, of a transaction and of a commit of the past are what the model says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pytest

from penstock.errors import CommitConflict
from penstock.lake.lake import Lake
from penstock.spark.settings import RELATION_CATALOG, find_catalog_class
from penstock.spark.spark_errors import unwrap
from tests.spark.sql_session import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATEMENTS: Final = 24
KEYS: Final = {
    "d": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
    "v": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "f": "USING parquet",
}
ROWS_MAX: Final = 40


class Rows(NamedTuple):
    """A table as it is after some write: the ids of its rows."""

    write: int
    """No two writes have the same."""
    ids: Counter[int]


class Seen(NamedTuple):
    """A view of a table: its ids that leave a rest of a division by four."""

    write: int
    key: str
    rest: int

    @property
    def text(self) -> str:
        """A query that no other view has."""
        return f"SELECT id FROM lake.s.{self.key} WHERE id % 4 = {self.rest} AND id <> -{self.write + 1}"

    def of(self, state: State) -> Counter[int] | None:
        """What is to be seen at a state; ``None`` where the table is not there."""
        table = state.get(self.key)
        if not isinstance(table, Rows):
            return None
        return Counter({number: times for number, times in table.ids.items() if number % 4 == self.rest})


State: TypeAlias = dict[str, Rows | Seen]
"""The tables and views of a branch, which is never changed in place."""
VIEW: Final = "w"


class Session:
    """A session of Spark's, with the branch that it uses and its transaction."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.branch = "main"
        self.base: State | None = None
        """What the branch was when the transaction began; ``None`` outside of one."""
        self.own: State = {}
        """What the transaction has made of it."""


class Program:
    """A program, and what everything is by its model."""

    def __init__(self, lake: Lake, spark: SparkSession, seed: int) -> None:
        self.lake, self.random = lake, Random(seed)
        self.sessions = [Session(spark), Session(spark.newSession())]
        self.writes = count()
        self.branches: dict[str, State] = {"main": {}}
        self.forks: dict[str, State] = {}
        """Of branches that may be merged into main, what both last had in common."""
        self.past: dict[str, State] = {}
        """Commits, and what they had."""
        self.done: Counter[str] = Counter()
        self.session = self.sessions[0]

    def tell(self) -> None:
        for key, more in KEYS.items():
            self.change(f"CREATE TABLE lake.s.{key} (id BIGINT) {more}", key, Counter())
        self.check()
        ways: list[tuple[int, Callable[[], None]]] = [
            (5, self.insert),
            (2, self.insert_from_the_past),
            (1, self.overwrite),
            (3, self.delete),
            (3, self.update),
            (3, self.merge),
            (1, self.drop_or_create),
            (2, self.fail),
            (3 if find_catalog_class() == RELATION_CATALOG else 0, self.see),
            (3, self.create_or_merge_branch),
            (2, self.use),
            (4, self.begin_or_end),
        ]
        weights, steps = zip(*ways, strict=True)
        for _ in range(STATEMENTS):
            self.session = self.random.choice(self.sessions)
            step = self.random.choices(steps, weights)[0]
            step()
            self.done[step.__name__] += 1
            self.check()
        for session in self.sessions:
            self.session = session
            if session.base is not None:
                self.end(is_commit=True)
                self.check()
        assert self.lake.transactions() == []
        assert self.lake.fsck().damages == ()

    # -- statements ------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What the session sees."""
        session = self.session
        return self.branches[session.branch] if session.base is None else session.own

    def change(self, statement: str, key: str, ids: Counter[int] | None) -> None:
        """Run a statement that makes a table what is given; ``None`` drops it."""
        run(self.session.spark, statement)
        if statement.startswith(("DELETE", "UPDATE", "MERGE")) and ids == self.ids_of(key):
            return  # there was nothing to do
        self.put({key: None if ids is None else Rows(next(self.writes), +ids)})

    def ids_of(self, key: str) -> Counter[int]:
        """The ids of a table as the session sees it."""
        return find_ids(self.state, key)

    def put(self, changed: dict[str, Rows | Seen | None]) -> None:
        merged: dict[str, Rows | Seen | None] = {**self.state, **changed}
        state = {key: rows for key, rows in merged.items() if rows is not None}
        if self.session.base is None:
            self.branches[self.session.branch] = state
        else:
            self.session.own = state

    def pick(self, keys: str = "".join(KEYS)) -> str | None:
        there = [key for key in keys if key in self.state]
        return self.random.choice(there) if there else None

    def some(self) -> Counter[int]:
        return Counter(self.random.randrange(50) for _ in range(self.random.randint(1, 3)))

    def values(self, ids: Counter[int]) -> str:
        return "VALUES " + ", ".join(f"({number})" for number in ids.elements())

    def insert(self) -> None:
        if key := self.pick():
            new = self.some()
            self.change(f"INSERT INTO lake.s.{key} {self.values(new)}", key, self.ids_of(key) + new)

    def insert_from_the_past(self) -> None:
        """Rows that a table had at some commit, whatever it is now."""
        commit = self.random.choice(list(self.past))
        key, other = self.pick(), self.random.choice(list(KEYS))
        if key and other in self.past[commit] and self.ids_of(key).total() < ROWS_MAX:
            query = f"SELECT id FROM lake.s.{other} VERSION AS OF '{commit}' WHERE id < 25"
            past_ids = find_ids(self.past[commit], other)
            old = Counter({number: n for number, n in past_ids.items() if number < 25})
            self.change(f"INSERT INTO lake.s.{key} {query}", key, self.ids_of(key) + old)

    def overwrite(self) -> None:
        if key := self.pick():
            new = self.some()
            self.change(f"INSERT OVERWRITE lake.s.{key} {self.values(new)}", key, new)

    def delete(self) -> None:
        if key := self.pick("dv"):
            part = self.random.randrange(4)
            left = Counter({number: n for number, n in self.ids_of(key).items() if number % 4 != part})
            self.change(f"DELETE FROM lake.s.{key} WHERE id % 4 = {part}", key, left)

    def update(self) -> None:
        if key := self.pick("dv"):
            part = self.random.randrange(4)
            changed: Counter[int] = Counter()
            for number, times in self.ids_of(key).items():
                changed[number + 1 if number % 4 == part else number] += times
            self.change(f"UPDATE lake.s.{key} SET id = id + 1 WHERE id % 4 = {part}", key, changed)

    def merge(self) -> None:
        if key := self.pick("dv"):
            source = Counter(self.random.sample(range(50), 3))
            ids = self.ids_of(key)
            gone = {number for number in source if number in ids and number % 2}
            made = Counter({n: times for n, times in ids.items() if n not in gone})
            made += Counter(number for number in source if number not in ids)
            statement = (
                f"MERGE INTO lake.s.{key} t USING (SELECT col1 AS id FROM {self.values(source)}) s "
                "ON t.id = s.id WHEN MATCHED AND t.id % 2 = 1 THEN DELETE WHEN NOT MATCHED THEN INSERT *"
            )
            self.change(statement, key, made)

    def drop_or_create(self) -> None:
        key = self.random.choice(list(KEYS))
        if key in self.state:
            self.change(f"DROP TABLE lake.s.{key}", key, None)
        else:
            new = self.some()
            query = f"SELECT CAST(col1 AS BIGINT) AS id FROM {self.values(new)}"
            self.change(f"CREATE TABLE lake.s.{key} {KEYS[key]} AS {query}", key, new)

    def see(self) -> None:
        """A statement about the view, or rows that come from it."""
        there = self.state.get(VIEW)
        view = Seen(next(self.writes), self.random.choice(list(KEYS)), self.random.randrange(4))
        how = self.random.randrange(4) if there is not None else 0
        if how == 0 and view.key in self.state:
            run(self.session.spark, f"CREATE OR REPLACE VIEW lake.s.{VIEW} AS {view.text}")
            self.put({VIEW: view})
        elif how == 1 and view.key in self.state:
            run(self.session.spark, f"ALTER VIEW lake.s.{VIEW} AS {view.text}")
            self.put({VIEW: view})
        elif how == 2:
            run(self.session.spark, f"DROP VIEW lake.s.{VIEW}")
            self.put({VIEW: None})
        elif (
            isinstance(there, Seen)
            and (seen := there.of(self.state)) is not None
            and (key := self.pick("dv"))
        ):
            query = f"INSERT INTO lake.s.{key} SELECT * FROM lake.s.{VIEW} LIMIT {seen.total()}"
            if seen and self.ids_of(key).total() < ROWS_MAX:
                self.change(query, key, self.ids_of(key) + seen)

    def fail(self) -> None:
        key = self.pick()
        statement = self.random.choice(
            [
                f"INSERT INTO lake.s.{key} SELECT raise_error('broken')",
                f"INSERT INTO lake.s.{key} SELECT 'no number'",
                f"CREATE TABLE lake.s.{key} (id BIGINT)",
                "DELETE FROM lake.s.absent",
                f"UPDATE lake.s.{key} SET id = raise_error('broken')",
                "USE REFERENCE absent IN lake",
            ]
        )
        has_rows = key is not None and self.ids_of(key).total() > 0
        if key is None or ("UPDATE" in statement and not (key in "dv" and has_rows)):
            return
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, nothing is changed
            run(self.session.spark, statement)
        assert "\tat " not in str(caught.value), statement

    # -- branches and transactions ---------------------------------------------------------------------------

    def create_or_merge_branch(self) -> None:
        if self.session.base is not None:
            return
        if not self.forks:
            run(self.session.spark, "CREATE BRANCH dev IN lake FROM main")
            self.branches["dev"] = self.forks["dev"] = self.branches["main"]
            return
        self.land(
            "dev", "main", "MERGE BRANCH dev INTO main IN lake", self.forks["dev"], self.branches["dev"]
        )

    def use(self) -> None:
        if self.session.base is None:
            self.session.branch = self.random.choice(list(self.branches))
            run(self.session.spark, f"USE REFERENCE {self.session.branch} IN lake")

    def begin_or_end(self) -> None:
        if self.session.base is None:
            run(self.session.spark, "BEGIN TRANSACTION IN lake")
            self.session.base = self.session.own = self.branches[self.session.branch]
        else:
            self.end(is_commit=self.random.random() < 0.8)

    def end(self, *, is_commit: bool) -> None:
        session = self.session
        assert session.base is not None
        base, own = session.base, session.own
        if is_commit:
            session.base = None
            self.land(None, session.branch, "COMMIT IN lake", base, own)
        else:
            run(session.spark, "ROLLBACK IN lake")
            session.base = None

    def land(self, source: str | None, into: str, statement: str, base: State, own: State) -> None:
        """Bring what one side has done since the base to a branch, or be told which tables are in the way."""
        theirs = self.branches[into]
        changed = {key for key in {*base, *own} if base.get(key) != own.get(key)}
        meanwhile = {key for key in {*base, *theirs} if base.get(key) != theirs.get(key)}
        problem = self.problem_of(statement)
        if problem is not None:
            error = unwrap(problem)
            assert isinstance(error, CommitConflict), problem
            told = {conflict.key.elements[-1] for conflict in error.conflicts}
            assert told, error
            assert told <= changed & meanwhile, (told, changed, meanwhile)
            assert all(conflict.found or conflict.why for conflict in error.conflicts)
            self.done["conflicts"] += 1
            return
        landed: State = {key: rows for key, rows in theirs.items() if key not in changed}
        for key in changed:
            rows = self._united(base.get(key), own.get(key), theirs.get(key))
            if rows is not None:
                landed[key] = rows
        self.branches[into] = landed
        self.done["landed beside others"] += bool(changed & meanwhile)
        if source is not None:
            self.forks[source] = own

    def problem_of(self, statement: str) -> Exception | None:
        try:
            run(self.session.spark, statement)
        except Exception as problem:
            return problem
        return None

    def _united(
        self, base: Rows | Seen | None, own: Rows | Seen | None, theirs: Rows | Seen | None
    ) -> Rows | Seen | None:
        if theirs == base:
            return own
        if own is None and theirs is None:
            return None
        assert isinstance(base, Rows), "both created it, or changed a view"
        assert isinstance(own, Rows), "it was dropped, and changed by others"
        assert isinstance(theirs, Rows), "others dropped it"
        united = Counter(theirs.ids)
        united.update(own.ids)
        united.subtract(base.ids)
        assert min(united.values(), default=0) >= 0, (base, own, theirs)
        return Rows(next(self.writes), +united)

    # -- what there is ---------------------------------------------------------------------------------------

    def check(self) -> None:
        for branch, state in self.branches.items():
            head = self.lake.resolve(branch)
            self.compare(head, state)
            self.past[head] = state
        open_ones = [session for session in self.sessions if session.base is not None]
        assert len(self.lake.transactions()) == len(open_ones)
        for session in open_ones:
            self.session = session
            self.by_sql(session)
        self.by_sql(self.random.choice(self.sessions))
        commit = self.random.choice(list(self.past))
        self.compare(commit, self.past[commit])

    def compare(self, revision: str, state: State) -> None:
        for key in KEYS:
            table = self.lake.at(revision).table(f"s.{key}")
            assert table.exists == (key in state), (key, revision)
            if key in state:
                assert Counter(table.to_arrow()["id"].to_pylist()) == find_ids(state, key), (key, revision)
        view = self.lake.at(revision).get(f"s.{VIEW}")
        assert (view is not None) == (VIEW in state), revision

    def by_sql(self, session: Session) -> None:
        """What a session sees of a table by its name, at another branch, and at a commit."""
        self.session = session
        if key := self.pick():
            self.same(session, f"lake.s.{key}", self.ids_of(key))
        branch = self.random.choice(list(self.branches))
        commit = self.random.choice(list(self.past))
        key = self.random.choice(list(KEYS))
        if key in self.branches[branch]:
            self.same(session, f"lake.s.`{key}@{branch}`", find_ids(self.branches[branch], key))
        if key in self.past[commit]:
            self.same(session, f"lake.s.{key} VERSION AS OF '{commit}'", find_ids(self.past[commit], key))
        for name, state in (
            (f"lake.s.{VIEW}", self.state),
            (f"lake.s.`{VIEW}@{branch}`", self.branches[branch]),
            (f"lake.s.{VIEW} VERSION AS OF '{commit}'", self.past[commit]),
        ):
            view = state.get(VIEW)
            if isinstance(view, Seen) and (seen := view.of(state)) is not None:
                self.same(session, name, seen)

    def same(self, session: Session, name: str, ids: Counter[int]) -> None:
        found: list[Any] = run(session.spark, f"SELECT id FROM {name}")
        assert Counter(row[0] for row in found) == ids, name


def find_ids(state: State, key: str) -> Counter[int]:
    """The ids of a table at a state."""
    rows = state[key]
    assert isinstance(rows, Rows)
    return rows.ids


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.verify if seed == 1 else pytest.mark.reliability)
        for seed in range(1, 13)
    ],
)
def test_a_random_program_leaves_what_a_model_says(lake: Lake, spark: SparkSession, seed: int) -> None:
    Program(lake, spark, seed).tell()
