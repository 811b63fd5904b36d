"""The benchmarks work, and what the documents say of their figures is what the kept results say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import HERE, NAMES, RESULTS, main
from benchmarks.page import CHOICE, PAGE, as_page, read_all, with_choice
from benchmarks.report import Goal, at_least, at_most, read_report, shown

pytestmark = pytest.mark.verify  # each benchmark runs, and that takes minutes

MACHINE = {"date", "cores", "python", "sqlite", "system", "sync_ms", "others_busy_percent"}

OF_SPARK = {
    "committer",
    "compaction",
    "erase",
    "row_changes",
    "spark",
    "spark_sql",
    "table_features",
    "transactions",
}
"""Those that start a Spark as they need it. A process has one only, and here it is the tests'."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.reliability) if one in OF_SPARK else one for one in NAMES],
)
def test_a_benchmark_runs_and_keeps_what_it_prints(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in ("delta", "server") and shutil.which("wrk") is None:
        pytest.skip("there is no wrk on this machine to make load: run `make interop` as root")
    arguments = [name, "--quick", "--work", str(tmp_path)]
    if name in OF_SPARK:
        program = [sys.executable, "-m", "benchmarks", *arguments]
        printed = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
    else:
        assert main(arguments) == 0
        printed = capsys.readouterr().out
    report = read_report(tmp_path / "quick" / f"{name}.json")
    assert report.name == name
    assert report.quick
    assert report.question in printed
    for table in report.tables:
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.title in printed
    for goal in report.goals:
        assert goal.what in printed
    assert [path.name for path in tmp_path.iterdir()] == ["quick"], "lakes were left behind"


def test_a_quick_run_leaves_the_kept_results_alone(tmp_path: Path) -> None:
    kept = {path: path.read_bytes() for path in (*RESULTS.iterdir(), PAGE)}
    main(["references", "--quick", "--work", str(tmp_path)])
    assert {path: path.read_bytes() for path in (*RESULTS.iterdir(), PAGE)} == kept


def test_an_unknown_question_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["no_such_question"])
    assert "no_such_question" in capsys.readouterr().err


def test_the_page_about_stores_shows_what_the_kept_results_say() -> None:
    text = CHOICE.read_text("utf-8")
    assert text == with_choice(text, read_all(RESULTS)), "run: python -m benchmarks --docs"
    assert "| PostgreSQL |" in text


def test_the_performance_page_is_what_the_kept_results_say() -> None:
    assert PAGE.read_text("utf-8") == as_page(read_all(RESULTS)), "run: python -m benchmarks --docs"


def test_every_question_has_a_kept_result_of_its_real_size() -> None:
    kept = {report.name: report for report in read_all(RESULTS)}
    assert sorted(kept) == sorted(NAMES)
    assert not any(report.quick for report in kept.values())


def test_every_question_is_explained() -> None:
    text = (HERE / "README.md").read_text("utf-8")
    for name in NAMES:
        assert f"`{name}.py`" in text
        assert f"**{name}.**" in text


def test_kept_results_do_not_name_a_machine() -> None:
    for path in RESULTS.iterdir():
        assert set(read_report(path).machine) == MACHINE
        assert not re.search(r"(?<![\w/:}])/(?:\w+/)+\w+", path.read_text("utf-8")), "there is a path in it"


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (at_most("time", 2.0, 2, "times"), True),
        (at_most("time", 2.01, 2, "times"), False),
        (at_least("rate", 5000, 5000, "/s"), True),
        (at_least("rate", 4999.9, 5000, "/s"), False),
    ],
)
def test_a_goal_is_met_up_to_its_limit(goal: Goal, met: bool) -> None:
    assert goal.met is met
    assert goal.verdict == ("met" if met else "NOT MET")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_000_000, "1,000,000"),
        (5123.4, "5,123"),
        (123.4, "123"),
        (12.34, "12.3"),
        (0.1234, "0.123"),
        (0.0, "0"),
    ],
)
def test_figures_are_shown_with_three_digits_that_count(value: float, text: str) -> None:
    assert shown(value) == text
