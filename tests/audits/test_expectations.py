"""Expectations: kept with a branch, and asked of everything that is about to be published there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import CommitVetoed, InvalidRequest, KeyNotFound, ReferenceNotFound, TransactionOver
from penstock.formats.files.lake.calls import BeginJob, NewFile, WriteFiles
from penstock.formats.rows.arrow_types import pa, pq
from penstock.kernel import checks
from penstock.lake.audits import duckdb_requirement
from penstock.lake.copy import copy_lake
from penstock.lake.lake import Lake
from penstock.model.clock import now_us, to_utc_datetime
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.model.references import Kind
from penstock.model.transactions import TransactionState
from penstock.stores.memory import MemoryStore
from tests.audits.lakes import POSITIVE, Counting, ids, orders
from tests.remote.serving import serving

Way = Callable[[Lake], Callable[[], Any]]

FIRST_VERSION = f"{2**64 - 2}.manifest"
"""What Lance calls the manifest of a table's first version."""


# -- everything that publishes -----------------------------------------------------------------------------


def appending(lake: Lake) -> Callable[[], Any]:
    return lambda: lake.table("sales.orders").append(orders(3, -1))


def overwriting(lake: Lake) -> Callable[[], Any]:
    return lambda: lake.table("sales.orders").overwrite(orders(-1))


def merging(lake: Lake) -> Callable[[], Any]:
    lake.branch("dev").create()
    lake.table("sales.orders", "dev").append(orders(-1))
    lake.table("sales.orders").append(orders(3))
    return lambda: lake.merge("dev")


def transplanting(lake: Lake) -> Callable[[], Any]:
    lake.branch("dev").create()
    lake.table("sales.orders", "dev").append(orders(-1))
    return lambda: lake.transplant("dev")


def reverting(lake: Lake) -> Callable[[], Any]:
    lake.table("sales.orders").append(orders(-1))
    mended = lake.table("sales.orders").overwrite(orders(1, 2)).commit.id
    return lambda: lake.revert(mended)


def landing(lake: Lake) -> Callable[[], Any]:
    tx = lake.transaction()
    lake.table("sales.orders", tx.branch).append(orders(-1))
    return tx.land


WAYS: dict[str, Way] = {
    one.__name__: one for one in (appending, overwriting, merging, transplanting, reverting, landing)
}


@pytest.mark.parametrize("name", WAYS)
def test_nothing_is_published_that_is_not_as_expected(lake: Lake, other: Lake, name: str) -> None:
    publish = WAYS[name](lake)
    other.expect("positive amounts", POSITIVE)
    before, rows = lake.kernel.references.get_reference("main"), ids(lake)
    with pytest.raises(CommitVetoed) as vetoed:
        publish()
    assert vetoed.value.details["check"] == "positive amounts"
    assert "id = -1" in vetoed.value.details["reason"]
    assert lake.kernel.references.get_reference("main") == before
    assert ids(lake) == ids(other) == rows


@pytest.mark.parametrize("how", ["assign", "rebase"])
def test_a_branch_is_not_moved_to_what_is_not_as_expected(lake: Lake, other: Lake, how: str) -> None:
    release = lake.branch("release").create()
    lake.table("sales.orders").append(orders(-1))
    release.create_namespace("own")
    other.expect("positive amounts", POSITIVE, "release")
    before = release.reference
    with pytest.raises(CommitVetoed):
        release.assign("main") if how == "assign" else lake.rebase("release")
    assert release.reference == before
    lake.table("sales.orders").overwrite(orders(5))
    release.assign("main") if how == "assign" else lake.rebase("release")
    assert ids(lake, "release") == [5]
    assert [one.name for one in lake.expectations("release")] == ["positive amounts"]


