"""Tables with mapped columns: files, statistics and partition values have the physical names, readers the
others; columns are renamed, dropped and added, also on two branches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

import penstock
from penstock.errors import InvalidContent, InvalidRequest, MergeConflict, UnsupportedFeature
from penstock.formats.delta.lake.calls import ReserveColumnIds
from penstock.formats.delta.protocol import column_changes
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import (
    ID,
    MAX_ID,
    MODE,
    PARQUET_ID,
    PHYSICAL_NAME,
    stored_name,
)
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.lake import Lake
from penstock.lake.table import Table as LakeTable
from penstock.model.keys import Key
from tests.formats.delta.logs import Table, protocol
from tests.formats.delta.rows import as_rows, metadata_for

KEY = "shop.mapped"
MODES = ["name", "id"]
PART = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.struct([("y", pa.string())])))])
SCHEMA = pa.schema([("id", pa.int64()), ("odd name", pa.string()), ("part", PART), ("day", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path))
        yield lake


def rows(*numbers: int, day: str = "mon") -> pa.Table:
    made = [
        {"id": one, "odd name": f"n{one}", "part": {"x": one, "l": [{"y": str(one)}]}, "day": day}
        for one in numbers
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def create(lake: Lake, mode: str, **wanted: Any) -> LakeTable:
    return lake.delta.create(KEY, data=rows(1, 2), partition_by="day", properties={MODE: mode}, **wanted)


def ids(table: LakeTable, **options: Any) -> list[int]:
    return sorted(table.to_arrow(**options)["id"].to_pylist())


def field(table: LakeTable, name: str) -> Field:
    found = table.snapshot().schema.field(name)
    assert found is not None
    return found


def check_readers(table: LakeTable, duckdb: Any) -> None:
    """The lake, deltalake and DuckDB read the same rows."""
    table.backfill_to_version()
    mine = as_rows(table.to_arrow())
    assert as_rows(pa.table(DeltaTable(table.location).scan())) == mine
    # DuckDB takes partition values of mapped columns for null.
    partitions = set(table.snapshot().partition_columns)
    names = [name for name in table.to_arrow().column_names if name not in partitions]
    columns = ", ".join(f'"{name}"' for name in names)
    theirs = duckdb.sql(f"SELECT {columns} FROM delta_scan('{table.location}')").to_arrow_table()
    assert as_rows(theirs) == as_rows(table.to_arrow(columns=names))


@pytest.mark.parametrize("mode", MODES)
def test_files_statistics_and_partition_values_have_the_physical_names(
    lake: Lake, duckdb: Any, mode: str
) -> None:
    table = create(lake, mode)
    snapshot = table.snapshot()
    assert "columnMapping" in supported_features(snapshot.protocol)
    names = {one.name: stored_name(one) for one in snapshot.schema.walk()}
    assert len(set(names.values())) == 7
    assert all(one.startswith("col-") for one in names.values())
    assert snapshot.properties[MAX_ID] == "7"
    (file,) = snapshot.files()
    assert file.partition_values == {names["day"]: "mon"}
    stats = json.loads(file.stats or "{}")
    assert stats["minValues"][names["id"]] == 1
    assert stats["minValues"][names["part"]][names["x"]] == 1
    written = pq.read_schema(Path(table.location) / file.path.replace("%20", " "))
    assert written.names == [names["id"], names["odd name"], names["part"]]
    assert int(written.field(0).metadata[PARQUET_ID]) == field(table, "id").metadata[ID]
    inner = written.field(2).type
    assert {one.name for one in inner} == {names["x"], names["l"]}
    assert inner.field(1).type.value_type.field(0).name == names["y"]
    table.append(rows(3, day="tue"))
    assert ids(table, where="id > 1 and day = 'tue'") == [3]
    assert ids(table, where="part.x = 2") == [2]
    check_readers(table, duckdb)
    lake.delta.checkpoint(KEY)
    check_readers(table, duckdb)


@pytest.mark.parametrize("mode", MODES)
def test_columns_are_renamed_dropped_and_added_and_no_file_is_written(
    lake: Lake, duckdb: Any, mode: str
) -> None:
    table = create(lake, mode)
    before = {one.path for one in table.snapshot().files()}
    lake.delta.rename_column(KEY, "id", "number")
    lake.delta.rename_column(KEY, ["part", "x"], "z")
    lake.delta.drop_column(KEY, "odd name")
    lake.delta.drop_column(KEY, ["part", "l"])
    assert {one.path for one in table.snapshot().files()} == before
    assert table.to_arrow().to_pylist() == [
        {"number": one, "part": {"z": one}, "day": "mon"} for one in (1, 2)
    ]
    lake.delta.add_columns(KEY, pa.schema([("odd name", pa.string())]))
    table.append(pa.table({"number": [3], "day": ["tue"], "odd name": ["new"]}))
    assert table.to_arrow(columns=["odd name"], where="`odd name` is null or number = 3").num_rows == 3
    assert field(table, "odd name").metadata[ID] == 8
    table.overwrite(pa.table({"number": [4], "day": ["mon"]}), partitions={"day": "mon"})
    table.overwrite(pa.table({"number": [5], "day": ["tue"]}), where="day = 'tue'")
    assert sorted(table.to_arrow()["number"].to_pylist()) == [4, 5]
    check_readers(table, duckdb)
    assert table.snapshot(version=0).to_arrow()["odd name"].to_pylist() == ["n1", "n2"]


@pytest.mark.parametrize("mode", MODES)
def test_a_mapped_table_is_merged_undone_restored_released_and_adopted(
    lake: Lake, duckdb: Any, mode: str
) -> None:
    table = create(lake, mode)
    dev = lake.branch("dev").create()
    there = lake.table(KEY, "dev")
    there.append(rows(3, day="tue"))
    there.overwrite(rows(4), partitions={"day": "mon"})
    table.append(rows(5, day="wed"))
    dev.merge_into("main")
    assert ids(table) == [3, 4, 5]
    lake.revert("main")
    assert ids(table) == [1, 2, 5]
    lake.delta.rename_column(KEY, "id", "number")
    renamed = lake.branch("main").head
    table.append(rows(6).rename_columns(["number", "odd name", "part", "day"]))
    lake.delta.drop_column(KEY, "odd name")
    lake.revert("main")
    assert table.to_arrow()["odd name"].null_count == 0
    with pytest.raises(MergeConflict):
        lake.revert(renamed)
    table.restore(version=0)
    assert ids(table) == [1, 2]
    assert table.properties[MAX_ID] == "7"
    check_readers(table, duckdb)
    location = table.location
    lake.delta.release(KEY)
    lake.delta.adopt(location, KEY)
    lake.table(KEY).append(rows(7))
    check_readers(lake.table(KEY), duckdb)
    assert ids(lake.table(KEY)) == [1, 2, 7]


def test_a_rename_alone_is_undone_and_merged(lake: Lake) -> None:
    table = create(lake, "name")
    dev = lake.branch("dev").create()
    lake.delta.rename_column(KEY, "id", "number", branch="dev")
    dev.merge_into("main")
    assert table.to_arrow().column_names[0] == "number"
    lake.revert("main")
    assert ids(table) == [1, 2]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("renamed_on", ["main", "dev", "both"])
def test_rows_of_a_branch_and_a_new_name_of_a_column_come_together(
    lake: Lake, duckdb: Any, mode: str, renamed_on: str
) -> None:
    table = create(lake, mode)
    dev = lake.branch("dev").create()
    there = lake.table(KEY, "dev")
    there.append(rows(3))
    there.delete("id = 1")
    for branch in ("main", "dev"):
        if renamed_on in (branch, "both"):
            lake.delta.rename_column(KEY, "id", "number", branch=branch)
            lake.delta.rename_column(KEY, ["part", "x"], "z", branch=branch)
    name = "id" if renamed_on == "dev" else "number"
    table.append(rows(4, day="tue").select([0, 3]).rename_columns([name, "day"]))
    dev.merge_into("main")
    found = {row["number"]: row["part"] and row["part"]["z"] for row in table.to_arrow().to_pylist()}
    assert found == {2: 2, 3: 3, 4: None}
    check_readers(table, duckdb)
    lake.merge("main", "dev")
    assert as_rows(there.to_arrow()) == as_rows(table.to_arrow())


def test_a_writer_lands_after_a_column_that_it_writes_got_another_name(lake: Lake) -> None:
    table = create(lake, "name")
    with lake.transaction() as tx:
        tx.table(KEY).append(rows(3))
        lake.delta.rename_column(KEY, "id", "number")
        lake.delta.add_columns(KEY, pa.schema([("id", pa.string())]))
    found = table.to_arrow().sort_by("number")
    assert found["number"].to_pylist() == [1, 2, 3]
    assert found["id"].null_count == 3


def rename(lake: Lake, branch: str, name: str) -> None:
    lake.delta.rename_column(KEY, "id", name, branch=branch)


def constrain(lake: Lake, branch: str, name: str) -> None:
    lake.delta.add_constraint(KEY, name, "id > 0", branch=branch)


def add(lake: Lake, branch: str, name: str) -> None:
    lake.delta.add_columns(KEY, pa.schema([(name, pa.string())]), branch=branch)


@pytest.mark.parametrize(
    ("change", "name"), [(rename, "other"), (constrain, "positive"), (add, "NUMBER"), (add, "number")]
)
def test_a_new_name_is_a_conflict_where_the_other_side_needs_the_old_one_or_has_the_new_one(
    lake: Lake, change: Callable[[Lake, str, str], None], name: str
) -> None:
    create(lake, "name")
    dev = lake.branch("dev").create()
    change(lake, "dev", name)
    rename(lake, "main", "number")
    with pytest.raises(MergeConflict, match=r"changed the metadata \(schemaString\), as the other side does"):
        dev.merge_into("main")
    with pytest.raises(MergeConflict, match="changed the metadata"):
        lake.merge("main", "dev")


def test_names_that_columns_exchange_are_those_of_the_branch(lake: Lake) -> None:
    table = create(lake, "name")
    dev = lake.branch("dev").create()
    lake.delta.rename_column(KEY, "id", "number", branch="dev")
    lake.delta.add_columns(KEY, pa.schema([("id", pa.string())]), branch="dev")
    lake.delta.add_columns(KEY, pa.schema([("more", pa.string())]))
    table.append(rows(3))
    dev.merge_into("main")
    assert table.to_arrow().sort_by("number").select(["number", "id", "more"]).to_pylist() == [
        {"number": number, "id": None, "more": None} for number in (1, 2, 3)
    ]


def test_a_column_that_a_side_dropped_takes_no_rows_of_the_other_along(lake: Lake) -> None:
    create(lake, "name")
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(3))
    lake.delta.drop_column(KEY, "odd name")
    with pytest.raises(MergeConflict, match="changed the metadata"):
        dev.merge_into("main")


@pytest.mark.parametrize("mode", MODES)
def test_columns_that_two_branches_add_are_both_there(lake: Lake, duckdb: Any, mode: str) -> None:
    table = create(lake, mode)
    dev = lake.branch("dev").create()
    lake.delta.add_columns(KEY, pa.schema([("theirs", pa.int64())]), branch="dev")
    there = lake.table(KEY, "dev")
    there.append(rows(3).append_column("theirs", [[30]]))
    lake.delta.add_columns(KEY, pa.schema([("ours", pa.int64()), ("more", PART)]))
    table.append(rows(4).append_column("ours", [[40]]))
    dev.merge_into("main")
    there.append(rows(5).append_column("theirs", [[50]]))
    dev.merge_into("main")
    numbers = [one.metadata[ID] for one in table.snapshot().schema.walk()]
    assert len(set(numbers)) == len(numbers)
    assert int(table.properties[MAX_ID]) == max(numbers)
    found = {row["id"]: (row["ours"], row["theirs"]) for row in table.to_arrow().to_pylist()}
    assert found == {1: (None, None), 2: (None, None), 3: (None, 30), 4: (40, None), 5: (None, 50)}
    check_readers(table, duckdb)
    lake.delta.add_columns(KEY, pa.schema([("last", pa.int64())]))
    assert field(table, "last").metadata[ID] == max(numbers) + 1
    lake.merge("main", "dev")
    assert as_rows(there.to_arrow()) == as_rows(table.to_arrow())


def test_columns_that_rows_of_two_branches_bring_along_are_both_there(lake: Lake, duckdb: Any) -> None:
    table = create(lake, "id")
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append({"id": [3], "theirs": [30]}, merge_schema=True)
    table.append({"id": [4], "ours": ["x"]}, merge_schema=True)
    dev.merge_into("main")
    found = {row["id"]: (row["ours"], row["theirs"]) for row in table.to_arrow().to_pylist()}
    assert found == {1: (None, None), 2: (None, None), 3: (None, 30), 4: ("x", None)}
    check_readers(table, duckdb)


def add_as_others_do(table: LakeTable, name: str) -> None:
    """A column with the next id, as an engine gives it that knows nothing of other branches."""
    snapshot = table.snapshot()
    about = column_changes.add_columns(
        snapshot.metadata, StructType((Field(name=name, type="long", nullable=True),))
    )
    table.commit(snapshot.version + 1, [about])


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("way", ["force", "drop", "redo"])
def test_ids_that_other_engines_gave_twice_are_a_conflict_with_ways_out(
    lake: Lake, duckdb: Any, way: str, is_dropped: bool
) -> None:
    table = create(lake, "id")
    dev = lake.branch("dev").create()
    there = lake.table(KEY, "dev")
    add_as_others_do(there, "theirs")
    there.append(rows(3).append_column("theirs", [[30]]))
    if is_dropped:
        lake.delta.drop_column(KEY, "theirs", branch="dev")
    add_as_others_do(table, "ours")
    table.append(rows(4).append_column("ours", [[40]]))
    with pytest.raises(MergeConflict, match="both columns have the column mapping id 8"):
        dev.merge_into("main")
    if way == "redo":
        lake.rebase("dev", "main", keys={KEY: "drop"})
        lake.delta.add_columns(KEY, pa.schema([("theirs", pa.int64())]), branch="dev")
        there.append(rows(3).append_column("theirs", [[30]]))
        dev.merge_into("main")
        found = {row["id"]: (row["ours"], row["theirs"]) for row in table.to_arrow().to_pylist()}
        assert found == {1: (None, None), 2: (None, None), 3: (None, 30), 4: (40, None)}
    else:
        dev.merge_into("main", keys={KEY: way})
        assert ids(table) == ([1, 2, 3] if way == "force" else [1, 2, 4])
    check_readers(table, duckdb)


def test_the_first_id_of_a_copy_comes_after_those_of_all_branches(lake: Lake, tmp_path: Path) -> None:
    """A copy does not have the row that tells which ids were reserved."""
    create(lake, "id")
    lake.branch("dev").create()
    for number in range(3):
        add(lake, "dev", f"c{number}")
    lake.close()
    penstock.copy(tmp_path / "lake", tmp_path / "copy")
    with penstock.open(tmp_path / "copy") as copy:
        assert copy.do(ReserveColumnIds(key=Key.parse(KEY), count=1)).last == 11


def test_no_more_ids_are_reserved_at_once_than_a_table_can_spare(lake: Lake) -> None:
    create(lake, "name")
    for count in (-1, 100_001):
        with pytest.raises(InvalidRequest, match="count must be from 0 to 100000"):
            lake.do(ReserveColumnIds(key=Key.parse(KEY), count=count))


def test_a_branch_that_adds_a_column_is_merged_into_one_that_appended(lake: Lake) -> None:
    for mode in MODES:
        key = f"shop.{mode}"
        table = lake.delta.create(key, data=rows(1), properties={MODE: mode})
        dev = lake.branch(f"dev-{mode}").create()
        lake.delta.add_columns(key, pa.schema([("more", pa.int64())]), branch=dev.name)
        lake.table(key, dev.name).append(rows(2).append_column("more", [[20]]))
        table.append(rows(3))
        dev.merge_into("main")
        assert {row["id"]: row["more"] for row in table.to_arrow().to_pylist()} == {1: None, 2: 20, 3: None}
        assert table.properties[MAX_ID] == "8"


@pytest.mark.parametrize("mode", MODES)
def test_one_name_for_a_new_column_on_both_sides_is_a_conflict(lake: Lake, mode: str) -> None:
    create(lake, mode)
    dev = lake.branch("dev").create()
    add(lake, "dev", "same")
    add(lake, "main", "same")
    with pytest.raises(MergeConflict, match="changed the metadata"):
        dev.merge_into("main")


# -- what is refused ---------------------------------------------------------------------------------------


def test_what_cannot_be_renamed_or_dropped_is_told(lake: Lake) -> None:
    lake.delta.create("shop.plain", data=rows(1))
    with pytest.raises(InvalidRequest, match=r"'delta\.columnMapping\.mode'"):
        lake.delta.rename_column("shop.plain", "id", "number")
    checked = {"delta.constraints.positive": "id > 0", MODE: "name"}
    lake.delta.create(KEY, data=rows(1), properties=checked, cluster_by="odd name")
    lake.delta.create("shop.days", data=rows(1), properties={MODE: "name"}, partition_by="day")
    refused: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: lake.delta.rename_column(KEY, "id", "number"), "the constraint 'positive'"),
        (lambda: lake.delta.drop_column(KEY, "id"), "the constraint 'positive'"),
        (
            lambda: lake.delta.drop_column(KEY, "odd name"),
            "'odd name' cannot be dropped, because the table is clustered by it",
        ),
        (lambda: lake.delta.rename_column(KEY, "day", "PART"), "the table already has a column 'part'"),
        (lambda: lake.delta.rename_column(KEY, "none", "x"), "there is no column 'none'"),
        (lambda: lake.delta.rename_column("shop.days", "day", "date"), "'day' cannot be renamed"),
        (lambda: lake.delta.drop_column("shop.days", "day"), "'day' cannot be dropped"),
        (lambda: lake.delta.add_columns(KEY, pa.schema([("ID", pa.int64())])), "column 'id' already"),
    )
    for change, words in refused:
        with pytest.raises(InvalidRequest, match=words):
            change()
    assert lake.table(KEY).snapshot().clustering == ((stored_name(field(lake.table(KEY), "odd name")),),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({MODE: "id"}, "from 'name' to 'id'"),
        ({MODE: "both"}, "must be one of"),
        ({MODE: "none"}, "has a physical name"),
        ({MAX_ID: "3"}, "cannot decrease"),
    ],
)
def test_a_commit_that_breaks_the_mapping_is_refused(lake: Lake, change: dict[str, str], words: str) -> None:
    table = create(lake, "name")
    about = table.snapshot().metadata
    broken = msgspec.structs.replace(about, configuration={**about.configuration, **change})
    with pytest.raises(InvalidContent, match=words):
        table.commit(1, [broken])
    with pytest.raises(InvalidContent, match="the schema cannot be understood"):
        table.commit(1, [msgspec.structs.replace(about, schema_string="{}")])


def test_a_mode_that_there_is_none_of_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidContent, match="must be one of"):
        lake.delta.create(KEY, schema=SCHEMA, properties={MODE: "both"})


def test_columns_keep_their_physical_names_and_ids(lake: Lake) -> None:
    table = create(lake, "name")
    about = table.snapshot().metadata
    for old, new, words in (
        (stored_name(field(table, "id")), "other", "which cannot change"),
        (f'"{ID}":1,', f'"{ID}":5,', "which 'part' has|has the id 5"),
        (PHYSICAL_NAME, "no.name", "lacks"),
    ):
        broken = msgspec.structs.replace(about, schema_string=about.schema_string.replace(old, new))
        with pytest.raises(InvalidContent, match=words):
            table.commit(1, [broken])


def test_mapping_that_no_protocol_puts_in_force_is_told_before_a_table_is_taken_over(
    table: Table, lake: Lake
) -> None:
    schema = StructType((Field(name="id", type="long", nullable=True),))
    about: Metadata = metadata_for(schema, properties={MODE: "name"})
    table.commit(0, protocol(), about)
    with pytest.raises(UnsupportedFeature, match=r"unset 'delta\.columnMapping\.mode'"):
        lake.delta.adopt(table.root, KEY)


def test_a_schema_with_notes_makes_a_plain_table_without_them(lake: Lake) -> None:
    mapped = create(lake, "name")
    plain = lake.delta.create("shop.plain", schema=mapped.snapshot().schema)
    assert all(PHYSICAL_NAME not in one.metadata for one in plain.snapshot().schema.walk())
    plain.append(rows(1))
    assert ids(plain) == [1]


def test_a_version_whose_partition_columns_had_other_names_does_not_come_back(
    table: Table, lake: Lake
) -> None:
    """As another engine has renamed them before the table was adopted."""
    notes = ({ID: 1, PHYSICAL_NAME: "id"}, {ID: 2, PHYSICAL_NAME: "day"})
    features = protocol(reader=("columnMapping",))
    for version, name in enumerate(("day", "date")):
        schema = StructType(
            (
                Field(name="id", type="long", nullable=True, metadata=notes[0]),
                Field(name=name, type="string", nullable=True, metadata=notes[1]),
            )
        )
        about = metadata_for(schema, [name], {MODE: "name", MAX_ID: "2"})
        table.commit(version, *([features] if version == 0 else []), about)
    lake.delta.adopt(table.root, KEY)
    adopted = lake.table(KEY)
    adopted.append(pa.table({"id": [1], "date": ["mon"]}))
    with pytest.raises(
        MergeConflict, match="by the column 'day' at that version; the column is called 'date' now"
    ):
        adopted.restore(version=0)
    adopted.restore(version=1)
    assert adopted.to_arrow().num_rows == 0


# -- random histories --------------------------------------------------------------------------------------


class Model:
    """A table as plain values: rows by columns that stay what they are, whatever they are called."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.columns = {"id": 0, "day": 1}
        self.rows: list[dict[int, object]] = []

    def copy(self) -> Model:
        other = Model(self.dice)
        other.columns, other.rows = dict(self.columns), [*self.rows]
        return other

    def make(self, number: int) -> pa.Table:
        """Some rows with values in some columns; the model has them, too."""
        day = self.dice.choice(["mon", "tue"])
        row: dict[str, object] = {"id": number, "day": day}
        for name, key in self.columns.items():
            if key > 1 and self.dice.random() < 0.7:
                row[name] = number * 1000 + key
        self.rows.append({self.columns[name]: value for name, value in row.items()})
        return pa.Table.from_pylist([row])

    def shown(self) -> list[dict[str, object]]:
        made = ({name: row.get(key) for name, key in self.columns.items()} for row in self.rows)
        return sorted(made, key=lambda row: int(str(row["id"])))


