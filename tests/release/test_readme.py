"""README's own command installs what README's examples need; messages name extras that there are."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from release import ROOT, environments, packages, readme

EXTRAS = set(metadata.metadata("penstock").get_all("Provides-Extra") or ())


def test_the_command_takes_the_constraints_and_extras_that_there_are() -> None:
    found = readme.find_install(readme.README.read_text("utf-8"))
    assert set(found.extras) <= EXTRAS
    assert ROOT / found.constraints == environments.CONSTRAINTS


def test_the_page_on_installing_lists_every_extra() -> None:
    text = (ROOT / "docs" / "guide" / "install.md").read_text("utf-8")
    rows = re.findall(
        r"^\| (`[a-z`, ]+`) \| ", text.partition("## Extras")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert {name for row in rows for name in re.findall(r"\w+", row)} == EXTRAS


def test_messages_and_documents_install_extras_by_one_command() -> None:
    found = 0
    for file in [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/guide/*.md")]:
        for said in re.findall(r"pip install[\"\s]+f?\"?('?penstock\b[^\s\"]*)", file.read_text("utf-8")):
            name = re.match(r"'penstock(?:\[([a-z,]+)\]'|-\d|\[\{|')", said)
            assert name is not None, f"{file}: pip install {said}"
            assert set((name[1] or "delta").split(",")) <= EXTRAS, f"{file}: pip install {said}"
            found += 1
    assert found > 15


@pytest.mark.verify
@pytest.mark.timeout(900)  # it installs Spark
def test_the_readme_is_true_where_only_its_own_command_has_installed_anything(tmp_path: Path) -> None:
    readme.try_out(packages.build(ROOT, "wheel", tmp_path / "dist"), tmp_path)
