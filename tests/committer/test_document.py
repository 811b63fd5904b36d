"""The page of the committer has every property, each with tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "committer.md"
NUMBERED = re.compile(r"^\*\*(\d+)\.\*\* ", re.MULTILINE)
TEST = re.compile(r"^- `(tests/[\w/]+\.py)::(test_\w+)`", re.MULTILINE)


def properties() -> dict[int, str]:
    """What the page says of each property, by its number."""
    _, *parts = NUMBERED.split(PAGE.read_text("utf-8"))
    numbers = [int(number) for number in parts[::2]]
    assert numbers == sorted(set(numbers))
    return dict(zip(numbers, parts[1::2], strict=True))


def names_in(path: Path) -> set[str]:
    parsed = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(parsed) if isinstance(node, ast.FunctionDef)}


def test_every_property_is_there_with_a_test_of_its_own() -> None:
    found = properties()
    assert list(found) == list(range(1, 59))
    assert [number for number, text in found.items() if not TEST.search(text)] == []


def test_every_test_that_is_named_exists() -> None:
    named = {test for text in properties().values() for test in TEST.findall(text)}
    lost = [
        f"{file}::{test}"
        for file, test in sorted(named)
        if not (ROOT / file).exists() or test not in names_in(ROOT / file)
    ]
    assert lost == []
