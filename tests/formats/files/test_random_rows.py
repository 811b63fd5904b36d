"""Random lives of a table of files on three branches, by its rows: a row that was written once is never there
twice, and none comes back that was removed, whatever was compacted, undone and repeated in between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import CommitConflict
from tests.chance import RecordCounts
from tests.product.model import Bounds, History, ModelCommit, Rows

KEY = "t"
BRANCHES = ("main", "dev", "fix")
STEPS = 60
RECENT = 8


class Life:
    """A table, what it should hold, and chance."""

    def __init__(self, place: Path, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._random, self._numbers = random.Random(seed), count(1)
        self._has_parts = self._random.random() < 0.5
        self._lake = penstock.init(place)
        rows = self._new_rows()
        by = "part" if self._has_parts else None
        self._lake.table(KEY).write(self._arrow(rows), format="parquet", partition_by=by)
        head = self._lake.branch().head
        self._history = History(ModelCommit(head, {KEY: rows}))
        self._heads = dict.fromkeys(BRANCHES, head)
        for branch in BRANCHES[1:]:
            self._lake.branch(branch).create()
        self._steps: Sequence[Callable[[str], None]] = (
            self._append, self._append, self._overwrite, self._remove_file, self._compact, self._compact,
            self._revert, self._revert, self._restore, self._merge, self._transplant, self._transplant,
        )  # fmt: skip

    def run(self) -> None:
        for _ in range(STEPS):
            self._random.choice(self._steps)(self._random.choice(BRANCHES))
        assert self._lake.fsck().damages == ()
        self._lake.close()

    # -- steps ---------------------------------------------------------------------------------------------

    def _append(self, branch: str) -> None:
        rows = self._new_rows()
        self._lake.table(KEY, branch).write(self._arrow(rows), mode="append")
        self._take_head("append", branch, self._rows(branch) | rows)

    def _overwrite(self, branch: str) -> None:
        rows = self._new_rows()
        self._lake.table(KEY, branch).write(self._arrow(rows), mode="overwrite")
        self._take_head("overwrite", branch, rows, is_overwrite=True)

    def _remove_file(self, branch: str) -> None:
        table = self._lake.table(KEY, branch)
        files = [file.path for file in table.files.list()]
        if len(files) > 1:
            table.files.delete(self._random.choice(files))
            rows = self._read(branch)
            assert rows < self._rows(branch)
            self._take_head("removal", branch, rows)

    def _compact(self, branch: str) -> None:
        self._lake.table(KEY, branch).optimize()
        self._take_head("compaction", branch, self._rows(branch))

    def _revert(self, branch: str) -> None:
        commit = self._recent(branch)
        if commit.parents:
            bounds = self._history.revert(KEY, self._heads[branch], commit.id)
            self._bring("revert", branch, bounds, commit, lambda: self._lake.revert(commit.id, branch))

    def _restore(self, branch: str) -> None:
        commit = self._recent(branch)
        rows = commit.tables[KEY]
        replacing = commit._replace(overwritten=frozenset({KEY}))
        bounds = Bounds(rows, rows)
        self._bring(
            "restore", branch, bounds, replacing, lambda: self._lake.restore(KEY, to=commit.id, branch=branch)
        )

    def _merge(self, branch: str) -> None:
        source = self._random.choice([other for other in BRANCHES if other != branch])
        head, source_head = self._heads[branch], self._heads[source]
        between = self._history.ancestors(source_head) - self._history.ancestors(head)
        is_overwrite = self._history.is_overwritten(KEY, between)
        merged = ModelCommit(source_head, {}, (), frozenset({KEY} if is_overwrite else ()))
        bounds = self._history.merge(KEY, head, source_head)
        self._bring("merge", branch, bounds, merged, lambda: self._lake.merge(source, branch), (source_head,))

    def _transplant(self, branch: str) -> None:
        commit = self._recent(self._random.choice(BRANCHES))
        if commit.parents:
            bounds = self._history.repeat(KEY, self._heads[branch], commit.id)
            self._bring(
                "transplant", branch, bounds, commit, lambda: self._lake.transplant(commit.id, branch)
            )

    # -- the model -----------------------------------------------------------------------------------------

    def _bring(
        self,
        name: str,
        branch: str,
        bounds: Bounds,
        commit: ModelCommit,
        bring: Callable[[], object],
        parents: tuple[str, ...] = (),
    ) -> None:
        try:
            bring()
        except CommitConflict:
            self.counts[f"{name} refused"] += 1
            assert self._lake.branch(branch).head == self._heads[branch]
            return
        rows = self._read(branch)
        assert bounds.allow(rows), (
            f"{name} on {branch}: {sorted(rows)}, must {sorted(bounds.must)}, may {sorted(bounds.may)}"
        )
        self._take_head(name, branch, rows, is_overwrite=KEY in commit.overwritten, parents=parents)

    def _take_head(
        self,
        name: str,
        branch: str,
        rows: Rows,
        *,
        is_overwrite: bool = False,
        parents: tuple[str, ...] = (),
    ) -> None:
        assert self._read(branch) == rows, name
        self.counts[name] += 1
        head = self._lake.branch(branch).head
        if head not in self._history:
            overwritten = frozenset({KEY} if is_overwrite else ())
            self._history.add(ModelCommit(head, {KEY: rows}, (self._heads[branch], *parents), overwritten))
        self._heads[branch] = head

    def _rows(self, branch: str) -> Rows:
        return self._history[self._heads[branch]].tables[KEY]

    def _read(self, branch: str) -> Rows:
        ids = self._lake.table(KEY, branch).to_arrow(columns=["id"])["id"].to_pylist()
        assert len(ids) == len({*ids}), f"rows of {branch} came twice: {sorted(ids)}"
        return frozenset(ids)

    def _recent(self, branch: str) -> ModelCommit:
        return self._random.choice([*self._history.first_parents(self._heads[branch])][:RECENT])

    def _new_rows(self) -> Rows:
        return frozenset(next(self._numbers) for _ in range(self._random.randrange(1, 4)))

    def _arrow(self, rows: Rows) -> pa.Table:
        ids = sorted(rows)
        columns = {"id": pa.array(ids, pa.int64())}
        if self._has_parts:
            columns["part"] = pa.array(["ab"[number % 2] for number in ids])
        return pa.table(columns)


@pytest.mark.parametrize("number", [1005, 1006, 1032, 1058])
def test_random_lives_of_a_compacted_table_end_as_sets_of_rows_say(tmp_path: Path, number: int) -> None:
    Life(tmp_path / "lake", number).run()


@pytest.mark.reliability
@pytest.mark.parametrize("turn", range(10))
def test_many_random_lives_of_a_compacted_table_end_as_sets_of_rows_say(
    tmp_path: Path, seed: int, turn: int, record_counts: RecordCounts
) -> None:
    for number in range(20 * turn, 20 * turn + 20):
        life = Life(tmp_path / f"lake{number}", seed + number)
        life.run()
        record_counts(life.counts)
