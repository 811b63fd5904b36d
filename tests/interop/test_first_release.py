"""A lake that the first release made: this one reads, changes and sweeps it, and the first one reads it or
refuses it by name."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

import penstock
from penstock.kernel.description import FORMAT_VERSION
from penstock.lake.upgrade import UpgradeResult, upgrade_lake
from tests.interop import first_release_program as program

FIRST_RELEASE = "1b709b3"
PROJECT = Path(__file__).parents[2]


class Release:
    """The first release, run from its sources, with today's libraries."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        packed = subprocess.run(
            ["git", "archive", FIRST_RELEASE, "src"], cwd=PROJECT, capture_output=True, check=False
        )
        if packed.returncode:
            pytest.skip("this checkout has no history back to the first release")
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as sources:
            sources.extractall(directory, filter="data")

    def do(self, step: str, place: Path) -> Any:
        answers = self._directory / "answers.json"
        environment = os.environ | {"PYTHONPATH": str(self._directory / "src")}
        command = [sys.executable, program.__file__, step, str(place), str(answers)]
        subprocess.run(command, env=environment, check=True, timeout=300)
        return json.loads(answers.read_text())


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path / "release")


@pytest.fixture
def place(release: Release, tmp_path: Path) -> Path:
    release.do("make", tmp_path / "lake")
    return tmp_path / "lake"


BEFORE = [[1, 2], [1, 2], ["one.csv"]]
ON_DEV = [[1, 2, 10], [1, 2, 10], ["10.csv", "one.csv"]]
MERGED = [[1, 2, 10, 20], [1, 2, 10, 20], ["10.csv", "20.csv", "one.csv"]]


def test_a_lake_of_the_first_release_goes_on(place: Path) -> None:
    assert program.look(str(place)) == {"main": BEFORE, "dev": ON_DEV, "kept": BEFORE, "first": BEFORE}
    program.write(str(place))
    with penstock.open(place) as lake:
        lake.merge("dev", "main")
        lake.finish_background()
        plain = lance.dataset(lake.table("a.lance").to_lance().uri)
        plain.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
        lake.sweep()
        assert lake.fsck().damages == ()
    assert program.look(str(place)) == {"main": MERGED, "dev": ON_DEV, "kept": BEFORE, "first": BEFORE}


def test_the_first_release_goes_on_with_what_this_one_changed(release: Release, place: Path) -> None:
    program.write(str(place))
    with penstock.open(place) as lake:
        lake.merge("dev", "main")
        lake.finish_background()
    assert release.do("look", place) == program.look(str(place))
    release.do("write", place)
    wanted = [[1, 2, 10, 20, 20], [1, 2, 10, 20, 20], ["10.csv", "20.csv", "one.csv"]]
    assert program.look(str(place))["main"] == release.do("look", place)["main"] == wanted


def test_the_first_release_does_not_sweep_a_lake_by_periods_of_its_own(release: Release, place: Path) -> None:
    with penstock.open(place) as lake:
        lake.set_grace(data_grace_days=30)
    assert release.do("look", place)["error"] == "unsupported_format"


def test_a_lake_of_the_first_release_is_backed_up_and_restored(place: Path, tmp_path: Path) -> None:
    penstock.backup(place, tmp_path / "before.backup")
    program.write(str(place))
    penstock.restore_backup(tmp_path / "before.backup", tmp_path / "again")
    again = program.look(str(tmp_path / "again"))
    assert again == {"main": BEFORE, "dev": ON_DEV, "kept": BEFORE, "first": BEFORE}


def test_an_upgraded_lake_works_here_and_is_refused_by_the_first_release(
    release: Release, place: Path, tmp_path: Path
) -> None:
    assert "error" not in release.do("look", place)
    done = upgrade_lake(place, backup=tmp_path / "before.backup")
    assert (done.before, done.after) == (1, FORMAT_VERSION)
    assert upgrade_lake(place) == UpgradeResult(FORMAT_VERSION, FORMAT_VERSION)
    refused = release.do("look", place)
    assert refused["error"] == "unsupported_format"
    assert f"has format version {FORMAT_VERSION}" in refused["message"]
    program.write(str(place))
    after = [[1, 2, 20], [1, 2, 20], ["20.csv", "one.csv"]]
    assert program.look(str(place))["main"] == after


def test_a_backup_made_before_an_upgrade_is_for_the_first_release_too(
    release: Release, place: Path, tmp_path: Path
) -> None:
    upgrade_lake(place, backup=tmp_path / "before.backup")
    penstock.restore_backup(tmp_path / "before.backup", tmp_path / "again")
    assert release.do("look", tmp_path / "again")["main"] == BEFORE
