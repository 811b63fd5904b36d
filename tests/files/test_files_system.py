"""Tables of files as a file system of fsspec, by itself and under the programs that use one."""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import duckdb
import fsspec  # type: ignore[import-untyped]
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.formats.files.lake.file_system import FILES_ALONE, FilesSystem
from penstock.formats.files.lake.paths import parse_path, quote_table_key
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.server.access import TokenGate
from penstock.server.native import NATIVE
from tests.server.running import local


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True) as found:
        yield found


@pytest.fixture
def fs(lake: Lake) -> FilesSystem:
    """A table ``raw.events`` with two days and a note."""
    lake.table("raw.events").files.write(
        {"day=1/a.txt": b"0123456789", "day=1/b.txt": b"bb", "day=2/c.txt": b"c", "note": b"n"}
    )
    return lake.files_system()


def commits(lake: Lake) -> int:
    return len(lake.log(limit=None))


# -- reading -----------------------------------------------------------------------------------------------


def test_tables_folders_and_files_are_listed(fs: FilesSystem) -> None:
    assert fs.ls("", detail=False) == ["raw.events"]
    assert fs.ls("penstock://raw.events/", detail=False) == [
        "raw.events/day=1", "raw.events/day=2", "raw.events/note",
    ]  # fmt: skip
    assert [(one["name"], one["size"]) for one in fs.ls("raw.events/day=1")] == [
        ("raw.events/day=1/a.txt", 10),
        ("raw.events/day=1/b.txt", 2),
    ]
    assert fs.ls("raw.events/note", detail=False) == ["raw.events/note"]
    places = ("raw.events", "raw.events/day=1", "raw.events/note", "raw.events/none")
    assert [fs.isdir(place) for place in places] == [True, True, False, False]
    assert [fs.isfile(place) for place in places] == [False, False, True, False]
    assert [fs.exists(path) for path in ("", "raw.events/day=1/", "raw.events/none", "raw.none")] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["raw.events/none", "raw.none", "raw.none/x", "raw..none/x", "raw.events@none/note", "raw.events@~/note"],
)
def test_what_is_not_there_is_not_found(fs: FilesSystem, path: str) -> None:
    for ask in (fs.info, fs.ls, fs.cat_file, fs.open, fs.modified):
        with pytest.raises(FileNotFoundError):
            ask(path)


def test_a_table_that_is_no_table_of_files_is_not_found(lake: Lake, fs: FilesSystem) -> None:
    lake.create_table("raw.delta", data=pa.table({"a": [1]}))
    with pytest.raises(FileNotFoundError, match="not a table of files"):
        fs.ls("raw.delta")
    assert fs.ls("", detail=False) == ["raw.events"]


