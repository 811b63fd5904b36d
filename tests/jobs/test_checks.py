"""Checks of a branch: they see exactly what is about to be published, and can keep it from being."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import penstock
from penstock import Commit, Delete, Key, Namespace, Put, Vetoed
from penstock.errors import CommitVetoed, InvalidRequest, ReferenceNotFound, RetriesExhausted, Unavailable
from penstock.kernel.settings import Settings
from penstock.lake.calls import AssignReference
from penstock.lake.checks import Proposed
from penstock.lake.lake import Lake
from penstock.model.encoding import NO_COMMIT
from penstock.model.jobs import JobState
from penstock.stores.memory import MemoryStore
from penstock.testing.counting_store import CountingStore
from penstock.testing.faults import FaultyStore, Point
from tests.jobs import lakes
from tests.jobs.lakes import A, Running, open_lake
from tests.remote.serving import serving


def put(key: str, **properties: str) -> Put:
    return Put(Key.parse(key), Namespace(properties=properties))


@pytest.fixture
def lake() -> Lake:
    return open_lake(MemoryStore())


def refuse_bad(proposed: Proposed) -> None:
    """Refuses any result in which there is a key ``bad``."""
    if proposed.get("bad") is not None:
        raise Vetoed("there is something bad")


def test_property_58_a_check_is_shown_the_exact_result_and_what_is_said_of_it(lake: Lake) -> None:
    seen: list[Proposed] = []
    base = lake.commit([put("one"), put("gone")])
    lake.add_check("look", seen.append)
    lake.commit(
        [put("one", size="2"), put("two"), Delete(Key.parse("gone"))],
        message="grow",
        author="ada",
        properties={"run": "7"},
    )
    (shown,) = seen
    assert (shown.branch, shown.base, shown.message, shown.author) == ("main", base.id, "grow", "ada")
    assert shown.properties == {"run": ("7",)}
    assert [str(key) for key in shown.changed] == ["gone", "one", "two"]
    for key in ("one", "two", "gone", "never"):
        assert shown.get(key) == lake.at("main").get(key)


def test_property_58_a_veto_leaves_the_branch_and_names_check_branch_and_reason(lake: Lake) -> None:
    lake.add_check("no bad things", refuse_bad)
    before = lake.kernel.references.get_reference("main")
    with pytest.raises(CommitVetoed) as vetoed:
        lake.commit([put("bad")])
    assert vetoed.value.details == {
        "check": "no bad things",
        "name": "main",
        "reason": "there is something bad",
    }
    assert "no bad things" in str(vetoed.value)
    assert lake.kernel.references.get_reference("main") == before
    lake.commit([put("good")])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, None),
        (True, None),
        (False, "it gave no reason"),
        ("", "it gave no reason"),
        ("too large", "too large"),
        (["too large"], "it returned ['too large'], which is neither true nor false"),
    ],
    ids=["nothing", "yes", "no", "empty", "text", "list"],
)
def test_a_check_answers_by_what_it_returns(lake: Lake, answer: object, reason: str | None) -> None:
    lake.add_check("answers", lambda _: answer)
    if reason is None:
        lake.commit([put("one")])
        return
    with pytest.raises(CommitVetoed) as vetoed:
        lake.commit([put("one")])
    assert vetoed.value.details["reason"] == reason


def test_a_check_that_fails_vetoes_and_is_logged(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.add_check("divides", lambda _: 1 // 0)
    with caplog.at_level(logging.ERROR, "penstock"), pytest.raises(CommitVetoed) as vetoed:
        lake.commit([put("one")])
    assert vetoed.value.details["reason"].startswith("it failed with ZeroDivisionError")
    assert "Traceback" not in str(vetoed.value)
    assert "check 'divides' failed" in caplog.text


def test_a_check_that_cannot_reach_the_store_is_no_veto(lake: Lake) -> None:
    def away(_: Proposed) -> None:
        raise Unavailable("nobody answers")

    lake.add_check("away", away)
    with pytest.raises(Unavailable):
        lake.commit([put("one")])


def test_merges_transplants_reverts_and_rebases_are_checked_too(lake: Lake) -> None:
    lake.commit([put("base")])
    dev = lake.branch("dev").create()
    bad = lake.commit([put("bad")], branch="dev")
    for branch in ("main", "dev"):
        lake.add_check(f"of {branch}", refuse_bad, branch)
    head = lake.show().id
    with pytest.raises(CommitVetoed):
        lake.merge("dev")
    with pytest.raises(CommitVetoed):
        lake.transplant(bad.id)
    assert lake.merge("dev", dry_run=True).keys
    lake.commit([put("newer")])
    with pytest.raises(CommitVetoed):
        lake.rebase("dev")
    assert dev.head == bad.id
    lake.revert(bad.id, "dev")
    lake.remove_check("of dev")
    lake.rebase("dev")
    undone = lake.show("dev")
    lake.add_check("of dev", refuse_bad, "dev")
    with pytest.raises(CommitVetoed):
        lake.revert(undone.id, "dev")
    assert lake.show("main~1").id == head
    lake.merge("dev")
    assert lake.at("main").get("bad") is None


def test_a_rebase_shows_all_that_the_branch_becomes(lake: Lake) -> None:
    lake.branch("dev").create()
    lake.commit([put("here")])
    lake.commit([put("there")], branch="dev")
    seen: list[Proposed] = []
    lake.add_check("look", seen.append, "dev")
    result = lake.rebase("dev", idempotency_key="once")
    assert [str(key) for key in seen[0].changed] == ["here"]
    assert seen[0].get("here") == lake.at("dev").get("here")
    lake.remove_check("look")
    lake.add_check("never", lambda _: False, "dev")
    assert lake.rebase("dev", idempotency_key="once").head == result.head


def test_a_pattern_names_the_branches_that_are_checked(lake: Lake) -> None:
    lake.branch("release/1").create()
    lake.add_check("no bad things", refuse_bad, "release/*")
    lake.commit([put("bad")])
    with pytest.raises(CommitVetoed, match="release/1"):
        lake.commit([put("bad")], branch="release/1")


def test_a_check_of_a_branch_that_does_not_exist_is_warned_of_and_runs_once_there_is_one(lake: Lake) -> None:
    with pytest.warns(UserWarning, match="'no bad things' has no effect yet: there is no branch 'mian'"):
        lake.add_check("no bad things", refuse_bad, "mian")
    lake.branch("mian").create()
    with pytest.raises(CommitVetoed, match="mian"):
        lake.commit([put("bad")], branch="mian")


def test_a_pattern_that_no_branch_matches_yet_is_not_warned_of(lake: Lake) -> None:
    for pattern in ("release/*", "v?", "v[12]"):
        lake.add_check(pattern, refuse_bad, pattern)  # a warning would be an error here
    lake.branch("release/1").create()
    with pytest.raises(CommitVetoed, match="release/1"):
        lake.commit([put("bad")], branch="release/1")


def test_a_repeated_request_is_answered_without_a_check(lake: Lake) -> None:
    first = lake.commit([put("one")], idempotency_key="k")
    lake.add_check("never", lambda _: False)
    assert lake.commit([put("one")], idempotency_key="k") == first
    with pytest.raises(CommitVetoed):
        lake.commit([put("one")], idempotency_key="other")


def test_property_58_what_moved_meanwhile_is_checked_again_as_it_would_be_then() -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    seen: list[tuple[str, bool]] = []

    def look(proposed: Proposed) -> str | None:
        seen.append((proposed.base, proposed.get("theirs") is not None))
        return "both are there" if proposed.get("theirs") is not None else None

    lake.add_check("never both", look)
    gate = store.pause(Point.BEFORE_SWAP, name="main")
    mine = Running(lambda: lake.commit([put("mine")]))
    gate.wait_until_reached()
    theirs = other.commit([put("theirs")])
    gate.open()
    with pytest.raises(CommitVetoed, match="both are there"):
        mine.result()
    assert seen == [(NO_COMMIT.hex(), False), (theirs.id, True)]
    assert other.show() == theirs


def test_a_branch_that_always_moves_while_its_checks_run_is_given_up_in_the_end() -> None:
    store = MemoryStore()
    lake, other = open_lake(store, settings=Settings(tries_max=5)), open_lake(store)
    runs: list[Commit] = []

    def disturb(_: Proposed) -> None:
        runs.append(other.commit([put(f"theirs{len(runs)}")]))

    lake.add_check("disturb", disturb)
    with pytest.raises(RetriesExhausted, match="moved 5 times"):
        lake.commit([put("mine")])
    assert len(runs) == 5
    assert lake.show() == runs[-1]


def test_writers_of_a_checked_branch_take_turns_and_each_is_checked_once(lake: Lake) -> None:
    runs: list[str] = []
    lake.add_check("count", lambda proposed: runs.append(proposed.message))
    works = [Running(partial(lake.commit, [put(f"k{n}")], message=str(n))) for n in range(8)]
    for work in works:
        work.result()
    assert sorted(runs) == [str(n) for n in range(8)]


def test_turns_are_kept_only_for_branches_that_are_written_just_now(lake: Lake) -> None:
    checks = lake.kernel.checks
    kept: list[int] = []
    lake.add_check("count", lambda _: kept.append(len(checks._turns)), "*")
    for number in range(20):
        branch = lake.branch(f"b{number}").create()
        branch.create_namespace(f"n{number}")
        branch.delete()
    works = [Running(partial(lake.commit, [put(f"k{n}")], branch=f"w{n % 3}")) for n in range(9)]
    for number in range(3):
        lake.branch(f"w{number}").create()
    for work in works:
        with suppress(ReferenceNotFound):
            work.result()
    lake.add_check("no", lambda _: "never", "main")
    with pytest.raises(CommitVetoed):
        lake.commit([put("refused")])
    assert kept[:20] == [1] * 20
    assert max(kept) <= 3
    assert (checks._turns, checks._whose) == ({}, {})


def test_a_check_that_writes_to_its_own_branch_is_told_so_and_does_not_hang(lake: Lake) -> None:
    lake.branch("audit").create()

    def write(proposed: Proposed) -> None:
        lake.commit([put("seen")], branch="audit", message=proposed.message)
        with pytest.raises(InvalidRequest, match="cannot write to 'main'"):
            lake.commit([put("again")])

    lake.add_check("writes", write)
    lake.commit([put("one")], message="hello")
    assert lake.show("audit").message == "hello"


def test_without_a_check_for_its_branch_a_commit_costs_what_it_always_did() -> None:
    costs = []
    for is_checked in (False, True):
        store = CountingStore(MemoryStore())
        lake = open_lake(store)
        lake.commit([put("warm")])
        if is_checked:
            lake.add_check("of another branch", refuse_bad, "release/*")
        before = store.counts
        lake.commit([put("one")])
        costs.append(store.counts - before)
    assert costs[0].requests == costs[1].requests
    assert costs[0].swaps == costs[1].swaps == 1


def test_a_job_that_is_vetoed_is_aborted_and_nothing_of_it_is_seen(lake: Lake) -> None:
    lake.add_check("no files", lambda proposed: f"{len(proposed.files('raw.events').list())} files")
    lakes.begin(lake)
    with pytest.raises(CommitVetoed, match="1 files"):
        lakes.commit(lake)
    assert lakes.job(lake).state is JobState.ABORTED
    assert "no files" in lakes.job(lake).why
    assert lakes.files(lake) == []


@pytest.mark.parametrize("own_branch", [False, True], ids=["on the branch", "on its own branch"])
def test_a_check_of_a_job_sees_its_files_before_anybody_else_does(lake: Lake, own_branch: bool) -> None:
    seen: list[list[str]] = []

    def look(proposed: Proposed) -> None:
        assert lakes.files(lake) == []
        seen.append([one.path for one in proposed.files("raw.events").walk()])
        assert proposed.files("raw.events").stat(f"{A}.parquet").size == 1

    lake.add_check("look", look)
    lakes.begin(lake, own_branch=own_branch)
    lakes.commit(lake)
    assert seen == [[f"{A}.parquet"]]


def test_a_check_can_read_the_bytes_of_files_that_are_not_published(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:

        def no_secrets(proposed: Proposed) -> str | None:
            for key in proposed.changed:
                if not isinstance(proposed.get(key), penstock.FilesTable):
                    continue
                for file in proposed.files(key).walk():
                    with proposed.files(key).open(file.path) as opened:
                        if b"secret" in opened.read():
                            return f"{key}/{file.path} has a secret"
            return None

        lake.add_check("no secrets", no_secrets)
        files = lake.table("raw.notes").files
        files.put("a.txt", b"plain")
        with pytest.raises(CommitVetoed, match=r"raw\.notes/b\.txt has a secret"):
            files.put("b.txt", b"a secret")
        assert [one.path for one in files.list()] == ["a.txt"]


def test_reading_files_in_a_check_loads_nothing_of_other_formats(tmp_path: Path) -> None:
    program = """
