"""The documents of the project, and which of them need Spark for their examples."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.documents.runner import blocks_of

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _needs_spark(path: Path) -> bool:
    blocks = blocks_of(name_of(path), path.read_text("utf-8"))
    return any("penstock.spark" in one.text for one in blocks if one.reason_not_run is None)


DOCUMENTS = [
    *(path for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md") if (path := ROOT / name).exists()),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LONG = {
    *("docs/reference/cli.md", "docs/guide/access.md", "docs/guide/lance.md", "docs/guide/server.md"),
    *("docs/guide/spark.md", "docs/guide/sql.md", "docs/guide/transactions.md"),
}
"""What takes long to run is run by `make verify`."""


def as_parameters(paths: Iterable[Path]) -> list[ParameterSet]:
    """Documents as parameters of a test that runs them."""
    named = ((path, name_of(path)) for path in paths)
    return [
        pytest.param(path, id=name, marks=pytest.mark.verify if name in LONG else ()) for path, name in named
    ]


DOCUMENTS_WITH_SPARK = [path for path in DOCUMENTS if _needs_spark(path)]
DOCUMENTS_WITHOUT_SPARK = [path for path in DOCUMENTS if path not in DOCUMENTS_WITH_SPARK]
