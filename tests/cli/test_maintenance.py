"""``penstock maintain``: what fails is named and stops nothing else; what is left, the next run does."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.formats.delta.lake.table_job import DeltaJob
from tests.cli.conftest import Terminal, serving
from tests.outages.conftest import SmallDisk, small_disk

__all__ = ["small_disk"]

KEYS = ["a.one", "b.two", "c.three"]
PIECES = 4


def fill(place: Path) -> None:
    with penstock.open(place, author="tester") as lake:
        for key in KEYS:
            for number in range(PIECES):
                lake.table(key).write({"id": [number]}, format="delta")


@pytest.fixture
def filled(terminal: Terminal) -> Terminal:
    fill(terminal.place)
    return terminal


def location(place: Path, key: str) -> Path:
    with penstock.open(place) as lake:
        return Path(lake.table(key).location)


def problems(answer: Any) -> dict[str, str | None]:
    return {table["key"]: table["problem"] for table in answer["tables"]}


def check_done(place: Path) -> None:
    """All tables have their rows, each once, in one file."""
    with penstock.open(place) as lake:
        for table in map(lake.table, KEYS):
            assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(PIECES))
            assert len([*table.snapshot().files()]) == 1
        assert not lake.fsck().damages


@pytest.mark.parametrize("lost", ["the files", "a file", "the folder"])
def test_a_table_whose_files_are_lost_is_named_and_the_others_are_maintained(
    filled: Terminal, lost: str
) -> None:
    folder = location(filled.place, "b.two")
    away = filled.place.parent / "away"
    shutil.copytree(folder, away)
    if lost == "the folder":
        shutil.rmtree(folder)
    else:
        for file in sorted(folder.glob("*.parquet"))[: 1 if lost == "a file" else None]:
            file.unlink()
    found = problems(filled.json("maintain", "--all", status=1))
    assert [key for key, problem in found.items() if problem] == ["b.two"]
    assert str(folder) in (found["b.two"] or "")
    again = filled("maintain", "--all", status=1)
    assert again.lines[0] == "a.one    nothing to rewrite"
    shutil.copytree(away, folder, dirs_exist_ok=True)
    assert not any(problems(filled.json("maintain", "--all")).values())
    check_done(filled.place)


def test_a_problem_of_a_table_is_told_with_its_way_out(filled: Terminal) -> None:
    folder = location(filled.place, "b.two")
    log = folder / "_delta_log"
    (log / f"{PIECES:020}.json").write_text((log / f"{PIECES - 1:020}.json").read_text())
    ran = filled("maintain", "--all", status=1)
    assert "'b.two' is out of sync" in ran.lines[1]
    assert "penstock resync b.two" in ran.out


def test_two_runs_at_once_change_every_file_once(filled: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    both, commit = Barrier(2), DeltaJob.commit_actions

    def commit_together(job: DeltaJob, *given: Any, **options: Any) -> Any:
        if not both.broken and job.version < PIECES:
            both.wait(60)
        return commit(job, *given, **options)

    def run(_: int) -> int:
        with penstock.open(filled.place, author="tester") as lake:
            try:
                return sum(lake.table(key).optimize().files_removed for key in KEYS)
            finally:
                both.abort()

    monkeypatch.setattr(DeltaJob, "commit_actions", commit_together)
    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(run, range(2))) == PIECES * len(KEYS)
    check_done(filled.place)
    assert not any(problems(filled.json("maintain", "--all")).values())


def test_beside_a_merge_all_rows_stay(filled: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge has planned which files it replaces when the maintenance replaces these."""
    commit = DeltaJob.commit_actions

    def commit_after_maintenance(job: DeltaJob, *given: Any, **options: Any) -> Any:
        if options["operation"] == "MERGE" and job.version < PIECES:
            filled("maintain", "--all")
        return commit(job, *given, **options)

    monkeypatch.setattr(DeltaJob, "commit_actions", commit_after_maintenance)
    with penstock.open(filled.place, author="tester") as lake:
        merge = lake.table("a.one").merge({"id": [1, 9]}, on=["id"])
        merge.when_matched_delete().when_not_matched_insert_all().commit()
        assert sorted(lake.table("a.one").to_arrow()["id"].to_pylist()) == [0, 2, 3, 9]


