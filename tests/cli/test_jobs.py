"""Jobs that write tables of files, on the command line."""

from __future__ import annotations

from uuid import uuid4

import pytest

import penstock
from penstock.formats.files.lake.answers import JobBegun
from penstock.formats.files.lake.calls import BeginJob, NewFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.server.limits import Limits
from penstock.server.native import NATIVE
from tests.cli.conftest import Terminal, anywhere
from tests.server.running import local

KEY = Key.parse("raw.events")


def begin(lake: Lake, fence: str, **more: object) -> JobBegun:
    call = {"id": uuid4().hex, "key": KEY, "what": "append", "application": "app-1", **more}
    return lake.do(BeginJob(fence=fence, **call))  # type: ignore[arg-type]


@anywhere
def test_jobs_that_run_are_listed(terminal: Terminal) -> None:
    assert terminal("jobs").lines == ["no jobs"]
    with penstock.open(terminal.place) as lake:
        lake.branch("dev").create()
        one = begin(lake, uuid4().hex).job
        two = begin(lake, uuid4().hex, key=Key.parse("raw.other"), branch="dev", own_branch=True).job
        told = terminal.json("jobs", "list")["items"]
        assert [job["id"] for job in told] == [two.id, one.id]
        assert (told[0]["state"], told[0]["own_branch"]) == ("running", f"jobs/{two.id}")
        (line,) = terminal("jobs", "list", "--table", "raw.events").lines
        assert line.split()[:4] == [one.id[:8], "running", "raw.events", "main"]
        assert "append app-1" in line
        assert [job["id"] for job in terminal.json("jobs", "list", "--branch", "dev")["items"]] == [two.id]


@anywhere
def test_an_aborted_job_never_lands(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        fence = uuid4().hex
        begun = begin(lake, fence)
        (told,) = terminal.json("jobs", "abort", begun.job.id[:8], "--why", "wrong input")["items"]
        assert (told["state"], told["why"]) == ("aborted", "wrong input")
        assert terminal("jobs").lines == ["no jobs"]
        assert "wrong input" in terminal("jobs", "list", "--all").out
        with pytest.raises(penstock.errors.JobOver, match="wrong input"):
            lake.do(commit(begun, fence))


def commit(begun: JobBegun, fence: str) -> WriteFiles:
    folder = begun.folder.partition("_penstock/data/")[2]
    return WriteFiles(
        key=KEY, folder=folder, added=(NewFile(path="x", size=1),), job=begun.job.id, fence=fence
    )


def test_a_job_that_has_committed_stays_so(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        fence = uuid4().hex
        begun = begin(lake, fence)
        made = lake.do(commit(begun, fence))
    assert made.commit is not None
    ran = terminal("jobs", "abort", begun.job.id)
    assert made.commit.id[:8] in ran.out
    assert "cannot be aborted" in ran.err
    assert terminal.json("jobs", "list", "--all")["items"][0]["commit"] == made.commit.id


def test_jobs_whose_time_is_over_are_aborted_together(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        late = begin(lake, uuid4().hex, timeout_s=0.000001).job
        begin(lake, uuid4().hex)
    assert "late" in terminal("jobs").out
    assert [job["id"] for job in terminal.json("jobs", "abort", "--late")["items"]] == [late.id]
    assert terminal("jobs", "abort", "--late").lines == ["no jobs"]
    assert len(terminal.json("jobs")["items"]) == 1


@pytest.mark.parametrize("short", ["", "a", "0123456"])
def test_a_job_is_named_by_eight_digits_at_least(terminal: Terminal, short: str) -> None:
    with penstock.open(terminal.place) as lake:
        begin(lake, uuid4().hex, id=f"0123456{short[:1] or 'f'}{'0' * 24}")
        assert "at least the first 8" in terminal("jobs", "abort", short, status=2).err
        assert [job["state"] for job in terminal.json("jobs")["items"]] == ["running"]


def test_a_job_is_found_behind_more_than_a_page_of_newer_ones(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        first = begin(lake, uuid4().hex, timeout_s=0.000001).job
        others = [begin(lake, uuid4().hex).job for _ in range(12)]
        with local(lake.catalogue, [NATIVE], limits=Limits(page_max=5)) as server:
            far = Terminal(terminal.place, server.url)
            found = [job["id"] for job in far.json("jobs")["items"]]
            assert found == [job.id for job in (*reversed(others), first)]
            told = far.json("jobs", "abort", first.id[:8])["items"]
            assert [(job["id"], job["state"]) for job in told] == [(first.id, "aborted")]
            told = far.json("jobs", "abort", others[0].id)["items"]
            assert [(job["id"], job["state"]) for job in told] == [(others[0].id, "aborted")]


def test_a_job_that_is_not_known_is_said_so(terminal: Terminal) -> None:
    assert "'penstock jobs list --all'" in terminal("jobs", "abort", "0" * 32, status=4).err
    assert "--late" in terminal("jobs", "abort", status=2).err
