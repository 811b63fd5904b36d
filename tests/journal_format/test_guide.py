"""The guide to adding a format shows the package of journals as it is, and what its commands print."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.documents.runner import blocks_of
from tests.journal_format.installation import SOURCE, environment, install
from tests.journal_format.test_program import Penstock

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "add-a-format.md"
BLOCKS = blocks_of(str(GUIDE), GUIDE.read_text("utf-8"))
PARTS = [block for block in BLOCKS if block.text.startswith("# penstock_journal/")]


@pytest.mark.parametrize("block", PARTS, ids=lambda block: str(block.line))
def test_the_guide_shows_the_package_as_it_is(block: object) -> None:
    text = str(getattr(block, "text", ""))
    name, _, shown = text.partition("\n")
    code = (SOURCE / name.removeprefix("# ")).read_text("utf-8")
    for part in re.split(r"\n\n\n(?=\S)", shown.rstrip("\n")):
        assert part in code, f"{name}: {part}"


def test_the_guide_shows_most_of_its_parts() -> None:
    assert len(PARTS) >= 8
    assert {path.name for path in SOURCE.rglob("*.py")} <= set(
        re.findall(r"\w+\.py", GUIDE.read_text("utf-8"))
    )


def test_the_commands_of_the_guide_print_what_it_says(tmp_path: Path) -> None:
    penstock = Penstock(tmp_path / "lake", {**os.environ, **environment(install(tmp_path / "site"))})
    (transcript,) = (block.text for block in BLOCKS if block.language == "console")
    for part in re.split(r"^\$ penstock ", transcript, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        printed = penstock(*shlex.split(command))
        assert not expected or printed == expected, command