def test_who_may_only_read_is_told_so_for_each_table(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(terminal.place)
    with serving(terminal.place) as server:
        monkeypatch.setenv("PENSTOCK_TOKEN", server.token("reader", "read"))
        found = problems(server.terminal.json("maintain", "--all", status=1))
        assert list(found) == KEYS
        assert all("may not change 'main'" in (problem or "") for problem in found.values())
        monkeypatch.setenv("PENSTOCK_TOKEN", server.token("some", "read", "write:main:c.*"))
        found = problems(server.terminal.json("maintain", "--all", status=1))
        assert found["c.three"] is None
        assert found["a.one"] is not None


def test_a_table_on_a_full_disk_is_named_and_the_others_are_maintained(
    terminal: Terminal, small_disk: SmallDisk
) -> None:
    with penstock.open(terminal.place, author="tester") as lake:
        lake.add_root(str(small_disk.path))
        lake.delta.create("b.two", schema=pa.schema([("id", pa.int64())]), location=small_disk.path / "two")
    fill(terminal.place)
    small_disk.fill()
    found = problems(terminal.json("maintain", "--all", status=1))
    assert [key for key, problem in found.items() if problem] == ["b.two"]
    assert "no room left" in (found["b.two"] or "")
    small_disk.make_room()
    assert not any(problems(terminal.json("maintain", "--all")).values())
    check_done(terminal.place)


def test_a_lake_on_a_full_disk_is_refused_and_maintained_once_there_is_room(small_disk: SmallDisk) -> None:
    place = small_disk.path / "lake"
    penstock.init(place).close()
    fill(place)
    terminal = Terminal(place)
    small_disk.fill()
    assert terminal("maintain", "--all", "--json", status=5).error["code"] == "storage_full"
    small_disk.make_room()
    assert not any(problems(terminal.json("maintain", "--all")).values())
    check_done(place)


def test_who_interrupts_it_is_told_what_was_done(filled: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = DeltaJob.commit_actions

    def interrupted(job: DeltaJob, *given: Any, **options: Any) -> Any:
        if str(job.key) == "b.two":
            raise KeyboardInterrupt
        return commit(job, *given, **options)

    monkeypatch.setattr(DeltaJob, "commit_actions", interrupted)
    result = CliRunner().invoke(root, ["--lake", filled.url, "maintain", "--all"])
    assert result.exit_code != 0
    assert [line.split()[0] for line in result.stdout.splitlines() if line.strip()] == ["a.one"]
    monkeypatch.setattr(DeltaJob, "commit_actions", commit)
    assert not any(problems(filled.json("maintain", "--all")).values())
    check_done(filled.place)


def die(place: str, step: str) -> None:
    """Maintain all tables, and die at the second one's commit, before it or after it."""
    commit = DeltaJob.commit_actions

    def dying(job: DeltaJob, *given: Any, **options: Any) -> Any:
        landed = commit(job, *given, **options) if step == "after" or str(job.key) != "b.two" else None
        if str(job.key) == "b.two":
            os.kill(os.getpid(), signal.SIGKILL)
        return landed

    DeltaJob.commit_actions = dying  # type: ignore[method-assign, assignment]
    CliRunner().invoke(root, ["--lake", place, "maintain", "--all"])


@pytest.mark.parametrize("step", ["before", "after"])
def test_what_a_killed_run_left_the_next_one_does(filled: Terminal, step: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=die, args=(str(filled.place), step))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    done = {
        table["key"]: table["optimized"]["files_removed"]
        for table in filled.json("maintain", "--all")["tables"]
    }
    assert done == {"a.one": 0, "b.two": 0 if step == "after" else PIECES, "c.three": PIECES}
    check_done(filled.place)
