"""Lakes that a process may only read: on read-only media, or where others may write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from tests.queue.hooks import table

PROGRAM = "tests.lake.reading_program"
EXPECTED = {
    "main": [4, 2, 2],
    "dev": [6, 4, 2],
    "file": "hello",
    "tables": ["a.delta", "a.files", "a.lance", "a.raw"],
    "log": True,
    "diff": 2,
    "history": [[1, True], [0, True]],
    "dry run": 2,
    "damages": 0,
    "sweep": 0,
    "status": [0],
    "count": [4, 2, 2],
    "sql": [2, 2, 2],
    "rows that differ": 2,
    "direct": 2,
}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may go into, unlike those of pytest."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-reading-"))
    directory.chmod(0o755)
    yield directory / "lake"
    for folder in [directory, *(one for one in directory.rglob("*") if one.is_dir())]:
        folder.chmod(0o755)
    shutil.rmtree(directory)


def _fill(place: Path | str) -> None:
    rows = pa.table({"id": [1, 2]})
    with penstock.open(place) as lake:
        lake.table("a.delta").write(rows)
        lake.table("a.delta").append(rows)
        lake.table("a.lance").write(rows, format="lance")
        lake.table("a.files").write(rows, format="parquet")
        lake.table("a.raw").files.put("x.txt", b"hello")
        lake.branch("dev").create()
        for key in ("a.delta", "a.lance"):
            lake.table(key, "dev").append(rows)
        lake.finish_background()


def _take_rights(place: Path, *, directory: int, database: int) -> None:
    for path in place.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for database_file in place.glob("penstock.db*"):
        database_file.chmod(database)
    place.chmod(directory)


def _program(what: str, place: str, copy: str) -> list[str]:
    return [sys.executable, "-m", PROGRAM, what, place, copy]


def _run(what: str, place: str, copy: str) -> dict[str, Any]:
    ran = subprocess.run(_program(what, place, copy), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Warning" not in ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize(
    ("scheme", "directory", "database"),
    [
        ("{}", 0o555, 0o444),
        pytest.param("{}", 0o777, 0o444, marks=pytest.mark.verify),
        pytest.param("{}", 0o555, 0o666, marks=pytest.mark.verify),
        pytest.param("file://{}", 0o555, 0o444, marks=pytest.mark.verify),
    ],
)
def test_everything_that_reads_works_with_the_right_to_read_only(
    place: Path, tmp_path: Path, scheme: str, directory: int, database: int
) -> None:
    _fill(scheme.format(place))
    _fill(scheme.format(tmp_path / "copy"))
    _take_rights(place, directory=directory, database=database)
    before = sorted(place.rglob("*"))
    said = _run("api", scheme.format(place), scheme.format(tmp_path / "copy"))
    writes = said.pop("writes")
    assert said == EXPECTED
    refusals = "denied", "storage_refused"  # by what the lake knows of its files, or by these themselves
    assert {name: code for name, code in writes.items() if code not in refusals} == {}
    assert sorted(place.rglob("*")) == before


def test_commands_that_read_work_with_the_right_to_read_only(place: Path, tmp_path: Path) -> None:
    _fill(place)
    _fill(tmp_path / "copy")
    _take_rights(place, directory=0o555, database=0o444)
    said = _run("commands", str(place), str(tmp_path / "copy"))
    status, text = said.pop("branch create newer")
    assert status == 6
    assert "is read-only: this process has no permission to write" in text
    assert {command: text for command, (status, text) in said.items() if status} == {}
    assert "can be read, and not be written" in said["doctor"][1]
    assert "not published" not in said["delta log a.delta"][1]


@pytest.mark.skipif(os.getuid() != 0, reason="whoever owns a lake may write to it: needs a second user")
def test_a_reader_without_the_right_to_write_sees_new_commits(place: Path, tmp_path: Path) -> None:
    """While a writer has the lake open, after it closed it, and when another one came."""
    _fill(place)
    _fill(tmp_path / "copy")
    (place / "penstock.db").chmod(0o644)  # its owner lets others read it
    reader = subprocess.Popen(
        _program("follow", str(place), str(tmp_path / "copy")),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def seen() -> list[str]:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write("\n")
        reader.stdin.flush()
        return reader.stdout.readline().split()

    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for round_ in range(3):
            with penstock.open(place) as lake:
                for number in range(3):
                    lake.branch().put(f"b.t{round_}{number}", table(str(number)))
                    assert seen() == [str(len(lake.log())), lake.branch().head]
                expected = [str(len(lake.log())), lake.branch().head]
            assert seen() == expected
            assert seen() == expected
    finally:
        reader.communicate()
    assert reader.returncode == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
def test_a_lake_that_is_its_owners_alone_says_so_to_others(place: Path, tmp_path: Path) -> None:
    for directory in (place, tmp_path / "copy"):
        penstock.init(directory).close()
    said = _run("opening", str(place), str(tmp_path / "copy"))
    assert said["code"] == "denied"
    assert "no permission to read it" in said["message"]


def test_a_lake_in_rocksdb_says_why_it_cannot_be_read(place: Path, tmp_path: Path) -> None:
    for directory in (place, tmp_path / "copy"):
        penstock.init(f"rocksdb://{directory}").close()
    _take_rights(place, directory=0o555, database=0o444)
    said = _run("opening", f"rocksdb://{place}", f"rocksdb://{tmp_path}/copy")
    assert said["code"] == "denied"
    assert "Copy the directory" in said["message"]
