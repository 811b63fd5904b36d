"""Random histories of a Delta table on three branches, in which any commit is reverted at any time, against a
plain model: which rows each commit brought and took, and which days it replaced. Rows are read by the lake,
by deltalake and by DuckDB."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

import penstock
from penstock import Lake
from penstock.errors import CommitConflict, MergeConflict
from penstock.model.merges import MergeResult
from tests.chance import RecordCounts, share, times
from tests.formats.delta.sides import KEY, Side, create, foreign_ids

BRANCHES = ("main", "dev", "fix")
DAYS = ("mon", "tue")
WRITES = (
    "append",
    "append",
    "append",
    "overwrite",
    "overwrite day",
    "delete",
    "mask",
    "compact",
    "column",
    "repeat",
)
KINDS = (*WRITES, "merge", "merge", "revert", "revert", "revert", "revert", "transplant")

CHECKED_EVERY = 8
"""After so many steps all branches are read again, whether they moved or not; else only the one that did."""

UNDONE = 0.7
"""Of the commits that are transplanted, so many were undone before; the others stand, most often."""

Rows = frozenset[int]
Files = frozenset[tuple[str, str | None]]
"""Each with its deletion vector."""


class Done(NamedTuple):
    """A commit as the model knows it."""

    parent: str
    further: str | None
    before: Rows
    after: Rows
    replaced: tuple[str, ...] = ()
    """The days of which it replaced all rows."""
    undoes: str | None = None
    repeats: str | None = None
    files: tuple[Files, Files] = (frozenset(), frozenset())
    """The files before and after it."""

    @property
    def brought(self) -> Rows:
        return self.after - self.before

    @property
    def took(self) -> Rows:
        return self.before - self.after

    @property
    def only_appends(self) -> bool:
        before, after = self.files
        return before < after


class History:
    """A life of a table, one step after the other."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random = lake, Random(seed)
        self.has_vectors = seed % 3 > 0
        properties = {"delta.enableDeletionVectors": str(self.has_vectors).lower()}
        create(lake, *BRANCHES[1:], properties=properties)
        self.sides = {name: Side(lake, name) for name in BRANCHES}
        self.day_of = dict.fromkeys(range(1, 5), "mon") | dict.fromkeys((5, 6), "tue")
        self.next_id = 7
        self.columns = 0
        self.done: dict[str, Done] = {}
        root = self.head("main")
        self.before: dict[str, set[str]] = {root: {root}}
        self.read: dict[tuple[str, str], tuple[Rows, Files]] = {}
        """What was read of each branch at each of its heads."""
        self.counts: Counter[str] = Counter()

    def head(self, branch: str) -> str:
        return self.lake.branch(branch).head

    def rows(self, branch: str) -> Rows:
        return self._state(branch)[0]

    def files(self, branch: str) -> Files:
        return self._state(branch)[1]

    def _state(self, branch: str) -> tuple[Rows, Files]:
        at = branch, self.head(branch)
        if at not in self.read:
            self.read[at] = self._read(branch)
        return self.read[at]

    def _read(self, branch: str) -> tuple[Rows, Files]:
        found = self.sides[branch].ids()
        assert len(found) == len(set(found)), f"a row is there twice: {found}"
        files = self.sides[branch].now().files()
        return frozenset(found), frozenset((one.key.path, one.key.vector) for one in files)

    def check(self) -> None:
        """Every branch is still what was read of it when it came to where it is."""
        for branch in BRANCHES:
            assert self._read(branch) == self._state(branch), branch

    def step(self) -> None:
        kind, branch = self.random.choice(KINDS), self.random.choice(BRANCHES)
        heads = {one: self.head(one) for one in BRANCHES}
        rows = {one: self.rows(one) for one in BRANCHES}
        files = self.files(branch)
        chosen: str | None = None
        replaced: tuple[str, ...] = ()
        further: str | None = None
        try:
            if kind == "merge":
                source = self.random.choice([one for one in BRANCHES if one != branch])
                further = heads[source]
                self.lake.merge(source, branch)
            elif kind in ("revert", "transplant"):
                chosen = self._choose(branch, kind)
                if chosen is None:
                    return
                self._bring(kind, chosen, branch)
                replaced = self.done[chosen].replaced if kind == "transplant" else ()
            else:
                replaced = self._write(kind, branch)
        except (CommitConflict, MergeConflict) as conflict:
            self.counts[f"{kind}: conflict"] += 1
            assert {one: self.head(one) for one in BRANCHES} == heads
            assert self.rows(branch) == rows[branch]
            if kind == "revert" and chosen is not None:
                self._check_refused(chosen, files, str(conflict))
            return
        self.counts[kind] += 1
        assert all(self.rows(one) == rows[one] for one in BRANCHES if one != branch)
        head, now = self.head(branch), self.rows(branch)
        if kind == "revert" and chosen is not None:
            self._check_reverted(chosen, heads[branch], rows[branch], now)
        if kind == "transplant" and chosen is not None:
            self._check_repeated(chosen, heads[branch], rows[branch], now)
        if head != heads[branch]:
            undoes, repeats = (chosen if kind == one else None for one in ("revert", "transplant"))
            done = Done(heads[branch], further, rows[branch], now, replaced, undoes, repeats)
            self._note(head, done._replace(files=(files, self.files(branch))))
        if branch == "main":
            assert foreign_ids(self.lake) == sorted(now)

    def _note(self, head: str, done: Done) -> None:
        further = self.before[done.further] if done.further else set()
        self.before[head] = {head} | self.before[done.parent] | further
        self.done[head] = done

    def _choose(self, branch: str, kind: str) -> str | None:
        """A commit of the branch; to be transplanted, most often one that is undone there."""
        head = self.head(branch)
        own = [one for one in self.done if one in self.before[head]]
        if kind == "transplant":
            own = [one for one in own if self.done[one].further is None and self.done[one].undoes is None]
            if self.random.random() < UNDONE:
                own = [one for one in own if not self.in_force(one, head)]
        else:
            own = [one for one in own if self.in_force(one, head)]
        return self.random.choice(own) if own else None

    def in_force(self, commit: str, head: str) -> bool:
        for one in self.before[head]:
            done = self.done.get(one)
            if done is None or done.undoes is None:
                continue
            undone = self.done[done.undoes]
            came = undone.further is not None and (
                commit in self.before[undone.further] - self.before[undone.parent]
            )
            if (done.undoes == commit or came) and self.in_force(one, head):
                return False
        return True

    def _bring(self, kind: str, chosen: str, branch: str) -> MergeResult:
        bring = self.lake.revert if kind == "revert" else self.lake.transplant
        preview = bring(chosen, branch, dry_run=True)
        if not preview.conflicts:
            return bring(chosen, branch)
        with pytest.raises(MergeConflict) as caught:
            bring(chosen, branch)
        assert [one.why for one in caught.value.conflicts] == [one.why for one in preview.conflicts]
        raise caught.value

    def _write(self, kind: str, branch: str) -> tuple[str, ...]:
        side, day = self.sides[branch], self.random.choice(DAYS)
        rows = sorted(self.rows(branch))
        if kind in ("delete", "mask") and rows:
            one = self.random.choice(rows)
            side.mask(one) if kind == "mask" and self.has_vectors else side.delete(one)
        elif kind == "compact" and any(self.day_of[one] == day for one in rows):
            side.compact(day) if self._is_unmasked(side, day) else None
        elif kind == "repeat" and rows:
            side.repeat(self.random.choice(rows))
        elif kind == "column":
            self.columns += 1
            side.add_column(f"note{self.columns}")
        elif kind.startswith("overwrite"):
            whole = kind == "overwrite"
            side.overwrite(*self._new("mon" if whole else day), day=None if whole else day)
            return DAYS if whole else (day,)
        elif kind == "append":
            side.append(*self._new(day), day=day)
        return ()

    @staticmethod
    def _is_unmasked(side: Side, day: str) -> bool:
        """Compactions of the test do not look at deletion vectors."""
        files = [one for one in side.now().files() if one.partition_values["day"] == day]
        return all(one.deletion_vector is None for one in files)

    def _new(self, day: str) -> list[int]:
        ids = [*range(self.next_id, self.next_id + self.random.randint(1, 3))]
        self.next_id += len(ids)
        self.day_of |= dict.fromkeys(ids, day)
        return ids

    # -- what the model says -------------------------------------------------------------------------------

    def _check_reverted(self, chosen: str, head: str, rows: Rows, now: Rows) -> None:
        """What the commit brought is gone. What it took is back, unless its day was replaced since, or it was
        back before and others took it."""
        done = self.done[chosen]
        gone = (rows - done.brought) & done.after
        assert rows - done.brought <= now, "rows went that the commit had not brought"
        assert now <= (rows - done.brought) | done.took, "rows came that the commit had not taken"
        expected = done.took - self._replaced_since(chosen, head)
        if self._is_plain(chosen, head):
            expected -= self._back_before(chosen, head)
            assert now == (rows - done.brought) | expected | (done.took & rows)
            self.counts["checked exactly"] += 1
        assert gone <= now

    def _check_repeated(self, chosen: str, head: str, rows: Rows, now: Rows) -> None:
        """A commit that stands is not done again. Of one that was undone, what it brought is there, unless
        its day was replaced since, and nothing else came; what it took or replaced is gone, and nothing
        else."""
        done = self.done[chosen]
        if self.in_force(chosen, head):
            assert now == rows, "it stands, and was done again"
            self.counts["stands"] += 1
            return
        assert now - rows <= done.brought
        assert rows - now <= done.took | {one for one in rows if self.day_of[one] in done.replaced}
        if now != rows and self._is_plain(chosen, head):
            assert done.brought <= now | self._replaced_since(chosen, head)
            self.counts["repeated exactly"] += 1

    def _replaced_since(self, chosen: str, head: str) -> Rows:
        """Rows of days that commits replaced which are in force and came after another one."""
        later = [
            self.done[one] for one in self.before[head] - self.before[chosen] if self.in_force(one, head)
        ]
        days = {day for one in later for day in one.replaced}
        return frozenset(one for one, day in self.day_of.items() if day in days)

    def _back_before(self, chosen: str, head: str) -> Rows:
        """The rows that a commit took and for which it is undone already: they came back since. If they went
        again that was another commit, and not that the return was undone, or the commit brought again."""
        took, line = self.done[chosen].took, [head]
        while line[-1] != chosen:
            line.append(self.done[line[-1]].parent)
        back = {chosen: Rows()}
        before = {chosen: took}  # as if it had been undone for all
        for one in reversed(line[:-1]):
            done = self.done[one]
            was = back[done.parent]
            if done.undoes in before:
                left = before[done.undoes]
            elif done.repeats in back:
                left = back[done.repeats]
            else:
                left = was
            gone = done.took & took
            before[one], back[one] = was, (was - gone) | (left & gone) | (done.brought & took)
        return back[head]

    def _is_plain(self, chosen: str, head: str) -> bool:
        """Whether the commit was made on this branch, and all that came since was written there: what merges
        bring they bring in sum, and what reverts bring back may have been of any age."""
        one, is_plain = head, True
        while one != chosen:
            if one not in self.done:
                return False
            done = self.done[one]
            is_plain = is_plain and done.further is None
            one = done.parent
        return is_plain

    def _check_refused(self, chosen: str, files: Files, why: str) -> None:
        """A commit that only appended is never refused while all of its files are there."""
        done = self.done[chosen]
        before, after = done.files
        if not done.only_appends or done.further is not None or not after - before <= files:
            return
        # An overwrite of a day that was empty took nothing where it was made, but may have where it was
        # merged or done again: that is not a part of it.
        took = done.replaced and ("revert that commit instead" in why)
        assert took or "columns" in why, why


