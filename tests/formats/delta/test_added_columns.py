"""Columns that were added while others wrote: branches, transactions and repeated commits still land."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable as ForeignTable

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.added_columns import merge_metadata, missing_columns, only_adds_columns
from penstock.formats.rows.schema import Field, StructType, parse_schema, write_schema
from tests.formats.delta.sides import KEY, Side, create

NOTE = Field(name="note", type="string", nullable=True)
PRICE = Field(name="price", type="double", nullable=True)
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        yield lake


def rows(*ids: int, **columns: Any) -> pa.Table:
    """Rows of Wednesday, with a value in each of some columns."""
    told = {name: [value] * len(ids) for name, value in columns.items()}
    return pa.table({"id": list(ids), "day": ["wed"] * len(ids), **told})


def columns(lake: Lake, ref: str = "main") -> list[str]:
    return [field.name for field in lake.table(KEY, ref).schema.fields]


def values(lake: Lake, column: str, ref: str = "main") -> dict[int, Any]:
    read = lake.table(KEY, ref).to_arrow(columns=["id", column]).to_pylist()
    return {row["id"]: row[column] for row in read}


def foreign_values(lake: Lake, column: str) -> dict[int, Any]:
    lake.table(KEY).backfill_to_version()
    read = pa.table(ForeignTable(lake.table(KEY).location).scan()).to_pylist()
    return {row["id"]: row[column] for row in read}


# --- a branch that knows nothing of a new column ------------------------------------------------------------


@pytest.mark.parametrize("how", ["merge", "merge back", "transplant", "rebase"])
@pytest.mark.parametrize("work", ["append", "delete", "overwrite", "all"])
def test_a_branch_lands_after_the_target_got_a_column(lake: Lake, how: str, work: str) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    works: dict[str, Callable[[], object]] = {
        "append": lambda: dev.append(7),
        "delete": lambda: dev.delete(1),
        "overwrite": lambda: dev.overwrite(8, day="tue"),
    }
    for name, do in works.items():
        if work in (name, "all"):
            do()
    main.add_column("note")
    main.table.append(rows(20, note="new"))
    expected = sorted({*dev.ids(), 20})
    if how == "merge":
        dev.merge()
    elif how == "merge back":
        lake.merge("main", "dev")
        lake.merge("dev")
    elif how == "transplant":
        lake.transplant("dev")
    else:
        lake.rebase("dev")
        lake.merge("dev")
    if how == "transplant" and work == "all":
        expected = main.ids()  # the last commit of the branch alone
    assert main.ids() == expected
    assert columns(lake) == ["id", "day", "note"]
    assert values(lake, "note") == foreign_values(lake, "note")
    assert {one for one, note in values(lake, "note").items() if note is not None} == {20}


def test_a_branch_goes_on_after_the_target_got_a_column_as_often_as_it_likes(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    for number in range(3):
        main.add_column(f"c{number}")
        main.table.append(rows(20 + number, **{f"c{number}": "m"}))
        dev.append(30 + number)
        dev.merge()
    assert columns(lake) == ["id", "day", "c0", "c1", "c2"]
    assert columns(lake, "dev") == ["id", "day"]
    lake.merge("main", "dev")
    assert columns(lake, "dev") == ["id", "day", "c0", "c1", "c2"]
    assert values(lake, "c1", "dev") == values(lake, "c1") == foreign_values(lake, "c1")
    assert sorted(values(lake, "c1")) == [1, 2, 3, 4, 5, 6, 20, 21, 22, 30, 31, 32]


def test_change_data_of_a_branch_lands_after_the_target_got_a_column(lake: Lake) -> None:
    main = create(lake, properties=FEED)
    dev = Side(lake, "dev")
    dev.delete(1, feed=True)
    main.add_column("note")
    dev.merge()
    assert main.ids() == [2, 3, 4, 5, 6]
    lake.table(KEY).backfill_to_version()
    feed = pa.table(ForeignTable(main.table.location).load_cdf(starting_version=main.table.version))
    assert feed.select(["id", "_change_type"]).to_pylist() == [{"id": 1, "_change_type": "delete"}]


def test_a_transaction_that_appended_lands_after_the_target_got_a_column(lake: Lake) -> None:
    main = create(lake)
    with lake.transaction() as tx:
        tx.table(KEY).append(rows(7))
        main.add_column("note")
        main.table.append(rows(20, note="new"))
    assert values(lake, "note") == foreign_values(lake, "note")
    assert (values(lake, "note")[7], values(lake, "note")[20]) == (None, "new")


# --- columns on both sides ----------------------------------------------------------------------------------


@pytest.mark.parametrize("into", ["main", "dev"])
def test_a_column_that_both_sides_added_is_one_column(lake: Lake, into: str) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    main.add_column("note")
    main.table.append(rows(20, note="m"))
    dev.add_column("note")
    dev.table.append(rows(30, note="d"))
    lake.merge("dev" if into == "main" else "main", into)
    assert columns(lake, into) == ["id", "day", "note"]
    found = values(lake, "note", into)
    assert (found[1], found[20], found[30]) == (None, "m", "d")
    lake.merge("dev")
    assert foreign_values(lake, "note") == found


def test_columns_of_both_sides_come_together_in_the_order_of_the_target(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    main.add_column("a")
    main.add_column("b")
    main.table.append(rows(20, a="ma", b="mb"))
    dev.add_column("b")
    dev.add_column("c")
    dev.table.append(rows(30, b="db", c="dc"))
    dev.merge()
    assert columns(lake) == ["id", "day", "a", "b", "c"]
    for name in "abc":
        assert values(lake, name) == foreign_values(lake, name)
    assert [values(lake, name)[30] for name in "abc"] == [None, "db", "dc"]
    dev.table.append(rows(31, b="db", c="dc"))
    main.table.append(rows(21, a="ma", c="mc"))
    dev.merge()
    lake.merge("main", "dev")
    assert columns(lake, "dev") == ["id", "day", "a", "b", "c"]
    assert [values(lake, name, "dev")[21] for name in "abc"] == ["ma", None, "mc"]


def test_columns_that_need_a_feature_come_together(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    main.add_column("at", "timestamp_ntz")
    dev.add_column("at", "timestamp_ntz")
    dev.append(7)
    dev.merge()
    assert main.ids() == [1, 2, 3, 4, 5, 6, 7]
    assert "timestampNtz" in (main.table.snapshot().protocol.writer_features or ())


@pytest.mark.parametrize("others", ["long", "string"])
def test_columns_of_one_name_that_are_not_the_same_are_a_conflict(lake: Lake, others: str) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    main.add_column("note")
    dev.add_column("note" if others == "long" else "Note", others)
    before = lake.branch().head
    with pytest.raises(MergeConflict, match=r"changed the metadata \(schemaString\), as the other side does"):
        dev.merge()
    assert lake.branch().head == before


def test_a_column_that_was_taken_back_on_a_branch_is_not_brought(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.add_column("note")
    lake.revert("dev", "dev")
    dev.append(7)
    main.add_column("price", "double")
    dev.merge()
    assert columns(lake) == ["id", "day", "price"]
    assert main.ids() == [1, 2, 3, 4, 5, 6, 7]


# --- commits that are repeated without the one that added a column ------------------------------------------


def test_a_commit_is_not_repeated_without_the_one_that_added_its_columns(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.add_column("note")
    dev.table.append(rows(30, note="d"))
    before = lake.branch().head
    with pytest.raises(MergeConflict, match="lacks columns of the rows to be merged: 'note'"):
        lake.transplant("dev", "main")
    assert lake.branch().head == before
    lake.transplant("dev~2..dev", "main")
    assert values(lake, "note")[30] == "d"
    assert main.ids() == [1, 2, 3, 4, 5, 6, 30]


def test_a_commit_is_repeated_where_its_columns_were_added_too(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.add_column("note")
    dev.table.append(rows(30, note="d"))
    main.add_column("price", "double")
    main.add_column("note")
    lake.transplant("dev", "main")
    assert columns(lake) == ["id", "day", "price", "note"]
    assert values(lake, "note")[30] == foreign_values(lake, "note")[30] == "d"


# --- what only adds -----------------------------------------------------------------------------------------


def schema(*fields: Field) -> str:
    return write_schema(StructType((Field(name="id", type="long", nullable=False), *fields)))


def struct(name: str, *fields: Field, **how: Any) -> Field:
    return Field(name=name, type=StructType(fields), nullable=True, **how)


def array(name: str, *fields: Field) -> str:
    inner = parse_schema(schema(*fields))
    kind = {"type": "array", "elementType": msgspec.to_builtins(inner), "containsNull": True}
    return msgspec.json.encode(
        {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]}
    ).decode()


def with_note(field: Field, **notes: Any) -> Field:
    return msgspec.structs.replace(field, metadata=notes)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (schema(), schema(), True),
        (schema(), schema(NOTE), True),
        (schema(NOTE), schema(), False),
        (schema(NOTE), schema(PRICE, NOTE), True),
        (schema(), schema(msgspec.structs.replace(NOTE, nullable=False)), False),
        (schema(), schema(with_note(NOTE, comment="for people")), True),
        (schema(NOTE), schema(with_note(NOTE, comment="for people")), True),
        (schema(), schema(with_note(NOTE, CURRENT_DEFAULT="'x'")), False),
        (schema(), schema(with_note(NOTE, **{"delta.generationExpression": "id"})), False),
        (schema(), schema(struct("s", with_note(NOTE, **{"delta.invariants": "{}"}))), False),
        (schema(NOTE), schema(msgspec.structs.replace(NOTE, type="long")), False),
        (schema(struct("s", NOTE)), schema(struct("s", NOTE, PRICE)), True),
        (schema(struct("s", NOTE)), schema(struct("s", PRICE)), False),
        (array("a", NOTE), array("a", NOTE, PRICE), True),
        (array("a", NOTE), array("a"), False),
    ],
)
def test_a_schema_only_adds_columns(before: str, after: str, expected: bool) -> None:
    assert only_adds_columns(before, after) is expected


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((NOTE,), (PRICE,), (NOTE, PRICE)),
        ((NOTE, PRICE), (PRICE, NOTE), (NOTE, PRICE)),
        ((struct("s", NOTE),), (struct("s", PRICE),), (struct("s", NOTE, PRICE),)),
        ((with_note(NOTE, comment="a"),), (with_note(NOTE, comment="b"),), (with_note(NOTE, comment="a"),)),
        ((with_note(NOTE, x="a"),), (with_note(NOTE, x="b"),), None),
        ((NOTE,), (msgspec.structs.replace(NOTE, type="long"),), None),
        ((NOTE,), (msgspec.structs.replace(NOTE, name="NOTE"),), None),
    ],
)
def test_columns_of_two_sides_unite(
    ours: tuple[Field, ...], theirs: tuple[Field, ...], expected: tuple[Field, ...] | None
) -> None:
    before, one, other = (
        Metadata(id="t", schema_string=schema(*fields), partition_columns=()) for fields in ((), ours, theirs)
    )
    united = merge_metadata(before, one, other)
    assert (None if united is None else parse_schema(united.schema_string).fields[1:]) == expected
    changed = msgspec.structs.replace(other, configuration={"owner": "me"})
    both = merge_metadata(before, one, changed)
    assert (both is None) == (expected is None)
    assert both is None or both.configuration == {"owner": "me"}
    ours_too = msgspec.structs.replace(one, configuration={"owner": "you"})
    assert merge_metadata(before, ours_too, changed) is None


def test_missing_columns_are_told_by_name() -> None:
    assert missing_columns(schema(NOTE), schema(NOTE, PRICE)) == ("price",)
    assert missing_columns(schema(NOTE), schema(msgspec.structs.replace(NOTE, type="long"))) == ("note",)


@pytest.mark.parametrize("bring", ["rebase", "transplant"])
def test_two_commits_that_a_merge_of_rows_overtook_are_a_conflict_and_not_tried_for_ever(
    lake: Lake, bring: str
) -> None:
    """What was looked up for the second one counts, although the first one has another name by then."""
    create(lake)
    lake.table(KEY, "dev").append(rows(7))
    lake.table(KEY, "dev").update({"day": "'tue'"}, "id = 7")
    lake.delta.add_columns(KEY, pa.schema([("note", pa.string())]))
    merge = lake.table(KEY).merge(rows(9), on=["id"]).when_matched_update({"day": "source.day"})
    merge.when_not_matched_insert({"id": "source.id", "day": "source.day"}).commit()
    repeat = partial(lake.rebase, "dev") if bring == "rebase" else partial(lake.transplant, "dev~2..dev")
    with pytest.raises(MergeConflict):
        repeat()
