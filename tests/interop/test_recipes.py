"""The recipes of examples/, run by the real Airflow, Dagster and dbt, each in an environment of its own."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.model.content import SqlView
from tests.interop import installed
from tests.interop.installed import described
from tests.servers.process import Missing

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
RUN_MAX_S = 900.0
"""They import much, and dbt starts a Spark."""


def run_recipe(
    name: str, command: list[str | Path], directory: Path, environment: dict[str, str], *, fails: bool = False
) -> str:
    """What a program of a recipe's environment prints; skips the test where there is no such environment."""
    try:
        programs, java = installed.python_environment(name), installed.java()
    except Missing as missing:
        pytest.skip(str(missing))
    ran = installed.run(
        [programs / command[0], *command[1:]],
        {
            "PATH": f"{programs}:{java.parent}:/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT / 'src'}:{described(directory / 'package')}:{ROOT / 'examples' / name}",
            **environment,
        },
        directory,
        timeout_s=RUN_MAX_S,
    )
    assert (ran.returncode != 0) == fails, (ran.stdout + ran.stderr)[-3000:]
    return ran.stdout


def last_line(printed: str) -> Any:
    return json.loads(printed.splitlines()[-1])


def make_lake(directory: Path) -> Path:
    place = directory / "lake"
    with penstock.open(place, create=True) as lake:
        lake.table("sales.orders").write({"id": [100], "amount": [1.0]})
    return place


def amounts_and_branches(place: Path) -> tuple[list[float], list[str]]:
    with penstock.open(place) as lake:
        amounts = lake.table("sales.orders").to_arrow()["amount"].to_pylist()
        return sorted(amounts), [branch.name.partition("/")[0] for branch in lake.branches()]


@pytest.mark.timeout(2 * RUN_MAX_S)
def test_dagster_publishes_assets_together_or_not_at_all(tmp_path: Path) -> None:
    place = make_lake(tmp_path)
    program = HERE / "dagster_program.py"

    def materialize(*amounts: str) -> Any:
        environment = {"DAGSTER_HOME": str(tmp_path), "DAGSTER_TELEMETRY_DISABLED": "1"}
        return last_line(run_recipe("dagster", ["python", program, place, *amounts], tmp_path, environment))

    assert materialize("5", "6")["success"]
    assert amounts_and_branches(place) == ([1.0, 5.0, 6.0], ["main"])
    with penstock.open(place) as lake:
        assert lake.table("sales.totals").to_arrow().to_pylist() == [{"orders": 3, "total": 12.0}]
    assert materialize("-7")["failed"] == ["published"]
    assert amounts_and_branches(place) == ([1.0, 5.0, 6.0], ["dagster", "main"])


@pytest.mark.timeout(3 * RUN_MAX_S)
def test_airflow_loads_checks_and_publishes(tmp_path: Path) -> None:
    place, inbox = make_lake(tmp_path), tmp_path / "inbox"
    inbox.mkdir()
    environment = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "examples" / "airflow"),
        "PENSTOCK_LAKE": str(place),
        "ORDERS_INBOX": str(inbox),
    }
    run_recipe("airflow", ["airflow", "db", "migrate"], tmp_path, environment)

    def run_dag() -> Any:
        command: list[str | Path] = ["python", HERE / "airflow_program.py"]
        return last_line(run_recipe("airflow", command, tmp_path, environment))

    (inbox / "monday.json").write_text('{"id": 1, "amount": 5.0}\n', "utf-8")
    ran = run_dag()
    assert ran["run"] == "success"
    assert set(ran["tasks"].values()) == {"success"}
    assert amounts_and_branches(place) == ([1.0, 5.0], ["main"])
    (inbox / "monday.json").write_text('{"id": 2, "amount": -5.0}\n', "utf-8")
    ran = run_dag()
    assert ran["run"] == "failed"
    assert ran["tasks"] == {"create_branch": "success", "load": "success", "publish": "failed"}
    assert amounts_and_branches(place) == ([1.0, 5.0], ["airflow", "main"])


@pytest.mark.timeout(3 * RUN_MAX_S)
def test_dbt_builds_on_a_branch_and_publishes_what_passes_its_tests(tmp_path: Path) -> None:
    place, project = tmp_path / "lake", tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "dbt", project)
    days = [datetime.date(2026, 11, 13), datetime.date(2026, 11, 14)]
    with penstock.open(place, create=True) as lake:
        lake.table("sales.orders").write({"id": [1, 2], "amount": [20.0, 35.0], "day": days})

    def build(*, fails: bool = False) -> str:
        command: list[str | Path] = ["python", project / "build.py", place]
        return run_recipe("dbt", command, tmp_path, {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}, fails=fails)

    build()
    with penstock.open(place) as lake:
        assert [branch.name for branch in lake.branches()] == ["main"]
        assert sorted(lake.table("sales.by_day").to_arrow()["total"].to_pylist()) == [20.0, 35.0]
        assert lake.table("sales.large_orders").to_arrow()["id"].to_pylist() == [2]
        view = lake.at("main").get("sales.large_days")
        assert isinstance(view, SqlView)
        assert "where total >= 30" in view.sql_text
        lake.table("sales.orders").append({"id": [3], "amount": [40.0], "day": [None]})
    assert "not_null_by_day_day" in build(fails=True)
    with penstock.open(place) as lake:
        assert [branch.name for branch in lake.branches()] == ["dbt", "main"]
        assert lake.table("sales.by_day").count() == 2
        assert sorted(lake.table("sales.large_orders", "dbt").to_arrow()["id"].to_pylist()) == [2, 3]
