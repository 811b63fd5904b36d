"""Who may ask what: every call, every kind of caller, on a real lake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import CommitNotFound, Denied, PenstockError, ReferenceChanged
from penstock.formats.delta.lake import calls as delta_calls
from penstock.formats.files.lake import calls as files_calls
from penstock.formats.files.lake import sweep_calls as files_care_calls
from penstock.formats.lance.lake import calls as lance_calls
from penstock.lake import calls, resync_calls
from penstock.lake.audits import calls as audit_calls
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.transactions import calls as transaction_calls
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.keys import Key
from penstock.model.operations import Delete, Unchanged
from penstock.model.references import Kind
from penstock.server.access import Caller, CheckedCatalogue, OpenGate
from penstock.server.access.checked_catalogue import LAKE_RULES
from penstock.server.access.format_rules import load_format_rules
from penstock.stores.memory import MemoryStore
from tests.server.access import CALLERS, HOLDERS, caller, guarded, new_lake, put, rows_of

ORDERS, PAY = Key("sales", "orders"), Key("hr", "pay")
EVERYBODY = set(CALLERS)
ALL_READERS = {"reader", "writer", "admin"}
"""Who may read all keys of all references."""
DEV_READERS = EVERYBODY - HOLDERS
MAIN_READERS = DEV_READERS - {"dev_reader"}
ERASERS = {"eraser", "admin"}
MAINTAINERS = {"maintainer", "admin"}
TABLE_MAINTAINERS = MAINTAINERS | {"sales_maintainer"}
"""Who may maintain the tables of ``sales``."""
SECRET_READERS = ALL_READERS | {"sales_reader"}
ALL_WRITERS = {"writer", "admin"}
RESTORERS = {"admin"}
"""Who may restore, and read what is restored."""
DEV_WRITERS = ALL_WRITERS | {"dev_writer", "sales_writer"}
"""Who may change something on ``dev/etl``."""
WHOLE_DEV_WRITERS = ALL_WRITERS | {"dev_writer"}

Make = Callable[[Lake], calls.Call[Any]]


def appended(key: Key) -> delta_calls.TableCommit:
    return delta_calls.TableCommit(key=key, actions="")


def always(call: calls.Call[Any]) -> Make:
    return lambda _: call


def at_id(make: Callable[[str], calls.Call[Any]], revision: str = "secret") -> Make:
    """A call with the id of a commit."""
    return lambda lake: make(lake.resolve(revision))


def expected(call: audit_calls.RemoveExpectation) -> Make:
    """A call about something that its branch expects."""

    def make(lake: Lake) -> calls.Call[Any]:
        lake.expect(call.name, "select * from a.b", call.branch, missing_ok=True)
        return call

    return make


TOKEN: dict[str, Any] = {
    "id": "0" * 12,
    "name": "new",
    "secret_hash": bytes(32),
    "grants": caller("read").grants,
}


def copied(**source: Any) -> files_calls.WriteFiles:
    """A file of some table at another path of the orders of ``dev/etl``."""
    one = files_calls.CopiedFile(path="x", source="y", **source)
    return files_calls.WriteFiles(key=ORDERS, branch="dev/etl", copied=(one,))


def altered(key: Key, branch: str | None = None) -> lance_calls.CommitLance:
    change = lance_calls.AlterLance(key=key, properties={"x": "y"})
    return lance_calls.CommitLance(branch=branch, operations=(change,))


def begun(key: Key, **how: Any) -> files_calls.BeginJob:
    return files_calls.BeginJob(id="0" * 32, fence="1" * 32, key=key, **how)


CASES: list[tuple[Make, set[str]]] = [
    (always(calls.GetAbout()), EVERYBODY),
    (always(calls.GetSetting(name="x")), EVERYBODY),
    (always(calls.PutSetting(name="x", value="y")), {"admin"}),
    (always(calls.ChangeRoots(add=("s3://more",))), {"admin"}),
    (always(calls.KeepHistory(max_commits=5)), {"admin"}),
    (always(calls.SetGrace(data_grace_days=8)), {"admin"}),
    (always(calls.Sweep()), MAINTAINERS),
    (always(calls.Sweep(dry_run=True)), MAINTAINERS),
    (always(calls.SweepTables()), MAINTAINERS),
    (always(calls.SweepTables(dry_run=True)), MAINTAINERS),
    (always(calls.SweepTables(key=ORDERS)), TABLE_MAINTAINERS),
    (always(calls.SweepTables(key=PAY)), MAINTAINERS),
    (always(calls.EraseTable(key=ORDERS, dry_run=True)), ERASERS),
    (always(calls.EraseTable(key=PAY, dry_run=True)), ERASERS),
    (always(calls.Fsck()), MAINTAINERS),
    (always(resync_calls.Resync()), MAINTAINERS),
    (always(resync_calls.Resync(dry_run=True)), MAINTAINERS),
    (always(resync_calls.Resync(key=ORDERS)), TABLE_MAINTAINERS),
    (always(resync_calls.Resync(key=PAY)), MAINTAINERS),
    (always(calls.ListTokens()), {"admin"}),
    (always(calls.PutToken(**TOKEN)), {"admin"}),
    (lambda lake: calls.RevokeToken(id=lake.create_token("x", "read").split("_")[1]), {"admin"}),
    # what a branch expects
    (always(audit_calls.ListExpectations(branch="main")), ALL_READERS | {"dev_writer"}),
    (always(audit_calls.ListExpectations(branch="secret")), ALL_READERS),
    (
        always(audit_calls.AddExpectation(branch="main", name="x", sql="select * from a.b", missing_ok=True)),
        {"admin"},
    ),
    (expected(audit_calls.RemoveExpectation(branch="dev/etl", name="x")), {"admin"}),
    # references
    (always(calls.ListReferences()), EVERYBODY),
    (always(calls.GetReference(name="main")), MAIN_READERS),
    (always(calls.GetReference(name="secret")), SECRET_READERS),
    (always(calls.GetReference(name="dev/etl")), DEV_READERS),
    (always(calls.GetReferenceLog(name="secret")), SECRET_READERS),
    (always(calls.GetReferenceLog(name="gone")), SECRET_READERS),
    (always(calls.GetReferenceLog(name="dev/gone")), DEV_READERS),
    (always(calls.CreateReference(name="dev/x", at="dev/etl")), DEV_WRITERS),
    (always(calls.CreateReference(name="dev/x")), DEV_WRITERS),
    (always(calls.CreateReference(name="dev/x", at="secret")), ALL_WRITERS),
    (at_id(lambda one: calls.CreateReference(name="dev/x", at=one)), ALL_WRITERS),
    (always(calls.CreateReference(name="dev/x", at=EMPTY_COMMIT_ID)), DEV_WRITERS),
    (always(calls.CreateReference(name="v2", kind=Kind.TAG)), ALL_WRITERS),
    (always(calls.AssignReference(name="dev/etl", to="dev/etl~1")), WHOLE_DEV_WRITERS),
    (at_id(lambda one: calls.AssignReference(name="dev/etl", to=one), "dev/etl~1"), WHOLE_DEV_WRITERS),
    (always(calls.AssignReference(name="dev/etl", to="main")), WHOLE_DEV_WRITERS),
    (always(calls.AssignReference(name="dev/etl", to="secret")), ALL_WRITERS),
    (always(calls.AssignReference(name="secret", to="main")), ALL_WRITERS),
    (always(calls.DeleteReference(name="dev/etl")), WHOLE_DEV_WRITERS),
    (always(calls.DeleteReference(name="secret")), ALL_WRITERS),
    (always(calls.DeleteReference(name="v1")), ALL_WRITERS),
    # reading
    (always(calls.Resolve()), MAIN_READERS),
    (always(calls.Resolve(revision="secret~1")), SECRET_READERS),
    (always(calls.Resolve(revision="dev/etl~1")), DEV_READERS),
    (at_id(lambda one: calls.Resolve(revision=one)), SECRET_READERS),
    (at_id(lambda one: calls.Resolve(revision=one[:10])), SECRET_READERS),
    (at_id(lambda one: calls.Resolve(revision=one), "main"), SECRET_READERS),
    (always(calls.GetContents(key=(ORDERS,))), MAIN_READERS),
    (always(calls.GetContents(key=(PAY,))), ALL_READERS | {"dev_writer"}),
    (
        always(calls.GetContents(key=(ORDERS, PAY), at="dev/etl")),
        WHOLE_DEV_WRITERS | {"reader", "dev_reader"},
    ),
    (always(calls.GetContents(key=(ORDERS,), at="secret")), SECRET_READERS),
    (always(calls.GetContents(key=(ORDERS,), at="dev/etl~2")), DEV_READERS),
    (at_id(lambda one: calls.GetContents(key=(ORDERS,), at=one)), SECRET_READERS),
    (at_id(lambda one: calls.GetContents(key=(ORDERS,), at=one, via="secret")), SECRET_READERS),
    (at_id(lambda one: calls.GetContents(key=(ORDERS,), at=one, via="dev/etl"), "main"), DEV_READERS),
    (always(calls.ListEntries()), MAIN_READERS),
    (always(calls.ListEntries(at="secret")), SECRET_READERS),
    (always(calls.ListEntries(at="dev/etl")), DEV_READERS),
    (always(calls.GetCommit(revision="secret")), SECRET_READERS),
    (at_id(lambda one: calls.GetCommit(revision=one)), SECRET_READERS),
    (at_id(lambda one: calls.GetCommit(revision=one, via="dev/etl"), "dev/etl~1"), DEV_READERS),
    (always(calls.GetChanges(revision="secret")), SECRET_READERS),
    (always(calls.GetChanges(revision="dev/etl")), DEV_READERS),
    (always(calls.ListCommits(ref="dev/etl")), DEV_READERS),
    (always(calls.ListCommits(ref="secret")), SECRET_READERS),
    (always(calls.ListCommits()), MAIN_READERS),
    (always(calls.ListCommits(table=PAY)), ALL_READERS | {"dev_writer"}),
    (always(calls.ListCommits(table=Key("sales"))), MAIN_READERS),
    (always(calls.SearchLog(ref="dev/etl")), DEV_READERS),
    (always(calls.SearchLog(ref="secret")), SECRET_READERS),
    (always(calls.SearchLog(table=PAY)), ALL_READERS | {"dev_writer"}),
    (always(calls.SearchLog(table=Key("sales"))), MAIN_READERS),
    (always(calls.GetFigures()), MAIN_READERS),
    (always(calls.GetFigures(ref="secret", about=(calls.FigureKind.COMMITS,))), SECRET_READERS),
    (always(calls.GetFigures(ref="dev/etl", about=(calls.FigureKind.COMMITS,))), DEV_READERS),
    (always(calls.Diff(before="main", to="dev/etl")), MAIN_READERS),
    (always(calls.Diff(before="secret", to="dev/etl")), SECRET_READERS),
    (always(calls.Diff(before="dev/etl", to="secret")), SECRET_READERS),
    (always(calls.Compare(one="dev/etl", other="secret")), SECRET_READERS),
    (always(calls.Compare(one="secret", other="dev/etl")), SECRET_READERS),
    (always(calls.Compare(one="main", other="dev/etl")), MAIN_READERS),
    (always(calls.GetOutcome(key="unknown")), MAIN_READERS),
    (always(calls.GetOutcome(key="unknown", branch="secret")), SECRET_READERS),
    # writing
    (always(calls.CommitOperations(operations=(put("sales.orders"),))), ALL_WRITERS),
    (always(calls.CommitOperations(operations=(put("sales.orders"),), branch="dev/etl")), DEV_WRITERS),
    (
        always(calls.CommitOperations(operations=(put("sales.x"), put("hr.x")), branch="dev/etl")),
        WHOLE_DEV_WRITERS,
    ),
    (always(calls.CommitOperations(operations=(Delete(PAY),), branch="dev/etl")), WHOLE_DEV_WRITERS),
    (
        always(
            calls.CommitOperations(
                operations=(put("sales.x"), Unchanged(PAY)), branch="dev/etl", base="dev/etl"
            )
        ),
        WHOLE_DEV_WRITERS,
    ),
    (
        always(calls.CommitOperations(operations=(put("new.x"),), branch="dev/etl", create_namespaces=True)),
        WHOLE_DEV_WRITERS,
    ),
    (
        always(
            calls.CommitOperations(operations=(put("sales.eu.x"),), branch="dev/etl", create_namespaces=True)
        ),
        DEV_WRITERS,
    ),
    (
        always(calls.CommitOperations(operations=(put("sales.x"),), branch="dev/etl", base="secret~3")),
        ALL_WRITERS,
    ),
    (always(calls.Merge(source="dev/etl")), ALL_WRITERS),
    (always(calls.Merge(source="dev/etl", dry_run=True)), ALL_WRITERS),
    (always(calls.Merge(source="main", into="dev/etl")), WHOLE_DEV_WRITERS),
    (always(calls.Merge(source="secret", into="dev/etl", dry_run=True)), ALL_WRITERS),
    (at_id(lambda one: calls.Merge(source=one, into="dev/etl", dry_run=True)), ALL_WRITERS),
    (always(calls.Transplant(commits=("dev/etl",), onto="dev/etl", dry_run=True)), WHOLE_DEV_WRITERS),
    (always(calls.Transplant(commits=("dev/etl~2..dev/etl",), onto="main")), ALL_WRITERS),
    (always(calls.Transplant(commits=("secret",), onto="dev/etl", dry_run=True)), ALL_WRITERS),
    (always(calls.Transplant(commits=("main..secret",), onto="dev/etl", dry_run=True)), ALL_WRITERS),
    (always(calls.Transplant(commits=("secret~2..main",), onto="dev/etl", dry_run=True)), ALL_WRITERS),
    (always(calls.Revert(commit="dev/etl~1", on="dev/etl")), WHOLE_DEV_WRITERS),
    (at_id(lambda one: calls.Revert(commit=one, on="dev/etl"), "dev/etl~1"), WHOLE_DEV_WRITERS),
    (always(calls.Revert(commit="secret", on="dev/etl", dry_run=True)), ALL_WRITERS),
    (always(calls.Restore(keys=(ORDERS,), to="dev/etl~2", branch="dev/etl")), RESTORERS),
    (always(calls.Restore(keys=(PAY,), to="main~0", dry_run=True)), RESTORERS),
    (always(calls.Restore(namespace=Key("sales"), to="dev/etl~2", branch="dev/etl")), RESTORERS),
    (always(calls.Restore(all=True, to="dev/etl~2", branch="dev/etl")), RESTORERS),
    (at_id(lambda one: calls.Restore(all=True, to=one, branch="dev/etl"), "dev/etl~2"), RESTORERS),
    (always(calls.Restore(all=True, to="secret", branch="dev/etl", dry_run=True)), RESTORERS),
    (always(calls.Rebase(branch="dev/etl")), WHOLE_DEV_WRITERS),
    (always(calls.Rebase(branch="dev/etl", onto="secret", dry_run=True)), ALL_WRITERS),
    (always(calls.Rebase(branch="secret")), ALL_WRITERS),
    # Delta tables
    (always(delta_calls.GetTableVersions(key=ORDERS)), MAIN_READERS),
    (always(delta_calls.GetTableVersions(key=PAY)), ALL_READERS | {"dev_writer"}),
    (always(delta_calls.GetTableVersions(key=ORDERS, at="secret")), SECRET_READERS),
    (at_id(lambda one: delta_calls.GetTableVersions(key=ORDERS, at=one, via="secret")), SECRET_READERS),
    (always(delta_calls.GetTableStatus()), MAIN_READERS),
    (always(delta_calls.FindTable(id=str(UUID(int=1)), at="secret")), SECRET_READERS),
    (always(delta_calls.CommitTables(tables=(appended(ORDERS),))), ALL_WRITERS),
    (always(delta_calls.CommitTables(tables=(appended(ORDERS),), branch="dev/etl")), DEV_WRITERS),
    (
        always(delta_calls.CommitTables(tables=(appended(ORDERS), appended(PAY)), branch="dev/etl")),
        WHOLE_DEV_WRITERS,
    ),
    (always(delta_calls.ReserveIdentities(key=ORDERS, column="n", count=1)), ALL_WRITERS),
    (
        always(delta_calls.ReserveIdentities(key=ORDERS, branch="dev/etl", column="n", count=1)),
        DEV_WRITERS,
    ),
    (always(delta_calls.ReserveColumnIds(key=ORDERS, count=1)), ALL_WRITERS),
    (always(delta_calls.ReserveColumnIds(key=ORDERS, branch="dev/etl", count=1)), DEV_WRITERS),
    (always(delta_calls.PublishTable(key=ORDERS)), ALL_WRITERS | TABLE_MAINTAINERS),
    (always(delta_calls.PublishTable(key=ORDERS, branch="dev/etl")), DEV_WRITERS | TABLE_MAINTAINERS),
    (always(delta_calls.CreateTable(key=Key("sales", "x"), schema="{}", branch="dev/etl")), DEV_WRITERS),
    (always(delta_calls.CreateTable(key=Key("new", "x"), schema="{}", branch="dev/etl")), WHOLE_DEV_WRITERS),
    (always(delta_calls.CreateTable(key=Key("sales", "x"), schema="{}")), ALL_WRITERS),
    (always(delta_calls.CloneTable(source=ORDERS, key=Key("sales", "x"), branch="dev/etl")), DEV_WRITERS),
    (always(delta_calls.CloneTable(source=PAY, key=Key("sales", "x"), branch="dev/etl")), WHOLE_DEV_WRITERS),
    (always(delta_calls.CloneTable(source=ORDERS, key=Key("sales", "x"))), ALL_WRITERS),
    (always(delta_calls.AdoptTable(location="s3://elsewhere/x")), ALL_WRITERS),
    (always(delta_calls.ReleaseTable(key=ORDERS)), {"admin"}),
    (always(delta_calls.AdoptTables(location="s3://elsewhere/x")), ALL_WRITERS),
    (always(delta_calls.AdoptTables(location="s3://elsewhere/x", dry_run=True)), ALL_WRITERS),
    (always(delta_calls.ReleaseTables()), {"admin"}),
    (always(delta_calls.ReleaseTables(namespace=ORDERS, dry_run=True)), {"admin"}),
    (always(delta_calls.RecoverTable(location="s3://elsewhere/x")), {"admin"}),
    (always(delta_calls.CheckpointTable(key=ORDERS)), ALL_WRITERS | TABLE_MAINTAINERS),
    (always(delta_calls.CompactLog(key=ORDERS)), ALL_WRITERS | TABLE_MAINTAINERS),
    (always(delta_calls.CleanLog(key=ORDERS)), TABLE_MAINTAINERS),
    (always(delta_calls.CleanLog(key=PAY)), MAINTAINERS),
    (always(delta_calls.CleanLog(key=ORDERS, dry_run=True)), TABLE_MAINTAINERS),
    # tables of files, and jobs
    (always(files_calls.ListFiles(key=ORDERS)), MAIN_READERS),
    (always(files_calls.ListFiles(key=PAY)), ALL_READERS | {"dev_writer"}),
    (always(files_calls.ListFiles(key=ORDERS, at="secret")), SECRET_READERS),
    (at_id(lambda one: files_calls.ListFiles(key=ORDERS, at=one, via="secret")), SECRET_READERS),
    (always(files_calls.GetFiles(key=PAY, file=("x",))), ALL_READERS | {"dev_writer"}),
    (always(files_calls.GetFiles(key=ORDERS, at="secret")), SECRET_READERS),
    (always(files_calls.SumFiles(key=PAY)), ALL_READERS | {"dev_writer"}),
    (at_id(lambda one: files_calls.SumFiles(key=ORDERS, at=one)), SECRET_READERS),
    (always(files_calls.GetFilesTable(key=PAY)), ALL_READERS | {"dev_writer"}),
    (always(files_calls.GetFilesTable(key=ORDERS, at="dev/etl")), DEV_READERS),
    (always(files_calls.WriteFiles(key=ORDERS)), ALL_WRITERS),
    (always(files_calls.WriteFiles(key=ORDERS, branch="dev/etl")), DEV_WRITERS),
    (always(files_calls.WriteFiles(key=PAY, branch="dev/etl")), WHOLE_DEV_WRITERS),
    (always(files_calls.WriteFiles(key=Key("new", "x"), branch="dev/etl")), WHOLE_DEV_WRITERS),
    (always(copied()), DEV_WRITERS),
    (always(copied(key=PAY)), WHOLE_DEV_WRITERS),
    (always(copied(at="main")), DEV_WRITERS),
    (always(copied(at="secret")), ALL_WRITERS),
    (at_id(lambda one: copied(at=one)), ALL_WRITERS),
    (always(begun(ORDERS)), ALL_WRITERS),
    (always(begun(ORDERS, branch="dev/etl")), DEV_WRITERS),
    (always(begun(PAY, branch="dev/etl")), WHOLE_DEV_WRITERS),
    (always(begun(ORDERS, branch="dev/etl", own_branch=True)), WHOLE_DEV_WRITERS),
    (always(files_calls.AbortJob(id="0" * 32)), EVERYBODY),
    (always(files_calls.ListJobs()), EVERYBODY),
    (always(transaction_calls.BeginTransaction(id="0" * 32)), ALL_WRITERS),
    (always(transaction_calls.BeginTransaction(id="0" * 32, target="dev/etl")), DEV_WRITERS),
    (always(transaction_calls.GetTransaction(id="0" * 32)), EVERYBODY),
    (always(transaction_calls.RenewTransaction(id="0" * 32)), EVERYBODY),
    (always(transaction_calls.NoteReads(id="0" * 32, reads=())), EVERYBODY),
    (always(transaction_calls.CommitTransaction(id="0" * 32)), EVERYBODY),
    (always(transaction_calls.AbortTransaction(id="0" * 32)), EVERYBODY),
    (always(transaction_calls.ListTransactions()), EVERYBODY),
    (always(lance_calls.GetLanceTable(key=PAY)), ALL_READERS | {"dev_writer"}),
    (always(lance_calls.GetLanceTable(key=ORDERS, at="secret", to_write=True)), SECRET_READERS),
    (always(lance_calls.GetLanceStatus(key=PAY)), ALL_READERS | {"dev_writer"}),
    (always(lance_calls.ListLanceVersions(key=PAY)), ALL_READERS | {"dev_writer"}),
    (at_id(lambda one: lance_calls.ListLanceVersions(key=ORDERS, at=one)), SECRET_READERS),
    (always(lance_calls.ListLanceBranches(key=ORDERS, at="dev/etl")), DEV_READERS),
    (always(lance_calls.ListLanceTags(key=PAY)), ALL_READERS | {"dev_writer"}),
    (always(lance_calls.PromoteLance(key=ORDERS)), ALL_WRITERS | TABLE_MAINTAINERS),
    (always(lance_calls.PromoteLance(key=ORDERS, branch="dev/etl")), DEV_WRITERS | TABLE_MAINTAINERS),
    (always(altered(ORDERS)), ALL_WRITERS),
    (always(altered(ORDERS, "dev/etl")), DEV_WRITERS),
    (always(altered(PAY, "dev/etl")), WHOLE_DEV_WRITERS),
    (always(files_care_calls.SweepFiles()), MAINTAINERS),
    (always(files_care_calls.SweepFiles(dry_run=True)), MAINTAINERS),
]


@pytest.fixture(scope="module")
def shown() -> tuple[Lake, MemoryStore]:
    """A lake that is only read."""
    store = MemoryStore()
    return new_lake(store), store


@pytest.mark.parametrize(("make", "allowed"), CASES)
def test_a_call_is_carried_out_for_those_who_may_make_it_and_for_nobody_else(
    shown: tuple[Lake, MemoryStore], make: Make, allowed: set[str]
) -> None:
    """All who may not are refused on one lake, which none of them changes; each who may has its own."""
    is_read = make(shown[0]).method == "GET"

    def some_lake() -> tuple[Lake, MemoryStore]:
        store = MemoryStore()
        return shown if is_read else (new_lake(store), store)

    lake, store = some_lake()
    call = make(lake)
    before = rows_of(store)
    for who in [one for one in CALLERS if one not in allowed]:
        refused = refusal(guarded(lake, *CALLERS[who]), call)
        assert refused is not None, f"{who} made the call {call}"
        assert "token 'tester'" in refused, f"{who} was told {refused} of {call}"
        assert rows_of(store) == before, f"{who} was refused {call}, and changed something"
    for who in [one for one in CALLERS if one in allowed]:
        lake, _ = some_lake()
        call = make(lake)
        assert refusal(guarded(lake, *CALLERS[who]), call) is None, f"{who} was refused {call}"


def refusal(catalogue: Catalogue, call: calls.Call[Any]) -> str | None:
    """Why a caller may not make a call; ``None`` if it is carried out, as far as it can be on this lake."""
    try:
        catalogue.do(call)
    except Denied as denied:
        return denied.message
    except PenstockError as error:
        if not is_expected(error):
            raise
    return None


def is_expected(error: PenstockError) -> bool:
    """What some calls of the table come to, whoever makes them: on this lake everything conflicts.

    And it has no Delta tables, nor a place for any.
    """
    texts = [
        *(
            "is not in the history",
            "is not a first-parent ancestor of",
            "cannot merge",
            "cannot revert",
            "has no commits yet",
        ),
        *("is not a Delta table", "has no warehouse", "is outside the lake's roots", "not a table that"),
        *("not a table of files", "there is no job", "there is no transaction", "no Lance table"),
        "not a Lance table of the lake",
        "is not a table that this lake manages",
        "the lake reads and writes rows of Delta tables, Lance tables and tables of files only",
        "cannot be out of sync",
    ]
    return any(text in error.message for text in texts)


def test_every_call_has_a_rule_and_a_case_that_refuses_or_allows_it() -> None:
    assert {*LAKE_RULES, *load_format_rules()} == set(calls.CALLS)
    lake = new_lake()
    assert {type(make(lake)) for make, _ in CASES} == set(calls.CALLS)


def test_a_call_without_a_rule_is_refused_to_everybody() -> None:
    class Unheard(calls.Call[None], frozen=True, kw_only=True):
        path = "/unheard"
        answer = None

    lake = new_lake()
    for who in (OpenGate()({}), caller("admin")):
        with pytest.raises(Denied, match="Unheard"):
            CheckedCatalogue(lake.catalogue, who).do(Unheard())


def test_who_has_no_grants_may_ask_nothing() -> None:
    with pytest.raises(Denied):
        CheckedCatalogue(new_lake().catalogue, Caller(name="nobody", grants=())).do(calls.GetAbout())


def test_an_open_gate_may_ask_everything() -> None:
    for make, _ in CASES:
        lake = new_lake()
        assert refusal(CheckedCatalogue(lake.catalogue, OpenGate()({})), make(lake)) is None


def test_what_is_written_says_whose_token_it_was_whatever_the_request_says() -> None:
    lake = new_lake()
    said = calls.CommitDescription(authors=("grace",))
    mine = guarded(lake, "write").do(
        calls.CommitOperations(operations=(put("sales.x"),), who="root", said=said, branch="dev/etl")
    )
    assert (mine.committer, mine.authors) == ("tester", ("grace",))
    guarded(lake, "write").do(calls.CreateReference(name="dev/x", who="root"))
    assert [line.who for line in lake.reflog("dev/x")] == ["tester"]
    open_to_all = CheckedCatalogue(lake.catalogue, OpenGate()({}))
    theirs = open_to_all.do(calls.CommitOperations(operations=(put("sales.y"),), who="root"))
    assert (theirs.committer, theirs.authors) == ("root", ("root",))


def test_lists_of_references_leave_out_what_may_not_be_read_and_fill_their_pages() -> None:
    lake = new_lake()
    for number in range(30):
        lake.branch(f"a/{number:02}").create()
        lake.branch(f"dev/{number:02}").create()
    mine = guarded(lake, "read:dev/*")
    first = mine.do(calls.ListReferences(limit=5))
    assert [one.name for one in first] == [f"dev/{number:02}" for number in range(5)]
    names, after = [], ""
    while page := mine.do(calls.ListReferences(limit=7, after=after)):
        names += [one.name for one in page]
        after = page[-1].name
    assert names == [*(f"dev/{number:02}" for number in range(30)), "dev/etl"]
    assert [one.name for one in mine.do(calls.ListReferences(kind=Kind.DELETED))] == ["dev/gone"]
    assert mine.do(calls.ListReferences(kind=Kind.TAG)) == ()
    assert mine.do(calls.ListReferences(limit=0)) == ()
    assert len(mine.do(calls.ListReferences(prefix="dev/0"))) == 10
    assert len(mine.do(calls.ListReferences(prefix="d", limit=None))) == 31
    assert mine.do(calls.ListReferences(prefix="a/")) == ()
    both = guarded(lake, "read:dev/0?", "write:dev/1*")
    assert len(both.do(calls.ListReferences())) == 20


@pytest.mark.parametrize("kind", [Kind.LAKE, Kind.TOKEN])
def test_rows_of_the_store_that_are_no_references_are_not_listed(kind: Kind) -> None:
    lake = new_lake()
    lake.create_token("etl", "read")
    with pytest.raises(PenstockError, match="unknown kind of reference"):
        guarded(lake, "admin").do(calls.ListReferences(kind=kind))


def test_a_commit_id_is_read_only_by_way_of_a_reference_that_leads_to_it() -> None:
    lake = new_lake()
    mine = guarded(lake, "read:dev/*")
    hidden, own, shared = lake.resolve("secret"), lake.resolve("dev/etl~1"), lake.resolve("main")
    assert mine.do(calls.GetCommit(revision=own, via="dev/etl")).id == own
    assert mine.do(calls.GetCommit(revision=shared, via="dev/etl")).id == shared
    assert mine.do(calls.GetCommit(revision=f"dev/etl@{own}")).id == own
    ways: list[calls.Call[Any]] = [
        calls.GetCommit(revision=hidden, via="dev/etl"),
        calls.GetCommit(revision=hidden[:12], via="dev/etl"),
        calls.GetCommit(revision=f"dev/etl@{hidden}"),
        calls.GetChanges(revision=hidden + "~1", via="dev/etl"),
        calls.ListEntries(at=hidden, via="dev/etl"),
        calls.ListCommits(ref=f"@{hidden}", via="dev/etl"),
    ]
    for call in ways:
        with pytest.raises(CommitNotFound):
            mine.do(call)
    for via in (None, "secret", "main"):
        with pytest.raises(Denied):
            mine.do(calls.GetCommit(revision=hidden, via=via))


def test_what_was_merged_into_a_readable_branch_is_read_by_its_second_parent() -> None:
    lake = new_lake()
    merged = lake.resolve("secret")
    lake.merge("secret", "dev/etl", default="force")
    mine = guarded(lake, "read:dev/*")
    assert mine.do(calls.Resolve(revision="dev/etl^2")).commit == merged
    assert mine.do(calls.GetCommit(revision=merged, via="dev/etl")).id == merged


def test_revisions_to_compare_with_tell_nothing_about_other_references() -> None:
    lake = new_lake()
    mine = guarded(lake, "write:dev/*")
    hidden, own = lake.resolve("secret"), lake.resolve("dev/etl")

    def commit(**how: Any) -> object:
        return mine.do(calls.CommitOperations(operations=(put("sales.x"),), branch="dev/etl", **how))

    for named in ("secret", "secret~1", "main"):
        with pytest.raises(Denied):
            commit(base=named)
        with pytest.raises(Denied):
            commit(if_head=named)
    for digits in (hidden[:8], hidden + "~1", hidden[:63]):
        with pytest.raises(CommitNotFound):
            commit(base=digits)
        with pytest.raises(CommitNotFound):
            commit(if_head=digits)
    with pytest.raises(ReferenceChanged):
        commit(if_head=hidden)
    commit(base=own, if_head=own)


def test_pages_of_a_log_go_on_after_a_commit_of_that_log_only() -> None:
    lake = new_lake()
    mine = guarded(lake, "read:dev/*")
    first, *rest = mine.do(calls.ListCommits(ref="dev/etl"))
    for after in (first.id, first.id[:12], "dev/etl"):
        assert mine.do(calls.ListCommits(ref="dev/etl", after=after)) == tuple(rest)
    with pytest.raises(Denied):
        mine.do(calls.ListCommits(ref="dev/etl", after="secret"))
    with pytest.raises(CommitNotFound):
        mine.do(calls.ListCommits(ref="dev/etl", after=lake.resolve("secret")[:12]))


def test_nobody_reads_more_on_a_branch_that_they_make_than_where_it_comes_from() -> None:
    lake = new_lake()
    cunning = guarded(lake, "write:dev/*", "read:main:sales.*")
    with pytest.raises(Denied, match="read keys on it"):
        cunning.do(calls.CreateReference(name="dev/all", at="main"))
    with pytest.raises(Denied):
        cunning.do(calls.AssignReference(name="dev/etl", to="main"))
    with pytest.raises(Denied):
        cunning.do(calls.Merge(source="main", into="dev/etl"))
    with pytest.raises(Denied):
        cunning.do(calls.Rebase(branch="dev/etl", onto="main"))


def test_closing_what_a_caller_sees_leaves_the_lake_open(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        guarded(lake, "read").close()
        assert lake.branch().exists


def test_an_error_says_what_was_granted() -> None:
    with pytest.raises(Denied, match=r"token 'tester' may not change 'main' \(granted: read, write:dev/\*\)"):
        guarded(new_lake(), "read", "write:dev/*").do(calls.DeleteReference(name="main"))