def check_history(seed: int, steps: int, duckdb: Any = None) -> Counter[str]:
    with TemporaryDirectory() as directory, penstock.init("memory:", warehouse=directory) as lake:
        history = History(lake, seed)
        for number in range(1, steps + 1):
            history.step()
            if number % CHECKED_EVERY == 0:
                history.check()
        history.check()
        if duckdb is not None:
            lake.table(KEY).backfill_to_version()
            found = duckdb.sql(f"SELECT id FROM delta_scan('{lake.table(KEY).location}')").fetchall()
            assert sorted(one for (one,) in found) == sorted(history.rows("main"))
        assert lake.fsck().damages == ()
        assert Path(directory).exists()
        return history.counts


def test_a_few_reverts_in_any_order_leave_the_rows_that_a_model_says(duckdb: Any) -> None:
    counts = sum((check_history(seed, 16, duckdb) for seed in range(6)), Counter[str]())
    assert counts["revert"] > 3
    assert counts["checked exactly"] > 3


@pytest.mark.verify
def test_reverts_in_any_order_leave_the_rows_that_a_model_says(duckdb: Any) -> None:
    counts = sum((check_history(seed, 16, duckdb) for seed in range(24)), Counter[str]())
    assert counts["revert"] > 25
    assert counts["revert: conflict"] > 0
    assert counts["checked exactly"] > 12
    assert counts["merge"] > 10


@pytest.mark.reliability
@pytest.mark.parametrize("hundreds", share(range(1, 13)))
def test_reverts_in_very_many_histories_leave_the_rows_that_a_model_says(
    hundreds: int, duckdb: Any, record_counts: RecordCounts
) -> None:
    counts: Counter[str] = Counter()
    histories = times(100)
    for seed in range(hundreds * 100, hundreds * 100 + histories):
        counts += check_history(seed, 24, duckdb if seed % 10 == 0 else None)
    record_counts(counts)
    assert counts["revert"] > 3 * histories
    assert counts["transplant"] > histories // 20
