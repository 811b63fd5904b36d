"""What somebody reads of a lake, and tries to write, who may only read it.

    python -m tests.lake.reading_program WHAT PLACE COPY

Tests may run as the administrator, who may everything. Then all is done with a copy first, so that everything
is loaded, and after that as a user who owns nothing, and could not load it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.errors import PenstockError
from penstock.lake.lake import Lake

NOBODY = 65534
ROWS = pa.table({"id": [9]})
KEYS = ("a.delta", "a.lance", "a.files")

WRITES: dict[str, Callable[[Lake], Any]] = {
    "append": lambda lake: lake.table("a.delta").append(ROWS),
    "overwrite": lambda lake: lake.table("a.delta").overwrite(ROWS),
    "delete rows": lambda lake: lake.table("a.delta").delete("id = 1"),
    "update rows": lambda lake: lake.table("a.delta").update({"id": "5"}, where="id = 1"),
    "optimize": lambda lake: lake.table("a.delta").optimize(),
    "delete rows of lance": lambda lake: lake.table("a.lance").delete("id = 1"),
    "append to lance": lambda lake: lake.table("a.lance").append(ROWS),
    "append files": lambda lake: lake.table("a.files").write(ROWS),
    "put a file": lambda lake: lake.table("a.raw").files.put("y.txt", b"1"),
    "create": lambda lake: lake.create_table("a.new", data=ROWS),
    "write lance": lambda lake: lake.table("a.new2").write(ROWS, format="lance"),
    "branch": lambda lake: lake.branch("new").create(),
    "put": lambda lake: lake.branch().put("a.i", penstock.IcebergTable(metadata_location="s3://b/x")),
    "merge": lambda lake: lake.merge("dev"),
    "transaction": lambda lake: lake.transaction(),
    "sweep": lambda lake: lake.sweep(),
    "token": lambda lake: lake.create_token("x", "read"),
}

COMMANDS = (
    ["tables"], ["log"], ["branch"], ["show", "main"], ["diff", "main", "dev"], ["reflog"], ["jobs"], ["tx"],
    ["delta", "status"], ["delta", "log", "a.delta"], ["delta", "log", "a.delta", "--ref", "dev"],
    ["delta", "cat", "a.delta"], ["lance", "list"], ["files", "ls", "a.raw"], ["files", "cat", "a.raw/x.txt"],
    ["sql", "select count(*) from a.delta"], ["diff", "main", "dev", "--rows", "a.delta"],
    ["fsck"], ["doctor"], ["merge", "dev", "--dry-run"], ["branch", "create", "newer"],
)  # fmt: skip


def api(place: str) -> dict[str, Any]:
    """What Python says."""
    with penstock.open(place) as lake:
        said: dict[str, Any] = {
            "main": [lake.table(key).to_arrow().num_rows for key in KEYS],
            "dev": [lake.table(key, "dev").to_arrow().num_rows for key in KEYS],
            "file": lake.table("a.raw").files.read("x.txt").decode(),
            "tables": [str(one.key) for one in lake.tables()],
            "log": len(lake.log()) > 4,
            "diff": len(lake.diff("main", "dev")),
            "history": [(one.version, one.is_published) for one in lake.table("a.delta").history()],
            "dry run": len(lake.merge("dev", dry_run=True).keys),
            "damages": len(lake.fsck().damages),
            "sweep": lake.sweep(dry_run=True).removed,
            "status": [one.latest_version - one.published for one in lake.delta.status()],
            "count": [lake.table(key).count() for key in KEYS],
            "sql": [lake.sql(f"select max(id) from {key}").fetchall()[0][0] for key in KEYS],
            "rows that differ": lake.diff_rows("a.delta", "main", "dev").added.num_rows,
            "direct": lake.table("a.lance").to_lance().count_rows(),
        }
        said["writes"] = {name: _code(lambda: write(lake)) for name, write in WRITES.items()}  # noqa: B023
    return said


def _code(write: Callable[[], Any]) -> str:
    try:
        write()
    except PenstockError as error:
        return error.code
    return "done"


def commands(place: str) -> dict[str, Any]:
    """What the command line says."""
    said = {}
    for command in COMMANDS:
        ran = CliRunner().invoke(root, ["--lake", place, *command])
        said[" ".join(command)] = [ran.exit_code, ran.stdout + ran.stderr]
    return said


def follow(place: str) -> dict[str, Any]:
    """Say what is there whenever a line comes, with the same lake open all the time."""
    if os.getuid() == 0:
        return commands(place)
    with penstock.open(place) as lake:
        print("ready", flush=True)
        for _ in sys.stdin:
            print(len(lake.log()), lake.branch().head, flush=True)
    return {}


def opening(place: str) -> dict[str, Any]:
    """Why it cannot be opened."""
    try:
        penstock.open(place).close()
    except PenstockError as error:
        return {"code": error.code, "message": error.message}
    return {}


if __name__ == "__main__":
    do = {"api": api, "commands": commands, "follow": follow, "opening": opening}[sys.argv[1]]
    if os.getuid() == 0:
        do(sys.argv[3])
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    print(json.dumps(do(sys.argv[2])))
