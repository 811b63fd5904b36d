"""What requests need is imported before the server says that it serves: no request waits for that."""

from __future__ import annotations

import io
import re
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.server.library_preload import import_libraries
from penstock.server.logs import Log, LogLevel
from penstock.server.native import NATIVE
from penstock.server.run import load_apis
from tests.lance.rest.talking import Talk, some_rows
from tests.server.running import Program, program

ROWS = pa.table({"id": [1, 2, 3]})
LINE = re.compile(r"^import time:.*\|\s*([\w.]+)$", re.MULTILINE)


def imported(server: Program) -> list[str]:
    """Modules of other people that all processes of a server have imported until now."""
    names = [name for name in LINE.findall(server.log) if name.partition(".")[0] not in _OTHERS]
    assert names, "the server does not tell what it imports"
    return names


def row_processes(server: Program) -> set[int]:
    """The processes that work on rows, of all processes that serve."""
    found, looked_at = set[int](), [server.process.pid]
    for pid in looked_at:
        for task in Path(f"/proc/{pid}/task").iterdir():
            children = [int(one) for one in (task / "children").read_text().split()]
            looked_at += [one for one in children if b"penstock.server.worker" in cmdline(one)]
            found.update(one for one in children if b"penstock.processes" in cmdline(one))
    return found


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


_OTHERS = {*sys.stdlib_module_names, "penstock"}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.verify)])
def test_the_first_request_of_each_api_imports_no_library(tmp_path: Path, workers: int) -> None:
    told = {"PYTHONPROFILEIMPORTTIME": "1"}
    with program(tmp_path, "--workers", str(workers), environment=told) as server:
        before = imported(server)
        assert {"lance_namespace.errors", "pyarrow.lib", "_duckdb"} <= set(before)
        processes = row_processes(server)
        assert len(processes) == workers
        assert server.get("/api/v2/config").status == 200
        lance = Talk(server, "/lance")
        for _ in range(workers * 4):  # whichever worker answers
            lance("/namespace/ws/create", {"mode": "exist_ok"})
            assert lance("/table/ws$t/create?mode=overwrite", some_rows(1, 2)).status == 200
            assert lance("/table/ws$t/count_rows", {}).body == 2
        with penstock.open(server.url) as lake:
            table = lake.create_table("d", schema=ROWS.schema)
            table.append(ROWS)
            lake.expect("small", "select * from d where id > 9")
            table.append(ROWS)
        assert imported(server) == before
        assert row_processes(server) == processes


def test_what_is_not_installed_is_left_out_and_what_is_broken_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_library.py").write_text("raise RuntimeError('built for another processor')")
    monkeypatch.syspath_prepend(tmp_path)
    api = msgspec.structs.replace(NATIVE, imports=("absent_library.part", "broken_library", "json.tool"))
    said = io.BytesIO()
    import_libraries([api], Log(said, LogLevel.INFO))
    (line,) = said.getvalue().decode().splitlines()
    assert "broken_library is installed, but cannot be imported: RuntimeError('built for" in line
    assert "json.tool" in sys.modules


def test_all_that_apis_name_is_there_with_all_extras() -> None:
    for name in {name for api in load_apis() for name in api.imports}:
        import_module(name)
