"""Writers of files that meet, and writers that die or hear no answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import penstock
from penstock.errors import CommitConflict, FileNotFound, JobOver, OutcomeUnknown, PenstockError, Unavailable
from penstock.formats.files.lake.calls import BeginJob, CopiedFile, WriteFiles
from penstock.lake.call import Call
from penstock.lake.job_files import JobStart
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.model.jobs import JobState
from penstock.model.keys import Key
from penstock.testing.threads import at_once
from tests.files.pool import stored
from tests.remote.conftest import PATIENT, QUICK, Switch
from tests.remote.serving import Served
from tests.remote.test_connection_loss import CUTS
from tests.servers.proxy import Proxy

KEY = Key("raw", "events")


def outcome(do: Callable[[], Any]) -> type[PenstockError] | None:
    """What a writer was told: that it is done, or why not."""
    try:
        do()
    except PenstockError as error:
        return type(error)
    return None


def paths(lake: Lake) -> list[str]:
    return [one.path for one in lake.table(KEY).files.list()]


# -- writers that meet -------------------------------------------------------------------------------------


def test_of_many_who_create_a_file_one_does(own: Lake, far: Lake) -> None:
    own.table(KEY).files.put("first", b"")
    told = at_once(
        *(
            lambda lake=lake, number=number: outcome(
                lambda: lake.table(KEY).files.put("x", str(number), if_absent=True)
            )
            for number, lake in enumerate([own, far] * 4)
        )
    )
    assert sorted(map(str, told)) == sorted([str(CommitConflict)] * 7 + ["None"])
    assert own.table(KEY).files.read("x") == str(told.index(None)).encode()
    assert len(own.log()) == 2
    assert len(stored(own)) == 2, "those who lost have taken their bytes along"


def test_many_who_make_the_same_table_all_do(own: Lake, far: Lake) -> None:
    at_once(
        *(
            lambda lake=lake, number=number: lake.table(KEY).files.put(str(number), b"")
            for number, lake in enumerate([own, far] * 4)
        )
    )
    assert paths(own) == list("01234567")
    assert own.fsck().damages == ()


def test_of_many_who_replace_what_they_read_one_does(own: Lake, far: Lake) -> None:
    files = own.table(KEY).files
    files.put("x", b"0")
    seen = files.stat("x")
    told = at_once(
        *(
            lambda lake=lake, number=number: outcome(
                lambda: lake.table(KEY).files.put("x", str(number), if_match=seen)
            )
            for number, lake in enumerate([own, far] * 3)
        )
    )
    assert told.count(None) == 1
    assert files.read("x") == str(told.index(None)).encode()


def test_a_put_and_a_delete_that_meet_are_done_one_after_the_other(own: Lake, far: Lake) -> None:
    for number in range(5):
        own.table(KEY).files.put("x", b"old")
        put, deleted = at_once(
            lambda: outcome(lambda: far.table(KEY).files.put("x", b"new")),
            lambda: outcome(lambda: own.table(KEY).files.delete("x")),
        )
        assert (put, deleted) == (None, None), number
        first = [one.message.partition(" ")[0] for one in own.log(limit=2)][-1]
        assert own.table(KEY).files.exists("x") == (first == "delete")


def test_what_moves_is_what_was_there_and_nothing_that_came_meanwhile(
    own: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = own.table(KEY).files
    files.put("x", b"old")
    read, wrote = Event(), Event()
    commit = own.kernel.commit

    def slowly(*given: Any, **named: Any) -> Any:
        if named.get("key") == "move":
            read.set()
            assert wrote.wait(30)
        return commit(*given, **named)

    monkeypatch.setattr(own.kernel, "commit", slowly)

    def overwrite() -> None:
        assert read.wait(30)
        files.put("x", b"new")
        wrote.set()

    told, _ = at_once(lambda: outcome(lambda: files.move("x", "y", idempotency_key="move")), overwrite)
    assert told is CommitConflict
    assert (paths(own), files.read("x")) == (["x"], b"new")
    files.move("x", "y")
    assert (paths(own), files.read("y")) == (["y"], b"new")


# -- writers that die, or hear nothing ---------------------------------------------------------------------


PUT = textwrap.dedent(
    """
    import sys, penstock
    from penstock.formats.files.lake.calls import WriteFiles
    lake = penstock.open(sys.argv[1])
    do = lake.catalogue.do
    def then(call, *more):
        if isinstance(call, WriteFiles) and sys.argv[2] == "before":
            print("here", flush=True); sys.stdin.read()
        answer = do(call, *more)
        if isinstance(call, WriteFiles):
            print("here", flush=True); sys.stdin.read()
        return answer
    lake.catalogue.do = then
    lake.table("raw.events").files.put("x", b"killed", idempotency_key="k")
    """
)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_put_that_is_killed_is_done_or_not_and_can_be_repeated(tmp_path: Path, when: str) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.table(KEY).files.put("first", b"")
    put = subprocess.Popen(
        [sys.executable, "-c", PUT, str(tmp_path / "lake"), when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert put.stdin is not None
    assert put.stdout is not None
    try:
        assert put.stdout.readline() == "here\n"
    finally:
        os.kill(put.pid, signal.SIGKILL)
        put.wait(30)
        put.stdin.close()
        put.stdout.close()
    with penstock.open(tmp_path / "lake") as lake:
        files = lake.table(KEY).files
        assert files.exists("x") == (when == "after")
        assert len(stored(lake)) == 2, "its bytes are in storage, whether anything names them or not"
        files.put("x", b"killed", idempotency_key="k")
        assert (files.read("x"), len(lake.log()), lake.fsck().damages) == (b"killed", 2, ())


@pytest.fixture
def proxy(server: Served, own: Lake, switch: Switch) -> Iterator[Proxy]:
    switch.lake, switch.afterwards = own, lambda _: None
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def cut_off(proxy: Proxy, own: Lake) -> Iterator[Lake]:
    """The lake behind a bad network."""
    own.table(KEY).files.write({"x": b"1", "a/y": b"2"})
    with Lake(RemoteCatalogue(f"http://127.0.0.1:{proxy.port}", patience=QUICK), author="tester") as lake:
        _ = lake.table(KEY).files.total()
        JobStart.at_lake_time(lake)  # the lake's grace time is known
        yield lake


WRITES: dict[str, tuple[Callable[[Lake], Any], list[str]]] = {
    "put": (lambda lake: lake.table(KEY).files.put("new", b"3"), ["a/y", "new", "x"]),
    "put if absent": (
        lambda lake: lake.table(KEY).files.put("new", b"3", if_absent=True),
        ["a/y", "new", "x"],
    ),
    "put if it matches": (
        lambda lake: lake.do(
            WriteFiles(
                key=KEY,
                copied=(CopiedFile(path="x", source="a/y"),),
                expected={"x": lake.table(KEY).files.stat("x").address},
            )
        ),
        ["a/y", "x"],
    ),
    "delete": (lambda lake: lake.table(KEY).files.delete("x"), ["a/y"]),
    "move": (lambda lake: lake.table(KEY).files.move("x", "z"), ["a/y", "z"]),
}


@pytest.mark.parametrize("cut", ["in the middle of the request", "before the answer came"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_whose_answer_is_lost_has_one_effect_and_its_true_answer(
    own: Lake, cut_off: Lake, proxy: Proxy, write: str, cut: str
) -> None:
    do, left = WRITES[write]
    before, happened = len(own.log()), list[Any]()
    sent = cut_off.catalogue.do

    def cutting(call: Call[Any], *more: Any) -> Any:
        if isinstance(call, WriteFiles):
            happened.append(CUTS[cut](proxy))
        return sent(call, *more)

    cut_off.catalogue.do = cutting  # type: ignore[assignment, method-assign]
    written = do(cut_off)
    assert happened[0].happened
    assert (written.commit, written.head) == (own.show(), own.branch().head)
    assert (paths(own), len(own.log())) == (left, before + 1)
    assert all(own.table(KEY).files.read(path) for path in left)


@pytest.mark.parametrize("cut", CUTS)
def test_a_job_that_begins_or_is_aborted_is_told_the_same_if_the_answer_is_lost(
    cut_off: Lake, proxy: Proxy, cut: str
) -> None:
    begin = BeginJob(id="0" * 32, fence="1" * 32, key=KEY, own_branch=True)
    happened = CUTS[cut](proxy)
    begun = cut_off.do(begin)
    assert happened.happened
    assert cut_off.do(begin) == begun
    assert [one.id for one in cut_off.jobs()] == [begin.id]
    happened = CUTS[cut](proxy)
    aborted = cut_off.abort_job(begin.id, "no time")
    assert happened.happened
    assert (aborted.state, aborted.why) == (JobState.ABORTED, "no time")
    assert (cut_off.abort_job(begin.id), cut_off.jobs()) == (aborted, [])
    with pytest.raises(JobOver, match="no time"):
        cut_off.do(WriteFiles(key=KEY, removed=("x",), job=begin.id, fence=begin.fence))


@pytest.mark.parametrize("own_branch", [False, True])
def test_the_commit_of_a_job_whose_answer_is_lost_lands_once(
    own: Lake, cut_off: Lake, proxy: Proxy, own_branch: bool
) -> None:
    begun = cut_off.do(BeginJob(id="0" * 32, fence="1" * 32, key=KEY, own_branch=own_branch))
    happened = CUTS["before the answer came"](proxy)
    written = cut_off.do(WriteFiles(key=KEY, removed=("x",), job=begun.job.id, fence="1" * 32))
    assert happened.happened
    assert (written.head, paths(own)) == (own.branch().head, ["a/y"])
    (job,) = cut_off.jobs(KEY, all=True)
    assert written.commit is not None
    assert (job.state, job.commit) == (JobState.COMMITTED, written.commit.id)
    assert [one.name for one in own.branches()] == ["main"]


def test_files_stay_if_nobody_says_what_came_of_their_commit(own: Lake, proxy: Proxy, switch: Switch) -> None:
    carried_out = switch.wait_for(WriteFiles)
    remote = RemoteCatalogue(f"http://127.0.0.1:{proxy.port}", patience=PATIENT)
    with Lake(remote, author="tester") as lake:
        JobStart.at_lake_time(lake)
        proxy.fall_silent()
        remote._patience = RemoteTimeouts(answer_timeout_s=0.2, total_s=0.4, wait_max_s=0.02)
        with pytest.raises(OutcomeUnknown) as caught:
            lake.table(KEY).files.put("x", b"1")
        assert carried_out.wait(60)
        proxy.speak()
        proxy.cut_all()
    assert len(stored(own)) == 1
    assert own.outcome(caught.value.details["key"]) is not None
    assert own.table(KEY).files.read("x") == b"1"


def test_bytes_that_storage_does_not_take_are_not_committed(
    own: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = own.places.open_place(f"{own.warehouse}/_penstock/data/")

    def lost(name: str, _: bytes) -> None:
        raise OutcomeUnknown(f"nobody said what became of {name}")

    monkeypatch.setattr(place, "put", lost)
    with pytest.raises(Unavailable, match="nothing was committed"):
        own.table(KEY).files.put("x", b"1")
    assert own.log() == []


def test_a_write_that_takes_longer_than_files_are_kept_for_it_is_not_committed(
    own: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def began(_: Lake) -> JobStart:
        return JobStart(0.0, 0.0, 1.0)

    monkeypatch.setattr(JobStart, "at_lake_time", began)
    with pytest.raises(penstock.errors.InvalidRequest, match="data_grace_days"):
        own.table(KEY).files.put("x", b"1")
    assert (own.log(), stored(own)) == ([], set())


def test_a_reader_of_a_commit_sees_one_state_while_writers_go_on(own: Lake, far: Lake) -> None:
    files = own.table(KEY).files
    files.write({f"p/{number}": b"0" for number in range(20)})
    then = far.at().table(KEY).files
    stop = Event()

    def overwrite() -> int:
        rounds = 0
        while not stop.is_set() and rounds < 50:
            rounds += 1
            files.write({f"p/{number}": str(rounds) for number in range(rounds % 7 + 1)}, replace=["p/"])
        return rounds

    def read() -> int:
        try:
            for _ in range(5):
                assert [then.read(one.path) for one in then.walk()] == [b"0"] * 20
            now = far.at().table(KEY).files
            entries = now.list()
            assert len({now.read(one.path) for one in entries}) == 1, "all of one overwrite"
        finally:
            stop.set()
        return 0

    at_once(overwrite, read)


def test_a_file_that_is_gone_by_its_turn_is_told_as_missing(own: Lake, far: Lake) -> None:
    own.table(KEY).files.put("x", b"1")
    told = at_once(
        *(lambda lake=lake: outcome(lambda: lake.table(KEY).files.delete("x")) for lake in (own, far))
    )
    assert set(told) == {None, FileNotFound}
