"""Processes that die while they commit to several Lance tables: all of it is there afterwards, or nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

import penstock
from penstock import Settings
from penstock.errors import KeyNotFound
from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion, DeclareLance, GetLanceTable
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake
from penstock.model.keys import Key
from tests.chance import share
from tests.lance.kill.points import NEW, OLD, UNLANDED, At, location_of
from tests.lance.versions import VERSIONS, make_template, manifests, put_data, rows, stage, staged

pytest.importorskip("lance")

PROGRAM = Path(__file__).with_name("dying_program.py")
PROMOTING = Path(__file__).with_name("promoting_program.py")
PROCESSES = 2
ROUNDS = 20
LATER_S = 60.0

View = dict[str, int]
"""The newest version of each table that there is."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "t")


def make_lake(place: Path, template: Path) -> None:
    """Two tables with a version each, which is promoted before its commit is answered: nothing is apart."""
    patient = Settings(promote_wait_s=60.0)
    with init_lake(place, roots=[str(place / "tables")], settings=patient) as lake:
        for name in OLD:
            location = location_of(place, name)
            location.mkdir(parents=True)
            put_data(template, location)
            manifest = f"{location}/{stage(template, location, 1)}"
            lake.do(
                CommitLance(
                    operations=(
                        DeclareLance(key=Key(name), location=str(location)),
                        CreateLanceVersion(key=Key(name), version=1, manifest=manifest),
                    )
                )
            )


def killed_at(place: Path, template: Path, version: int, at: At) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(place), str(template), str(version), at],
        check=False,
        capture_output=True,
        text=True,
        timeout=LATER_S,
    )
    assert done.returncode == -signal.SIGKILL, f"it did not die {at}: {done.stderr}"


def names(version: int) -> tuple[str, ...]:
    return *OLD, f"{NEW}{version}"


def as_the_lake_says(lake: Lake, version: int) -> View:
    """By its commits alone: nobody's manifests are moved by asking."""
    found: View = {}
    for name in names(version):
        try:
            newest = lake.do(GetLanceTable(key=Key(name))).version
        except KeyNotFound:
            continue
        found[name] = newest or 0
    return found


def as_plain_lance_says(place: Path, version: int) -> View:
    found: View = {}
    for name in names(version):
        location = location_of(place, name)
        if location.exists() and manifests(location):
            found[name] = len(rows(location))  # a version has as many rows as its number
    return found


def recover(place: Path, version: int) -> View:
    """Open the lake as anybody does; what it says before anything else is done."""
    with penstock.open(place, create=False) as lake:
        said = as_the_lake_says(lake, version)
        lake.finish_background(LATER_S)
        assert as_the_lake_says(lake, version) == said, "nothing in the lake changes"
    return said


def check_death(place: Path, template: Path, version: int, at: At) -> None:
    killed_at(place, template, version, at)
    old: View = dict.fromkeys(OLD, version - 1)
    new: View = {**dict.fromkeys(OLD, version), f"{NEW}{version}": 1}
    expected = old if at in UNLANDED else new
    with penstock.open(place, create=False, catch_up=False) as lake:
        assert as_the_lake_says(lake, version) == expected, "all of it, or nothing"
        direct = as_plain_lance_says(place, version)
    assert all(old.get(name, 0) <= seen <= expected.get(name, 0) for name, seen in direct.items())
    assert recover(place, version) == expected
    assert as_plain_lance_says(place, version) == expected
    check_left(place, version, at)


def check_left(place: Path, version: int, at: At) -> None:
    """What is left is what its writer staged, and a manifest that everybody sees has the same bytes unless it
    never landed: it can go."""
    for name in names(version):
        location = location_of(place, name)
        for path in staged(location) if location.exists() else ():
            number = (location / path).name.partition(".")[0]
            there = location / "_versions" / f"{number}.manifest"
            if at in UNLANDED:
                assert not there.exists()
            else:
                assert there.read_bytes() == (location / path).read_bytes()
            (location / path).unlink()


@pytest.fixture
def place(tmp_path: Path, template: Path) -> Path:
    make_lake(tmp_path / "lake", template)
    return tmp_path / "lake"


@pytest.mark.parametrize("at", At, ids=str)
def test_a_commit_whose_process_dies_is_whole_and_is_promoted_by_the_next(
    place: Path, template: Path, at: At
) -> None:
    check_death(place, template, 2, at)


@pytest.mark.reliability
@pytest.mark.parametrize("at", share(At), ids=str)
def test_a_commit_whose_process_dies_is_whole_however_often(tmp_path: Path, template: Path, at: At) -> None:
    for number in range(ROUNDS):
        place = tmp_path / f"lake {number}"
        make_lake(place, template)
        check_death(place, template, 2, at)


def test_processes_that_die_one_after_the_other_leave_nothing_half_done(place: Path, template: Path) -> None:
    """Each finds what the one before it left, and dies at another point."""
    version = 2
    for at in (At.AFTER_FLIP, At.FIRST_LINK, At.ONE_PROMOTED):
        killed_at(place, template, version, at)
        version += 1
    assert version <= VERSIONS
    with penstock.open(place, create=False, catch_up=False) as lake:
        assert [as_the_lake_says(lake, 2)[name] for name in OLD] == [version - 1] * 2
    begun_s = monotonic()
    recover(place, 2)
    assert monotonic() - begun_s < LATER_S
    assert [len(rows(location_of(place, name))) for name in OLD] == [version - 1] * 2
    assert all(len(manifests(location_of(place, name))) == version - 1 for name in OLD)


@pytest.mark.parametrize("at", [At.AFTER_FLIP, At.FIRST_LINK], ids=str)
def test_processes_that_promote_the_same_versions_at_once_do_it_once(
    place: Path, template: Path, tmp_path: Path, at: At
) -> None:
    killed_at(place, template, 2, at)
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    workers = [
        subprocess.Popen(
            [sys.executable, str(PROMOTING), str(place), str(meeting), str(number), str(PROCESSES)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        errors = [worker.communicate(timeout=LATER_S)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0] * PROCESSES, errors
    assert len(list(meeting.iterdir())) == PROCESSES, "they met before the first of them put anything"
    assert as_plain_lance_says(place, 2) == {"t1": 2, "t2": 2, "new2": 1}
    assert [len(manifests(location_of(place, name))) for name in names(2)] == [2, 2, 1]
    assert [one for name in names(2) for one in staged(location_of(place, name))] == []
