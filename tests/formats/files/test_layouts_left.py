"""A table's layout is that of the files that it is left with, whatever went, came back or was merged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import uuid4

import msgspec
import pytest

from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.files.files import FilesLayout, make_folder_name
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.calls import GetFilesTable, NewFile, WriteFiles
from penstock.formats.files.layouts import find_difference
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.storage.hadoop import parse_hadoop_path

KEY = Key("raw", "events")


def layout(form: str, *columns: str, by: tuple[str, ...] = (), kind: str = "long") -> TableLayout:
    fields = [{"name": one, "type": kind, "nullable": True, "metadata": {}} for one in columns]
    schema = json.dumps({"type": "struct", "fields": fields})
    return TableLayout(format=form, partition_by=by, schema=schema)


def write(
    lake: Lake,
    path: str,
    told: TableLayout,
    *,
    replaced: Sequence[str] = (),
    branch: str = "main",
    put: Sequence[str] = (),
) -> str:
    written = lake.do(
        WriteFiles(
            key=KEY,
            branch=branch,
            folder=make_folder_name(lake.id, uuid4(), now_us()),
            added=(NewFile(path=path, size=1),) if path else (),
            put=tuple(NewFile(path=one, size=1) for one in put),
            replaced=tuple(replaced),
            layout=told,
        )
    )
    assert written.commit is not None
    return written.commit.id


def columns(lake: Lake) -> dict[str, str]:
    told = lake.do(GetFilesTable(key=KEY)).layout
    return {field["name"]: field["type"] for field in json.loads(told.schema)["fields"]}


def test_a_revert_leaves_the_format_of_the_files_that_stay(lake: Lake) -> None:
    write(lake, "", layout("csv", "id"))
    undone = write(lake, "2", layout("parquet", "x"), replaced=[""])
    write(lake, "3", layout("parquet", "x"))
    lake.revert(undone)
    assert lake.do(GetFilesTable(key=KEY)).layout.format == "parquet"
    assert [*columns(lake)] == ["x"]


@pytest.mark.parametrize("replaced", [(), ("",)], ids=["append", "overwrite"])
def test_a_revert_hides_no_column_of_a_later_file(lake: Lake, replaced: tuple[str, ...]) -> None:
    write(lake, "1", layout("parquet", "id", "s"))
    undone = write(lake, "2", layout("parquet", "id", "t"), replaced=replaced)
    write(lake, "3", layout("parquet", "id", "t"))
    lake.revert(undone)
    assert {"id", "s", "t"} >= {*columns(lake)} >= {"id", "t"}


def test_a_merge_that_leaves_a_folder_keeps_its_columns(lake: Lake) -> None:
    write(lake, "keep/1", layout("parquet", "id", "s"))
    lake.branch("dev").create()
    write(lake, "x/2", layout("parquet", "id", "t"), replaced=[""], branch="dev")
    write(lake, "keep/3", layout("parquet", "id", "s"))
    lake.merge("dev", keys={KEY: {"keep/": "drop"}})
    assert {*columns(lake)} == {"id", "s", "t"}


@pytest.mark.parametrize("how", ["merge", "merge back", "transplant", "rebase"])
def test_a_branch_lands_after_the_target_got_a_column(lake: Lake, how: str) -> None:
    write(lake, "1", layout("parquet", "id"))
    lake.branch("dev").create()
    write(lake, "2", layout("parquet", "id"), branch="dev")
    write(lake, "3", layout("parquet", "id", "note"))
    if how == "transplant":
        lake.transplant("dev")
    if how == "rebase":
        lake.rebase("dev")
    if how == "merge back":
        lake.merge("main", "dev")
    lake.merge("dev")
    assert columns(lake) == {"id": "long", "note": "long"}


def test_columns_of_both_sides_come_together_and_one_of_two_types_is_a_conflict(lake: Lake) -> None:
    write(lake, "1", layout("parquet", "id"))
    lake.branch("dev").create()
    lake.branch("fix").create()
    write(lake, "2", layout("parquet", "id", "note", "size"), branch="dev")
    write(lake, "3", layout("parquet", "id", "price", "note"))
    lake.merge("dev")
    assert [*columns(lake)] == ["id", "price", "note", "size"]
    write(lake, "4", layout("parquet", "note", kind="string"), branch="fix")
    with pytest.raises(
        MergeConflict,
        match="the column 'note' of type long here, but the other side has it with the type string",
    ):
        lake.merge("fix")


def test_a_file_that_is_brought_without_the_commit_that_added_its_column_keeps_it(lake: Lake) -> None:
    write(lake, "1", layout("parquet", "id"))
    lake.branch("dev").create()
    write(lake, "2", layout("parquet", "id", "note"), branch="dev")
    write(lake, "3", layout("parquet", "id", "note"), branch="dev")
    write(lake, "4", layout("parquet", "id", "price"))
    lake.transplant("dev")
    assert {*columns(lake)} == {"id", "note", "price"}


def test_a_file_that_is_brought_where_the_columns_were_replaced_keeps_its_own(lake: Lake) -> None:
    write(lake, "1", layout("parquet", "id", "old"))
    lake.branch("dev").create()
    write(lake, "2", layout("parquet", "id", "old"), branch="dev")
    write(lake, "3", layout("parquet", "id", "new"), replaced=[""])
    lake.merge("dev")
    assert {*columns(lake)} == {"id", "old", "new"}


def test_the_only_partition_written_anew_by_its_path_keeps_the_type_of_its_column(lake: Lake) -> None:
    write(lake, "day=01/a", layout("parquet", "id", "day", by=("day",), kind="string"))
    write(lake, "day=01/b", layout("parquet", "id", by=("day",), kind="string"), replaced=["day=01/"])
    assert columns(lake) == {"id": "string", "day": "string"}


def test_a_marker_is_no_file_that_others_have_to_fit(lake: Lake) -> None:
    write(lake, "day=1/a", layout("csv", "a", by=("day",)), put=["_SUCCESS"])
    write(lake, "day=1/b", layout("csv", "a", "b", by=("day",)), replaced=["day=1/"])
    assert [*columns(lake)] == ["a", "b"]


def test_an_option_that_is_the_word_false_is_an_option() -> None:
    plain = FilesLayout(format="csv")
    assert find_difference(plain, msgspec.structs.replace(plain, options={"header": "false"})) is None
    assert find_difference(plain, msgspec.structs.replace(plain, options={"nullValue": "false"})) is not None


def test_a_path_without_a_host_is_in_the_file_system_that_is_home() -> None:
    told = parse_hadoop_path("hdfs://nn:8020/raw/x/day=1")
    assert told.find_path_below(parse_hadoop_path("hdfs:///raw/x", "hdfs://nn:8020")) == "day=1/"
    assert told.find_path_below(parse_hadoop_path("hdfs:///raw/x", "file:///")) is None
