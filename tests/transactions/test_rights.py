"""Who may use a transaction: who began it, as far as they may use its target, and administrators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

import penstock
from penstock.errors import (
    CommitNotFound,
    Denied,
    InvalidRequest,
    JobNotFound,
    PenstockError,
    TransactionNotFound,
    TransactionOver,
)
from penstock.formats.files.lake.calls import AbortJob, BeginJob, CopiedFile, ListFiles, ListJobs, WriteFiles
from penstock.formats.lance.lake.calls import ListLanceVersions
from penstock.lake import calls
from penstock.lake.lake import Lake
from penstock.lake.transactions.calls import AbortTransaction, CommitTransaction, RenewTransaction
from penstock.model.jobs import JobState
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.server.access import CheckedCatalogue
from penstock.server.nessie.errors import make_error_answer
from tests.server.access import caller

GRANTS = {
    "etl": "write:main:a.*",
    "peer": "write:main",
    "everywhere": "write",
    "dev": "write:dev/*",
    "boss": "admin",
    "reader": "read",
}


def table(number: int) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://b/{number}", snapshot_id=number)


@pytest.fixture
def others() -> Iterator[dict[str, Lake]]:
    """The same lake as callers with different tokens see it."""
    with penstock.open("memory:", author="ann") as own:
        own.add_root("s3://b")
        own.branch().put("a.x", table(1))
        own.branch().put("b.x", table(1))
        own.branch("dev/1").create()
        yield {
            name: Lake(CheckedCatalogue(own.catalogue, caller(grant, name=name)))
            for name, grant in GRANTS.items()
        }


def test_who_may_write_the_target_may_begin(others: dict[str, Lake]) -> None:
    for name, target in (("reader", "main"), ("dev", "main"), ("etl", "dev/1")):
        with pytest.raises(Denied):
            others[name].transaction(target)
    for name, target in (("etl", "main"), ("dev", "dev/1"), ("boss", "main")):
        with others[name].transaction(target) as tx:
            tx.writes.put("a.new", table(2))
        assert tx.info.who == name


def test_a_transaction_has_the_rights_of_its_target(others: dict[str, Lake]) -> None:
    with others["etl"].transaction() as tx:
        tx.writes.put("a.y", table(2))
        assert tx.table("a.y").content is not None
        with pytest.raises(Denied):
            tx.writes.put("b.y", table(2))
        with pytest.raises(Denied):
            _ = tx.table("b.x").content
    assert others["boss"].table("a.y").content is not None


@pytest.mark.parametrize("name", ["peer", "everywhere", "reader", "dev"])
def test_it_is_nobody_elses(others: dict[str, Lake], name: str) -> None:
    tx, other = others["etl"].transaction(), others[name]
    tx.writes.put("a.y", table(2))
    assert other.transactions(all=True) == []
    steps: tuple[Callable[[], object], ...] = (
        lambda: other.find_transaction(tx.id),
        lambda: other.do(CommitTransaction(id=tx.id)),
        lambda: other.do(AbortTransaction(id=tx.id)),
        lambda: other.do(RenewTransaction(id=tx.id)),
        lambda: other.resolve(tx.branch),
        lambda: other.resolve(f"{tx.branch}~1"),
        lambda: other.table("a.y", tx.branch).content,
        lambda: other.log(tx.branch),
        lambda: other.reflog(tx.branch),
        lambda: other.branch(tx.branch).put("a.z", table(3)),
        lambda: other.merge(tx.branch, "dev/1"),
        lambda: other.transplant([f"main..{tx.branch}"], "dev/1"),
        lambda: other.diff("main", tx.branch),
        lambda: other.do(
            WriteFiles(key=Key("a", "f"), copied=(CopiedFile(path="x", source="y", at=tx.branch),))
        ),
    )
    for number, step in enumerate(steps):
        with pytest.raises((TransactionNotFound, Denied)):
            raise AssertionError(f"step {number} was answered: {step()}")
    with pytest.raises((InvalidRequest, Denied)):
        other.transaction(id=tx.id)
    assert tx.land().commit is not None


def test_an_administrator_ends_what_others_left(others: dict[str, Lake]) -> None:
    tx, boss = others["etl"].transaction(), others["boss"]
    assert [one.id for one in boss.transactions()] == [tx.id]
    boss.find_transaction(tx.id).abort("too long")
    assert tx.info.why == "too long"


# -- by its commits and its jobs ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["peer", "everywhere", "reader", "dev"])
def test_a_commit_of_it_is_not_read_by_its_id(others: dict[str, Lake], name: str) -> None:
    tx, other, boss = others["etl"].transaction(), others[name], others["boss"]
    tx.writes.put("a.y", table(2))
    inside, before = boss.resolve(tx.branch), boss.resolve("main")
    steps: tuple[Callable[[], object], ...] = (
        lambda: other.do(calls.ListEntries(at=inside)),
        lambda: other.do(calls.ListEntries(at=f"@{inside}")),
        lambda: other.do(calls.ListEntries(at=f"{inside}~0")),
        lambda: other.do(calls.GetContents(at=inside, key=(Key("a", "y"),))),
        lambda: other.do(calls.GetContents(at=inside, via="main", key=(Key("a", "y"),))),
        lambda: other.do(calls.GetCommit(revision=inside)),
        lambda: other.do(calls.GetChanges(revision=inside)),
        lambda: other.do(calls.ListCommits(ref=inside)),
        lambda: other.do(calls.Diff(before=before, to=inside)),
        lambda: other.do(calls.Compare(one="main", other=inside)),
        lambda: other.do(calls.Resolve(revision=inside)),
        lambda: other.do(ListFiles(key=Key("a", "y"), at=inside)),
        lambda: other.do(ListLanceVersions(key=Key("a", "y"), at=inside)),
    )
    for number, step in enumerate(steps):
        with pytest.raises((CommitNotFound, Denied)):
            raise AssertionError(f"step {number} was answered: {step()}")
    assert boss.do(calls.GetCommit(revision=inside)).id == inside
    tx.land()
    if name in ("everywhere", "reader"):
        assert other.do(calls.GetCommit(revision=inside)).id == inside  # by now it is in the history of all


def test_commits_that_were_on_a_branch_lately_are_read_by_their_ids(others: dict[str, Lake]) -> None:
    reader, boss = others["reader"], others["boss"]
    boss.branch("dev/1").put("a.y", table(2))
    was = boss.resolve("dev/1")
    boss.branch("dev/1").delete()
    for _ in range(2):
        assert reader.do(calls.GetCommit(revision=was)).id == was
    with pytest.raises(CommitNotFound):
        reader.do(calls.GetCommit(revision="ab" * 32))


@pytest.mark.parametrize("name", ["everywhere", "boss"])
def test_who_began_it_reads_its_commits_by_their_ids(others: dict[str, Lake], name: str) -> None:
    own = others[name]
    own.transaction()
    tx = own.transaction()
    tx.writes.put("a.y", table(2))
    inside = own.resolve(tx.branch)
    for call in (
        calls.GetContents(at=inside, key=(Key("a", "y"),)),
        calls.GetContents(at=inside, via=tx.branch, key=(Key("a", "y"),)),
    ):
        assert [entry.key for entry in own.do(call)] == [Key("a", "y")]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[dict[str, Lake]]:
    """The same, where tables of files can be written."""
    with penstock.open(tmp_path / "lake", author="ann") as own:
        own.table("a.raw").files.put("x", b"1")
        yield {
            name: Lake(CheckedCatalogue(own.catalogue, caller(grant, name=name)))
            for name, grant in GRANTS.items()
        }


def begin_job(lake: Lake, branch: str) -> str:
    id = uuid4().hex  # noqa: A001
    lake.do(BeginJob(id=id, fence=uuid4().hex, key=Key("a", "raw"), branch=branch, what="secret"))
    return id


@pytest.mark.parametrize("end", ["open", "committed"])
def test_its_jobs_are_shown_to_whom_it_is_there_for(jobs: dict[str, Lake], end: str) -> None:
    tx = jobs["etl"].transaction()
    inside, beside = begin_job(jobs["etl"], tx.branch), begin_job(jobs["etl"], "main")
    if end == "committed":
        tx.land()
    for name in GRANTS:
        seen = {inside, beside} if name in ("etl", "boss") else set() if name == "dev" else {beside}
        found = jobs[name].do(ListJobs(all=True))
        assert {one.id for one in found} == seen, name
        assert {one.id for one in jobs[name].do(ListJobs(id=inside, all=True))} == seen & {inside}
        assert len(jobs[name].do(ListJobs(all=True, limit=1))) == min(1, len(seen))


@pytest.mark.parametrize("name", ["etl", "boss"])
def test_its_jobs_are_aborted_by_whom_it_is_there_for(jobs: dict[str, Lake], name: str) -> None:
    tx = jobs["etl"].transaction()
    id = begin_job(jobs["etl"], tx.branch)  # noqa: A001
    for other in ("peer", "everywhere", "reader", "dev"):
        with pytest.raises(JobNotFound):
            jobs[other].do(AbortJob(id=id))
    assert jobs[name].do(AbortJob(id=id, why="wrong")).state is JobState.ABORTED


def test_who_names_anothers_is_told_nothing_of_it(others: dict[str, Lake]) -> None:
    tx = others["etl"].transaction(policy="rebase")
    for how in ({"target": "dev/1"}, {"target": "dev/1", "policy": "rebase"}):
        with pytest.raises(InvalidRequest) as refused:
            others["dev"].transaction(id=tx.id, **how)  # type: ignore[arg-type]
        assert "main" not in refused.value.message
        assert "rebase" not in refused.value.message


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (TransactionNotFound("there is none", transaction="a" * 32), "REFERENCE_NOT_FOUND", 404),
        (TransactionOver("has landed", transaction="a" * 32, state="committed"), "REFERENCE_NOT_FOUND", 404),
        (TransactionOver("was aborted", transaction="a" * 32, state="aborted"), "REFERENCE_NOT_FOUND", 404),
        (TransactionOver("is landing", transaction="a" * 32, state="committing"), "REFERENCE_CONFLICT", 409),
        (TransactionOver("was idle", transaction="a" * 32, state="open"), "REFERENCE_CONFLICT", 409),
    ],
    ids=lambda one: one.message if isinstance(one, PenstockError) else "",
)
def test_clients_of_nessie_meet_a_branch_that_is_gone(error: PenstockError, code: str, status: int) -> None:
    answer = make_error_answer(error, {})
    assert (answer.status, msgspec.json.decode(answer.body)["errorCode"]) == (status, code)
