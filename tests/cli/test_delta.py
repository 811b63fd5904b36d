"""Delta tables on the command line."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import OutOfSync
from penstock.storage.places import Place
from tests.cli.conftest import Serving, Terminal, anywhere, serving
from tests.formats.delta.older import as_the_first_release

ROWS = pa.table({"day": ["1", "2"], "amount": [1, 20]})


@pytest.fixture
def free(terminal: Terminal) -> str:
    """The place of a table of the file system, below the lake's warehouse."""
    place = terminal.place / "warehouse" / "orders"
    deltalake.write_deltalake(place, ROWS)
    return str(place)


@pytest.fixture
def orders(terminal: Terminal, free: str) -> str:
    """The place of a table of the lake, ``sales.orders``."""
    terminal("delta", "adopt", free, "--table", "sales.orders")
    return free


@anywhere
def test_a_table_is_adopted_and_its_status_told(terminal: Terminal, free: str) -> None:
    assert "no Delta tables" in terminal("delta").out
    ran = terminal("delta", "adopt", free)
    assert ran.lines[0].startswith("adopted orders with version 1 (commit ")
    (status,) = terminal.json("delta", "status")["items"]
    assert (status["key"], status["latest_version"], status["published"]) == ("orders", 1, 1)
    assert terminal("delta").lines == [f"orders  v1  published  {free}"]


@anywhere
def test_a_table_is_altered(terminal: Terminal, orders: str) -> None:
    def alter(*words: str) -> None:
        change, *rest = words
        ran = terminal("delta", "alter", change, "sales.orders", *rest)
        assert ran.lines[0].startswith("changed sales.orders with version ")

    alter("set", "owner=sales", "delta.columnMapping.mode=name", "delta.enableTypeWidening=true")
    alter("unset", "owner")
    alter("describe", "all orders")
    alter("add-constraint", "positive", "amount > 0")
    refused = terminal("delta", "alter", "add-constraint", "sales.orders", "small", "amount < 10", status=1)
    assert "amount = 20" in refused.err
    alter("drop-constraint", "positive")
    alter("add-columns", "note:string", "n:integer")
    alter("rename-column", "note", "remark")
    alter("comment", "remark", "for people")
    alter("move-column", "remark", "--after", "day")
    alter("set-default", "remark", "'none'")
    alter("drop-default", "remark")
    alter("set-not-null", "day")
    alter("drop-not-null", "day")
    alter("widen-column", "n", "long")
    alter("drop-column", "n")
    alter("cluster-by", "amount")
    assert terminal("delta", "cat", "sales.orders").lines[0].split() == ["day", "remark", "amount"]
    assert deltalake.DeltaTable(orders).metadata().description == "all orders"


@anywhere
def test_a_table_is_created_with_columns(terminal: Terminal) -> None:
    made = terminal.json(
        "delta", "create", "sales.new", "day:date", "amount:decimal(10,2)", "--partition-by", "day"
    )
    assert (made["key"], made["version"]) == ("sales.new", 0)
    assert terminal("delta", "cat", "sales.new").lines == ["day  amount", "no rows"]
    terminal("delta", "create", "sales.other", "day", status=2)
    terminal("delta", "create", "sales.other", "day:date", "--property", "x", status=2)
    terminal("delta", "create", "sales.new", "day:date", status=3)


@anywhere
def test_a_creation_that_is_repeated_tells_the_commit_that_did_it(terminal: Terminal) -> None:
    again = ("delta", "create", "sales.new", "day:date", "--idempotency-key", "make it")
    made = terminal.json(*again)
    terminal("delta", "create", "sales.other", "day:date")
    repeated = terminal.json(*again)
    assert made["commit"] == repeated["commit"] != terminal.json("log", "-n", "1")["items"][0]["id"]
    assert (made["id"], made["version"]) == (repeated["id"], repeated["version"])


def test_where_files_can_be_overwritten_a_sole_writer_creates_tables_all_the_same(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "keeps_conditions", False)
    place = str(terminal.place / "warehouse" / "here")
    create = ("delta", "create", "sales.new", "day:date", "--location", place)
    assert "--sole-writer" in terminal(*create, status=1).err
    assert terminal(*create, "--sole-writer").lines[0].startswith("created sales.new with version 0")


