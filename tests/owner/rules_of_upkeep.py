"""R34 to R36: checkpoints, compactions and clean-up."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable as ForeignTable
from deltalake import write_deltalake

from penstock.errors import InvalidRequest, VersionNotFound
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.owner.orders import (
    add,
    aged,
    foreign_paths,
    left_unpublished,
    log_file,
    paths,
    published_versions,
    root_of,
    rows,
)


class RulesOfUpkeep:
    def test_r34_a_checkpoint_or_a_compaction_is_made_of_published_versions_only(
        self, lake: Lake, table: Table
    ) -> None:
        for path in ("a", "b"):
            table.append_actions([add(path)])
        left_unpublished(table, 2)
        with pytest.raises(InvalidRequest, match="published up to version 2, not 3"):
            lake.delta.compact_log(table.key, last=3)
        compacted = lake.delta.compact_log(table.key)
        checkpoint = lake.delta.checkpoint(table.key)
        assert compacted.name == f"_delta_log/{0:020}.{2:020}.compacted.json"
        assert checkpoint.name == f"_delta_log/{2:020}.checkpoint.parquet"
        assert published_versions(table) == [0, 1, 2]
        assert foreign_paths(table) == ["a", "b"]
        assert paths(table) == ["a", "b", "of-3", "of-4"]

    def test_r35_without_a_checkpoint_nothing_is_removed(self, lake: Lake, table: Table) -> None:
        for number in range(3):
            table.append_actions([add(f"{number}")])
        table.backfill_to_version()
        for version in range(4):
            aged(log_file(table, version), 400)
        assert lake.delta.clean_log(table.key).names == ()
        assert published_versions(table) == [0, 1, 2, 3]

    def test_r35_what_a_commit_of_the_lake_needs_stays(self, lake: Lake, table: Table) -> None:
        for number in range(3):
            table.append_actions([add(f"{number}")])
        table.backfill_to_version()
        lake.delta.checkpoint(table.key)
        for one in (root_of(table) / "_delta_log").iterdir():
            aged(one, 400)
        lake.delta.clean_log(table.key)
        for version in range(4):
            assert len(paths(table, version)) == version

    def test_r35_clean_up_keeps_a_checkpoint_its_commit_and_all_after_it(
        self, lake: Lake, key: str, tmp_path: Path
    ) -> None:
        place, table = self.adopted(lake, key, tmp_path)
        names = lake.delta.clean_log(key).names
        assert sorted(names) == [f"_delta_log/{version:020}.json" for version in (0, 1, 2)]
        assert published_versions(table) == [3, 4, 5]
        assert ForeignTable(place).version() == 5
        assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 9]
        with pytest.raises(VersionNotFound):
            table.snapshot(2)

    def test_r35_beside_the_log_stays_what_a_commit_of_the_lake_names(
        self, lake: Lake, table: Table, dev: str
    ) -> None:
        large = [add(f"{number:0200}") for number in range(700)]
        table.append_actions(large)
        branch = lake.branch(dev).create()
        branch.table(table.key).append_actions([add("on-the-branch")])
        branch.table(table.key).backfill_to_version()
        table.backfill_to_version()
        beside = root_of(table) / "_penstock"
        needed = sorted(beside.rglob("*.json"))
        assert len(needed) == 2
        abandoned, fresh, foreign = (beside / "bodies" / name for name in ("0.json", "1.json", "of.others"))
        for one in (abandoned, fresh, foreign):
            one.write_bytes(b"{}")
        for one in (*needed, abandoned, foreign):
            aged(one, 2)
        told = lake.delta.clean_log(table.key, dry_run=True)
        assert told.names == (str(abandoned.relative_to(root_of(table))),)
        assert abandoned.exists()
        assert lake.delta.clean_log(table.key).names == told.names
        assert [one.exists() for one in (*needed, fresh, foreign, abandoned)] == [True] * 4 + [False]
        assert paths(branch.table(table.key))[-1] == "on-the-branch"
        assert len(paths(table)) == len(large)

    def test_r36_nothing_removes_data_files(self, lake: Lake, key: str, tmp_path: Path) -> None:
        place, table = self.adopted(lake, key, tmp_path)
        table.overwrite(rows(10))
        left_unpublished(table, 1)
        before = sorted(place.glob("*.parquet"))
        lake.delta.checkpoint(key)
        lake.delta.compact_log(key)
        lake.delta.clean_log(key)
        lake.sweep()
        assert sorted(place.glob("*.parquet")) == before
        assert len(before) == 6

    @staticmethod
    def adopted(lake: Lake, key: str, folder: Path) -> tuple[Path, Table]:
        """A table that was the file system's for a long time, with a checkpoint of version 3."""
        place = folder / "free"
        for number in range(4):
            write_deltalake(place, rows(number), mode="append")
        ForeignTable(place).create_checkpoint()
        for one in (place / "_delta_log").iterdir():
            aged(one, 400)
        lake.delta.adopt(str(place), key)
        table = lake.table(key)
        table.append(rows(9))
        table.backfill_to_version()
        return place, table
