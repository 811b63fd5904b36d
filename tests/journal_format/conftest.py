"""The package of journals, installed in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal_format.installation import install, installed


@pytest.fixture
def with_journals(tmp_path: Path) -> Iterator[None]:
    with installed(install(tmp_path / "site")):
        yield
