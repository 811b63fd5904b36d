"""A table to write logs into, in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage.buckets import Loop
from tests.formats.delta.logs import Table, running


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with running() as loop:
        yield loop


@pytest.fixture
def table(tmp_path: Path, loop: Loop) -> Iterator[Table]:
    table = Table(tmp_path / "table", loop)
    yield table
    table.bucket.close()
