"""Processes that are killed while they change rows or compact files: what they left, and what comes after."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.protocol.column_rules import IDENTITY_START, IDENTITY_STEP
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.table import Table
from penstock.storage.places import Place
from tests.row_changes.statements import SCHEMA, Program, as_table, counted
from tests.sweep.tables import LateClock, data_files

SOURCE = [
    {"id": 1, "day": "b", "amount": 1.5, "name": "m"},
    {"id": 900, "day": "a", "amount": 2.5, "name": "m"},
]
COLUMNS = {"id": "long", "day": "string", "amount": "double", "name": "string"}


def change(table: Table, how: str) -> None:
    if how == "optimize":
        table.optimize()
    else:
        merge = table.merge(as_table(SOURCE), on=["id"])
        merge.when_matched_update_all().when_not_matched_insert_all().commit()


def die(place: str, how: str, step: int) -> None:
    """Change a table, and die at a step: at each file that is written, before the commit and after it."""
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps > step:
            os.kill(os.getpid(), signal.SIGKILL)

    create, commit = Place.create, DeltaJob.commit_actions

    def counted_create(self: Place, name: str, data: bytes) -> bool:
        if name.endswith((".parquet", ".bin")):
            count()
        return create(self, name, data)

    def counted_commit(self: DeltaJob, actions: Any, **options: Any) -> Any:
        count()
        landed = commit(self, actions, **options)
        count()
        return landed

    Place.create = counted_create  # type: ignore[method-assign]
    DeltaJob.commit_actions = counted_commit  # type: ignore[method-assign]
    with penstock.open(place) as lake:
        change(lake.table("t"), how)


def kill_at(place: Path, how: str, step: int) -> bool:
    """Change a table in a process that dies at a step; whether it did."""
    process = multiprocessing.get_context("spawn").Process(target=die, args=(str(place), how, step))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def named_files(table: Table) -> set[str]:
    """The data files that versions of a table name, by its published log."""
    table.backfill_to_version()
    lines = [
        json.loads(line)
        for log in Path(table.location, "_delta_log").glob("*.json")
        for line in log.read_text().splitlines()
    ]
    return {action["path"] for line in lines for kind, action in line.items() if kind in ("add", "cdc")}


@pytest.mark.verify
@pytest.mark.parametrize("how", ["optimize", "merge"])
def test_a_process_that_dies_at_any_step_leaves_all_rows_or_the_change(tmp_path: Path, how: str) -> None:
    place = tmp_path / "lake"
    with penstock.open(place, author="tester") as lake:
        properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
        lake.delta.create("t", schema=SCHEMA, partition_by=["day"], properties=properties)
        program = Program(Random(2))
        for _ in range(4):
            program.append(lake.table("t"))
    before = counted(program.rows)
    merged = [row for row in program.rows if row["id"] not in (1, 900)] + SOURCE
    after = before if how == "optimize" else counted(merged)
    step = 0
    while kill_at(place, how, step):
        with penstock.open(place, author="tester") as lake:
            assert counted(lake.table("t").to_arrow().to_pylist()) in (before, after)
        step += 1
    assert step > 2  # at least a file, and before and after the commit
    with penstock.open(place, author="tester", clock=LateClock(days=8)) as lake:
        table = lake.table("t")
        change(table, how)
        assert counted(table.to_arrow().to_pylist()) == after
        named = named_files(table)
        assert data_files(Path(table.location)) > named
        lake.sweep_tables(remove_data=True)
        assert data_files(Path(table.location)) == named
        assert counted(table.to_arrow().to_pylist()) == after


def test_numbers_of_a_process_that_dies_before_its_commit_are_never_given_again(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    notes = {IDENTITY_START: 1, IDENTITY_STEP: 1}
    number = Field(name="number", type="long", nullable=True, metadata=notes)
    with penstock.open(place, author="tester") as lake:
        columns = tuple(Field(name=name, type=kind, nullable=True) for name, kind in COLUMNS.items())
        table = lake.delta.create("t", schema=StructType((*columns, number)))
        table.append(as_table([{**SOURCE[0], "id": 5}]))
    assert kill_at(place, "merge", 1)  # its file is there, and the commit begins
    with penstock.open(place, author="tester") as lake:
        assert lake.table("t").to_arrow()["id"].to_pylist() == [5]
        change(lake.table("t"), "merge")
        rows = lake.table("t").to_arrow().to_pylist()
    assert {row["id"]: row["number"] for row in rows} == {5: 1, 1: 4, 900: 5}
