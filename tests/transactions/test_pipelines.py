"""A pipeline over tables of three formats: it lands at once or never, and nobody's change is lost by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import penstock
from penstock.errors import CheckFailed, InvalidRequest, MergeConflict, TransactionNotFound
from penstock.formats.lance.rest.api import LANCE
from penstock.lake.lake import Lake
from penstock.lake.transactions.transaction import Transaction
from penstock.model.transactions import TransactionState
from penstock.server.access import OpenGate
from tests.lance.rest.talking import lance_at
from tests.server.running import local
from tests.sweep.tables import LateClock
from tests.transactions.pipelines import FORMATS, ids, opened, reads, rows


@pytest.fixture(params=["embedded", "remote"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    with opened(request.param, tmp_path / "lake") as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Lake]:
    """One in this process."""
    with opened("embedded", tmp_path / "lake") as found:
        yield found


def test_everything_lands_at_one_instant_as_one_commit(lake: Lake) -> None:
    lake.table("gone").write(rows(1))
    before = lake.resolve()
    with lake.transaction(message="nightly load") as tx:
        for kind in FORMATS:
            tx.write(rows(1), f"s.{kind}", format=kind)
            tx.write(rows(2), f"s.{kind}")
            assert ids(lake, f"s.{kind}", tx.branch) == [1, 2]
        tx.write(rows(9), "s.delta", mode="overwrite")
        tx.create_table("brief", data=rows(1))
        tx.drop("brief")
        tx.drop("gone")
        assert [str(one.key) for one in tx.tables()] == ["s.delta", "s.lance", "s.parquet"]
        tx.check("enough rows", tx.table("s.lance").to_arrow().num_rows == 2)
        tx.check("no nulls", lambda inside: inside.table("s.delta").to_arrow()["id"].null_count == 0)
        assert (lake.resolve(), [str(one.key) for one in lake.tables()]) == (before, ["gone"])
        assert [one.name for one in lake.branches()] == ["main"]
        with pytest.raises(InvalidRequest, match="cannot be read from before the transaction is committed"):
            lake.branch("copy").create(at=tx.branch)
    landed = lake.show()
    assert tx.commit == landed
    assert (landed.message, landed.parents[0]) == ("nightly load", before)
    assert landed.properties["penstock.checks"] == ("enough rows", "no nulls")
    assert {str(one.key): one.sign for one in lake.changes()} == {
        "gone": "-",
        "s": "+",
        **{f"s.{kind}": "+" for kind in FORMATS},
    }
    assert [ids(lake, f"s.{kind}") for kind in FORMATS] == [[9], [1, 2], [1, 2]]
    assert lake.at(tx.commit).table("s.delta").to_arrow()["id"].to_pylist() == [9]


def test_a_check_that_fails_leaves_nothing(lake: Lake) -> None:
    def block(holds: Any, why: str = "") -> Transaction:
        with lake.transaction() as tx:
            tx.write(rows(1), "s.delta")
            tx.check("sound", holds, why)
        return tx

    for holds, why, reason in (
        (False, "", "it gave no reason"),
        (False, "a row is missing", "a row is missing"),
        (None, "", "neither true nor false"),
        (lambda _: "too few rows", "", "too few rows"),
        (lambda _: "too few rows", "day 1", "day 1: too few rows"),
        (lambda tx: tx.table("nothing").to_arrow(), "", "KeyNotFound"),
    ):
        with pytest.raises(CheckFailed, match="check 'sound' failed") as failed:
            block(holds, why)
        assert failed.value.details["check"] == "sound"
        assert reason in failed.value.details["reason"]
    assert lake.tables() == []
    assert all("CheckFailed" in one.why for one in lake.transactions(all=True))


def test_what_an_exception_leaves_is_swept_in_every_format(tmp_path: Path) -> None:
    later = LateClock()
    with penstock.open(tmp_path / "lake", clock=later) as lake:
        for kind in FORMATS:
            lake.table(f"kept.{kind}").write(rows(1), format=kind)
        before = {file for file in (tmp_path / "lake" / "warehouse").rglob("*.*") if file.is_file()}

        def block() -> None:
            with lake.transaction() as tx:
                for kind in FORMATS:
                    tx.write(rows(2), f"kept.{kind}")
                    tx.write(rows(2), f"new.{kind}", format=kind)
                raise RuntimeError("the program fails")

        with pytest.raises(RuntimeError):
            block()

        def left() -> set[str]:
            found = (tmp_path / "lake" / "warehouse").rglob("*")
            data = {one for one in found if one.suffix in (".parquet", ".lance") and one not in before}
            return {one.suffix for one in data if one.is_file()}

        assert left() == {".parquet", ".lance"}
        later.days = 60
        lake.sweep()
        lake.sweep_tables(remove_data=True)
        lake.sweep_files(remove_data=True)
        assert left() == set()
        assert [ids(lake, f"kept.{kind}") for kind in FORMATS] == [[1], [1], [1]]
        assert lake.fsck().damages == ()


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("kind", FORMATS)
def test_pipelines_that_only_append_all_land(own: Lake, kind: str, isolation: str) -> None:
    own.table("t").write(rows(0), format=kind)
    begun = [own.transaction(isolation=isolation) for _ in range(3)]
    for number, tx in enumerate(begun, 1):
        tx.write(rows(number), "t")
    for tx in begun:
        tx.land()
    assert ids(own, "t") == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_that_were_read_and_overwritten_lose_nobodys_append(own: Lake, kind: str) -> None:
    own.table("t").write(rows(1), format=kind)
    tx = own.transaction()
    tx.write(rows(*(10 * one for one in ids(own, "t", tx.branch))), "t", mode="overwrite")
    own.table("t").write(rows(2))
    with pytest.raises(MergeConflict, match="'t'"):
        tx.land()
    assert ids(own, "t") == [1, 2]

    def tenfold(tx: Transaction) -> int:
        found = ids(own, "t", tx.branch)
        tries.append(found)
        if len(tries) == 1:
            own.table("t").write(rows(3))
        tx.write(rows(*(10 * one for one in found)), "t", mode="overwrite")
        return len(found)

    tries: list[list[int]] = []
    ran = own.run(tenfold)
    assert (ran.value, ran.tries, tries) == (3, 2, [[1, 2], [1, 2, 3]])
    assert ran.commit == own.show()
    assert ids(own, "t") == [10, 20, 30]


def skewed(own: Lake, kind: str, read: Callable[[Transaction, str], int], isolation: str) -> list[str]:
    """Two that each may take a row away as long as both tables have three together."""
    for key in ("a", "b"):
        own.table(key).write(rows(1, 2), format=kind)
    begun = [own.transaction(isolation=isolation) for _ in range(2)]
    for tx, key in zip(begun, ("a", "b"), strict=True):
        assert read(tx, "a") + read(tx, "b") == 4
        tx.write(rows(1), key, mode="overwrite")
    told = []
    for tx in begun:
        try:
            tx.land()
        except MergeConflict as refused:
            told.append(refused.message)
    return told


def counted(tx: Transaction, key: str) -> int:
    return int(tx.table(key).to_arrow().num_rows)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_skew_is_refused_where_it_is_serializable(own: Lake, kind: str) -> None:
    (told,) = skewed(own, kind, counted, "serializable")
    assert "'a'" in told
    assert "read by this transaction" in told
    assert [len(ids(own, key)) for key in ("a", "b")] == [1, 2]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_skew_is_what_snapshots_allow(own: Lake, kind: str) -> None:
    assert skewed(own, kind, counted, "snapshot") == []


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_client_of_lance_over_http_is_seen_to_read(own: Lake, isolation: str) -> None:
    with local(own.catalogue, [LANCE], gate=OpenGate(any_location=True)) as server:

        def read(tx: Transaction, key: str) -> int:
            client = lance_at(f"{server.url}/lance/tx/{tx.id}")
            return int(lance.dataset(namespace_client=client, table_id=[key]).count_rows())

        told = skewed(own, "lance", read, isolation)
        assert len(told) == (1 if isolation == "serializable" else 0)
        tx = own.transaction(isolation=isolation)
        client = lance_at(f"{server.url}/lance/tx/{tx.id}")
        lance.write_dataset(rows(7), namespace_client=client, table_id=["a"], mode="append")
        own.table("a").append(rows(8))
        if isolation == "snapshot":
            tx.land()
            assert ids(own, "a")[-2:] == [7, 8]
        else:
            with pytest.raises(MergeConflict, match="read by this transaction"):
                tx.land()  # what a client opens a table for, it does not say


def test_what_others_do_elsewhere_matters_only_if_it_was_read(own: Lake) -> None:
    own.table("t").write(rows(1, 2))
    for where, is_refused in (("id > 5", False), ("id < 5", True)):
        tx = own.transaction(isolation="serializable")
        tx.table("t").to_arrow(where=where)
        tx.write(rows(1), "seen")
        own.table("t").append(rows(0))
        if is_refused:
            with pytest.raises(MergeConflict, match="'t'"):
                tx.land()
        else:
            tx.land()


def test_names_that_were_listed_stay_as_they_were(own: Lake) -> None:
    own.table("s.a").write(rows(1))
    tx = own.transaction(isolation="serializable")
    tx.write(rows(len(tx.tables("s"))), "count")
    own.table("elsewhere.b").write(rows(1))
    assert not tx.table("s.c").exists
    own.table("s.b").write(rows(1))
    with pytest.raises(MergeConflict, match=r"s\.b"):
        tx.land()


def test_another_process_goes_on_with_what_was_read(own: Lake, tmp_path: Path) -> None:
    own.table("t").write(rows(1))
    tx = own.transaction(isolation="serializable")
    tx.write(rows(*ids(own, "t", tx.branch)), "copy")
    own.table("t").append(rows(2))
    with opened("embedded", tmp_path / "lake") as other:
        again = other.transaction(id=tx.id, isolation="serializable")
        assert ids(other, "copy", again.branch) == [1]
        with pytest.raises(MergeConflict, match="'t'"):
            again.land()
    assert tx.info.state is TransactionState.ABORTED
    assert len(reads(tx, own)) > 0
    with pytest.raises(TransactionNotFound):
        own.find_transaction("0" * 32)
