"""Packages that declare entry points are noticed without ``importlib.metadata``, wherever they are."""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from penstock.formats.entry_points import may_have_entry_points

GROUP = "penstock.tried_entry_points"
DECLARED = f"[console_scripts]\nx = x:x\n\n[{GROUP}]\nx = x:x\n"


def declare(folder: Path, name: str, text: str = DECLARED) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "entry_points.txt").write_text(text)


def test_no_installed_package_has_an_entry_point_of_an_unknown_group() -> None:
    assert not may_have_entry_points(GROUP)
    assert may_have_entry_points("pytest11")
    assert not may_have_entry_points("penstock.formats"), "paths below it in other groups are none of it"


@pytest.mark.parametrize("name", ["a-1.0.dist-info", "a.egg-info"])
def test_a_package_in_a_folder_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    declare(tmp_path, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert [entry.name for entry in entry_points(group=GROUP)] == ["x"]
    assert may_have_entry_points(GROUP)


def test_a_package_in_an_egg_or_in_the_current_directory_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path / "a-1.0.egg", "EGG-INFO")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a-1.0.egg")])
    assert may_have_entry_points(GROUP)
    declare(tmp_path / "here", "a-1.0.dist-info")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [""])
    assert may_have_entry_points(GROUP)


def test_other_packages_and_folders_that_are_not_there_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path, "a-1.0.dist-info", "[console_scripts]\nx = x:x\n")
    (tmp_path / "b-1.0.dist-info").mkdir()
    (tmp_path / "c.egg-info").write_text("Name: c\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "nothing")])
    assert not may_have_entry_points(GROUP)


def test_archives_and_finders_of_other_people_are_left_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert not may_have_entry_points(GROUP)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a-1.0.dist-info/entry_points.txt", DECLARED)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path / "a.zip")])
        assert may_have_entry_points(GROUP)

    class Finder:
        @staticmethod
        def find_spec(*_: object) -> None:
            return None

        @staticmethod
        def find_distributions(*_: object) -> list[object]:
            return []

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert may_have_entry_points(GROUP)