def test_files_are_asked_about_whatever_their_format(lake: Lake) -> None:
    files = lake.table("raw.events").files
    files.put("day=1/a.csv", b"n,kind\n1,x\n")
    lake.expect("small", "select * from raw.events where n > 10 or day > 20")
    files.put("day=2/b.csv", b"n,kind\n2,y\n")
    for path, data in {"day=3/c.csv": b"n,kind\n11,x\n", "day=21/d.csv": b"n,kind\n1,x\n"}.items():
        with pytest.raises(CommitVetoed, match="check 'small'"):
            files.put(path, data)
    assert [one.path for one in files.list()] == ["day=1/a.csv", "day=2/b.csv"]


def test_the_commit_of_a_job_is_asked_about(lake: Lake) -> None:
    lake.branch().create_namespace("raw")
    lake.expect("small", "select * from raw.jobs where n > 10", missing_ok=True)
    for number, value in enumerate((1, 11)):
        job, fence, key = f"{number + 1:032d}", f"{number + 5:032d}", Key.parse("raw.jobs")
        lake.do(BeginJob(id=job, fence=fence, key=key))
        folder = f"{to_utc_datetime(now_us()):%Y%m%d}-{lake.id.replace('-', '')[:12]}/{fence}/"
        place = Path(lake.about.warehouse) / "_penstock/data" / folder
        place.mkdir(parents=True)
        pq.write_table(pa.table({"n": [value]}), place / f"{value}.parquet")
        new = NewFile(path=f"{value}.parquet", size=(place / f"{value}.parquet").stat().st_size)
        call = WriteFiles(
            key=key, job=job, fence=fence, folder=folder, added=(new,), idempotency_key=job, who="tester"
        )
        if value < 10:
            lake.do(call)
        else:
            with pytest.raises(CommitVetoed, match="n = 11"):
                lake.do(call)
    assert lake.table("raw.jobs").files.about().files == 1


def test_a_version_of_a_lance_table_is_asked_about_and_not_put_where_others_look(lake: Lake) -> None:
    lance = pytest.importorskip("lance")
    lake.branch().create_namespace("vectors")
    where: dict[str, Any] = {"namespace_client": lake.lance(), "table_id": ["vectors", "items"]}
    lance.write_dataset(pa.table({"n": [1]}), **where)
    lake.expect("small", "select * from vectors.items where n > 10", missing_ok=True)
    with pytest.raises(CommitVetoed, match="n = 11"):
        lake.table("vectors.items").append(pa.table({"n": [11]}))
    with pytest.raises(OSError, match=r"Permission denied|unknown"):
        lance.write_dataset(pa.table({"n": [12]}), mode="append", **where)
    location = Path(lake.table("vectors.items").location)
    lake.finish_background()
    assert [one.name for one in location.glob("_versions/*.manifest")] == [FIRST_VERSION]
    staged = [one.name for one in location.glob("_staging/**/*.manifest*")]
    assert set(staged) <= {FIRST_VERSION}, "a client may have been sent to it before it was in its place"
    lake.table("vectors.items").append(pa.table({"n": [2]}))
    assert lake.table("vectors.items").to_arrow()["n"].to_pylist() == [1, 2]
    lake.finish_background()
    assert lance.dataset(str(location)).count_rows() == 2


def test_a_lance_table_that_is_expected_to_be_something_is_made_by_lances_own_clients(lake: Lake) -> None:
    lance = pytest.importorskip("lance")
    from lance_namespace import DeclareTableRequest

    lake.branch().create_namespace("vectors")
    namespace = lake.lance()
    for name in ("items", "others"):
        lake.expect(name, f"select * from vectors.{name} where n > 10", missing_ok=True)
    namespace.declare_table(DeclareTableRequest(id=["vectors", "others"]))
    where: dict[str, Any] = {"namespace_client": namespace, "table_id": ["vectors", "items"]}
    lance.write_dataset(pa.table({"n": [1]}), **where)
    with pytest.raises(OSError, match=r"Permission denied|unknown"):
        lance.write_dataset(pa.table({"n": [12]}), mode="append", **where)
    assert lake.table("vectors.items").to_arrow()["n"].to_pylist() == [1]
    location = Path(lake.table("vectors.items").location)
    assert [*location.glob("_staging/checked-*")] == []


