"""What is cleaned up of a log, and what never is."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog, VersionNotFound
from penstock.formats.delta.log.checkpoint_writer import write_checkpoint
from penstock.formats.delta.log.cleanup import LogCleanupPlan, plan_cleanup, remove_log_files
from penstock.formats.delta.log.compaction import compact_commits
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.durations import DAY_MS
from penstock.formats.delta.protocol.names import (
    LOG,
    SIDECARS,
    ChecksumName,
    ClassicName,
    CommitName,
    CompactionName,
    PartName,
    parse_name,
)
from penstock.storage.places import Places
from tests.formats.delta.logs import UUIDS, Table, add, checkpoint_bytes, metadata, protocol

NOW_MS = 20_000 * DAY_MS + 5 * DAY_MS // 24
"""Five in the morning."""
WIDE = 10**9


def aged(table: Table, name: object, days: float) -> None:
    """Make a file this many days old."""
    os.utime(table.root / str(name), ns=(0, int((NOW_MS - days * DAY_MS) * 1_000_000)))


def commits(table: Table, *days: float, checkpoints: Collection[int] = ()) -> None:
    """A version for each age, and checkpoints of some of them."""
    for version, age in enumerate(days):
        first = () if version else (protocol(), metadata())
        table.commit(version, *first, add(f"{version}"))
        if version in checkpoints:
            write_checkpoint(table.place, load_snapshot(table.files), NOW_MS)
        aged(table, CommitName(version), age)


def plan(table: Table, published: int | None = None, **given: Any) -> LogCleanupPlan:
    newest = load_snapshot(table.files).version if published is None else published
    asked: dict[str, Any] = {"keep_from": WIDE, "now_ms": NOW_MS, **given}
    properties = asked.pop("properties", {})
    return plan_cleanup(table.place, properties, published=newest, **asked)


def left(table: Table) -> list[str]:
    return sorted(LOG + one.name for one in (table.root / LOG).iterdir() if one.is_file())


def clean(table: Table, **given: Any) -> None:
    table.place.delete(plan(table, **given).names)


def test_r35_what_lies_before_the_newest_old_checkpoint_goes(table: Table) -> None:
    commits(table, 50, 45, 40, 35, 20, 1, checkpoints=[1, 2, 4])
    for name in (ChecksumName(1), ChecksumName(2)):
        table.write(str(name), b"{}")
    compact_commits(table.place, 1, 3)
    compact_commits(table.place, 3, 4)
    found = plan(table)
    assert found.first == 2
    assert sorted(found.names) == sorted(
        str(one)
        for one in (
            CommitName(0),
            CommitName(1),
            ClassicName(1),
            ChecksumName(1),
            CompactionName(1, 3),
        )
    )
    assert found.size_bytes == sum((table.root / name).stat().st_size for name in found.names)
    table.place.delete(found.names)
    for version in (2, 3, 4, 5):
        assert len(list(load_snapshot(table.files, version).read_files())) == version + 1
    with pytest.raises(VersionNotFound, match="begins at version 2"):
        load_snapshot(table.files, 1)
    assert plan(table).names == ()


def test_planning_deletes_nothing(table: Table) -> None:
    commits(table, 50, 45, checkpoints=[1])
    before = left(table)
    assert plan(table).names != ()
    assert left(table) == before


def test_r35_nothing_goes_without_a_checkpoint(table: Table) -> None:
    commits(table, 500, 400, 300)
    assert plan(table) == LogCleanupPlan(first=None, names=(), size_bytes=0)


def test_a_checkpoint_counts_only_with_its_commit_and_all_its_parts(table: Table) -> None:
    commits(table, 90, 80, 70, 60, checkpoints=[1, 2])
    table.delete(CommitName(2))
    table.write(str(PartName(3, 1, 2)), checkpoint_bytes([protocol(), metadata()]))
    assert plan(table, published=3).first == 1


def test_r35_a_checkpoint_of_a_version_that_is_not_known_to_be_published_does_not_count(table: Table) -> None:
    commits(table, 90, 80, 70, checkpoints=[1, 2])
    assert plan(table, published=1).first == 1
    assert plan(table, published=0).first is None


@pytest.mark.parametrize(("keep_from", "first"), [(0, None), (1, 1), (2, 1), (3, 3), (9, 3)])
def test_versions_that_a_retained_commit_of_the_lake_needs_stay(
    table: Table, keep_from: int, first: int | None
) -> None:
    commits(table, 90, 80, 70, 60, checkpoints=[1, 3])
    assert plan(table, keep_from=keep_from).first == first
    clean(table, keep_from=keep_from)
    for version in range(min(keep_from, 3), 4):
        assert len(list(load_snapshot(table.files, version).read_files())) == version + 1


@pytest.mark.parametrize(
    ("retention", "first"),
    [("interval 3 days", 2), ("interval 20 days", 1), ("interval 60 days", None), ("interval 0 days", 2)],
)
def test_the_table_says_how_long_its_log_lasts(table: Table, retention: str, first: int | None) -> None:
    commits(table, 50, 40, 10, 0.1, checkpoints=[1, 2, 3])
    assert plan(table, properties={"delta.logRetentionDuration": retention}).first == first


def test_a_day_is_over_at_midnight(table: Table) -> None:
    # At five in the morning, that was five hours ago.
    commits(table, 50, 30 + 4 / 24, checkpoints=[1])
    assert plan(table).first is None
    commits(table, 50, 30 + 6 / 24)
    assert plan(table).first == 1


def test_a_table_that_wants_to_keep_its_log_keeps_it(table: Table) -> None:
    commits(table, 90, 80, checkpoints=[1])
    assert plan(table, properties={"delta.enableExpiredLogCleanup": "false"}).names == ()


def test_a_retention_that_cannot_be_understood_deletes_nothing(table: Table) -> None:
    commits(table, 90, 80, checkpoints=[1])
    with pytest.raises(InvalidRequest, match="logRetentionDuration"):
        plan(table, properties={"delta.logRetentionDuration": "interval 1 month"})


def test_a_version_is_not_older_than_the_one_before_it(table: Table) -> None:
    commits(table, 50, 5, 45, checkpoints=[2])
    assert plan(table).first is None


def test_r23_losers_go_when_no_attempt_can_be_under_way(table: Table) -> None:
    commits(table, 0.5, 0.4)
    (table.root / LOG / "_commits").mkdir()
    ages = {"lost": (1, 2.0), "also": (1, 2.0), "new": (1, 0.9), "next": (2, 9.0), "far": (7, 9.0)}
    names = {}
    for number, (word, (version, age)) in enumerate(ages.items()):
        names[word] = f"{LOG}_commits/{version:020}.{UUIDS[number]}.json"
        table.write(names[word], b"{}")
        aged(table, names[word], age)
    found = plan(table)
    assert set(found.names) == {names["lost"], names["also"]}
    assert found.first is None
    assert plan(table, grace_ms=3 * DAY_MS).names == ()
    assert set(plan(table, published=2).names) == {names["lost"], names["also"], names["next"]}


def test_files_of_others_are_left_alone(table: Table) -> None:
    commits(table, 90, 80, checkpoints=[1])
    others = [f"{LOG}.0.json.crc", f"{LOG}0.json", f"{LOG}_notes", f"{LOG}{0:020}.json.bak"]
    for name in others:
        table.write(name, b"")
        aged(table, name, 900)
    clean(table)
    assert set(others) <= set(left(table))


def sidecars(table: Table) -> list[str]:
    return sorted(one.name for one in (table.root / SIDECARS).iterdir())


def v2_commits(table: Table) -> None:
    """Two versions with a checkpoint and a sidecar each, both old enough, and the last one not."""
    v2 = {"delta_checkpointPolicy": "v2"}
    for version, age in enumerate([90, 80, 70, 3]):
        first = () if version else (protocol(reader=["v2Checkpoint"]), metadata(**v2))
        table.commit(version, *first, add(f"{version}"))
        if version in (1, 2, 3):
            write_checkpoint(table.place, load_snapshot(table.files), NOW_MS)
        aged(table, CommitName(version), age)
    for name in sidecars(table):
        aged(table, SIDECARS + name, 3)


def test_sidecars_go_with_the_last_checkpoint_that_names_them(table: Table) -> None:
    v2_commits(table)
    stray = f"{SIDECARS}{UUIDS[0]}.parquet"
    table.write(stray, b"unfinished")
    assert len(sidecars(table)) == 4
    found = plan(table)
    assert found.first == 2
    assert stray not in found.names
    aged(table, stray, 1.1)
    found = plan(table)
    assert stray in found.names
    assert sum(name.startswith(SIDECARS) for name in found.names) == 2
    clean(table)
    assert len(sidecars(table)) == 2
    for version in (2, 3):
        assert len(list(load_snapshot(table.files, version).read_files())) == version + 1


def test_no_sidecar_goes_while_a_checkpoint_cannot_be_read(table: Table) -> None:
    v2_commits(table)
    table.write(str(ClassicName(3)), b"damaged")
    assert not any(name.startswith(SIDECARS) for name in plan(table, published=3).names)


@pytest.mark.parametrize("damage", ["checkpoint", "sidecar"])
def test_nothing_goes_before_a_checkpoint_that_cannot_be_read(table: Table, damage: str) -> None:
    v2_commits(table)
    (checkpoint,) = (table.root / LOG).glob(f"{2:020}.checkpoint.*")
    if damage == "checkpoint":
        checkpoint.write_bytes(b"damaged")
    else:
        (sidecar,) = pq.read_table(checkpoint)["sidecar"].drop_null().to_pylist()
        table.delete(SIDECARS + sidecar["path"])
    with pytest.raises(InvalidLog):
        plan(table, published=3)


@given(
    ages=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    checkpoints=st.sets(st.integers(0, 5), max_size=2),
    keep_from=st.integers(0, 7),
    survivors=st.randoms(use_true_random=False),
)
def test_whatever_was_deleted_before_a_crash_every_kept_version_can_be_read(
    places: Places, ages: list[int], checkpoints: set[int], keep_from: int, survivors: Any
) -> None:
    with TemporaryDirectory() as folder:
        table = Table(Path(folder), places)
        commits(table, *ages, checkpoints=checkpoints)
        found = plan(table, keep_from=keep_from)
        first = 0 if found.first is None else found.first
        assert first <= keep_from
        table.place.delete([name for name in found.names if survivors.random() < 0.5])
        for version in range(first, len(ages)):
            assert len(list(load_snapshot(table.files, version).read_files())) == version + 1
        # Done again, it ends as if it had been done at once.
        clean(table, keep_from=keep_from)
        assert not set(found.names) & set(left(table))
        assert str(CommitName(first)) in left(table)


def test_other_readers_find_a_table_that_was_cleaned_up(table: Table) -> None:
    root = str(table.root)
    for number in range(5):
        write_deltalake(root, pa.table({"id": [number]}), mode="append")
        aged(table, CommitName(number), 50 - number)
    write_checkpoint(table.place, load_snapshot(table.files, 3), NOW_MS)
    clean(table)
    assert str(CommitName(2)) not in left(table)
    assert sorted(pa.table(DeltaTable(root).scan())["id"].to_pylist()) == [0, 1, 2, 3, 4]
    write_deltalake(root, pa.table({"id": [9]}), mode="append")
    assert load_snapshot(table.files).version == 5


@pytest.mark.parametrize(("before", "first"), [("0", 2), ("2", 2), ("3", None), ("9", None), ("odd", None)])
def test_what_a_dropped_feature_left_goes_as_a_whole_or_not_at_all(
    table: Table, before: str, first: int | None
) -> None:
    commits(table, 50, 45, 40, 35, 20, 1, checkpoints=[1, 2, 4])
    found = plan(table, properties={"delta.requireCheckpointProtectionBeforeVersion": before})
    assert found.first == first
    assert bool(found.names) is (first is not None)


def test_commits_go_before_the_checkpoints_that_stand_in_for_them(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(table, 50, 45, 40, 35, 20, 1, checkpoints=[1, 2, 4])
    names, deleted = plan(table).names, list[str]()
    delete = table.place.delete

    def told(some: Sequence[str]) -> None:
        deleted.append(" ".join(sorted({type(parse_name(one)).__name__ for one in some})))
        delete(some)

    monkeypatch.setattr(table.place, "delete", told)
    remove_log_files(table.place, names)
    assert deleted == ["CommitName", "ClassicName"]
    assert load_snapshot(table.files).version == 5
