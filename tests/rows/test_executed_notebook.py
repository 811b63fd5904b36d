"""A notebook that is executed by a kernel: what its cells show of a lake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.rows.test_notebook import check_html

pytestmark = pytest.mark.verify

CELL_TIMEOUT_S = 120
SETUP = """
import penstock
from penstock.errors import MergeConflict

lake = penstock.open("lake", create=True, author="ada")
lake.table("sales.orders").write({"id": [1, 2], "item": ["<b>pen</b>", "ink"]}, message="first load")
lake.branch("dev").create()
lake.table("sales.orders", "dev").append({"id": [3], "item": ["paper"]}, message="more orders")
lake.table("sales.new", "dev").write({"id": [1]})
lake.table("sales.new").write({"id": [2]})
tx = lake.transaction("main", message="nightly")
tx.table("sales.totals").write({"total": [3.5]});
"""
CONFLICT = """
try:
    lake.merge("dev")
except MergeConflict as conflict:
    refused = conflict
refused
"""
CELLS = {
    "lake": ("lake", ("Lake", "dev, main", "sales.orders", "delta")),
    "branch": ('lake.branch("dev")', ("Branch dev", "ada", "create sales.new", "sales.orders")),
    "log": ('lake.log("dev")', ("Log", "● ", "ada", "first load", "more orders")),
    "diff": ('lake.diff("main", "dev")', ("Diff", "2 differences", "~", "sales.orders")),
    "table": (
        'lake.table("sales.orders")',
        ("Table sales.orders at main", "id", "int64", "<b>pen</b>", "ink", "2 rows"),
    ),
    "snapshot": ('lake.at("dev")', ("Lake at ", "sales.new", "sales.orders")),
    "version": ('lake.table("sales.orders", "dev").snapshot()', ("paper", "3 rows")),
    "rows": ('lake.diff_rows("sales.orders", "main", "dev")', ("1 added, 0 removed", "paper", "insert")),
    "transaction": ("tx", ("Transaction ", "target", "main", "sales.totals")),
    "merge preview": ('lake.merge("dev", dry_run=True)', ("'sales.new'", "sales.orders")),
    "conflict": (CONFLICT, ("MergeConflict: cannot merge: 1 conflict", "sales.new")),
}
"""By what is shown: the code of a cell, and what a reader finds in its output."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What each cell shows, by MIME type, after a kernel of its own has executed the notebook."""
    import nbformat
    from nbclient import NotebookClient

    directory = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    notebook.cells = [
        nbformat.v4.new_code_cell(code)  # type: ignore[no-untyped-call]
        for code in (SETUP, *(code for code, _ in CELLS.values()))
    ]
    executed = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": directory}}
    ).execute()
    nbformat.validate(executed)
    assert Path(directory, "lake").is_dir()
    assert executed.cells[0].outputs == []
    outputs = {}
    for name, cell in zip(CELLS, executed.cells[1:], strict=True):
        (output,) = (output for output in cell.outputs if output.output_type == "execute_result")
        outputs[name] = output.data
    return outputs


LONG_WORK = """
from penstock.lake import notebook_progress

notebook_progress.SHOWN_AFTER_S = notebook_progress.REDRAW_S = 0.0
lake.table("sales.orders").append({"id": [4], "item": ["<i>cap</i>"]})
lake.table("sales.orders").delete("id = 1")
lake.table("hr.people").write({"id": [1, 2]}, mode="append")
lake.table("hr.people").delete("id = 1")
done = {
    "sweep": lambda: lake.sweep(),
    "fsck": lambda: lake.fsck(),
    "rows": lambda: lake.diff_rows("sales.orders", "main", "dev"),
    "optimize": lambda: lake.table("sales.orders").optimize(),
    "erase": lambda: lake.erase("hr.people"),
    "backup": lambda: penstock.backup("lake", "backups", data=True),
    "told otherwise": lambda: lake.fsck(lambda what, count: None),
}[name]();
"""


@pytest.fixture(scope="module")
def shown_meanwhile(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Any]]:
    """What cells with long work show one after the other, until it has ended."""
    import nbformat
    from nbclient import NotebookClient

    names = ("sweep", "fsck", "rows", "optimize", "erase", "backup", "told otherwise")
    messages: dict[str, list[Any]] = {name: [] for name in names}

    class Listener(NotebookClient):
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] in ("display_data", "update_display_data"):
                messages[names[cell_index - 1]].append(msg["content"]["data"])
            return super().process_message(msg, cell, cell_index)

    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    notebook.cells = [
        nbformat.v4.new_code_cell(code)  # type: ignore[no-untyped-call]
        for code in (SETUP + 'tx.abort("enough")', *(f"name = {name!r}\n{LONG_WORK}" for name in names))
    ]
    directory = tmp_path_factory.mktemp("long-work")
    Listener(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": directory}}
    ).execute()
    return messages


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sweep", ""),
        ("fsck", ""),
        ("rows", "comparing rows of sales.orders"),
        ("optimize", "rewrite sales.orders"),
        ("erase", ""),
        ("backup", ""),
    ],
)
def test_long_work_shows_how_far_it_is_and_leaves_nothing(
    shown_meanwhile: Mapping[str, list[Any]], name: str, expected: str
) -> None:
    *meanwhile, last = shown_meanwhile[name]
    assert meanwhile
    for data in meanwhile:
        assert data["text/plain"]
        assert check_html(data["text/html"])
    assert any(expected in data["text/plain"] for data in meanwhile)
    assert last == {"text/html": "", "text/plain": ""}


def test_progress_is_told_to_whom_a_program_names(shown_meanwhile: Mapping[str, list[Any]]) -> None:
    assert shown_meanwhile["told otherwise"] == []


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_shows_html(shown: Mapping[str, Any], name: str) -> None:
    text = check_html(shown[name]["text/html"])
    for expected in CELLS[name][1]:
        assert expected in text
    assert shown[name]["text/plain"]  # for terminals and places that show no HTML