def test_a_table_of_files_begins_with_a_marker_and_may_be_emptied(lake: Lake) -> None:
    lake.expect("small", "select * from raw.events where n > 10", missing_ok=True)
    lake.expect(
        "known", "select * from raw.events where n not in (select id from sales.orders)", missing_ok=True
    )
    files = lake.table("raw.events").files
    files.put("_SUCCESS", b"")
    files.put("empty.csv", b"")
    files.put("a.csv", b"n\n1\n")
    files.delete("a.csv")
    lake.table("sales.orders").append(orders(3))
    with pytest.raises(CommitVetoed, match="check 'small'"):
        files.put("a.csv", b"n\n11\n")


# -- what is asked, and when -------------------------------------------------------------------------------


def test_only_changes_of_tables_that_a_query_names_are_asked_about(lake: Lake) -> None:
    lake.create_table("sales.returns", data=orders(1))
    lake.expect("positive amounts", POSITIVE)
    lake.expect("both", "select o.id from sales.orders o join sales.returns r using (id) where o.id > 100")
    engine = Counting(lake)
    lake.branch().create_namespace("more")
    lake.table("raw.events").files.put("a.csv", b"x\n1\n")
    assert engine.asked == []
    lake.table("sales.returns").append(orders(-1))
    assert engine.asked == ["both"]
    lake.table("sales.orders").append(orders(7))
    assert engine.asked == ["both", "positive amounts", "both"]
    lake.branch("dev").create()
    lake.table("sales.orders", "dev").append(orders(-1))
    assert len(engine.asked) == 3


@pytest.mark.parametrize("names", ["sales.ordres", "Sales.Orders", "sales.orders, sales.ordres"])
def test_an_expectation_about_a_table_that_is_not_there_is_refused(lake: Lake, names: str) -> None:
    """In this process and behind a server; it would check nothing, and nobody would be told."""
    lake.branch("empty").create(at=EMPTY_COMMIT_ID)
    with serving(lake.catalogue) as served, penstock.open(served.url) as client:
        for one in (lake, client):
            with pytest.raises(KeyNotFound, match=r"check nothing[\s\S]*missing_ok"):
                one.expect("positive", f"select 1 from {names}")
            with pytest.raises(KeyNotFound, match="check nothing"):
                one.expect("positive", f"select 1 from {names}", "empty")
        assert lake.expectations() == ()
        client.expect("positive", f"select * from {names}", missing_ok=True)
    assert len(lake.expectations()) == 1


def test_a_query_may_name_tables_that_are_not_there_yet(lake: Lake) -> None:
    sql = "select id from sales.orders where id not in (select id from sales.customers)"
    lake.expect("known", sql, missing_ok=True)
    lake.table("sales.orders").append(orders(3))
    with pytest.raises(CommitVetoed, match="it finds 1 row, such as id = 3"):
        lake.create_table("sales.customers", data=orders(1, 2))
    lake.create_table("sales.customers", data=orders(1, 2, 3))
    with pytest.raises(CommitVetoed, match="id = 4"):
        lake.table("sales.orders").append(orders(4))


def test_a_table_does_not_go_while_a_query_needs_it_for_another_one(lake: Lake) -> None:
    lake.create_table("sales.customers", data=orders(1, 2))
    lake.expect("known", "select id from sales.orders where id not in (select id from sales.customers)")
    with pytest.raises(CommitVetoed, match=r"'sales\.customers' would be removed"):
        lake.branch().drop("sales.customers")
    lake.commit([Delete(Key.parse("sales.customers")), Delete(Key.parse("sales.orders"))])
    assert lake.at().tables() == []


