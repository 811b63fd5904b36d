"""The doctor, on lakes that are well and on lakes that are not."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from stat import S_IMODE
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.cli.commands import doctor
from penstock.cli.rendering.times import format_iso_time
from penstock.errors import Denied, Unavailable
from penstock.formats.delta.cli import format_cli
from penstock.lake.copy import copy_lake
from penstock.model.clock import now_us
from penstock.model.nessie import IcebergTable
from penstock.spark import jar
from penstock.spark.java import find_java
from penstock.storage.places import Place, Places
from tests.cli.conftest import Terminal
from tests.formats.delta.older import as_the_first_release
from tests.servers.s3 import S3Place


def checks(terminal: Terminal, status: int = 0) -> dict[str, dict[str, Any]]:
    found = terminal.json("doctor", status=status)
    assert sorted(found) == ["checks", "healthy"]
    assert found["healthy"] is (status == 0)
    assert all(sorted(one) == ["advice", "finding", "name", "state"] for one in found["checks"])
    return {one["name"]: one for one in found["checks"]}


def test_a_lake_that_is_well(forked: Terminal) -> None:
    lines = forked("doctor").lines
    assert {line.split("  ")[0] for line in lines} == {"ok"}
    found = checks(forked)
    assert list(found)[:2] == ["versions", "libraries"]
    assert list(found)[-8:] == [
        "Spark", "Java", "store", "integrity", "disk", "clock", "default branch", "warehouse",
    ]  # fmt: skip
    assert "Penstock" in found["versions"]["finding"]
    assert "can be read and written" in found["store"]["finding"]
    assert "does not exist yet" in found["warehouse"]["finding"]
    forked("fsck")


def test_a_store_that_everybody_can_read_is_told_with_the_way_out(forked: Terminal) -> None:
    database = forked.place / "penstock.db"
    for above in database.parents:  # nobody else can read anything in a test's folder
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    assert "privacy" not in checks(forked)
    database.chmod(0o664)
    found = checks(forked)["privacy"]
    assert (found["state"], "everybody on this machine" in found["finding"]) == ("warning", True)
    assert found["advice"] == f"unless that is meant: chmod o-rwx {database}*"
    subprocess.run(found["advice"].partition(": ")[2], shell=True, check=True)
    assert "privacy" not in checks(forked)
    assert S_IMODE(database.stat().st_mode) == 0o660


def test_the_doctor_tells_which_spark_and_java_there_are(forked: Terminal) -> None:
    found = checks(forked)
    assert found["Spark"]["finding"].startswith(f"PySpark {version('pyspark')}")
    assert found["Spark"]["state"] == ("ok" if jar.find_jar() else "warning")
    assert found["Java"]["finding"].startswith(f"Java {find_java().version} of ")


def test_the_doctor_leaves_nothing_that_a_sweep_keeps(terminal: Terminal) -> None:
    terminal("doctor")
    assert terminal.json("sweep", "--nobody-writes", "--grace-s", "0")["objects"]["removed"] == 1


def test_put_if_absent_is_really_tried(terminal: Terminal) -> None:
    (terminal.place / "warehouse").mkdir()
    assert checks(terminal)["warehouse"]["finding"].endswith("put-if-absent works there")
    assert list((terminal.place / "warehouse").iterdir()) == []


def test_a_place_that_replaces_files_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def replacing(self: Path, mode: str = "r", **options: Any) -> Any:
        return opened(self, mode.replace("x", "w"), **options)

    monkeypatch.setattr(Path, "open", replacing)
    found = doctor._check_put_if_absent(tmp_path)
    assert (found.state, list(tmp_path.iterdir())) == ("failed", [])


def test_a_root_that_is_not_there_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "keeps_conditions", True)
    terminal = Terminal(tmp_path / "lake")
    terminal.plain("init", str(terminal.place), "--root", str(tmp_path / "unmounted"), "--root", "s3://b/t")
    found = checks(terminal, status=1)
    roots = [one for one in terminal.json("doctor", status=1)["checks"] if one["name"] == "root"]
    assert [one["state"] for one in roots] == ["failed", "ok"]
    assert "mount" in roots[0]["advice"]
    assert found["warehouse"]["state"] == "ok"
    assert terminal("doctor", status=1).lines[-2].startswith("failed")


@pytest.mark.parametrize(
    ("kept", "state", "says"),
    [
        (True, "ok", "s3://b/t can be written, and put-if-absent works there"),
        (False, "warning", "s3://b/t can be written, but allows an existing file to be replaced"),
        (
            Denied("s3://b/t: no right to put"),
            "failed",
            "s3://b/t cannot be written: s3://b/t: no right to put",
        ),
        (Unavailable("s3://b/t does not answer"), "failed", "s3://b/t does not answer"),
    ],
    ids=["kept", "not kept", "denied", "no answer"],
)
def test_a_bucket_is_tried_out(
    kept: bool | Exception, state: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keeps_conditions(_: Place) -> bool:
        if isinstance(kept, Exception):
            raise kept
        return kept

    monkeypatch.setattr(Place, "keeps_conditions", property(keeps_conditions))
    terminal = Terminal(tmp_path / "lake")
    terminal.plain("init", str(terminal.place), "--root", "s3://b/t")
    found = checks(terminal, status=1 if state == "failed" else 0)["root"]
    assert (found["state"], found["finding"]) == (state, says)


def test_a_real_bucket_is_written_and_left_as_it_was(
    moto_place: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert moto_place.endpoint is not None
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_place.endpoint)
    monkeypatch.setenv("AWS_REGION", moto_place.region)
    root = f"s3://{moto_place.bucket}/{moto_place.prefix}"
    terminal = Terminal(tmp_path / "lake")
    terminal.plain("init", str(terminal.place), "--root", root)
    found = checks(terminal)["root"]
    assert (found["state"], found["finding"]) == (
        "ok",
        f"{root} can be written, and put-if-absent works there",
    )
    places = Places()
    assert list(places.open_place(root).list("")) == []
    places.close()


def test_delta_tables_to_repair_are_told_and_the_advice_helps(terminal: Terminal) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with penstock.open(terminal.place) as lake, as_the_first_release():
        lake.create_table("sales.old", schema=strict)
        lake.create_table("sales.new", schema=pa.schema([("id", pa.int64())]))
    found = checks(terminal)["Delta repairs"]
    assert found["state"] == "warning"
    assert found["finding"].endswith(" 1 of 2 tables: sales.old")
    advised = re.findall(r"'penstock (.+?)'", found["advice"])
    assert advised == ["delta repair sales.old"]
    terminal(*advised[0].split())
    found = checks(terminal)["Delta repairs"]
    assert (found["state"], found["finding"]) == ("ok", "none needed by 2 tables")


def test_the_search_for_repairs_ends_in_time(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.open(terminal.place) as lake:
        lake.create_table("sales.new", schema=pa.schema([("id", pa.int64())]))
    monkeypatch.setattr(format_cli, "REPAIRS_MAX_S", -1.0)
    assert checks(terminal)["Delta repairs"]["finding"] == "none needed by 0 tables of 1"


def test_a_place_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    found = doctor._check_put_if_absent(tmp_path / "gone")
    assert (found.state, "cannot be written" in found.finding) == ("failed", True)


def test_a_place_without_a_lake(tmp_path: Path) -> None:
    found = checks(Terminal(tmp_path / "nowhere"), status=1)
    assert list(found)[-1] == "store"
    assert "there is no lake at" in found["store"]["finding"]
    assert "penstock init" in found["store"]["advice"]


def test_without_a_lake_the_installation_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_LAKE", raising=False)
    terminal = Terminal(tmp_path)
    lines = terminal.plain("doctor").lines
    assert lines[0].startswith("ok  versions ")
    assert lines[-1].endswith("none is given: --lake PATH checks one as well")
    found = terminal.plain("doctor", "--json").json
    assert found["healthy"]
    assert [one["name"] for one in found["checks"]][-1] == "lake"
    assert list(tmp_path.iterdir()) == []


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
        newest = lake.branch().put("t", IcebergTable(metadata_location="s3://x"))
    found = checks(Terminal(tmp_path / "lake"), status=1)["clock"]
    assert found["state"] == "failed"
    assert f"the newest commit is from {format_iso_time(newest.time)}" in found["finding"]
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


def test_a_copy_of_a_lake_is_well_while_the_lake_goes_on(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "copy")
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("a.t", data=pa.table({"id": [1]}))
        lake.table("a.v").write(pa.table({"id": [1]}), format="lance")
        lake.table("a.f").files.put("1.csv", b"1")
        lake.finish_background()
        copy_lake(tmp_path / "lake", tmp_path / "copy")
        for number in (2, 3):
            lake.table("a.t").append(pa.table({"id": [number]}))
            lake.table("a.v").append(pa.table({"id": [number]}))
        lake.finish_background()
        found = checks(terminal)
        assert found["Delta tables"]["finding"] == (
            f"1 table: 1 is owned by lake {lake.id}, and read-only here"
        )
        (status,) = terminal.json("delta", "status")["items"]
        assert (status["owner"], status["alarm"], status["backlog"]) == (lake.id, "", 0)
        assert f"read-only: owned by lake {lake.id}" in terminal("delta", "status").lines[0]
    terminal("fsck")
