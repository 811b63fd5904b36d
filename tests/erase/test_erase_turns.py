"""What is prepared on a branch before an erase lets go of the branch does not land behind the horizon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import CommitConflict, EraseRefused
from penstock.kernel.commit import CommitRequest
from penstock.kernel.edit import Edit
from penstock.kernel.merge import MergeRequest
from penstock.kernel.rebase import BranchRebase
from penstock.kernel.restore import RestoreRequest
from penstock.kernel.revert import RevertRequest
from penstock.kernel.transplant import TransplantRequest
from penstock.lake.erase import EraseRun
from penstock.lake.lake import Lake
from penstock.stores.objectstore import ObjectStore
from tests.erase.tables import ALONE
from tests.lance.tables import ids_at, written

KINDS = ("delta", "lance", "files")
REFUSED = "erased|Commit result for version 3 is unknown"
"""Lance's client has words of its own, and its log says which refusal is meant."""
BEING_ERASED = r"is being erased|Commit result for version \d is unknown"
in_each_kind = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "delta" else pytest.mark.verify) for kind in KINDS]
)
"""The check is the kernel's, for all formats: `make test` tries it with one."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A lake that locks nothing while a request has its turn, so that others go on."""
    return f"file://{tmp_path}/lake"


@pytest.fixture
def lake(url: str) -> Iterator[Lake]:
    ObjectStore(url, announce_wait_s=1.0).close()
    penstock.init(url).close()
    with penstock.open(url, author="ada") as lake:
        yield lake


def erase(url: str) -> None:
    with penstock.open(url, settings=ALONE, author="privacy") as other:
        other.erase("t", all_references=True)


def write(lake: Lake, kind: str, number: int, branch: str = "main") -> None:
    """Add a row, or a file, to the table."""
    if kind == "delta":
        data = pa.table({"id": pa.array([number], pa.int64())})
        if not lake.branch(branch).table("t").exists:
            lake.create_table("t", data=data, branch=branch)
        else:
            lake.branch(branch).table("t").append(data)
    elif kind == "lance":
        is_there = lake.branch(branch).table("t").exists
        written(lake.lance(branch), "t", ids=(number,), mode="append" if is_there else "create")
    else:
        lake.branch(branch).table("t").files.put(str(number), b"x")


def content(lake: Lake, kind: str, branch: str = "main") -> list[int]:
    if kind == "delta":
        found: list[int] = lake.branch(branch).table("t").to_arrow()["id"].to_pylist()
        return sorted(found)
    if kind == "lance":
        return ids_at(lake.lance(branch), "t")
    return sorted(int(one.path) for one in lake.branch(branch).table("t").files.list())


def fill(lake: Lake, kind: str) -> None:
    """Rows 1 and 2 on both branches, 3 on the default one only."""
    write(lake, kind, 1)
    write(lake, kind, 2)
    lake.branch("old").create()
    write(lake, kind, 3)
    lake.finish_background()


def commit(lake: Lake, kind: str) -> None:
    write(lake, kind, 9, "old")


def merge(lake: Lake, _: str) -> None:
    lake.merge(lake.branch().head, "old")


def transplant(lake: Lake, _: str) -> None:
    lake.transplant([lake.branch().head], "old")


def revert(lake: Lake, _: str) -> None:
    lake.revert(lake.branch("old").head, "old")


def restore(lake: Lake, _: str) -> None:
    lake.restore("t", to="old~1", branch="old")


WAYS: dict[Callable[[Lake, str], None], type[Any]] = {
    commit: CommitRequest,
    merge: MergeRequest,
    transplant: TransplantRequest,
    revert: RevertRequest,
    restore: RestoreRequest,
}


@in_each_kind
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=() if way in (commit, merge) else pytest.mark.verify) for way in WAYS],
    ids=lambda way: way.__name__,
)
def test_what_was_prepared_before_the_erase_is_refused_at_its_turn(
    lake: Lake, url: str, monkeypatch: pytest.MonkeyPatch, kind: str, way: Callable[[Lake, str], None]
) -> None:
    fill(lake, kind)
    prepare, raced = WAYS[way].prepare, list[bool]()

    def racing(request: Any, reference: Any) -> None:
        prepare(request, reference)
        if not raced:
            raced.append(True)
            erase(url)

    monkeypatch.setattr(WAYS[way], "prepare", racing)
    with pytest.raises(Exception, match=REFUSED):
        way(lake, kind)
    assert raced == [True]
    lake.rebase("old")
    assert content(lake, kind, "old") == [1, 2, 3]
    write(lake, kind, 4, "old")
    assert content(lake, kind, "old") == [1, 2, 3, 4]
    assert lake.fsck().damages == ()