@anywhere
def test_rows_and_versions_are_shown(terminal: Terminal, orders: str) -> None:
    ran = terminal("delta", "cat", "sales.orders", "--where", "amount > 10", "--columns", "day,amount")
    assert ran.lines == ["day  amount", "2    20"]
    found = terminal.json("delta", "cat", "sales.orders", "-n", "1")
    assert (found["columns"], len(found["rows"])) == (["day", "amount"], 1)
    assert [one["operation"] for one in terminal.json("delta", "log", "sales.orders")["items"]] == [
        "ADOPT TABLE",
        "WRITE",
    ]
    assert terminal("delta", "cat", "sales.orders", "--version", "9", status=4).err.count("version 9")
    assert "nothing" in terminal("delta", "cat", "sales.orders", "--where", "nothing > 1", status=1).err


def test_a_table_is_shown_by_its_location_without_a_lake(
    free: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Terminal(tmp_path / "no lake")
    assert nowhere("delta", "cat", free).lines == ["day  amount", "1    1", "2    20"]
    found = nowhere.json("delta", "cat", free, "--version", "0", "--columns", "amount", "-n", "1")
    assert (found["key"], found["version"], found["rows"]) == (free, 0, [{"amount": 1}])
    assert "after the latest" in nowhere("delta", "cat", free, "--timestamp", "2999-01-01", status=4).err
    assert [one["operation"] for one in nowhere.json("delta", "log", free)["items"]] == ["WRITE"]
    monkeypatch.chdir(Path(free).parent)
    for path in (f"./{Path(free).name}", f"../{Path(free).parent.name}/{Path(free).name}"):
        assert len(nowhere("delta", "cat", path).lines) == 3
    assert (
        "--ref can only be used with a table of the lake"
        in nowhere("delta", "cat", free, "--ref", "dev", status=2).err
    )
    assert "no Delta table" in nowhere("delta", "cat", "./nothing", status=4).err
    assert not (tmp_path / "no lake").exists()


@anywhere
def test_lists_and_commits_tell_the_version(terminal: Terminal, orders: str) -> None:
    assert terminal("tables").lines == [f"sales.orders  DELTA_LAKE_TABLE  v1  {orders}"]
    assert "~ sales.orders (v1)" in terminal("log").out
    shown = terminal("show", "main", "sales.orders").out
    assert "version    1" in shown
    assert "state" not in shown


@anywhere
def test_the_log_is_looked_after(terminal: Terminal, orders: str) -> None:
    assert terminal("delta", "checkpoint", "sales.orders").out.startswith("wrote _delta_log/")
    assert "there is a checkpoint" in terminal("delta", "checkpoint", "sales.orders").out
    assert "nothing to compact" in terminal("delta", "compact-log", "sales.orders").out
    assert terminal.json("delta", "publish", "sales.orders")["items"][0]["backlog"] == 0


def test_a_table_of_the_first_release_is_repaired_once(terminal: Terminal) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with penstock.open(terminal.place) as lake, as_the_first_release():
        lake.create_table("sales.old", schema=strict)
        lake.create_table("sales.new", schema=pa.schema([("id", pa.int64())]))
    ran = terminal("delta", "repair", "sales.old")
    assert ran.lines[0].startswith("repaired sales.old with version 1 (commit ")
    assert terminal.json("delta", "repair", "sales.old") is None
    assert terminal("delta", "repair", "sales.new").lines == ["sales.new needs no repair"]
    terminal("delta", "repair", "sales.nothing", status=4)


def test_a_table_is_released(terminal: Terminal, orders: str) -> None:
    assert "removed 0 files" in terminal("delta", "clean-log", "sales.orders").out
    assert "released sales.orders with version 2" in terminal("delta", "release", "sales.orders").out
    assert (
        terminal("delta", "cat", "sales.orders", status=4).err.count("there is no table 'sales.orders'") == 1
    )
    assert deltalake.DeltaTable(orders).version() == 2


@anywhere
def test_a_folder_of_parquet_files_is_converted(terminal: Terminal, free: str) -> None:
    folder = Path(free).parent / "clicks"
    (folder / "day=2026-11-01").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "day=2026-11-01" / "a.parquet")
    command = ("delta", "convert", str(folder), "--table", "web.clicks", "--partition", "day:date")
    plan = terminal(*command, "--dry-run").lines
    assert plan[0].startswith("would convert 1 file, 1 row, ")
    assert plan[1:] == ["  id long", "  day date  partition column"]
    assert terminal.json(*command, "--dry-run")["partition_by"] == ["day"]
    assert terminal(*command).lines[0].startswith("converted 1 file, 1 row, ")
    assert terminal("delta", "cat", "web.clicks").lines[1:] == ["1   2026-11-01"]
    terminal("delta", "convert", str(folder), "--partition", "day", status=2)