EVERYTHING = frozenset({"append", "overwrite", "add", "rename", "drop"})
MERGING = EVERYTHING - {"overwrite", "drop"}
"""What may happen on both sides of a merge."""


def change(lake: Lake, model: Model, branch: str, number: int, kinds: frozenset[str] = EVERYTHING) -> None:
    """One random thing that happens to a branch."""
    dice, table = model.dice, lake.table(KEY, branch)
    own = [name for name, key in model.columns.items() if key > 1]
    match dice.choice(["append", *sorted(kinds)]):
        case "overwrite":
            rows = model.make(number)
            day = model.rows[-1][1]
            model.rows = [row for row in model.rows[:-1] if row[1] != day] + model.rows[-1:]
            table.overwrite(rows, partitions={"day": day})
        case "add":
            lake.delta.add_columns(KEY, pa.schema([(f"c{number}", pa.int64())]), branch=branch)
            model.columns[f"c{number}"] = number + 2
        case "rename" if own:
            old = dice.choice(own)
            lake.delta.rename_column(KEY, old, f"r{number}", branch=branch)
            renamed = {f"r{number}" if name == old else name: key for name, key in model.columns.items()}
            model.columns = renamed
        case "drop" if own:
            gone = dice.choice(own)
            lake.delta.drop_column(KEY, gone, branch=branch)
            del model.columns[gone]
        case _:
            table.append(model.make(number))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_random_histories_of_mapped_columns_are_those_of_plain_values(
    lake: Lake, duckdb: Any, mode: str, seed: int
) -> None:
    dice = Random(seed)
    model = Model(dice)
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    table = lake.delta.create(KEY, schema=schema, partition_by="day", properties={MODE: mode})
    for number in range(0, 60, 6):
        for step in range(2):
            change(lake, model, "main", number + step)
        name, base = f"dev{number}", model.copy()
        dev = lake.branch(name).create()
        theirs = model.copy()
        for step in range(2, 4):
            change(lake, theirs, name, number + step, MERGING)
        table.append(model.make(number + 4))
        change(lake, model, "main", number + 5, MERGING)
        names = {side: {key: one for one, key in side.columns.items()} for side in (base, theirs, model)}
        old, brought, kept = names[base], names[theirs], names[model]
        if any(old[key] not in (brought[key], kept[key]) for key in old):
            with pytest.raises(MergeConflict, match="changed the metadata"):
                dev.merge_into("main")
            continue
        dev.merge_into("main")
        model.rows += theirs.rows[len(base.rows) :]
        model.columns = {
            kept[key] if kept.get(key, one) != old.get(key, one) else one: key
            for key, one in (kept | brought).items()
        }
        found = sorted(table.to_arrow().to_pylist(), key=lambda row: int(row["id"]))
        assert found == model.shown()
    check_readers(table, duckdb)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_that_rows_bring_along_are_read_by_the_names_that_files_have(
    tmp_path: Path, mode: str
) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("t", data={"a": [1]}, properties={"delta.columnMapping.mode": mode})
        table.append({"a": [2], "b": [20]}, merge_schema=True)
        table.append({"a": [3], "c": ["x"]}, merge_schema=True)
        rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["a"])
    assert rows == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": 20, "c": None},
        {"a": 3, "b": None, "c": "x"},
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("column", ["odd name", ["part", "x"]])
def test_a_dropped_column_comes_back_with_its_values_or_not_at_all(
    lake: Lake, mode: str, column: str | list[str]
) -> None:
    table = create(lake, mode)
    before = as_rows(table.to_arrow())
    lake.delta.drop_column(KEY, column)
    dropped = lake.branch().head
    table.append(table.to_arrow().slice(0, 1))  # a row that has no value of it
    lake.revert(dropped)
    assert [row for row in as_rows(table.to_arrow()) if row in before] == before
    lake.delta.drop_column(KEY, column)
    dropped = lake.branch().head
    table.update({"day": "'tue'"}, "id = 2")
    with pytest.raises(MergeConflict, match="written anew since, without their values of"):
        lake.revert(dropped)
    lake.revert(lake.branch().head)
    lake.revert(dropped)
    assert [row for row in as_rows(table.to_arrow()) if row in before] == before