@in_each_kind
def test_a_rebase_that_was_prepared_before_the_erase_loses_nothing(
    lake: Lake, url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fill(lake, kind)
    lake.create_table("u", data=pa.table({"id": [5]}), branch="old")
    build, raced = BranchRebase._build_chain_once, list[bool]()

    def racing(rebase: BranchRebase, reference: Any, *, may_read: bool) -> Any:
        built = build(rebase, reference, may_read=may_read)
        if not raced:
            raced.append(True)
            erase(url)
        return built

    monkeypatch.setattr(BranchRebase, "_build_chain_once", racing)
    lake.rebase("old")
    lake.rebase("old")
    assert content(lake, kind, "old") == [1, 2, 3]
    assert lake.branch("old").table("u").to_arrow()["id"].to_pylist() == [5]


@in_each_kind
def test_what_has_passed_its_check_before_the_erase_loses_its_swap(
    lake: Lake, url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The whole erase happens between the look at the horizon and the swap of the branch."""
    fill(lake, kind)
    check, raced = Edit._check_horizons, list[bool]()

    def racing(edit: Edit) -> None:
        check(edit)
        if not raced and not edit.may_read:
            raced.append(True)
            erase(url)

    monkeypatch.setattr(Edit, "_check_horizons", racing)
    with pytest.raises(Exception, match=REFUSED):
        write(lake, kind, 9, "old")
    assert raced == [True]
    lake.rebase("old")
    assert content(lake, kind, "old") == [1, 2, 3]


@in_each_kind
def test_an_erase_sees_what_landed_before_it_came_to_the_branch(
    lake: Lake, url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The writer has looked at horizons before, and nobody but itself has moved the branch since."""
    fill(lake, kind)
    lake.create_table("u", data=pa.table({"id": [5]}), branch="old")
    passing = EraseRun._commit_to_every_branch

    def racing(erase: EraseRun, horizon: Any) -> None:
        write(lake, kind, 9, "old")
        passing(erase, horizon)

    monkeypatch.setattr(EraseRun, "_commit_to_every_branch", racing)
    with pytest.raises(EraseRefused, match="branch 'old': it has changes of its own"):
        erase(url)
    assert content(lake, kind, "old") == [1, 2, 9]
    write(lake, kind, 10, "old")
    assert content(lake, kind, "old") == [1, 2, 9, 10]


@in_each_kind
def test_a_branch_takes_no_write_to_a_table_that_is_being_erased(
    lake: Lake, url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fill(lake, kind)
    require, refused = EraseRun._require_alone, list[str]()

    def racing(erase: EraseRun, first: int | None) -> None:
        require(erase, first)
        if refused:
            with penstock.open(url) as writer, pytest.raises(Exception, match=BEING_ERASED):
                write(writer, kind, 9, "old")
        refused.append("")

    monkeypatch.setattr(EraseRun, "_require_alone", racing)
    erase(url)
    assert len(refused) == 2
    with pytest.raises(Exception, match="was erased"):
        write(lake, kind, 9, "old")


@in_each_kind
def test_a_branch_that_was_refused_is_written_to_once_the_erase_was_given_up(
    lake: Lake, url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The writer remembers that the table is being erased, and nothing tells it of the end."""
    fill(lake, kind)
    require, looks = EraseRun._require_alone, list[str]()

    def racing(erase: EraseRun, first: int | None) -> None:
        require(erase, first)
        looks.append("")
        if len(looks) == 2:
            lake.branch("new").create()
            with pytest.raises(Exception, match=BEING_ERASED):
                write(lake, kind, 9, "new")
            raise EraseRefused("somebody came")

    monkeypatch.setattr(EraseRun, "_require_alone", racing)
    with pytest.raises(EraseRefused, match="somebody came"):
        erase(url)
    before = content(lake, kind, "new")
    write(lake, kind, 9, "new")
    assert content(lake, kind, "new") == [*before, 9]


@in_each_kind
def test_an_erase_in_the_same_process_is_seen_at_the_next_turn(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nobody but this process moves the branch."""
    fill(lake, kind)
    lake.create_table("u", data=pa.table({"id": [5]}), branch="old")
    prepare, raced = CommitRequest.prepare, list[bool]()

    def racing(request: Any, reference: Any) -> None:
        prepare(request, reference)
        if reference.name == "old" and not raced:
            raced.append(True)
            lake.erase("t", all_references=True)

    monkeypatch.setattr(CommitRequest, "prepare", racing)
    with pytest.raises(Exception, match=REFUSED):
        write(lake, kind, 9, "old")
    lake.rebase("old")
    assert content(lake, kind, "old") == [1, 2, 3]


def test_an_erase_that_was_killed_is_taken_up_and_the_branch_is_written_to_again(
    lake: Lake, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, "delta")

    def killed(_erase: EraseRun, _horizon: Any, _settled: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EraseRun, "_set_horizon", killed)
        with pytest.raises(KeyboardInterrupt):
            erase(url)
    with pytest.raises(CommitConflict, match=r"is being erased.*erase the table again"):
        write(lake, "delta", 9, "old")
    write(lake, "delta", 4)
    erase(url)
    lake.rebase("old")
    write(lake, "delta", 9, "old")
    assert content(lake, "delta", "old") == [1, 2, 3, 4, 9]