import sys, penstock
with penstock.open(sys.argv[1]) as lake:
    files = lake.table("raw.notes").files
    files.put("a.txt", b"plain")
    loaded, seen = {*sys.modules}, []

    def read(proposed):
        with proposed.files("raw.notes").open("a.txt") as opened:
            seen.append(opened.read())

    lake.add_check("read", read)
    files.put("b.txt", b"x")
    more = {*sys.modules} - loaded
    made = [getattr(plugin, "_parts", None) for plugin in lake.catalogue.plugins]
    print(seen, made, [name for name in more if name.startswith("penstock.formats.delta")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "lake"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[b'plain'] [None, None, None] []\n"


def test_a_branch_is_moved_only_to_what_its_checks_agree_to(lake: Lake) -> None:
    seen: list[Proposed] = []
    start = lake.commit([put("one")])
    dev = lake.branch("dev").create()
    lake.commit([put("bad")], branch="dev", message="try", author="ada")
    lake.add_check("no bad things", refuse_bad)
    lake.add_check("look", seen.append)
    with pytest.raises(CommitVetoed, match="something bad"):
        lake.branch("main").assign("dev")
    assert (lake.resolve("main"), seen) == (start.id, [])
    lake.commit([Delete(Key.parse("bad")), put("good")], branch="dev", message="mend", author="ada")
    lake.branch("main").assign("dev")
    (shown,) = seen
    assert (shown.branch, shown.base, shown.message, shown.author) == ("main", start.id, "mend", "ada")
    assert [str(key) for key in shown.changed] == ["good"]
    assert lake.resolve("main") == dev.head
    lake.branch("dev").assign("dev~1")
    lake.tag("dev-as-it-was").create(at="dev")
    lake.tag("dev-as-it-was").assign("dev~1")
    assert len(seen) == 1, "only main is checked"


def test_a_branch_that_moves_while_its_check_runs_is_assigned_only_after_another_check(lake: Lake) -> None:
    other = penstock.open(lake.kernel.store, create=False)
    lake.commit([put("one")])
    lake.branch("dev").create()
    lake.commit([put("two")], branch="dev")
    bases: list[str] = []

    def look(proposed: Proposed) -> None:
        bases.append(proposed.base)
        if len(bases) == 1:
            other.commit([put("meanwhile")])

    lake.add_check("look", look)
    before = lake.resolve("main")
    lake.branch("main").assign("dev")
    assert len(bases) == 2
    assert bases[0] == before != bases[1]
    assert lake.resolve("main") == lake.resolve("dev")


def test_an_assignment_that_was_done_is_answered_as_then_whatever_checks_say_by_now(lake: Lake) -> None:
    lake.commit([put("one")])
    lake.branch("dev").create()
    lake.commit([put("bad")], branch="dev")
    dev = lake.resolve("dev")
    call = AssignReference(name="main", to=dev, idempotency_key="once")
    lake.do(call)
    lake.add_check("no bad things", refuse_bad)
    assert lake.do(call).id == dev
    assert lake.do(AssignReference(name="main", to=dev, idempotency_key="twice")).id == dev
    lake.branch("main").assign("main~1")
    assert lake.do(call).id == dev, "as it was then"
    with pytest.raises(CommitVetoed):
        lake.do(AssignReference(name="main", to=dev, idempotency_key="three times"))


def test_checks_have_names_and_are_listed_in_the_order_in_which_they_run(lake: Lake) -> None:
    lake.branch("dev").create()
    lake.add_check("first", lambda _: "first")
    lake.add_check("second", lambda _: "second", "dev")
    assert [(one.name, one.branch) for one in lake.checks()] == [("first", "main"), ("second", "dev")]
    with pytest.raises(InvalidRequest, match="'first' already"):
        lake.add_check("first", lambda _: None)
    lake.remove_check("first")
    with pytest.raises(InvalidRequest, match="no check 'first'"):
        lake.remove_check("first")


def test_checks_run_in_the_server_and_a_client_is_told_so(lake: Lake) -> None:
    with serving(lake.catalogue) as server, penstock.open(server.url) as remote:
        with pytest.raises(InvalidRequest, match="in the process of the server"):
            remote.add_check("no bad things", refuse_bad)
        lake.add_check("no bad things", refuse_bad)
        with pytest.raises(CommitVetoed) as vetoed:
            remote.commit([put("bad")])
        assert vetoed.value.details["check"] == "no bad things"
        remote.commit([put("good")])
