"""Every rule of the commit owner has a test, and says which by its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.owner.smoke import SMOKE
from tests.owner.suite import OwnerSuite

TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs" / "reference" / "delta-rules.md"
LATER = {16, 25}
"""Rules about tables that Penstock does not offer yet; the document says so."""


def stated() -> list[int]:
    """The numbers of the rules, as the document's tables have them."""
    rows = re.findall(r"^\| \*\*R(\d+)\*\* \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert {int(number) for number, rule in rows if rule.startswith("*(later")} == LATER
    return [int(number) for number, _ in rows]


def numbered(folder: Path = TESTS) -> dict[int, list[str]]:
    """The names of the tests that carry a number, by it."""
    found: dict[int, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        if (
            re.search(r"def test_r\d", text) is None
        ):  # most have none, and reading them as programs takes long
            continue
        for node in ast.walk(ast.parse(text)):
            name = re.match(r"test_r(\d+)_", node.name) if isinstance(node, ast.FunctionDef) else None
            if isinstance(node, ast.FunctionDef) and name is not None:
                found.setdefault(int(name[1]), []).append(f"{path.relative_to(folder)}::{node.name}")
    return found


def test_every_rule_has_a_test_that_carries_its_number() -> None:
    missing = set(stated()) - LATER - set(numbered())
    assert not missing, f"no test for R{', R'.join(map(str, sorted(missing)))}"


def test_every_number_in_the_name_of_a_test_is_that_of_a_rule() -> None:
    rules = set(stated()) - LATER
    assert {number: names for number, names in numbered().items() if number not in rules} == {}


def test_rules_are_numbered_without_a_gap() -> None:
    assert stated() == list(range(1, 41))


def test_every_rule_of_the_smoke_set_is_a_rule() -> None:
    """A test that was given another name would silently not be run on every store."""
    assert {name for name in SMOKE if not hasattr(OwnerSuite, name)} == set()


def test_a_rule_without_a_test_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "def test_r1_one() -> None: ...\nclass Suite:\n    def test_r40_other(self) -> None: ...\n"
        "def test_rows() -> None: ...\ndef test_r() -> None: ...\ndef helper_r3_() -> None: ...\n"
    )
    assert numbered(tmp_path) == {1: ["test_some.py::test_r1_one"], 40: ["test_some.py::test_r40_other"]}
