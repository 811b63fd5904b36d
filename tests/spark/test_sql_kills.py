"""A driver that is killed at a call of the catalog: a statement is done or not, and the lake goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.model.content import SqlView
from tests.spark.killed_sql_program import STATEMENTS

pytestmark = pytest.mark.timeout(900)

RUN_MAX_S: Final = 840
"""Up to nine statements in a Spark that has just begun, on a machine that does much else."""
PROGRAM: Final = Path(__file__).with_name("killed_sql_program.py")
T6: Final = [(3, "c", 7), (4, None, 8), (20, None, None)]
STATES: Final[list[tuple[list[Any], list[Any] | None]]] = [
    ([(1,)], None),
    ([(1,)], [(1,)]),
    ([(1,), (2,)], [(1,)]),
    ([(1, None), (2, None), (3, "c")], [(1,)]),
    ([(1, None), (3, "c"), (20, None)], [(1,)]),
    ([(3, "c"), (20, None)], [(1,)]),
    (T6, [(1,)]),
    (T6, [(1,)]),
    (T6, [(1,)]),
    (T6, [(1,)]),
    ([T6[0], T6[1], (5, None, None), T6[2]], [(1,), (6,)]),
    ([T6[0], T6[1], (5, None, None), T6[2]], [(1, None), (6, None)]),
    ([T6[0], T6[1], (5, None, None), T6[2]], []),
    ([T6[0], T6[1], (5, None, None), T6[2]], None),
    *[([T6[0], T6[1], (5, None, None), T6[2]], None)] * 3,
]
"""The rows of the two tables before each statement, and after the last one."""
VIEWS: Final = {14: "SELECT id FROM lake.s.t", 15: "SELECT id + 1 AS id FROM lake.s.t"}
"""The text of the view, where there is one."""

POINTS: Final = [
    ("table", 0, "before", 0),
    ("write", 0, "inside", 0),
    ("write", 0, "after", 0),
    ("write", 1, "before", 1),
    ("write", 1, "inside", 1),
    ("write", 1, "after", 1),
    ("widen", 0, "after", 2),
    ("write", 2, "inside", 2),
    ("write", 2, "after", 2),
    ("update", 0, "inside", 3),
    ("update", 0, "after", 3),
    ("delete", 0, "inside", 4),
    ("delete", 0, "after", 4),
    ("merge", 0, "before", 5),
    ("merge", 0, "inside", 5),
    ("merge", 0, "after", 5),
    ("call", 0, "after", 6),
    ("write", 3, "inside", 7),
    ("write", 4, "after", 8),
    ("call", 1, "before", 9),
    ("call", 1, "after", 9),
    ("alter", 0, "after", 10),
    ("truncate", 0, "inside", 11),
    ("truncate", 0, "after", 11),
    ("drop", 0, "before", 12),
    ("drop", 0, "after", 12),
    ("write_view", 0, "before", 13),
    ("write_view", 0, "after", 13),
    ("write_view", 1, "before", 14),
    ("write_view", 1, "after", 14),
    ("drop", 1, "after", 15),
]
"""The step, which call of it, when; and the statement that it is of."""
TRIED: Final = (("merge", 0, "inside", 5), ("call", 1, "after", 9))
"""Of which `make verify` tries these."""


def rows(lake: Lake, key: str) -> list[Any] | None:
    table = lake.table(key)
    if not table.exists:
        return None
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=lambda row: row[0])


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=pytest.mark.verify if point in TRIED else pytest.mark.reliability)
        for point in POINTS
    ],
    ids=lambda point: "-".join(map(str, point[:3])),
)
def test_a_killed_driver_leaves_a_statement_done_or_not(
    tmp_path: Path, point: tuple[str, int, str, int]
) -> None:
    step, number, moment, statement = point
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("s.t").write([{"id": 1}])
        url = lake.url
    said, errors = tmp_path / "said.txt", tmp_path / "errors.txt"
    # Not by pipes: the program's JVM has them too, and lives until it notices.
    with said.open("w") as stdout, errors.open("w") as stderr:
        killed = subprocess.run(
            [sys.executable, str(PROGRAM), url, str(tmp_path), step, str(number), moment],
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=stdout,
            stderr=stderr,
            timeout=RUN_MAX_S,
            check=False,
        )
    assert killed.returncode == -signal.SIGKILL, errors.read_text()[-3000:]
    assert said.read_text().splitlines() == list(STATEMENTS[:statement])
    is_done = moment == "after" and step != "widen"
    with penstock.open(url) as lake:
        assert (rows(lake, "s.t"), rows(lake, "s.made")) == STATES[statement + is_done]
        view = lake.at("main").get("s.seen")
        text = view.sql_text if isinstance(view, SqlView) else None
        assert text == VIEWS.get(statement + is_done)
        assert lake.fsck().damages == ()
        # Whatever was open can be ended by anybody, and others go on.
        is_open = 6 < statement + is_done < 10
        open_ones = lake.transactions()
        assert len(open_ones) == is_open
        for found in open_ones:
            lake.find_transaction(found.id).abort()
        lake.table("s.t").append([{"id": 100}])
        before, _ = STATES[statement + is_done]
        assert len(rows(lake, "s.t") or ()) == len(before) + 1