@anywhere
def test_all_tables_of_a_folder_are_adopted_and_released(terminal: Terminal, free: str) -> None:
    folder = Path(free).parent
    deltalake.write_deltalake(folder / "deep" / "visits", ROWS)
    everything = ("delta", "adopt", "--recursive", str(folder), "--namespace", "raw")
    plan = terminal.json(*everything, "--dry-run")
    assert [(one["key"], one["outcome"], one["version"]) for one in plan["tables"]] == [
        ("raw.deep.visits", "planned", 0),
        ("raw.orders", "planned", 0),
    ]
    assert terminal(*everything, "--dry-run").lines[-1] == "2 tables would be adopted"
    assert terminal(*everything).lines[-1] == "2 tables adopted"
    assert terminal(*everything).lines[-1] == "0 tables adopted, 2 present"
    assert terminal("delta", "cat", "raw.orders").lines[1:] == ["1    1", "2    20"]
    for wrong in (
        ("adopt", free, "--dry-run"),
        ("adopt", free, "--recursive", "--table", "x"),
        ("release",),
        ("release", "raw.orders", "--all"),
        ("release", "raw.orders", "--dry-run"),
    ):
        terminal("delta", *wrong, status=2)


def test_all_tables_are_released(terminal: Terminal, free: str) -> None:
    deltalake.write_deltalake(Path(free).parent / "deep" / "visits", ROWS)
    terminal("delta", "adopt", "--recursive", str(Path(free).parent), "--namespace", "raw")
    assert terminal("delta", "release", "--all", "--dry-run").lines[-1] == "2 tables would be released"
    assert terminal("delta", "release", "--all", "--namespace", "raw.deep").lines[-1] == "1 table released"
    assert terminal("delta", "release", "--all").lines[-1] == "1 table released"
    assert terminal("delta", "release", "--all").lines == ["no Delta tables"]
    assert deltalake.DeltaTable(free).version() == 2


def test_what_cannot_be_adopted_is_named_with_the_reason(terminal: Terminal, free: str) -> None:
    terminal("delta", "create", "raw.orders", "day:date")
    other = Path(free).parent / "other"
    deltalake.write_deltalake(other, ROWS)
    everything = ("delta", "adopt", "--recursive", str(other.parent))
    taken = terminal(*everything, "--namespace", "raw", status=1)
    assert "1 of 3 tables would get keys that are in use; nothing was adopted" in taken.err
    (other / "_delta_log" / f"{0:020}.json").write_text("broken")
    ran = terminal(*everything, status=1)
    assert ran.lines[-1] == "1 table adopted, 1 present, 1 refused"
    assert any(line.startswith(f"{other}: ") for line in ran.lines)


def test_tables_of_a_lost_lake_are_recovered(terminal: Terminal, orders: str, tmp_path: Path) -> None:
    staged = Path(orders) / "_delta_log" / "_commits"
    staged.mkdir(exist_ok=True)
    doubtful = staged / f"{2:020}.{'0' * 8}-0000-0000-0000-{'0' * 12}.json"
    doubtful.write_text("{}")
    with penstock.open(terminal.place) as lost:
        lake_id = lost.id
    other = Terminal(tmp_path / "other")
    other("root", "add", str(terminal.place / "warehouse"))
    other("delta", "recover", orders, status=2)
    other("delta", "recover", orders, "--lost", "another", status=1)
    ran = other("delta", "recover", orders, "--lost", lake_id, "--prefix", "sales")
    assert ran.lines[0].startswith("recovered sales.orders up to version 1")
    assert ran.lines[-1].strip() == f"_delta_log/_commits/{doubtful.name}"
    assert other("delta", "cat", "sales.orders").lines[1:] == ["1    1", "2    20"]


def test_a_second_writer_of_a_version_is_told_by_exit_status(terminal: Terminal, free: str) -> None:
    terminal("delta", "adopt", free)
    again = terminal("delta", "adopt", free, "--table", "twice", status=1)
    assert "already in the lake, as 'orders'" in again.err
    outside = terminal("delta", "adopt", str(terminal.place.parent), status=1)
    assert "is outside the lake's roots" in outside.err


def test_r32_only_administrators_release_recover_and_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "lake"
    with serving(place) as server:
        deltalake.write_deltalake(place / "warehouse" / "orders", ROWS)
        _refused(server, monkeypatch, str(place / "warehouse" / "orders"))