def test_globs_and_finds_take_one_listing(fs: FilesSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fs.glob("raw.events/day=*/*.txt") == [
        "raw.events/day=1/a.txt", "raw.events/day=1/b.txt", "raw.events/day=2/c.txt",
    ]  # fmt: skip
    assert fs.glob("penstock://raw.events/*") == ["raw.events/day=1", "raw.events/day=2", "raw.events/note"]
    assert fs.glob("raw.*/note") == ["raw.events/note"]
    assert fs.find("raw.events", withdirs=True) == [
        "raw.events", "raw.events/day=1", "raw.events/day=1/a.txt", "raw.events/day=1/b.txt",
        "raw.events/day=2", "raw.events/day=2/c.txt", "raw.events/note",
    ]  # fmt: skip
    assert fs.find("raw.events", maxdepth=1, withdirs=True) == [
        "raw.events", "raw.events/day=1", "raw.events/day=2", "raw.events/note",
    ]  # fmt: skip
    assert fs.find("raw.events/note") == ["raw.events/note"]
    assert fs.find("raw.none") == []
    assert fs.du("raw.events") == 14
    asked: list[str] = []
    do = fs.lake.catalogue.do

    def counting(call: Any, *args: Any) -> Any:
        asked.append(type(call).__name__)
        return do(call, *args)

    monkeypatch.setattr(fs.lake.catalogue, "do", counting)
    fs.find("raw.events", withdirs=True)
    assert asked.count("ListFiles") == 1


def test_ranges_are_read_as_slices_are(fs: FilesSystem) -> None:
    path, whole = "raw.events/day=1/a.txt", b"0123456789"
    assert fs.cat_file(path) == whole
    for start, end in [(2, 5), (None, 3), (7, None), (-3, None), (-3, -1), (2, -2), (8, 100), (5, 2)]:
        assert fs.cat_file(path, start=start, end=end) == whole[start:end], (start, end)
    with fs.open(path) as file:
        file.seek(-4, io.SEEK_END)
        assert file.read(2) == b"67"
    assert fs.cat_ranges([path, path], [0, 4], [2, 6]) == [b"01", b"45"]
    assert fs.cat("raw.events/day=1/*") == {path: whole, "raw.events/day=1/b.txt": b"bb"}
    assert fs.head(path, 3) == b"012"


def test_an_open_file_stays_what_it_was(lake: Lake, fs: FilesSystem) -> None:
    with fs.open("raw.events/note") as file:
        lake.table("raw.events").files.put("note", b"another")
        assert file.read() == b"n"


def test_times_and_checksums_tell_one_file_from_another(lake: Lake, fs: FilesSystem) -> None:
    before = fs.ukey("raw.events/note"), fs.checksum("raw.events/note"), fs.modified("raw.events/note")
    lake.table("raw.events").files.put("note", b"n")
    assert fs.ukey("raw.events/note") != before[0]
    assert fs.checksum("raw.events/note") == before[1]
    assert fs.created("raw.events/note") > before[2]
    lake.table("raw.events").files.put("note", b"another")
    assert fs.checksum("raw.events/note") != before[1]


def test_a_path_can_name_a_revision(lake: Lake, fs: FilesSystem) -> None:
    lake.branch("dev").create()
    fs.pipe_file("raw.events@dev/note", b"dev")
    assert (fs.cat_file("raw.events@dev/note"), fs.cat_file("raw.events/note")) == (b"dev", b"n")
    assert fs.cat_file("raw.events@dev~1/note") == b"n"
    assert fs.ls("raw.events@dev/day=2", detail=False) == ["raw.events@dev/day=2/c.txt"]
    assert lake.files_system("dev").cat_file("raw.events/note") == b"dev"


def test_names_of_tables_may_have_what_paths_have(lake: Lake) -> None:
    key, fs = Key("raw", "a/b@c.d"), lake.files_system()
    lake.table(key).files.put("x/y", b"1")
    (name,) = fs.ls("", detail=False)
    assert name == quote_table_key(key) == 'raw."a/b@c.d"'
    assert fs.find(name) == [f"{name}/x/y"]
    assert parse_path(f"{name}@dev/x/").ref == "dev"


def test_a_url_reads_one_commit_whatever_happens_meanwhile(lake: Lake, fs: FilesSystem) -> None:
    pinned, path = fsspec.url_to_fs("penstock://raw.events", lake=lake)
    assert pinned.find(path) == fs.find(path)
    lake.table("raw.events").files.write({"new": b"new"}, replace=[""])
    assert fs.find(path) == ["raw.events/new"]
    assert len(pinned.find(path)) == 4
    assert pinned.cat_file("raw.events/note") == b"n"
    pinned.invalidate_cache()
    assert pinned.find(path) == ["raw.events/new"]
    pinned.pipe_file("raw.events/more", b"")
    assert pinned.exists("raw.events/more")


def test_file_systems_of_two_lakes_or_revisions_are_never_mixed_up(lake: Lake, tmp_path: Path) -> None:
    lake.table("t").files.put("x", b"one")
    lake.branch("dev").create()
    lake.table("t", "dev").files.put("x", b"dev")
    with penstock.open(tmp_path / "other") as other:
        other.table("t").files.put("x", b"two")

    def read(**options: Any) -> bytes:
        with fsspec.open("penstock://t/x", **options) as file:
            found: bytes = file.read()
            return found

    here = str(tmp_path / "lake")
    assert read(lake=here) == b"one"
    assert read(lake=str(tmp_path / "other")) == b"two"
    assert read(lake=here, ref="dev") == b"dev"
    assert read(lake=lake) == b"one"


def test_a_lake_that_the_file_system_opened_is_open_as_long_as_a_file_is(lake: Lake, tmp_path: Path) -> None:
    lake.table("t").files.put("x", b"0" * 3_000_000)
    file = FilesSystem(str(tmp_path / "lake")).open("t/x")
    gc.collect()
    assert len(file.read()) == 3_000_000
    file.close()


def test_the_lake_may_come_from_the_environment(
    lake: Lake, fs: FilesSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_LAKE", raising=False)
    with pytest.raises(penstock.errors.InvalidRequest, match="PENSTOCK_LAKE"):
        fsspec.filesystem("penstock")
    monkeypatch.setenv("PENSTOCK_LAKE", str(tmp_path / "lake"))
    assert fsspec.filesystem("penstock").cat_file("raw.events/note") == b"n"


def test_another_process_gets_a_file_system_of_its_own(lake: Lake, fs: FilesSystem) -> None:
    lake.branch("dev").create()
    lake.table("raw.events", "dev").files.put("note", b"dev")
    again = pickle.loads(pickle.dumps(lake.files_system("dev")))
    assert again.lake is not lake
    assert again.cat_file("raw.events/note") == b"dev"


# -- writing -----------------------------------------------------------------------------------------------


def test_a_file_that_is_written_is_one_commit_at_its_close(lake: Lake, fs: FilesSystem) -> None:
    before = commits(lake)
    with fs.open("raw.events/new", "wb") as file:
        file.write(b"a" * 10)
        file.write(b"b")
        assert not fs.exists("raw.events/new")
    assert (fs.cat_file("raw.events/new"), commits(lake)) == (b"a" * 10 + b"b", before + 1)
    with fs.open("raw.events/text", "w", encoding="utf-8") as text:
        text.write("grüße\n")
    assert fs.cat_file("raw.events/text") == "grüße\n".encode()


def test_a_table_comes_with_its_first_file(lake: Lake) -> None:
    fs = lake.files_system()
    fs.makedirs("new.table/folder")
    fs.pipe_file("new.table/folder/x", b"1")
    assert fs.cat_file("new.table/folder/x") == b"1"


class Stop(Exception):
    pass


def stop_in(opened: Any, half: str | bytes) -> None:
    with opened as file:
        file.write(half)
        raise Stop


@pytest.mark.filterwarnings("ignore:.*was discarded:RuntimeWarning")
@pytest.mark.parametrize("how", ["binary", "text", "compressed", "by fsspec"])
def test_a_file_whose_block_fails_is_none(lake: Lake, fs: FilesSystem, how: str) -> None:
    before, path = commits(lake), "raw.events/new"
    opened = {
        "binary": lambda: fs.open(path, "wb"),
        "text": lambda: fs.open(path, "w"),
        "compressed": lambda: fs.open(path, "wb", compression="gzip"),
        "by fsspec": lambda: fsspec.open(f"penstock://{path}", "wb", lake=lake),
    }[how]()
    with pytest.raises(Stop):
        stop_in(opened, "half" if how == "text" else b"half")
    assert (fs.exists(path), commits(lake)) == (False, before)


@pytest.mark.filterwarnings("ignore:.*was discarded:ResourceWarning")
def test_a_file_that_nobody_closes_or_that_is_discarded_is_none(lake: Lake, fs: FilesSystem) -> None:
    before = commits(lake)
    fs.open("raw.events/new", "wb").write(b"half")
    gc.collect()
    file = fs.open("raw.events/new", "wb")
    file.write(b"half")
    file.discard()
    file.close()
    assert (fs.exists("raw.events/new"), commits(lake)) == (False, before)


def test_a_file_written_while_an_exception_is_handled_is_a_whole_one(fs: FilesSystem) -> None:
    try:
        raise Stop
    except Stop:
        with fs.open("raw.events/new", "wb") as file:
            file.write(b"whole")
    assert fs.cat_file("raw.events/new") == b"whole"


def test_a_file_that_must_be_new_has_one_winner(lake: Lake, fs: FilesSystem) -> None:
    file = fs.open("raw.events/note", "xb")
    file.write(b"other")
    with pytest.raises(FileExistsError, match="note"):
        file.close()
    with pytest.raises(FileExistsError, match="note"):
        fs.pipe_file("raw.events/note", b"other", mode="create")
    assert fs.cat_file("raw.events/note") == b"n"
    ready, won, lost = Barrier(4), list[int](), list[FileExistsError]()

    def race(number: int) -> None:
        file = fs.open("raw.events/race", "xb")
        file.write(str(number).encode())
        ready.wait(30)
        try:
            file.close()
            won.append(number)
        except FileExistsError as problem:
            lost.append(problem)

    threads = [Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(won), len(lost)) == (1, 3)
    assert fs.cat_file("raw.events/race") == str(won[0]).encode()


def test_files_are_not_appended_to(fs: FilesSystem) -> None:
    for mode in ("ab", "r+b"):
        with pytest.raises(io.UnsupportedOperation):
            fs.open("raw.events/note", mode)


def test_directories_go_in_and_out_in_one_commit(lake: Lake, fs: FilesSystem, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a").write_bytes(b"a")
    (tmp_path / "in" / "deep" / "b").write_bytes(b"b")
    before = commits(lake)
    fs.put(f"{tmp_path}/in/", "raw.events/up/", recursive=True)
    assert commits(lake) == before + 1
    assert fs.find("raw.events/up") == ["raw.events/up/a", "raw.events/up/deep/b"]
    fs.get("raw.events/up/", f"{tmp_path}/out/", recursive=True)
    assert (tmp_path / "out" / "deep" / "b").read_bytes() == b"b"
    fs.pipe({"raw.events/p/1": b"1", "raw.events/p/2": b"2"})
    assert commits(lake) == before + 2


def test_copies_and_moves_take_no_data_and_one_commit(lake: Lake, fs: FilesSystem) -> None:
    before, there = commits(lake), fs.info("raw.events/day=1/a.txt")["address"]
    fs.cp_file("raw.events/day=1/a.txt", "raw.other/a.txt")
    assert fs.info("raw.other/a.txt")["address"] == there
    fs.copy("raw.events/day=1", "raw.events/day=3", recursive=True)
    assert fs.find("raw.events/day=3") == ["raw.events/day=3/a.txt", "raw.events/day=3/b.txt"]
    assert commits(lake) == before + 2
    fs.mv("raw.events/note", "raw.events/moved")
    assert (fs.exists("raw.events/note"), fs.cat_file("raw.events/moved")) == (False, b"n")
    fs.mv("raw.events/day=3", "raw.events/day=4", recursive=True)
    assert fs.find("raw.events/day=3") == []
    assert fs.cat_file("raw.events/day=4/a.txt") == b"0123456789"
    assert commits(lake) == before + 4
    with pytest.raises(OSError, match="another table"):
        fs.mv("raw.events/moved", "raw.other/moved")
    with pytest.raises(FileNotFoundError):
        fs.mv("raw.events/none", "raw.events/other")


def test_a_file_that_was_written_anew_meanwhile_is_not_moved_away(
    lake: Lake, fs: FilesSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = fs.commit

    def late(changes: Any) -> None:
        lake.table("raw.events").files.put("note", b"newer")
        commit(changes)

    monkeypatch.setattr(fs, "commit", late)
    with pytest.raises(OSError, match="note"):
        fs.mv("raw.events/note", "raw.events/moved")
    assert fs.cat_file("raw.events/note") == b"newer"
    assert not fs.exists("raw.events/moved")


def test_removing_takes_one_commit(lake: Lake, fs: FilesSystem) -> None:
    before = commits(lake)
    fs.rm(["raw.events/day=1", "raw.events/note"], recursive=True)
    assert (fs.find("raw.events"), commits(lake)) == (["raw.events/day=2/c.txt"], before + 1)
    for missing in ("raw.events/none", "raw.none/x"):
        with pytest.raises(FileNotFoundError):
            fs.rm(missing)
    with pytest.raises(IsADirectoryError):
        fs.rm("raw.events/day=2")
    fs.rm("raw.events/day=2/*.txt")
    assert fs.ls("raw.events") == []
    assert commits(lake) == before + 2


def test_a_table_whose_files_were_all_removed_is_not_there_until_it_has_one(
    lake: Lake, fs: FilesSystem
) -> None:
    pinned = lake.files_system(pinned=True)
    for where in ("raw.events", "penstock://raw.events/"):
        assert (fs.exists(where), pinned.exists(where)) == (True, True)
    fs.rm("raw.events", recursive=True)
    assert (fs.exists("raw.events"), fs.exists("raw.events/day=1"), pinned.exists("raw.events")) == (
        False, False, True,
    )  # fmt: skip
    assert lake.table("raw.events").exists  # with its history
    fs.pipe_file("raw.events/again", b"a")
    assert (fs.exists("raw.events"), fs.find("raw.events")) == (True, ["raw.events/again"])


def test_files_that_are_written_one_by_one_are_told_of_once(
    lake: Lake, fs: FilesSystem, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pa.table({"part": [*range(FILES_ALONE * 2)]})
    how = {"format": "parquet", "partitioning": ["part"], "filesystem": fs, "use_threads": False}
    before = commits(lake)
    with fs.transaction:
        ds.write_dataset(rows, "raw.together", **how)
    assert (commits(lake), caplog.messages) == (before + 1, [])
    ds.write_dataset(rows.slice(0, FILES_ALONE - 1), "raw.alone", **how)
    assert caplog.messages == []
    ds.write_dataset(rows, "raw.alone", existing_data_behavior="overwrite_or_ignore", **how)
    assert commits(lake) == before + FILES_ALONE * 3
    (said,) = caplog.messages
    assert said.startswith(f"{FILES_ALONE} files were written to 'raw.alone' one by one")
    assert "with fs.transaction" in said


def test_one_commit_is_of_one_table(lake: Lake, fs: FilesSystem) -> None:
    before = commits(lake)
    with pytest.raises(OSError, match="use a commit for each"):
        fs.pipe({"raw.events/x": b"1", "raw.other/x": b"2"})
    assert commits(lake) == before


def test_a_transaction_is_one_commit(lake: Lake, fs: FilesSystem) -> None:
    before = commits(lake)
    with fs.transaction:
        with fs.open("raw.events/x", "wb") as file:
            file.write(b"x")
        fs.pipe_file("raw.events/y", b"y")
        fs.rm("raw.events/day=1", recursive=True)
        fs.pipe_file("raw.events/day=1/new", b"new")
        fs.cp_file("raw.events/note", "raw.events/again")
        fs.pipe_file("raw.events/gone", b"")
        fs.rm("raw.events/day=2/c.txt")
        assert not fs.exists("raw.events/x")
    assert commits(lake) == before + 1
    assert fs.find("raw.events") == [
        f"raw.events/{name}" for name in ("again", "day=1/new", "gone", "note", "x", "y")
    ]
    with fs.open("raw.events/after", "wb") as file:
        file.write(b"on its own again")
    assert commits(lake) == before + 2


def test_a_transaction_may_be_started_and_ended_by_hand(lake: Lake, fs: FilesSystem) -> None:
    before = commits(lake)
    fs.start_transaction()
    fs.pipe_file("raw.events/x", b"x")
    fs.put_file(__file__, "raw.events/y")
    assert commits(lake) == before
    fs.end_transaction()
    assert (fs.cat_file("raw.events/x"), commits(lake)) == (b"x", before + 1)


def test_a_transaction_that_fails_leaves_nothing(lake: Lake, fs: FilesSystem) -> None:
    before = commits(lake)

    def stopped() -> None:
        with fs.transaction:
            fs.pipe_file("raw.events/x", b"x")
            raise Stop

    def unfinished() -> None:
        with fs.transaction:
            fs.open("raw.events/x", "wb").write(b"half")

    def of_two_tables() -> None:
        with fs.transaction:
            fs.pipe_file("raw.events/x", b"x")
            fs.pipe_file("raw.other/x", b"x")

    with pytest.raises(Stop):
        stopped()
    with pytest.raises(OSError, match="still being written"):
        unfinished()
    with pytest.raises(OSError, match="use a commit for each"):
        of_two_tables()
    with fs.transaction:
        pass
    assert (commits(lake), fs.exists("raw.events/x")) == (before, False)


@pytest.mark.parametrize("ref", ["v1", "main~0", "none", "a commit"])
def test_only_branches_are_written(lake: Lake, fs: FilesSystem, ref: str) -> None:
    lake.tag("v1").create()
    before = commits(lake)
    old = lake.files_system(lake.resolve("main") if ref == "a commit" else ref)
    with pytest.raises(PermissionError, match="only branches can be written to"):
        old.open("raw.events/x", "wb")
    with pytest.raises(PermissionError, match="only branches can be written to"):
        old.pipe_file("raw.events/x", b"")
    with pytest.raises(PermissionError, match="only branches can be written to"):
        old.cp_file("raw.events@main/note", "raw.events/x")
    with pytest.raises(FileNotFoundError if ref == "none" else PermissionError):
        old.rm("raw.events/note")
    assert commits(lake) == before
    if ref != "none":
        assert old.cat_file("raw.events/note") == b"n"


def test_commits_say_who_and_why(lake: Lake, fs: FilesSystem) -> None:
    FilesSystem(lake, author="ada", message="by hand").pipe_file("raw.events/x", b"")
    (made,) = lake.log(limit=1)
    assert (made.author, made.message) == ("ada", "by hand")


# -- programs that use one ---------------------------------------------------------------------------------


ROWS = pa.table({"day": ["1", "1", "2"], "amount": [1, 2, 3]})


def test_pyarrow_writes_and_reads_datasets(lake: Lake, fs: FilesSystem) -> None:
    before = commits(lake)
    with fs.transaction:
        ds.write_dataset(
            ROWS,
            "raw.arrow",
            filesystem=fs,
            format="parquet",
            partitioning=["day"],
            partitioning_flavor="hive",
            use_threads=False,
        )
    assert commits(lake) == before + 1
    found = ds.dataset("raw.arrow", filesystem=fs, format="parquet", partitioning="hive")
    assert found.to_table(filter=ds.field("day") == 2)["amount"].to_pylist() == [3]
    assert pq.read_table("raw.arrow", filesystem=fs)["amount"].to_pylist() == [1, 2, 3]
    pq.write_table(ROWS, "raw.arrow/day=3/x.parquet", filesystem=fs)
    assert fs.exists("raw.arrow/day=3/x.parquet")


def test_pandas_reads_and_writes_urls(lake: Lake, tmp_path: Path) -> None:
    where: dict[str, Any] = {"lake": str(tmp_path / "lake")}
    frame = ROWS.to_pandas()
    frame.to_csv("penstock://raw.frames/a.csv", index=False, storage_options=where)
    frame.to_parquet("penstock://raw.frames/p/a.parquet", storage_options=where)
    assert pd.read_csv("penstock://raw.frames/a.csv", storage_options=where)["amount"].sum() == 6
    assert pd.read_parquet("penstock://raw.frames/p", storage_options=where)["amount"].sum() == 6
    lake.branch("dev").create()
    frame.head(1).to_csv("penstock://raw.frames/a.csv", index=False, storage_options=where | {"ref": "dev"})
    assert len(pd.read_csv("penstock://raw.frames@dev/a.csv", storage_options=where)) == 1
    assert len(pd.read_csv("penstock://raw.frames/a.csv", storage_options=where)) == 3


def test_polars_reads_addresses_and_open_files(lake: Lake, fs: FilesSystem) -> None:
    with fs.open("raw.polars/day=1/a.parquet", "wb") as file:
        pl.DataFrame({"amount": [1, 2]}).write_parquet(file)
    files = lake.table("raw.polars").files
    assert pl.scan_parquet(files.urls()).select(pl.col("amount").sum()).collect().item() == 3
    with fs.open("raw.polars/day=1/a.parquet") as file:
        assert pl.read_parquet(file)["amount"].to_list() == [1, 2]


def test_duckdb_reads_addresses_and_urls(lake: Lake, fs: FilesSystem) -> None:
    pq.write_table(ROWS, "raw.duck/day=1/a.parquet", filesystem=fs)
    pq.write_table(ROWS, "raw.duck/day=2/b.parquet", filesystem=fs)
    files = lake.table("raw.duck").files
    with duckdb.connect() as db:
        db.execute("SELECT sum(amount) FROM read_parquet($1)", [files.urls()])
        assert db.fetchone() == (12,)
        db.register_filesystem(fs)
        db.execute("SELECT sum(amount) FROM read_parquet('penstock://raw.duck/*/*.parquet')")
        assert db.fetchone() == (12,)
        db.execute("COPY (SELECT 7 AS amount) TO 'penstock://raw.duck/day=3/c.parquet' (FORMAT parquet)")
    assert pq.read_table("raw.duck/day=3", filesystem=fs)["amount"].to_pylist() == [7]


# -- behind a server ---------------------------------------------------------------------------------------


def test_behind_a_server_it_is_the_same_and_rights_hold(lake: Lake, fs: FilesSystem) -> None:
    with local(lake.catalogue, [NATIVE], gate=TokenGate(lake.catalogue)) as server:
        theirs = FilesSystem(server.url, token=lake.create_token("etl", "write:main"))
        before = commits(lake)
        with theirs.transaction:
            theirs.pipe_file("raw.events/x", b"x")
            theirs.rm("raw.events/day=1", recursive=True)
        assert (theirs.find("raw.events"), commits(lake)) == (fs.find("raw.events"), before + 1)
        reader: dict[str, Any] = {"lake": server.url, "token": lake.create_token("see", "read:main")}
        with fsspec.open("penstock://raw.events/x", **reader) as file:
            assert file.read() == b"x"
        with pytest.raises(PermissionError):
            fsspec.filesystem("penstock", **reader).pipe_file("raw.events/x", b"other")
        assert fs.cat_file("raw.events/x") == b"x"


class Unwilling:
    """Something that cannot be written as text."""

    def __str__(self) -> str:
        raise Stop


@pytest.mark.filterwarnings("ignore:.*was discarded:RuntimeWarning")
def test_a_frame_that_cannot_be_written_whole_is_not_written(lake: Lake, fs: FilesSystem) -> None:
    frame, before = pd.DataFrame({"a": [1, Unwilling()]}, dtype=object), commits(lake)
    with pytest.raises(Stop):
        frame.to_csv("penstock://raw.events/frame.csv", storage_options={"lake": lake})
    assert (fs.exists("raw.events/frame.csv"), commits(lake)) == (False, before)
