"""Penstock, with its jar, on the oldest Spark that it supports; the other tests run on the newest."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import penstock
from penstock.spark import jar
from tests.interop import installed
from tests.servers.process import Missing

PROGRAM = Path(__file__).with_name("oldest_spark_program.py")
SQL_PROGRAM = Path(__file__).with_name("sql_program.py")
SOURCE = Path(__file__).parents[2] / "src"
REFUSED = [
    "AnalysisException", "InvalidRequest", "AnalysisException", "InvalidRequest", "NotManaged", "NotManaged",
    "ReferenceNotFound", "IllegalArgumentException", "InvalidRequest", "KeyNotFound", "KeyNotFound",
    "AnalysisException", "AnalysisException", "InvalidRequest", "InvalidRequest", "AnalysisException",
]  # fmt: skip
"""The errors of the statements that are refused, in their order: none has a trace."""
ROWS = [
    [0, -1, "k 0"], [1, -1, "k 1"], [2, -1, "k 0"], [3, 30, "k 1"], [4, -2, "k 0"], [5, 50, "k 1"],
    [5, 50, "k 1"], [6, 60, "k 0"], [7, 70, "k 1"], [8, 800, "k 0"], [9, 900, "k 2"], [10, 1000, "k 2"],
    [11, 1100, "k 2"],
]  # fmt: skip


def test_tables_are_written_changed_and_read_as_on_the_newest(tmp_path: Path) -> None:
    try:
        python, java = installed.python_environment("spark") / "python", installed.java()
    except Missing as missing:
        pytest.skip(str(missing))
    lake = tmp_path / "lake"
    ran = installed.run(
        [python, PROGRAM, lake, tmp_path],
        {
            "PATH": f"{java.parent}:/usr/bin:/bin",
            "PYTHONPATH": f"{SOURCE}:{installed.described(tmp_path / 'package')}",
            "SPARK_TESTING": "1",  # so that Spark checks what rules do to its plans
        },
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout)
    assert found.pop("spark").startswith("4.1.")
    assert found == {
        "has_jar": jar.find_jar() is not None,
        "without_jar": [True, 5],
        "rows": ROWS,
        "first": 10,
        "side": 13,
        "pruned": 3,
        "changes": [
            [0, "insert", 10],
            [1, "update_postimage", 3],
            [1, "update_preimage", 3],
            [2, "delete", 1],
            [3, "insert", 3],
            [3, "update_postimage", 1],
            [3, "update_preimage", 1],
            [4, "update_postimage", 1],
            [4, "update_preimage", 1],
            [5, "insert", 1],
        ],
        "streamed": 11,
        "plain": 12,
        "by_session": ["p=0", "p=1"] if jar.find_jar() is not None else [],
        "mapped": [2, 1, 2, 2, 1, 2, "InvalidRequest", [11, 12]] if jar.find_jar() is not None else [],
    }
    with penstock.open(lake) as opened:
        read_here = opened.table("sales.orders").to_arrow().select(["id", "number", "kind"]).to_pylist()
        assert sorted(list(row.values()) for row in read_here) == ROWS
        assert opened.table("sales.copy").to_arrow().num_rows == 11


def test_sql_gives_the_same_on_the_oldest_and_on_the_newest(tmp_path: Path) -> None:
    try:
        oldest, java = installed.python_environment("spark") / "python", installed.java()
    except Missing as missing:
        pytest.skip(str(missing))
    found = {}
    for name, python in (("oldest", str(oldest)), ("newest", sys.executable)):
        directory = tmp_path / name
        directory.mkdir()
        environment = {
            "PATH": f"{java.parent}:/usr/bin:/bin",
            "PYTHONPATH": f"{SOURCE}:{installed.described(directory / 'package')}",
        }
        ran = installed.run(
            [python, SQL_PROGRAM, directory / "lake", directory], environment, directory, timeout_s=400
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        found[name] = json.loads(ran.stdout)
    (oldest_version, results), (newest_version, others) = found["oldest"], found["newest"]
    assert oldest_version.startswith("4.1.")
    assert newest_version > oldest_version
    differing = [one for one, other in zip(results, others, strict=True) if one != other]
    assert [statement for statement, _ in differing] == [
        "CREATE VIEW lake.v.w AS SELECT 1 AS one",
        "SHOW VIEWS IN lake.v",
    ]
    assert [result for _, result in differing] == ["AnalysisException", []]  # the oldest has no views
    assert [result for _, result in results if isinstance(result, str)] == REFUSED
