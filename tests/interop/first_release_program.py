"""Makes and reads a lake, by whichever Penstock it finds: the first release, or this one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from penstock import errors

NOT_NULL = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.float64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "amount": [float(one) for one in ids]}, schema=NOT_NULL)


def make(place: str) -> None:
    """A lake with tables of all formats, a branch that wrote to each, a tag, and rules."""
    with penstock.open(place, author="ada") as lake:
        lake.create_table("a.delta", data=rows(1, 2))
        lake.table("a.lance").write(rows(1, 2), format="lance")
        lake.table("a.files").files.put("one.csv", b"1")
        lake.tag("first").create(at="main")
        lake.branch("dev").create(at="main")
        append(lake, "dev", 10)
        lake.keep_history(max_commits=50)
        lake.branch("kept").create(at="main")
    finish(place)


def finish(place: str) -> None:
    """Have all that was written published and promoted."""
    with penstock.open(place) as lake:
        lake.table("a.delta").backfill_to_version()


def append(lake: Any, branch: str, number: int) -> None:
    lake.table("a.delta", branch).append(rows(number))
    lake.table("a.lance", branch).append(rows(number))
    lake.table("a.files", branch).files.put(f"{number}.csv", str(number).encode())


def write(place: str) -> None:
    with penstock.open(place, author="ada") as lake:
        append(lake, "main", 20)


def look(place: str) -> dict[str, Any]:
    """What is on each branch and tag; or the error that says why that cannot be told."""
    try:
        with penstock.open(place) as lake:
            return {name: _state(lake, name) for name in ("main", "dev", "kept", "first")}
    except errors.PenstockError as problem:
        return {"error": problem.code, "message": problem.message}


def _state(lake: Any, ref: str) -> list[list[Any]]:
    at = lake.at(ref)
    delta, of_lance = at.table("a.delta").to_arrow(), at.table("a.lance").to_lance().to_table()
    names = [file.path for file in at.table("a.files").files.list()]
    return [sorted(delta["id"].to_pylist()), sorted(of_lance["id"].to_pylist()), sorted(names)]


if __name__ == "__main__":
    step, lake_place, answers = sys.argv[1:]
    Path(answers).write_text(json.dumps({"make": make, "write": write, "look": look}[step](lake_place)))
