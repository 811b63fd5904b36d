"""Who may use a transaction: who began it, as far as they may use its target, and administrators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import penstock
from penstock.errors import Denied, InvalidRequest, TransactionNotFound
from penstock.lake.files.calls import CopiedFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.lake.transactions.calls import AbortTransaction, CommitTransaction, RenewTransaction
from penstock.model.content import IcebergTable
from penstock.model.keys import Key
from penstock.server.access import Guarded
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
        yield {name: Lake(Guarded(own.catalogue, caller(grant, name=name))) for name, grant in GRANTS.items()}


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
    assert tx.commit().commit is not None


def test_an_administrator_ends_what_others_left(others: dict[str, Lake]) -> None:
    tx, boss = others["etl"].transaction(), others["boss"]
    assert [one.id for one in boss.transactions()] == [tx.id]
    boss.find_transaction(tx.id).abort("too long")
    assert tx.info.why == "too long"
