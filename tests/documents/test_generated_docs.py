"""The reference pages that are made from the code are up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from docs.generate import PAGES, PARTS, text_of, with_part


@pytest.mark.parametrize(("path", "page"), PAGES.items(), ids=[path.name for path in PAGES])
def test_a_generated_page_is_what_the_code_says(path: Path, page: Callable[[], Iterator[str]]) -> None:
    assert path.exists(), "run `make docs`"
    assert path.read_text("utf-8") == text_of(page), "run `make docs`"


@pytest.mark.parametrize(("path", "part"), PARTS.items(), ids=[path.name for path in PARTS])
def test_a_generated_section_is_what_the_code_says(path: Path, part: Callable[[], Iterator[str]]) -> None:
    assert path.read_text("utf-8") == with_part(path.read_text("utf-8"), part), "run `make docs`"


def test_every_meaning_in_the_pages_is_told() -> None:
    for page in PAGES.values():
        for number, line in enumerate(page()):
            assert not (line.startswith("| `") and line.endswith("|  |")), (
                f"line {number} has no meaning: {line}"
            )
