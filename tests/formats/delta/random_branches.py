"""Random lives of a Delta table on up to three branches, held against a model of all values.

Every step is done by the lake and by the model: which row has which value on which branch. Where a merge or
an undo is free to decide, bounds say what must be there and what may be (``tests.product.model``), and no row
has a value that neither side gave it. The table has, by chance, deletion vectors, row tracking, a change data
feed, mapped columns and partitions, and is cloned, swept, compacted and changed in transactions.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable

import penstock
from penstock.errors import CommitConflict, HistoryExpired, MergeConflict, PenstockError
from penstock.formats.delta.protocol.row_ids import PROVISIONAL
from penstock.kernel.settings import Settings
from penstock.lake.table import Table
from tests.product.model import Bounds, History, ModelCommit, Rows
from tests.sweep.tables import LateClock

KEY: Final = "t"
MAIN: Final = "main"
BRANCHES_MAX: Final = 3
RECENT: Final = 10
"""So far back commits are chosen that are undone, done again, restored or cloned."""
FOREIGN_EVERY: Final = 10
"""After so many steps other programs read the table, and ``fsck`` looks at the lake."""
SETTINGS: Final = Settings(grace_s=0, nobody_writes=True, publish_wait_s=60.0)
PARTS: Final = ("a", "b", "c%/d")
KINDS: Final = {
    "append": 6,
    "overwrite": 1,
    "overwrite_part": 1,
    "delete": 4,
    "delete_part": 2,
    "update": 4,
    "upsert": 3,
    "optimize": 3,
    "add_column": 1,
    "transaction": 2,
    "merge": 6,
    "rebase": 1,
    "fork": 2,
    "revert": 5,
    "revert_twice": 1,
    "transplant": 4,
    "restore": 2,
    "clone": 1,
    "branch_clone": 3,
    "checkpoint": 1,
    "sweep": 2,
}
"""What a step may be, and how often it is."""
UNDOING: Final = ("merge", "rebase", "revert", "revert_twice", "transplant")
"""What may undo, on the default branch, what came there with a merge."""
SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int64()),
        ("part", pa.string()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.decimal128(20, 3)),
        ("ts", pa.timestamp("us", "UTC")),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("da", pa.date32()),
    ]
)
OF_ID: Final = ("f", "s", "d", "ts", "da")
"""Columns whose values follow from a row's id."""
COMPARED: Final = ("v", "id", "part", "st.x", *OF_ID)
"""Columns by which rows are chosen."""
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    # NaN is above all others, as Spark has it.
    "=": lambda one, other: not _is_nan(one) and one == other,
    "<>": lambda one, other: _is_nan(one) or one != other,
    "<": lambda one, other: not _is_nan(one) and one < other,
    "<=": lambda one, other: not _is_nan(one) and one <= other,
    ">": lambda one, other: _is_nan(one) or one > other,
    ">=": lambda one, other: _is_nan(one) or one >= other,
}

Values: TypeAlias = dict[int, int]
"""The value ``v`` of each row, by its id."""
RowStates: TypeAlias = dict[int, tuple[int, int]]
"""What the table keeps of each row, by its id: the row's own id, and the version that wrote it last."""


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def make_row(number: int, value: int, part: str) -> dict[str, Any]:
    """A row whose other columns follow from its id: values that statistics of files easily get wrong."""
    chance = random.Random(number)
    small, large = Decimal(number) / 1000, Decimal("123456789012345.001")
    midnight, old = datetime(2020, 1, 1, tzinfo=UTC), datetime(1900, 1, 1, 0, 0, 0, 999999, tzinfo=UTC)
    texts = (
        "x" * 40 + str(number),
        "\U0001f600" * 33 + str(number),
        f"abc{number}",
        "",
        "é" * 35,
        "\uffff" * 40,
    )
    return {
        "id": number,
        "v": value,
        "part": part,
        "f": chance.choice((math.nan, -0.0, 0.0, float(number), None, math.inf, -1.5 * number, 1e300)),
        "s": chance.choice((None, *texts)),
        "d": chance.choice((None, small + large * (number % 3), Decimal("-999999999999999.999"))),
        "ts": chance.choice((None, midnight + timedelta(hours=number, microseconds=number * 7), old)),
        "st": chance.choice((None, {"x": number, "y": None}, {"x": None, "y": f"q{number}"})),
        "da": chance.choice((None, date(2020, 1, 1) + timedelta(days=number))),
    }


