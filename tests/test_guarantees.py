"""Every promise is proved by `make test`: not all of its tests may be left to longer runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUARANTEES = ROOT / "docs/reference/guarantees.md"
HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w./-]+\.py::[\w:]+)`")


def promises_of(text: str) -> dict[str, set[str]]:
    """The tests of each promise; what has no tests of its own and is no promise is left out."""
    _, *rest = HEADING.split(text)
    found = {title: set(TEST.findall(body)) for title, body in zip(rest[::2], rest[1::2], strict=True)}
    return {title: tests for title, tests in found.items() if tests or f"\n### {title}" in text}


def run_by_make_test(files: set[str], session: pytest.Session) -> set[str]:
    """The tests of these files that are chosen where nothing is said of marks, without their parameters."""
    if session.config.args == session.config.getini("testpaths"):  # this is `make test`: all are here already
        return {item.nodeid.partition("[")[0] for item in session.items}
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    listed = subprocess.run([*collect, *sorted(files)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stdout[-3000:] + listed.stderr
    return {line.partition("[")[0] for line in listed.stdout.splitlines() if "::" in line}


def test_every_promise_has_a_test_that_make_test_runs(request: pytest.FixtureRequest) -> None:
    promises = promises_of(GUARANTEES.read_text("utf-8"))
    files = {test.partition("::")[0] for tests in promises.values() for test in tests}
    chosen = run_by_make_test(files, request.session)
    unproved = [title for title, tests in promises.items() if not tests & chosen]
    assert not unproved, f"no test of `make test` is named for: {'; '.join(unproved)}"


def test_a_promise_without_a_test_is_noticed() -> None:
    text = "## Part\n\n### Kept\n\n- `tests/a.py::test_x`\n\n### Hollow\n\nText.\n\n## Not promised\n"
    assert promises_of(text) == {"Kept": {"tests/a.py::test_x"}, "Hollow": set()}