def test_what_does_not_hold_now_is_not_expected(lake: Lake) -> None:
    lake.table("sales.orders").append(orders(-1))
    with pytest.raises(
        CommitVetoed, match="'main' does not meet the expectation 'positive amounts': it finds 1 row"
    ):
        lake.expect("positive amounts", POSITIVE)
    assert lake.expectations() == ()
    assert not lake.kernel.references.get_reference("main").note


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("selec", "syntax error"),
        ("", "1 to 4000 characters"),
        ("-- nothing", "one query, got 0"),
        ("select 1", "names no table"),
        ("select * from sales.orders; select * from sales.orders", "one query, got 2"),
        ("drop table sales.orders", "a query must be a SELECT"),
        ("copy sales.orders to 'x.csv'", "a query must be a SELECT"),
        ("insert into sales.orders values (1, 2)", "a query must be a SELECT"),
        ("select * from sales.orders, read_csv('/etc/passwd')", "not the function 'read_csv'"),
        ("select * from query('select 1'), sales.orders", "not the function 'query'"),
        ("describe sales.orders", "cannot describe"),
        ("select * from sales.orders -- " + "x" * 5000, "1 to 4000 characters"),
        ("select * from sales.orders where " + "not " * 900 + "true", "nested too deeply"),
        ("select * from sales.orders where 'a\ud800' = ''", "not valid text"),
        ("select * from sales.orders where 'a\0' = ''", "not valid text"),
    ],
    ids=[
        *("word", "nothing", "comment", "constant", "two", "drop", "copy", "insert", "file", "hidden"),
        *("show", "long", "deep", "surrogate", "nul"),
    ],
)
def test_a_text_that_is_no_query_of_tables_is_refused(lake: Lake, sql: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        lake.expect("bad", sql)
    assert lake.expectations() == ()


# -- where they are kept -----------------------------------------------------------------------------------


def test_the_same_is_expected_once_and_something_else_by_its_name_is_refused(lake: Lake) -> None:
    (first,) = lake.expect("positive amounts", POSITIVE)
    assert lake.expect("positive amounts", POSITIVE) == (first,) == lake.expectations()
    assert (first.name, first.tables, first.who) == ("positive amounts", ("sales.orders",), "tester")
    with pytest.raises(InvalidRequest, match="already"):
        lake.expect("positive amounts", POSITIVE + " limit 1")
    assert lake.unexpect("positive amounts") == ()
    with pytest.raises(InvalidRequest, match="has no expectation"):
        lake.unexpect("positive amounts")
    lake.table("sales.orders").append(orders(-1))


def test_expectations_are_the_branchs_own(lake: Lake) -> None:
    lake.expect("positive amounts", POSITIVE)
    dev = lake.branch("dev").create()
    assert lake.expectations("dev") == ()
    lake.expect("positive amounts", POSITIVE, "dev")
    lake.table("sales.orders", "dev").append(orders(3))
    assert len(lake.expectations("dev")) == 1
    dev.delete()
    with pytest.raises(ReferenceNotFound):
        lake.expectations("dev")
    dev.create()
    assert lake.expectations("dev") == ()
    lake.table("sales.orders", "dev").append(orders(-1))


def test_tags_and_branches_that_belong_to_programs_expect_nothing(lake: Lake) -> None:
    lake.tag("v1").create()
    lake.kernel.references.create_reference(
        "own", Kind.BRANCH, lake.kernel.references.get_reference("main").head, note=b"mine"
    )
    for name, why in {"v1": "only branches", "own": "program's private branch"}.items():
        with pytest.raises(InvalidRequest, match=why):
            lake.expect("positive amounts", POSITIVE, name)
    tx = lake.transaction()
    with pytest.raises(InvalidRequest, match="branch of a transaction"):
        lake.expect("positive amounts", POSITIVE, tx.branch)
    tx.abort()


def test_more_than_fits_into_a_row_is_refused(lake: Lake) -> None:
    for number in range(4):
        lake.expect(f"long {number}", POSITIVE + " -- " + "x" * 3900)
    with pytest.raises(InvalidRequest, match="limit of 16384"):
        lake.expect("long 4", POSITIVE + " -- " + "x" * 3900)
    assert len(lake.expectations()) == 4
    lake.table("sales.orders").append(orders(3))


def test_a_copy_of_a_lake_expects_the_same(lake: Lake, store: MemoryStore) -> None:
    lake.expect("positive amounts", POSITIVE)
    target = MemoryStore()
    copy_lake(store, target)
    with penstock.open(target, create=False) as copied:
        assert copied.expectations() == lake.expectations()


# -- who asks ----------------------------------------------------------------------------------------------


def test_a_client_of_a_server_is_refused_and_can_say_what_is_expected(lake: Lake) -> None:
    with serving(lake.catalogue) as served, penstock.open(served.url, author="ann") as client:
        (one,) = client.expect("positive amounts", POSITIVE)
        assert lake.expectations() == (one,) == client.expectations()
        with pytest.raises(CommitVetoed) as vetoed:
            client.table("sales.orders").append(orders(-1))
        assert vetoed.value.details["check"] == "positive amounts"
        with pytest.raises(CommitVetoed), client.transaction() as tx:
            client.table("sales.orders", tx.branch).append(orders(-1))
        assert client.unexpect("positive amounts") == ()
        client.table("sales.orders").append(orders(-1))
    assert ids(lake) == [-1, 1, 2]


PROGRAM = """
import sys
import pyarrow as pa
import penstock
from penstock.errors import CommitVetoed
with penstock.open(sys.argv[1]) as lake:
    for amount in (3.0, -1.0):
        try:
            lake.table("sales.orders").append(pa.table({"id": [7], "amount": [amount]}))
            print("landed")
        except CommitVetoed as vetoed:
            print(vetoed.details["check"])
"""


def test_a_process_that_never_heard_of_it_is_refused(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.create_table("sales.orders", data=orders(1))
        lake.expect("positive amounts", POSITIVE)
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "lake")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.split("\n") == ["landed", "positive amounts", ""]
        assert ids(lake) == [1, 7]


def test_without_duckdb_what_would_have_to_be_asked_is_not_published(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.expect("positive amounts", POSITIVE)
    monkeypatch.setattr(duckdb_requirement, "PACKAGES", ("a_package_that_nobody_has",))
    with pytest.raises(CommitVetoed, match=r"pip install 'penstock\[sql\]'"):
        other.table("sales.orders").append(orders(3))
    with pytest.raises(InvalidRequest, match=r"penstock\[sql\]"):
        other.expect("more", POSITIVE)
    other.branch().create_namespace("more")
    assert [one.name for one in other.expectations()] == ["positive amounts"]
    other.unexpect("positive amounts")
    other.table("sales.orders").append(orders(3))


def test_without_duckdb_a_transaction_is_not_sent_and_stays_open(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.expect("positive amounts", POSITIVE)
    tx = other.transaction()
    other.table("sales.orders", tx.branch).append(orders(3))
    with monkeypatch.context() as without:
        without.setattr(duckdb_requirement, "PACKAGES", ("a_package_that_nobody_has",))
        with pytest.raises(InvalidRequest, match=r"penstock\[sql\]"):
            tx.land()
    assert tx.info.state is TransactionState.OPEN
    lake.find_transaction(tx.id).land()
    assert ids(lake) == [1, 2, 3]


def test_a_transaction_that_is_not_as_expected_is_aborted(lake: Lake, other: Lake) -> None:
    other.expect("positive amounts", POSITIVE)
    tx = lake.transaction()
    lake.table("sales.orders", tx.branch).append(orders(-1))
    assert ids(lake, tx.branch) == [-1, 1, 2]
    with pytest.raises(CommitVetoed):
        tx.land()
    assert tx.info.state is TransactionState.ABORTED
    with pytest.raises(TransactionOver):
        tx.land()
    assert ids(lake) == [1, 2]


def test_branches_that_expected_something_are_not_remembered_for_ever(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "EXPECTING_MAX", 3)
    for number in range(10):
        branch = lake.branch(f"b{number}").create()
        lake.expect("positive", POSITIVE, branch.name)
        lake.table("sales.orders", branch.name).append(orders(10 + number))
        assert lake.kernel.checks.may_have_checks(branch.name)
        branch.delete()
    assert len(lake.kernel.checks._expecting) <= 3
    lake.expect("positive", POSITIVE)
    with pytest.raises(CommitVetoed):
        lake.table("sales.orders").append(orders(-1))
