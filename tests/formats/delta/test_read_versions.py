"""Versions that were read are kept, and are never taken for other ones."""

from __future__ import annotations

import builtins
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import Denied, Unauthenticated
from penstock.formats.delta.lake.scan_conditions import skip_files
from penstock.formats.delta.log import scan
from penstock.formats.delta.log.log_files import LogFile, PlaceFiles
from penstock.formats.delta.log.read_versions import ListedLog, ReadVersions
from penstock.formats.delta.log.segments import find_segment
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Add, write_commit
from penstock.formats.delta.protocol.names import END_OF_VERSIONS, LOG, ClassicName, CommitName
from penstock.formats.delta.rows.pruning import FilePruner
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.lake.scan_files import ScanCondition
from penstock.server.access import gate
from penstock.server.access.gate import TokenGate
from penstock.storage.places import Place, Places
from tests.formats.delta.logs import Table, add, checkpoint_bytes, metadata, protocol, remove
from tests.remote.serving import serving
from tests.servers.s3 import S3Place


class CountedFiles:
    """The files of a table, and which of them were read."""

    def __init__(self, files: PlaceFiles) -> None:
        self._files, self.url = files, files.url
        self.read_names: builtins.list[str] = []

    def list_files(self, after: str, before: str = END_OF_VERSIONS) -> Iterator[LogFile]:
        return self._files.list_files(after, before)

    def read_files(self, names: Iterable[str]) -> Iterator[bytes | None]:
        requested = list(names)
        self.read_names += requested
        return self._files.read_files(requested)

    def take_commits(self) -> builtins.list[str]:
        """The commits and checkpoints that were read since the last time."""
        found = [name.removeprefix(LOG) for name in self.read_names if name[len(LOG)].isdigit()]
        self.read_names.clear()
        return found


@pytest.fixture
def counted(table: Table) -> CountedFiles:
    return CountedFiles(table.files)


def load(kept: ReadVersions, files: CountedFiles, version: int | None = None) -> LogSnapshot:
    listed = ListedLog(files)
    return kept.replay_segment(listed, find_segment(listed, version))


