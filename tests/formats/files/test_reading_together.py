"""Whether files of two layouts can be read as one table, and how."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.formats.files.files import FilesLayout
from penstock.formats.files.layouts import find_difference, unite_layouts

A_B = {"a": "long", "b": "string"}


def layout(
    name: str = "parquet", columns: dict[str, Any] | None = None, by: tuple[str, ...] = (), **options: str
) -> FilesLayout:
    told = {"nullable": True, "metadata": {}}
    fields = [{"name": one, "type": kind, **told} for one, kind in (columns or {}).items()]
    schema = json.dumps({"type": "struct", "fields": fields}) if columns is not None else ""
    return FilesLayout(format=name, partition_by=by, schema=schema, options=options)


def array(of: str, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": nulls}


APART = {
    "formats": (layout(columns=A_B), layout("csv", A_B)),
    "partition columns": (layout(by=("a",)), layout(by=("b",))),
    "order of csv": (layout("csv", A_B), layout("csv", {"b": "string", "a": "long"})),
    "columns of csv": (layout("csv", A_B), layout("csv", {"a": "long"})),
    "header": (layout("csv", A_B), layout("csv", A_B, header="true")),
    "separator": (layout("csv", A_B, sep=";"), layout("csv", A_B, delimiter="|")),
    "days in json": (layout("json", A_B), layout("json", A_B, dateFormat="yyyy")),
    "type": (layout(columns=A_B), layout(columns={"a": "string"})),
    "spelling": (layout(columns=A_B), layout(columns={"A": "long"})),
    "type inside": (layout(columns={"a": array("long")}), layout(columns={"a": array("string")})),
}
TOGETHER = {
    "nothing known": (FilesLayout(), layout(columns=A_B)),
    "no columns known": (layout(), layout(columns=A_B)),
    "columns of somebody else": (FilesLayout(format="parquet", schema="not Spark's"), layout(columns=A_B)),
    "more columns": (layout(columns=A_B), layout(columns={"b": "string", "c": "long"})),
    "header by default": (layout("csv", A_B, header="False"), layout("csv", A_B)),
    "defaults": (layout("csv", A_B, delimiter=",", charset="UTF-8"), layout("csv", A_B)),
    "names": (layout("csv", A_B, delimiter="|", HEADER="true"), layout("csv", A_B, sep="|", header="TRUE")),
    "options of no meaning": (layout(columns=A_B), layout(columns=A_B, header="true")),
    "nulls": (layout(columns={"a": array("long")}), layout(columns={"a": array("long", nulls=False)})),
    "in the path": (layout("csv", {**A_B, "p": "date"}, by=("p",)), layout("csv", A_B, by=("p",))),
}


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=APART)
def test_files_that_would_be_read_otherwise_than_they_were_written_do_not_meet(
    one: FilesLayout, other: FilesLayout
) -> None:
    assert find_difference(one, other) is not None
    assert find_difference(other, one) is not None


@pytest.mark.parametrize(("one", "other"), TOGETHER.values(), ids=TOGETHER)
def test_others_do(one: FilesLayout, other: FilesLayout) -> None:
    assert find_difference(one, other) is None
    assert find_difference(other, one) is None


def test_together_they_have_the_columns_of_both_those_that_were_there_first() -> None:
    first, second = layout(columns=A_B), layout(columns={"c": "date", "b": "string"})
    assert [one["name"] for one in json.loads(unite_layouts(first, second).schema)["fields"]] == [
        "a",
        "b",
        "c",
    ]
    assert unite_layouts(first, layout(columns={"b": "string"})) == first
    assert unite_layouts(first, layout()) == first
    assert unite_layouts(FilesLayout(), second) == second
