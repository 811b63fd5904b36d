"""Lance tables of a lake, with nothing around them but a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lance.versions import Tables, make_template


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "t")


@pytest.fixture
def make(tmp_path: Path, template: Path) -> Iterator[Callable[..., Tables]]:
    made: list[Tables] = []

    def one(**options: object) -> Tables:
        made.append(Tables(tmp_path, template, **options))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for tables in made:
        tables.close()


@pytest.fixture
def tables(make: Callable[..., Tables]) -> Tables:
    return make()