def values_of(table: Table) -> Values:
    """What a table holds: no row twice, and each with the values that it was written with."""
    found: Values = {}
    for row in table.to_arrow().to_pylist():
        number = row["id"]
        assert number not in found, f"row {number} is there twice"
        found[number] = row["v"]
        expected = make_row(number, row["v"], row["part"])
        for column in OF_ID:
            was, now = expected[column], row[column]
            assert was == now or (_is_nan(was) and _is_nan(now)), (number, column, was, now)
    return found


def check_row_ids(table: Table) -> None:
    ids = table.to_arrow(columns=["_row_id"])["_row_id"].to_pylist()
    assert None not in ids, "a row has no id"
    assert len(ids) == len(set(ids)), f"an id is there twice: {sorted(ids)}"


def row_states(table: Table) -> RowStates:
    found = table.to_arrow(columns=["id", "_row_id", "_row_commit_version"]).to_pylist()
    return {row["id"]: (row["_row_id"], row["_row_commit_version"]) for row in found}


def _arrow(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _values(rows: Sequence[dict[str, Any]]) -> Values:
    return {row["id"]: row["v"] for row in rows}


def _unchanged(before: Values, after: Values) -> set[int]:
    return {one for one, value in before.items() if after.get(one) == value}


def _among(ids: Sequence[int]) -> str:
    return f"id in ({', '.join(map(str, ids))})"


def _parts(table: Table) -> dict[int, str]:
    return {row["id"]: row["part"] for row in table.to_arrow(columns=["id", "part"]).to_pylist()}


class RandomBranches:
    """A table, what it should hold on each branch, and chance."""

    def __init__(self, place: Path, duckdb: Any, seed: int) -> None:
        self.random = random.Random(seed)
        chance = self.random
        self.duckdb, self.clock = duckdb, LateClock()
        self.lake = penstock.open(place, create=True, author="t", settings=SETTINGS, clock=self.clock)
        self.mapping = chance.choice((None, None, "name", "id"))
        has_vectors, self.tracks_rows, has_feed = (chance.random() < one for one in (0.6, 0.5, 0.3))
        properties = {} if self.mapping is None else {"delta.columnMapping.mode": self.mapping}
        switches = {
            "delta.enableDeletionVectors": has_vectors,
            "delta.enableRowTracking": self.tracks_rows,
            "delta.enableChangeDataFeed": has_feed,
        }
        properties |= {name: "true" for name, is_on in switches.items() if is_on}
        by = "part" if chance.random() < 0.5 else None
        self.lake.create_table(KEY, schema=SCHEMA, partition_by=by, properties=properties)
        head = self.lake.branch().head
        self.history = History(ModelCommit(head, {KEY: frozenset()}))
        self.values: dict[str, Values] = {head: {}}
        """What each commit holds."""
        self.heads = {MAIN: head}
        self.undone: set[str] = set()
        """Commits that undid others, did them again or restored a state: what merges of them come to is
        within bounds only."""
        self.kept: set[str] = set()
        """Commits that are not undone or done again: those of clones, and of rebases."""
        self.clones: dict[str, Values] = {}
        self.values_past: dict[str, dict[int, set[int]]] = {}
        """Which values each row of each clone had at any time."""
        self.kind = ""
        self.last_id = self.last_value = self.last_branch = self.last_column = 0
        self.counts: Counter[str] = Counter()

    # -- steps ---------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """So many steps; a failure says which one it was, and what the table has."""
        with self.lake:
            try:
                for number in range(1, steps + 1):
                    self.step()
                    if number % FOREIGN_EVERY == 0:
                        self.check_foreign()
                self.check_foreign()
            except Exception as problem:
                problem.add_note(f"after {dict(self.counts)}; {self.lake.table(KEY).snapshot().properties}")
                raise

    def step(self) -> None:
        [kind] = self.random.choices([*KINDS], [*KINDS.values()])
        branch, self.kind = self.random.choice([*self.heads]), kind
        does: Callable[[str, Table, Values], None] = getattr(self, f"_{kind}")
        try:
            does(branch, self.lake.table(KEY, branch), dict(self.values[self.heads[branch]]))
        except (CommitConflict, MergeConflict):
            self.counts[f"{kind}: conflict"] += 1
            assert self.lake.branch(branch).head == self.heads[branch], (
                "what was refused has changed a branch"
            )
        else:
            self.counts[kind] += 1
        self.check()

    def _new_rows(self, count: int | None = None, part: str | None = None) -> list[dict[str, Any]]:
        rows = []
        for _ in range(count or self.random.randint(1, 4)):
            self.last_id += 1
            rows.append(make_row(self.last_id, self._new_value(), part or self.random.choice(PARTS)))
        return rows

    def _new_value(self) -> int:
        self.last_value += 1
        return self.last_value

    def _pick(self, values: Values) -> list[int]:
        return self.random.sample(sorted(values), min(len(values), self.random.randint(1, 3)))

    def _recent(self, branch: str) -> list[ModelCommit]:
        """The newest commits of a branch that may be undone or done again."""
        line = [*self.history.first_parents(self.heads[branch])][:RECENT]
        return [commit for commit in line if commit.id not in self.kept]

    def _choose(self, branch: str) -> ModelCommit | None:
        chosen = self._recent(branch)
        commit = self.random.choice(chosen) if chosen else None
        return commit if commit is not None and commit.parents else None

    def _land(
        self, branch: str, after: Values, *further: str, overwrites: bool = False, undoes: bool = False
    ) -> None:
        """Note the new head of a branch, if it has one."""
        head = self.lake.branch(branch).head
        if head not in self.history:
            overwritten = frozenset([KEY]) if overwrites else frozenset[str]()
            parents = (self.heads[branch], *further)
            self.history.add(ModelCommit(head, {KEY: frozenset(after)}, parents, overwritten))
            self.values[head] = after
            if undoes:
                self.undone.add(head)
        self.heads[branch] = head

    def _append(self, branch: str, table: Table, before: Values) -> None:
        rows = self._new_rows()
        table.append(_arrow(rows))
        self._land(branch, before | _values(rows))

    def _overwrite(self, branch: str, table: Table, before: Values) -> None:
        rows = self._new_rows()
        table.overwrite(_arrow(rows))
        self._land(branch, _values(rows), overwrites=True)

    def _overwrite_part(self, branch: str, table: Table, before: Values) -> None:
        part, parts = self.random.choice(PARTS), _parts(table)
        rows = self._new_rows(part=part)
        table.overwrite(_arrow(rows), where=f"part = '{part}'")
        rest = {number: value for number, value in before.items() if parts[number] != part}
        self._land(branch, rest | _values(rows), overwrites=True)

    def _delete(self, branch: str, table: Table, before: Values) -> None:
        if chosen := self._pick(before):
            table.delete(_among(chosen))
            self._land(branch, {one: value for one, value in before.items() if one not in chosen})

    def _delete_part(self, branch: str, table: Table, before: Values) -> None:
        if before:
            part, parts = self.random.choice(PARTS), _parts(table)
            table.delete(f"part = '{part}'")
            self._land(branch, {one: value for one, value in before.items() if parts[one] != part})

    def _update(self, branch: str, table: Table, before: Values) -> None:
        if chosen := self._pick(before):
            value = self._new_value()
            table.update({"v": str(value)}, _among(chosen))
            self._land(branch, before | dict.fromkeys(chosen, value))

    def _upsert(self, branch: str, table: Table, before: Values) -> None:
        parts = _parts(table)
        rows = [make_row(one, self._new_value(), parts[one]) for one in self._pick(before)] + self._new_rows(
            2
        )
        merge = table.merge(_arrow(rows), on="target.id = source.id").when_matched_update({"v": "source.v"})
        merge.when_not_matched_insert({name: f"source.{name}" for name in SCHEMA.names}).commit()
        self._land(branch, before | _values(rows))

    def _optimize(self, branch: str, table: Table, before: Values) -> None:
        table.optimize()
        self._land(branch, before)

    def _add_column(self, branch: str, table: Table, before: Values) -> None:
        self.last_column += 1
        added = pa.schema([(f"n{self.last_column}", pa.int64())])
        self.lake.delta.add_columns(KEY, added, branch=branch)
        self._land(branch, before)

    def _transaction(self, branch: str, table: Table, before: Values) -> None:
        with self.lake.transaction(branch) as transaction:
            inside = transaction.table(KEY)
            rows = self._new_rows()
            inside.append(_arrow(rows))
            after = before | _values(rows)
            chosen = self._pick(after)
            if self.random.random() < 0.5:
                inside.delete(_among(chosen))
                after = {one: value for one, value in after.items() if one not in chosen}
            else:
                value = self._new_value()
                inside.update({"v": str(value)}, _among(chosen))
                after |= dict.fromkeys(chosen, value)
            if self.random.random() < 0.3:
                inside.optimize()
        self._land(branch, after)

    # -- branches ------------------------------------------------------------------------------------------

    def _fork(self, branch: str, table: Table, before: Values) -> None:
        if len(self.heads) >= BRANCHES_MAX:
            gone = self.random.choice([one for one in self.heads if one != MAIN])
            self.lake.branch(gone).delete()
            del self.heads[gone]
            branch = MAIN if branch == gone else branch
        self.last_branch += 1
        name = f"d{self.last_branch}"
        self.lake.branch(name).create(at=branch)
        self.heads[name] = self.heads[branch]

    def _merge(self, branch: str, table: Table, before: Values) -> None:
        if len(self.heads) < 2:
            self._fork(branch, table, before)
            return
        source = self.random.choice([one for one in self.heads if one != branch])
        there, here = self.heads[source], self.heads[branch]
        bounds = self.history.merge(KEY, here, there)
        overwrites = self._is_overwritten(there, here)
        self.lake.merge(source, branch)
        found = self._read_within(branch, bounds)
        self._check_merged(here, there, found)
        self._land(branch, found, there, overwrites=overwrites)

    def _check_merged(self, here: str, there: str, found: Values) -> None:
        """With one merge base, every row has the value of the side that changed it; of one of them if undos
        came between."""
        bases = self.history.merge_bases(here, there)
        if len(bases) != 1:
            return
        base, ours, theirs = self.values[bases[0]], self.values[here], self.values[there]
        is_plain = not (self.history.ancestors(here) ^ self.history.ancestors(there)) & self.undone
        self.counts["merges checked exactly"] += is_plain
        for one, value in found.items():
            allowed = {side[one] for side in (ours, theirs) if one in side}
            if is_plain and one in ours and one in theirs and one in base:
                if theirs[one] == base[one]:
                    allowed = {ours[one]}
                elif ours[one] == base[one]:
                    allowed = {theirs[one]}
            assert value in allowed, f"row {one} has the value {value}, not one of {allowed}"

    def _rebase(self, branch: str, table: Table, before: Values) -> None:
        if branch == MAIN:
            return
        main, old = self.heads[MAIN], self.heads[branch]
        bounds = self.history.merge(KEY, main, old)
        overwrites = self._is_overwritten(old, main)
        self.lake.branch(branch).rebase(MAIN)
        found = self._read_within(branch, bounds)
        head = self.lake.branch(branch).head
        if head not in self.history:
            overwritten = frozenset([KEY]) if overwrites else frozenset[str]()
            self.history.add(ModelCommit(head, {KEY: frozenset(found)}, (main, old), overwritten))
            self.values[head] = found
            self.undone.add(head)
            self.kept.add(head)
        self.heads[branch] = head

    def _is_overwritten(self, there: str, here: str) -> bool:
        return self.history.is_overwritten(KEY, self.history.ancestors(there) - self.history.ancestors(here))

    def _read_within(self, branch: str, bounds: Bounds) -> Values:
        found = values_of(self.lake.table(KEY, branch))
        rows = frozenset(found)
        told = f"lost {sorted(bounds.must - rows)}, back or doubled {sorted(rows - bounds.may)}"
        assert bounds.allow(rows), told
        return found

    # -- undo ----------------------------------------------------------------------------------------------

    def _revert(self, branch: str, table: Table, before: Values) -> None:
        commit = self._choose(branch)
        if commit is None:
            return
        [parent, *_] = commit.parents
        bounds = self.history.revert(KEY, self.heads[branch], commit.id)
        took = self.history[parent].tables[KEY] - commit.tables[KEY]
        # What it took may have come back since, and gone again.
        again = took & self._taken_since(branch, commit.id)
        bounds = bounds._replace(must=bounds.must - again)
        self.lake.revert(commit.id, branch)
        found = self._read_within(branch, bounds)
        self._check_values(before, self.values[parent], self.values[commit.id], self.values[parent], found)
        self._land(branch, found, overwrites=KEY in commit.overwritten, undoes=True)

    def _taken_since(self, branch: str, commit: str) -> Rows:
        taken = frozenset[int]()
        for one in self.history.ancestors(self.heads[branch]) - self.history.ancestors(commit):
            for parent in self.history[one].parents:
                taken |= self.history[parent].tables[KEY] - self.history[one].tables[KEY]
        return taken

    def _transplant(self, branch: str, table: Table, before: Values) -> None:
        commit = self._choose(self.random.choice([*self.heads]))
        if commit is None:
            return
        past = self.history.ancestors(self.heads[branch])
        bounds = self.history.repeat(KEY, self.heads[branch], commit.id)
        if commit.id in past or self.undone & past:
            bounds = bounds._replace(may=bounds.may | frozenset(before))
        self.lake.transplant(commit.id, branch)
        found = self._read_within(branch, bounds)
        after = self.values[commit.id]
        self._check_values(before, self.values[commit.parents[0]], after, after, found)
        self._land(branch, found, overwrites=KEY in commit.overwritten, undoes=True)

    @staticmethod
    def _check_values(before: Values, parent: Values, after: Values, brought: Values, found: Values) -> None:
        """A row that the commit had not changed is as it was; others are so, or as they were ``brought``."""
        for one, value in found.items():
            is_spared = one in before and after.get(one) == parent.get(one)
            allowed = {before[one]} if is_spared else {before.get(one), brought.get(one)}
            assert value in allowed, f"row {one} has the value {value}, not one of {allowed}"

    def _revert_twice(self, branch: str, table: Table, before: Values) -> None:
        """The newest commit is undone, and that is undone: each time exactly."""
        commit = self.history[self.heads[branch]]
        if commit.id in self.kept or not commit.parents:
            return
        for expected in (self.values[commit.parents[0]], before):
            self.lake.revert(self.heads[branch], branch)
            assert values_of(self.lake.table(KEY, branch)) == expected
            self._land(branch, dict(expected), overwrites=KEY in commit.overwritten, undoes=True)

    def _restore(self, branch: str, table: Table, before: Values) -> None:
        other = self.random.choice([*self.heads])
        commits = [*self._recent(branch), *self._recent(other), self.history[self.heads[branch]]]
        commit = self.random.choice(commits).id
        wanted = self.values[commit]
        self.lake.restore([KEY], to=commit, branch=branch)
        assert values_of(self.lake.table(KEY, branch)) == wanted
        self._land(branch, dict(wanted), overwrites=True, undoes=True)

    # -- clones and upkeep ---------------------------------------------------------------------------------

    def _clone(self, branch: str, table: Table, before: Values) -> None:
        """A clone of any recent state of any branch, or of a clone, which is changed most often."""
        commit = self.random.choice([*self.history.first_parents(self.heads[branch])][:RECENT])
        name, source = f"clone{len(self.clones)}", self.random.choice([KEY, *self._present_clones()])
        if source == KEY:
            self.lake.delta.clone(KEY, name, ref=commit.id)
            wanted = dict(self.values[commit.id])
        else:
            self.lake.delta.clone(source, name)
            wanted = dict(self.clones[source])
        self.clones[name] = wanted
        self._note_other_commit()
        clone = self.lake.table(name)
        assert values_of(clone) == wanted
        self.values_past[name] = {}
        self._note_values(name, wanted)
        if self.random.random() < 0.8:
            self.clones[name] = self._change_clone(name, MAIN, wanted)
        self._note_other_commit()

    def _note_values(self, name: str, values: Values) -> None:
        for one, value in values.items():
            self.values_past[name].setdefault(one, set()).add(value)

    def _change_clone(self, name: str, branch: str, before: Values) -> Values:
        """Rows of a clone are changed on a branch; those that are not, and ids of those that are, stay."""
        clone, chosen = self.lake.table(name, branch), self._pick(before)
        states = row_states(clone) if self.tracks_rows else {}
        after, kind = dict(before), self.random.choice(("delete", "update", "optimize", "append"))
        if chosen and kind == "delete":
            clone.delete(_among(chosen))
            after = {one: value for one, value in before.items() if one not in chosen}
        elif chosen and kind == "update":
            after |= dict.fromkeys(chosen, value := self._new_value())
            clone.update({"v": str(value)}, _among(chosen))
        elif kind == "append":
            rows = self._new_rows()
            clone.append(_arrow(rows))
            after |= _values(rows)
        else:
            clone.optimize()
        assert values_of(clone) == after, kind
        if self.tracks_rows:
            # The versions that a branch gives are its own, and rows that it writes once more get others.
            unchanged = _unchanged(before, after) if branch == MAIN else set[int]()
            self._check_states(row_states(clone), states, unchanged, branch)
        self._note_values(name, after)
        return after

    @staticmethod
    def _check_states(now: RowStates, before: RowStates, unchanged: set[int], branch: str) -> None:
        """Ids that are final stay, wherever rows are written, and versions of those that nobody changed."""
        for one, (row_id, version) in before.items():
            if one in now and row_id < PROVISIONAL:
                assert now[one][0] == row_id, f"row {one} has another id on {branch}"
                if one in unchanged:
                    assert now[one] == (row_id, version), f"row {one} was not written on {branch}"

    def _branch_clone(self, branch: str, table: Table, before: Values) -> None:
        """A clone is changed on a branch, and meanwhile where it was made; then the branch is merged."""
        names = self._present_clones()
        if not names:
            self._clone(branch, table, before)
            return
        name = self.random.choice(names)
        base = self.clones[name]
        states = row_states(self.lake.table(name)) if self.tracks_rows else {}
        self.last_branch += 1
        side = self.lake.branch(f"c{self.last_branch}").create(at=MAIN)
        theirs, ours = base, base
        for _ in range(self.random.randint(1, 3)):
            theirs = self._change_clone(name, side.name, theirs)
        if self.tracks_rows:
            on_side = row_states(self.lake.table(name, side.name))
            self._check_states(on_side, states, _unchanged(base, theirs), side.name)
        for _ in range(self.random.choice((0, 0, 1, 2))):
            ours = self.clones[name] = self._change_clone(name, MAIN, ours)
            self._note_other_commit()
        try:
            self.lake.merge(side.name, MAIN)
        except MergeConflict:
            self.counts["branch_clone: merge conflict"] += 1
        else:
            merged = self._merge_values(base, ours, theirs)
            self.clones[name] = merged
            self._note_other_commit()
            assert values_of(self.lake.table(name)) == merged
            if self.tracks_rows:
                landed = row_states(self.lake.table(name))
                self._check_states(landed, states, _unchanged(base, merged), MAIN)
        side.delete()

    @staticmethod
    def _merge_values(base: Values, ours: Values, theirs: Values) -> Values:
        """What two sides come to that did not change the same row in two ways."""
        merged = {}
        for one in ours.keys() | theirs.keys():
            mine, other = ours.get(one), theirs.get(one)
            assert mine == other or base.get(one) in (mine, other), f"row {one} was changed on both sides"
            value = other if mine == base.get(one) else mine
            if value is not None:
                merged[one] = value
        return merged

    def _present_clones(self) -> list[str]:
        """Those that the default branch has: a revert takes one away again."""
        return [name for name in self.clones if self.lake.table(name).exists]

    def _note_other_commit(self) -> None:
        """A commit of the default branch in which the table is as it was."""
        self._land(MAIN, dict(self.values[self.heads[MAIN]]))
        self.kept.add(self.heads[MAIN])

    def _checkpoint(self, branch: str, table: Table, before: Values) -> None:
        self.lake.finish_background()
        self.lake.delta.checkpoint(KEY)

    def _sweep(self, branch: str, table: Table, before: Values) -> None:
        self.lake.finish_background()
        self.clock.days += self.random.choice((0, 1, 40))
        if self.random.random() < 0.3:
            self.lake.delta.clean_log(KEY)
        self.lake.sweep()
        self.lake.sweep_tables(remove_data=True)
        self.clock.days = 0

    # -- what is read --------------------------------------------------------------------------------------

    def check(self) -> None:
        """All branches, one older commit and all clones hold what the model says."""
        for branch, head in self.heads.items():
            self._check_table(self.lake.table(KEY, branch), self.values[head])
        past = self.history.first_parents(self.heads[self.random.choice([*self.heads])])
        commit = self.random.choice([*past]).id
        with suppress(HistoryExpired):
            assert values_of(self.lake.table(KEY, commit)) == self.values[commit]
        for name in self._present_clones():
            found = values_of(self.lake.table(name))
            if found != self.clones[name] and self.kind in UNDOING:  # an undone merge had brought its changes
                known = self.values_past[name]
                assert all(value in known[one] for one, value in found.items()), name
                self.clones[name] = found
            self._check_table(self.lake.table(name), self.clones[name])
        self._check_conditions(self.lake.table(KEY, self.random.choice([*self.heads])))

    def _check_table(self, table: Table, wanted: Values) -> None:
        assert values_of(table) == wanted, table
        if self.tracks_rows:
            check_row_ids(table)

    def _check_conditions(self, table: Table) -> None:
        """Conditions choose what they choose of all rows: statistics of files hide none."""
        rows = table.to_arrow().to_pylist()
        for _ in range(3 if rows else 0):
            column, row = self.random.choice(COMPARED), self.random.choice(rows)
            operator = self.random.choice([*COMPARISONS, "is null", "is not null"])
            value = _value(row, column)
            if operator in COMPARISONS:
                if value is None or (isinstance(value, float) and not math.isfinite(value)):
                    continue
                where, holds = f"{column} {operator} {_literal(value)}", COMPARISONS[operator]
                values = ((one["id"], _value(one, column)) for one in rows)
                wanted = [number for number, one in values if one is not None and holds(one, value)]
            else:
                where, is_null = f"{column} {operator}", operator == "is null"
                wanted = [one["id"] for one in rows if (_value(one, column) is None) == is_null]
            try:
                found = table.to_arrow(columns=["id"], where=where)["id"].to_pylist()
            except PenstockError:
                self.counts["conditions refused"] += 1
                continue
            assert sorted(found) == sorted(wanted), where
            self.counts["conditions"] += 1

    def check_foreign(self) -> None:
        """deltalake and DuckDB read the default branch's rows, and the lake is whole."""
        self.lake.finish_background()
        table, wanted = self.lake.table(KEY), sorted(self.values[self.heads[MAIN]])
        table.backfill_to_version()
        if self.mapping is None:  # deltalake reads no mapped columns
            found = pa.table(DeltaTable(table.location).scan())
            assert sorted(found["id"].to_pylist()) == wanted
        rows = self.duckdb.execute("SELECT id FROM delta_scan(?)", [table.location]).fetchall()
        assert sorted(number for (number,) in rows) == wanted
        assert self.lake.fsck().damages == ()


def _value(row: Mapping[str, Any], column: str) -> Any:
    if column != "st.x":
        return row[column]
    return None if row["st"] is None else row["st"]["x"]


def _literal(value: Any) -> str:
    match value:
        case str():
            return f"'{value}'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value}'"
        case float():
            return repr(value)
    return str(value)
