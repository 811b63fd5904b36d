"""The workflow of examples/github-actions: its shell steps are run as GitHub runs them, against a server.

What GitHub itself does is left out: checking out, setting up Python, installing packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.lake.lake import Lake
from tests.interop.penstock_server import serving

pytestmark = [pytest.mark.verify, pytest.mark.timeout(900)]

WORKFLOW = Path(__file__).parents[2] / "examples" / "github-actions" / "data-pull-request.yml"
STEP_TIMEOUT_S = 300
LOAD = """
import os
import penstock

with penstock.open(os.environ["PENSTOCK_LAKE"]) as lake:
    orders = lake.table("sales.orders", os.environ["BRANCH"])
    orders.append({{"id": [2], "amount": [{amount}]}}, message="more orders")
"""
EXPRESSION = re.compile(r"\$\{\{ ([\w.]+) \}\}")
TITLE = 'orders of "monday" $(touch stolen)'


class Runner:
    """Runs the jobs of the workflow for one pull request, in a directory as of its checkout."""

    def __init__(self, directory: Path, address: str) -> None:
        import yaml  # type: ignore[import-untyped]

        self._directory = directory
        workflow: Any = yaml.safe_load(WORKFLOW.read_text("utf-8"))
        self.jobs: dict[str, Any] = workflow["jobs"]
        context = {
            "vars.PENSTOCK_LAKE": address,
            "secrets.PENSTOCK_TOKEN": "",
            "github.event.number": "7",
            "github.event.pull_request.title": TITLE,
        }
        self._environment = {
            name: EXPRESSION.sub(lambda match: context[match[1]], text)
            for name, text in workflow["env"].items()
        }
        self.summary = directory / "summary.md"

    def scripts(self, job: str) -> dict[str, str]:
        steps = (step for step in self.jobs[job]["steps"] if "run" in step)
        return {step["name"]: step["run"] for step in steps}

    def run(self, job: str) -> str | None:
        """Run the steps of a job, and return the name of the one that failed."""
        for name, script in self.scripts(job).items():
            if name == "install":
                continue
            ran = subprocess.run(
                ["bash", "-e", "-c", script],
                cwd=self._directory,
                env={
                    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                    "HOME": str(self._directory),
                    "GITHUB_STEP_SUMMARY": str(self.summary),
                    **{key: text for key, text in self._environment.items() if text},
                },
                capture_output=True,
                text=True,
                timeout=STEP_TIMEOUT_S,
                check=False,
            )
            if ran.returncode != 0:
                return name
        return None


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("sales.orders").write({"id": [1], "amount": [20.0]})
        yield lake


@pytest.fixture
def runner(lake: Lake, tmp_path: Path) -> Iterator[Runner]:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    with serving(str(tmp_path / "lake")) as server:
        assert lake.default_branch == "main"
        yield Runner(checkout, server.uri)


def load(runner: Runner, amount: float) -> str | None:
    (runner.summary.parent / "load.py").write_text(LOAD.format(amount=amount), "utf-8")
    return runner.run("review")


def test_a_pull_request_is_reviewed_and_published(runner: Runner, lake: Lake) -> None:
    assert load(runner, 30.0) is None
    assert load(runner, 35.0) is None  # pushed again: the branch begins anew
    summary = runner.summary.read_text("utf-8")
    assert "~ sales.orders" in summary
    assert re.search(r"^\+ +2 +35\.0$", summary, re.MULTILINE)
    assert lake.table("sales.orders").count() == 1
    assert runner.run("publish") is None
    assert sorted(lake.table("sales.orders").to_arrow()["amount"].to_pylist()) == [20.0, 35.0]
    assert lake.log(limit=1)[0].message == TITLE
    assert [branch.name for branch in lake.branches()] == ["main"]
    assert not list(runner.summary.parent.glob("stolen"))


def test_bad_rows_and_conflicts_stop_it_and_a_closed_one_leaves_nothing(runner: Runner, lake: Lake) -> None:
    assert load(runner, -5.0) == "look for bad rows"
    assert runner.run("publish") == "publish"
    assert lake.table("sales.orders").count() == 1
    assert runner.run("drop") is None
    assert [branch.name for branch in lake.branches()] == ["main"]
    assert load(runner, 30.0) is None
    for branch in ("main", "pull-7"):
        lake.table("sales.notes", branch).write({"id": [1]})
    assert runner.run("publish") == "publish"
    assert lake.table("sales.orders").count() == 1


def test_no_script_has_text_of_a_pull_request_in_it(tmp_path: Path) -> None:
    """GitHub would put a title into the script as code; it comes in by the environment."""
    runner = Runner(tmp_path, "")
    assert not any("${{" in script for job in runner.jobs for script in runner.scripts(job).values())