def _refused(server: Serving, monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", server.token("etl", "write"))
    server.terminal("delta", "adopt", location)
    for command in (["release", "orders"], ["clean-log", "orders"], ["recover", location, "--any"]):
        server.terminal("delta", *command, status=6)
    monkeypatch.setenv("PENSTOCK_TOKEN", server.token("root", "admin"))
    server.terminal("delta", "clean-log", "orders")
    server.terminal("delta", "release", "orders")


@anywhere
def test_the_doctor_tells_how_far_tables_are_published(terminal: Terminal, orders: str) -> None:
    checks = {one["name"]: one for one in terminal.json("doctor")["checks"]}
    assert checks["Delta tables"]["finding"] == "1 table, all published"


def test_the_doctor_passes_an_alarm_on(terminal: Terminal, orders: str) -> None:
    foreign = Path(orders) / "_delta_log" / f"{3:020}.json"
    with penstock.open(terminal.place) as lake:
        lake.table("sales.orders").append(ROWS)
        foreign.write_text("{}")
        lake.table("sales.orders").append(ROWS)
    for command in ("publish", "checkpoint", "compact-log", "clean-log"):
        assert foreign.name in terminal("delta", command, "sales.orders", status=1).err
    with penstock.open(terminal.place) as lake, pytest.raises(OutOfSync, match=foreign.name):
        lake.table("sales.orders").append(ROWS)
    shown = terminal("delta", "status").lines
    assert "1 to publish" in shown[0]
    assert shown[1].startswith("! sales.orders: ")
    checks = {one["name"]: one for one in terminal.json("doctor", status=1)["checks"]}
    assert checks["Delta tables"]["state"] == "failed"
    assert foreign.read_text() == "{}"


@anywhere
def test_a_table_that_is_adopted_already_is_said_to_be(terminal: Terminal, orders: str) -> None:
    assert terminal("delta", "adopt", orders, "--table", "sales.orders").lines[0] == (
        "sales.orders is already adopted, at version 1"
    )
    assert terminal.json("delta", "adopt", orders, "--table", "sales.orders")["repeated"] is True


@anywhere
def test_what_is_wrong_with_a_new_table_comes_with_no_advice_about_other_commands(terminal: Terminal) -> None:
    wrong = terminal("delta", "create", "sales.new", "day:date", "--partition-by", "week", status=1).err
    assert "'week' is not in the schema" in wrong
    assert "penstock put" not in wrong
    terminal("delta", "create", "sales.new", "day:date")
    exists = terminal("delta", "create", "sales.new", "day:date", status=3).err
    assert "already exists" in exists
    assert "'overwrite' replaces" in exists
    assert "penstock log" not in exists


def test_all_tables_are_published_that_can_be(terminal: Terminal) -> None:
    line = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'
    settings = penstock.Settings(publish_wait_s=0.0, publish_close_s=0.0)
    with penstock.open(terminal.place, settings=settings) as lake:
        for key in ("a", "b"):
            table = lake.create_table(key, schema=ROWS.schema)
            table.append(ROWS)
            table.backfill_to_version()
            place = Path(table.location) / "_delta_log"
            if key == "a":
                (place / f"{2:020}.json").write_text("{}")  # not the lake's
            place.rename(place.with_name("aside"))
            place.write_text("no directory")  # storage that takes no more files
            table.append_actions(line)
        places = [Path(lake.table(key).location) for key in ("a", "b")]
    for one in places:
        (one / "_delta_log").unlink()
        (one / "aside").rename(one / "_delta_log")
    ran = terminal("delta", "publish", status=1)
    assert f"{2:020}.json" in ran.err
    assert [line.split()[:3] for line in ran.lines[:2]] == [["a", "v2", "1"], ["b", "v2", "published"]]
    assert deltalake.DeltaTable(places[1]).version() == 2


def test_recovering_names_the_lake_that_the_table_names(terminal: Terminal, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lost") as lost:
        table = lost.create_table("sales.orders", schema=ROWS.schema)
        table.append(ROWS)
        table.backfill_to_version()
        place = Path(table.location)
    terminal("root", "add", str(place.parent))
    assert f"--lost {lost.id}" in terminal("delta", "recover", str(place), status=2).err
    assert "--any" in terminal("delta", "recover", str(tmp_path), status=2).err
    terminal("delta", "recover", str(place), "--any", "--table", "a.b", "--prefix", "c", status=2)
    terminal("delta", "recover", str(place), "--any", "--lost", lost.id, status=2)
    ran = terminal("delta", "recover", str(place), "--lost", lost.id, "--table", "web.orders")
    assert ran.lines[0].startswith("recovered web.orders up to version 1")
