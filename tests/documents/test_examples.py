"""What the examples and the guide show as whole programs works as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from penstock.stores.port import Store
from penstock.testing import StoreContract
from tests.documents.runner import blocks_of

ROOT = Path(__file__).parents[2]
JAVA_SAYS = "WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Java itself, when Spark starts it."""
ADAPTER_GUIDE = ROOT / "docs" / "guide" / "adapters.md"


STARTS_SPARK = {"pipeline.py"}
"""``penstock demo`` and README show the same, and are run by `make test`."""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.name, marks=pytest.mark.verify if path.name in STARTS_SPARK else ())
        for path in sorted((ROOT / "examples").glob("*.py"))
    ],
)
def test_an_example_runs_in_an_empty_directory(script: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    ran = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,  # one of them starts Spark
        check=False,
    )
    assert (ran.returncode, ran.stderr.replace(JAVA_SAYS, "")) == (0, "")
    assert ran.stdout == expected_output(script)


def expected_output(script: Path) -> str:
    """What the script's own docstring says that it prints."""
    docstring = script.read_text("utf-8").split('"""')[1]
    shown = docstring.partition("It prints::\n\n")[2]
    lines = [line.removeprefix("    ") for line in shown.rstrip().splitlines()]
    return "\n".join(lines) + "\n"


def guides_adapter() -> type[Store]:
    """The adapter in the guide, as a reader would copy it."""
    first, *_ = blocks_of(str(ADAPTER_GUIDE), ADAPTER_GUIDE.read_text("utf-8"))
    module = ModuleType("folder_store")
    exec(compile("\n" * (first.line - 1) + first.text, str(ADAPTER_GUIDE), "exec"), module.__dict__)
    found: type[Store] = module.__dict__["FolderStore"]
    return found


class TestTheGuidesAdapter(StoreContract):
    """The store that the guide writes keeps every promise of the port."""

    @pytest.fixture
    def open_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Store]:
        # The contract stores thousands of objects, and none of it asks whether they survive a power cut.
        monkeypatch.setattr(os, "fsync", lambda _: None)
        adapter: Callable[[Path], Store] = guides_adapter()
        return lambda: adapter(tmp_path / "store")