def bounded(path: str, low: int, high: int) -> Add:
    stats = {"numRecords": 2, "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    return add(path, stats=json.dumps(stats))


def paths(snapshot: LogSnapshot, where: str | None = None) -> list[str]:
    return sorted(file.path for file in scan.find_files(snapshot, where))


def log_name(version: int) -> str:
    return str(CommitName(version)).removeprefix(LOG)


def test_a_version_is_read_once(table: Table, counted: CountedFiles) -> None:
    table.create(bounded("a", 0, 9), bounded("b", 10, 19))
    kept = ReadVersions()
    assert paths(load(kept, counted)) == ["a", "b"]
    assert counted.take_commits() == [log_name(0)]
    assert paths(load(kept, counted), "id = 12") == ["b"]
    assert counted.take_commits() == []
    table.commit(1, remove("b"), bounded("c", 20, 29))
    assert paths(load(kept, counted)) == ["a", "c"]
    assert paths(load(kept, counted, 0)) == ["a", "b"]
    assert paths(load(kept, counted), "id < 25 and id >= 9") == ["a", "c"]


@pytest.mark.parametrize("what", ["other bytes", "another time"])
def test_a_file_of_the_log_that_was_written_anew_is_read_anew(
    table: Table, counted: CountedFiles, what: str
) -> None:
    table.create(add("a"))
    name = table.root / str(CommitName(0))
    os.utime(name, ns=(10**18, 10**18))
    kept = ReadVersions()
    assert paths(load(kept, counted)) == ["a"]
    table.create(add("b" if what == "another time" else "longer"))
    os.utime(name, ns=(10**18, 10**18 + (10**9 if what == "another time" else 0)))
    assert paths(load(kept, counted)) == (["b"] if what == "another time" else ["longer"])


def test_a_file_that_was_written_anew_within_the_second_is_read_anew_in_a_bucket(
    places: Places, s3_place: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage of objects tells by the second when one was written, and here the sizes are equal, too."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_place.endpoint or "")
    place = places.open_place(f"s3://{s3_place.bucket}/{s3_place.prefix}/some/table")
    counted, kept = CountedFiles(PlaceFiles(place)), ReadVersions()
    name = str(CommitName(0))
    for number in range(5):
        place.put(name, write_commit([protocol(), metadata(), add(f"file{number:02}")]))
        assert paths(load(kept, counted)) == [f"file{number:02}"]
        assert paths(load(kept, counted)) == [f"file{number:02}"]
        assert len(counted.take_commits()) == 1


def test_over_a_checkpoint_files_are_found_by_conditions_too(table: Table, counted: CountedFiles) -> None:
    old = [bounded(f"old{number}", number * 10, number * 10 + 9) for number in range(50)]
    table.create(*old)
    table.write(str(ClassicName(0)), checkpoint_bytes([protocol(), metadata(), *old]))
    table.commit(1, remove("old7"), bounded("new", 75, 75))
    kept = ReadVersions()
    for times in range(3):
        snapshot = load(kept, counted)
        assert (snapshot.index is not None) == (times > 0)
        assert paths(snapshot, "id = 75") == ["new"]
        assert paths(snapshot, "id in (5, 499)") == ["old0", "old49"]
        assert paths(snapshot, "id > 485 and id < 495") == ["old48", "old49"]
        assert len(paths(snapshot)) == 50
    assert counted.take_commits().count(str(ClassicName(0)).removeprefix(LOG)) == 1


def test_what_is_kept_is_bounded(table: Table, counted: CountedFiles) -> None:
    table.create(*(bounded(f"file{number}", number, number) for number in range(300)))
    for version in range(1, 6):
        table.commit(version, add(f"more{version}"))
    size = load(ReadVersions(), counted, 0).memory_bytes
    assert size > 300 * 16
    kept = ReadVersions(3 * size)
    for version in range(6):
        load(kept, counted, version)
    counted.take_commits()
    load(kept, counted, 5)
    assert counted.take_commits() == []
    load(kept, counted, 0)
    assert counted.take_commits() == [log_name(0)]
    nothing = ReadVersions(0)
    assert len(paths(load(nothing, counted))) == 305
    counted.take_commits()
    load(nothing, counted)
    assert len(counted.take_commits()) == 6


@pytest.fixture
def log_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files of logs that places read."""
    names: list[str] = []
    read = Place.read

    def counted_read(self: Place, requested: Iterable[str]) -> Iterator[bytes | None]:
        listed = list(requested)
        names.extend(name for name in listed if name.startswith(LOG) and not name.startswith(f"{LOG}_last"))
        return read(self, listed)

    monkeypatch.setattr(Place, "read", counted_read)
    return names


def ids(table: Any) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def test_branches_tags_and_versions_never_get_rows_of_another_one(
    tmp_path: Path, log_reads: list[str]
) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.table("t").write(pa.table({"id": [1]}))
        lake.branch("dev").create()
        lake.tag("v1").create()
        lake.table("t", "dev").append(pa.table({"id": [2]}))
        lake.table("t").append(pa.table({"id": [3]}))
        expected = {"main": [1, 3], "dev": [1, 2], "v1": [1]}
        for _ in range(3):
            for ref, rows in expected.items():
                assert ids(lake.table("t", ref)) == rows
            assert ids(lake.table("t").snapshot(0)) == [1]
        log_reads.clear()
        for ref, rows in expected.items():
            assert ids(lake.table("t", ref)) == rows
        assert log_reads == []
        lake.branch("dev").delete()
        lake.branch("dev").create()
        assert ids(lake.table("t", "dev")) == [1, 3]


def test_another_table_in_the_place_of_one_is_not_taken_for_it(tmp_path: Path) -> None:
    root = tmp_path / "lake" / "warehouse" / "orders"
    log = root / LOG

    def write(path: str) -> None:
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_bytes(write_commit([protocol(), metadata(), add(path)]))

    with penstock.init(tmp_path / "lake") as lake:
        for path in ("one", "two"):
            write(path)
            lake.delta.adopt(root, "t", sole_writer=True)
            assert [file.path for file in lake.table("t").snapshot().files()] == [path]
            lake.delta.release_all()
            shutil.rmtree(root)


def test_who_may_not_read_any_more_is_not_given_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "TOKENS_KEPT_S", 0)  # else a revoked one holds so much longer
    with penstock.open(tmp_path / "lake") as lake:
        lake.table("t").write(pa.table({"id": [1]}))
        with serving(lake.catalogue, gate=TokenGate(lake.catalogue)) as server:
            token = lake.create_token("reader", "read:*:*")
            with penstock.open(server.url, token=token) as reader:
                table = reader.table("t")
                assert [len(list(table.snapshot().files("id = 1"))) for _ in range(3)] == [1, 1, 1]
                narrower = lake.create_token("narrowed", "read:*:other")
                with penstock.open(server.url, token=narrower) as narrowed, pytest.raises(Denied):
                    narrowed.table("t").snapshot()
                lake.revoke_token(next(kept.id for kept in lake.tokens() if kept.name == "reader"))
                with pytest.raises(Unauthenticated):
                    reader.table("t").snapshot()


def test_filters_of_a_scan_leave_out_the_same_files_by_bounds(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.table("t")
        table.write(pa.table({"id": [0, 9]}))
        for number in (1, 2, 3):
            table.append(pa.table({"id": [10 * number, 10 * number + 9]}))
        _, kept, *others = sorted(table.snapshot().files(), key=lambda file: str(file.stats))
        condition = ScanCondition(kind="compare", operator="=", column=("id",), type="long", values=("12",))
        among = [kept.path, *(file.path for file in others), "no file of the table"]
        expected = sorted(file.path for file in others)

        def skip() -> tuple[bool, bool, list[str]]:
            snapshot = table.snapshot()
            index = snapshot.log_snapshot.index
            assert index is not None
            pruner = FilePruner(parse_predicate("id = 12", snapshot.schema), snapshot.metadata)
            is_ready = index.is_ready(pruner)
            skipped = skip_files(snapshot, [condition], among)
            return is_ready, skipped.is_kept, sorted(skipped.files)

        lake.table("t").append(pa.table({"id": [100]}))  # a version of which no bounds were read
        assert skip() == (False, False, expected)
        assert [file.path for file in table.snapshot().files("id = 12")] == [kept.path]
        assert skip() == (True, False, expected)
