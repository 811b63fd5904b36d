"""Random histories of two branches of a table that tracks rows, compared with a model of ids, row by row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import MergeConflict
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.formats.delta.row_id_log import check_row_ids

KEY = "shop.model"
RowIds = dict[int, tuple[int, int]]


def rows(keys: list[int], value: int = 0) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([value] * len(keys), pa.int64())})


def merge_values(base: dict[int, int], ours: dict[int, int], theirs: dict[int, int]) -> dict[int, int]:
    """What two sides come to: of each row what the side says that changed it."""
    merged = {}
    for key in ours.keys() | theirs.keys():
        value = ours.get(key) if theirs.get(key) == base.get(key) else theirs.get(key)
        if value is not None:
            merged[key] = value
    return merged


class Model:
    """What main and dev hold, and the ids that main's rows must have."""

    def __init__(self, lake: Lake, random: Random, has_vectors: bool) -> None:
        self.lake, self.random = lake, random
        properties = {
            "delta.enableRowTracking": "true",
            "delta.enableDeletionVectors": str(has_vectors).lower(),
        }
        self.main = lake.delta.create(KEY, data=rows([0, 1, 2]), properties=properties)
        self.values: dict[str, dict[int, int]] = {"main": {0: 0, 1: 0, 2: 0}}
        self.next_key, self.next_value, self.highest = 3, 1, 2
        self.ids = self._read(self.main)
        self.ids_at = {0: self.ids}
        self.landed = 0
        self.changed: set[int] = set()
        """Rows that were updated on dev and have not landed."""
        self.parted: dict[int, int] = {}
        """What both sides had when they last met."""
        self.last_commit = ""
        self._branch_off()

    # -- steps --------------------------------------------------------------------------------------------

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (8, lambda: self._change("main")),
            (12, lambda: self._change("dev")),
            (4, self._land),
            (3, self._take_main),
            (1, self._restore),
            (1, self._revert),
        ]
        (chosen,) = self.random.choices([one for _, one in steps], [weight for weight, _ in steps])
        chosen()

    def _change(self, branch: str) -> None:
        table, values = self._table(branch), self.values[branch]
        kinds = ["append", "delete", "update", "merge", "optimize"]
        kind = self.random.choice(kinds) if values else "append"
        some = self.random.sample(sorted(values), min(len(values), self.random.randint(1, 2)))
        named = ", ".join(map(str, some))
        value, changed = self._new_value(), set[int]()
        if kind == "append":
            new = self._new_keys()
            table.append(rows(new, value))
            values |= dict.fromkeys(new, value)
        elif kind == "delete":
            table.delete(f"k in ({named})")
            for key in some:
                del values[key]
        elif kind == "optimize":
            table.optimize()
        elif kind == "update":
            table.update({"v": value}, f"k in ({named})")
            values |= dict.fromkeys(some, value)
            changed = set(some)
        else:
            new = self._new_keys()
            merge = table.merge(rows([*some, *new], value), ["k"])
            merge.when_matched_update_all().when_not_matched_insert_all().commit()
            values |= dict.fromkeys((*some, *new), value)
            changed = set(some)
        if branch == "dev":
            self.changed |= changed
            self._read(table, values)
        else:
            self._check_main(changed)

    def _land(self) -> None:
        try:
            self.lake.branch("dev").merge_into("main")
        except MergeConflict:
            self._branch_off()
            return
        dev, main = self.values["dev"], self.values["main"]
        self.values["main"] = merge_values(self.parted, main, dev)
        self.landed += 1
        self._check_main(set(self.changed))
        self.changed.clear()
        self.parted = dict(dev)

    def _take_main(self) -> None:
        try:
            self.lake.branch("main").merge_into("dev")
        except MergeConflict:
            self._branch_off()
            return
        dev, main = self.values["dev"], self.values["main"]
        self.values["dev"] = merge_values(self.parted, dev, main)
        there = self._read(self._table("dev"), self.values["dev"])
        for key in there.keys() & self.ids.keys():
            assert there[key][0] == self.ids[key][0]
            if key not in self.changed:
                assert there[key] == self.ids[key]
        self.parted = dict(main)

    def _restore(self) -> None:
        version = self.random.choice(sorted(self.ids_at))
        self.main.restore(version=version)
        self._came_back(self.ids_at[version])

    def _revert(self) -> None:
        before = self.main.version - 1
        if before in self.ids_at and self.lake.branch("main").head == self.last_commit:
            self.lake.revert(self.last_commit)
            self._came_back(self.ids_at[before])

    def _came_back(self, wanted: RowIds) -> None:
        self.ids = self._read(self.main)
        assert self.ids == wanted
        found = self.main.to_arrow().to_pylist()
        self.values["main"] = {one["k"]: one["v"] for one in found}
        self._note()
        self._branch_off()

    # -- checks -------------------------------------------------------------------------------------------

    def _check_main(self, changed: set[int]) -> None:
        """Rows that were there keep their ids, and unless they changed their versions; others are new."""
        before, version = self.ids, self.main.version
        self.ids = self._read(self.main, self.values["main"])
        for key, (row_id, row_version) in self.ids.items():
            if key not in before:
                assert row_id > self.highest
                assert row_version == version
            else:
                assert row_id == before[key][0]
                assert row_version == (version if key in changed else before[key][1])
        self._note()

    def _note(self) -> None:
        self.ids_at[self.main.version] = self.ids
        self.highest = max([self.highest, *(row_id for row_id, _ in self.ids.values())])
        self.last_commit = self.lake.branch("main").head

    def _read(self, table: Table, values: dict[int, int] | None = None) -> RowIds:
        found = table.to_arrow(columns=["k", "v", "_row_id", "_row_commit_version"]).to_pylist()
        if values is not None:
            assert {one["k"]: one["v"] for one in found} == values
        assert len({one["_row_id"] for one in found}) == len(found)
        return {one["k"]: (one["_row_id"], one["_row_commit_version"]) for one in found}

    # -- what it takes ------------------------------------------------------------------------------------

    def _branch_off(self) -> None:
        dev = self.lake.branch("dev")
        if "dev" in self.values:
            dev.delete()
        dev.create()
        self.values["dev"] = dict(self.values["main"])
        self.parted = dict(self.values["main"])
        self.changed = set()
        self.last_commit = self.lake.branch("main").head

    def _table(self, branch: str) -> Table:
        return self.lake.table(KEY, branch)

    def _new_keys(self) -> list[int]:
        count = self.random.randint(1, 3)
        self.next_key += count
        return list(range(self.next_key - count, self.next_key))

    def _new_value(self) -> int:
        self.next_value += 1
        return self.next_value


@pytest.mark.parametrize("has_vectors", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rows_keep_their_ids_through_random_histories_of_two_branches(
    tmp_path: Path, seed: int, has_vectors: bool
) -> None:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        model = Model(lake, Random(seed), has_vectors)
        for _ in range(30):
            model.step()
        model._land()
        model.main.backfill_to_version()
        assert check_row_ids(model.main.location) >= model.highest
        assert model.landed
