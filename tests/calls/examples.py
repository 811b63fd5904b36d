"""A call of every kind, and several where a kind does several things: each finds something to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.formats.delta.lake import calls as delta_calls
from penstock.formats.files.intents import WriteCondition
from penstock.formats.files.lake import calls as files_calls
from penstock.formats.files.lake import sweep_calls as files_care_calls
from penstock.formats.lance.lake import calls as lance_calls
from penstock.lake import calls, resync_calls
from penstock.lake.audits import calls as audit_calls
from penstock.lake.tokens import parse_grant
from penstock.lake.transactions import calls as transaction_calls
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from penstock.model.reads import Read
from penstock.model.references import Kind
from tests.calls.world import FENCE, JOB, ORDERS, RAW, SECOND_FENCE, TRANSACTION, VECTORS, World
from tests.remote.scenarios import table

Make = Callable[[World], calls.Call[Any]]

SCHEMA = '{"type":"struct","fields":[{"name":"day","type":"string","nullable":true,"metadata":{}}]}'
LINE = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'
NEW, A = Key("new"), Key("a")
TABLE_ID = UUID(int=7)


def lance(*operations: lance_calls.LanceOperation, branch: str | None = None) -> lance_calls.CommitLance:
    return lance_calls.CommitLance(operations=operations, branch=branch)


def appended(**how: Any) -> delta_calls.CommitTables:
    return delta_calls.CommitTables(tables=(delta_calls.TableCommit(key=ORDERS, actions=LINE, **how),))


def new_file(name: str, size: int) -> files_calls.NewFile:
    return files_calls.NewFile(path=name, size=size)


READS: dict[str, Make] = {
    "about": lambda _: calls.GetAbout(),
    "a setting": lambda _: calls.GetSetting(name="colour"),
    "count what a sweep would remove": lambda _: calls.Sweep(dry_run=True),
    "check": lambda _: calls.Fsck(),
    "tokens": lambda _: calls.ListTokens(),
    "references": lambda _: calls.ListReferences(),
    "a reference": lambda _: calls.GetReference(name="dev"),
    "a reference's log": lambda _: calls.GetReferenceLog(name="dev"),
    "resolve": lambda _: calls.Resolve(revision="main~1"),
    "contents": lambda _: calls.GetContents(key=(A,)),
    "entries": lambda _: calls.ListEntries(),
    "a commit": lambda _: calls.GetCommit(revision="main"),
    "changes": lambda _: calls.GetChanges(revision="main"),
    "commits": lambda _: calls.ListCommits(),
    "a search of the log": lambda _: calls.SearchLog(table=A),
    "figures": lambda _: calls.GetFigures(),
    "figures of commits": lambda _: calls.GetFigures(about=(calls.FigureKind.COMMITS,)),
    "figures of a table": lambda _: calls.GetFigures(about=("sizes",), table=RAW),
    "differences": lambda _: calls.Diff(before="main", to="dev"),
    "compare": lambda _: calls.Compare(one="main", other="dev"),
    "an outcome": lambda _: calls.GetOutcome(key="nobody's"),
    "try a merge": lambda _: calls.Merge(source="dev", dry_run=True),
    "versions of Delta": lambda _: delta_calls.GetTableVersions(key=ORDERS),
    "status": lambda _: delta_calls.GetTableStatus(),
    "try an erase": lambda _: calls.EraseTable(key=ORDERS, dry_run=True),
    "find": lambda _: delta_calls.FindTable(id=str(TABLE_ID)),
    "files": lambda _: files_calls.ListFiles(key=RAW),
    "a file": lambda _: files_calls.GetFiles(key=RAW, file=("one.txt",)),
    "sum of files": lambda _: files_calls.SumFiles(key=RAW),
    "a table of files": lambda _: files_calls.GetFilesTable(key=RAW),
    "jobs": lambda _: files_calls.ListJobs(),
    "a transaction": lambda _: transaction_calls.GetTransaction(id=TRANSACTION),
    "transactions": lambda _: transaction_calls.ListTransactions(),
    "a Lance table": lambda _: lance_calls.GetLanceTable(key=VECTORS),
    "status of a Lance table": lambda _: lance_calls.GetLanceStatus(key=VECTORS),
    "versions of Lance": lambda _: lance_calls.ListLanceVersions(key=VECTORS),
    "branches of Lance": lambda _: lance_calls.ListLanceBranches(key=VECTORS),
    "tags of Lance": lambda _: lance_calls.ListLanceTags(key=VECTORS),
    "expectations": lambda _: audit_calls.ListExpectations(branch="dev"),
}

WRITES: dict[str, Make] = {
    "roots": lambda _: calls.ChangeRoots(add=("s3://bucket/new",), remove=("s3://bucket/old",)),
    "another setting": lambda _: calls.PutSetting(name="colour", value="red"),
    "no setting": lambda _: calls.PutSetting(name="colour"),
    "a history rule": lambda _: calls.KeepHistory(pattern="dev*", max_commits=5),
    "grace": lambda _: calls.SetGrace(data_grace_days=30),
    "sweep": lambda _: calls.Sweep(),
    "sweep tables": lambda _: calls.SweepTables(),
    "sweep files": lambda _: files_care_calls.SweepFiles(),
    "resync": lambda _: resync_calls.Resync(),
    "a new token": lambda _: calls.PutToken(
        id="0" * 12, name="new", secret_hash=bytes(32), grants=(parse_grant("read"),)
    ),
    "revoke a token": lambda world: calls.RevokeToken(id=world.token_id),
    "a new branch": lambda _: calls.CreateReference(name="new", at="main~1"),
    "a new tag": lambda _: calls.CreateReference(name="v2", kind=Kind.TAG),
    "assign": lambda _: calls.AssignReference(name="dev", to="main", expected="dev"),
    "assign relatively": lambda _: calls.AssignReference(name="dev", to="dev~1"),
    "delete a branch": lambda _: calls.DeleteReference(name="dev"),
    "delete a tag": lambda _: calls.DeleteReference(name="v1", expected="v1"),
    "put": lambda _: calls.CommitOperations(operations=(Put(A, table(9)),)),
    "put at a base": lambda _: calls.CommitOperations(operations=(Put(A, table(9)),), base="main"),
    "put at a head": lambda _: calls.CommitOperations(operations=(Put(A, table(9)),), if_head="main"),
    "delete": lambda _: calls.CommitOperations(operations=(Delete(A),), branch="dev"),
    "merge": lambda _: calls.Merge(source="dev"),
    "merge to a head": lambda _: calls.Merge(source="dev", into="main", if_head="main"),
    "transplant": lambda _: calls.Transplant(commits=("dev~1..dev",)),
    "revert": lambda _: calls.Revert(commit="dev", on="dev"),
    "restore": lambda _: calls.Restore(keys=(ORDERS,), to="main~1"),
    "restore all": lambda _: calls.Restore(all=True, to="v1", leave=(VECTORS,)),
    "restore a version": lambda _: calls.Restore(keys=(ORDERS,), version=0),
    "rebase": lambda _: calls.Rebase(branch="dev"),
    "append to Delta": lambda _: appended(),
    "a version of Delta": lambda _: appended(version=3),
    "publish": lambda _: delta_calls.PublishTable(key=ORDERS),
    "reserve identities": lambda _: delta_calls.ReserveIdentities(
        key=ORDERS, column="n", count=0, reached=99
    ),
    "reserve column ids": lambda _: delta_calls.ReserveColumnIds(key=ORDERS, count=0),
    "create a Delta table": lambda _: delta_calls.CreateTable(key=NEW, schema=SCHEMA),
    "create a Delta table with files": lambda _: delta_calls.CreateTable(
        key=NEW, schema=SCHEMA, id=TABLE_ID, actions=LINE
    ),
    "create a Delta table at a place": lambda world: delta_calls.CreateTable(
        key=NEW, schema=SCHEMA, location=str(world.tables / "new")
    ),
    "clone a Delta table": lambda _: delta_calls.CloneTable(source=ORDERS, key=NEW),
    "adopt": lambda world: delta_calls.AdoptTable(location=str(world.tables / "free")),
    "release": lambda _: delta_calls.ReleaseTable(key=ORDERS),
    "adopt all": lambda world: delta_calls.AdoptTables(location=str(world.tables / "free")),
    "release all": lambda _: delta_calls.ReleaseTables(namespace=ORDERS),
    "recover": lambda world: delta_calls.RecoverTable(location=str(world.tables / "lost"), any_lake=True),
    "checkpoint": lambda _: delta_calls.CheckpointTable(key=ORDERS),
    "compact": lambda _: delta_calls.CompactLog(key=ORDERS, first=0, last=2),
    "clean": lambda _: delta_calls.CleanLog(key=ORDERS),
    "write files": lambda world: files_calls.WriteFiles(
        key=RAW, folder=world.pool_folder, added=(new_file("new.txt", 3),), removed=("one.txt",)
    ),
    "copy a file": lambda _: files_calls.WriteFiles(
        key=RAW, copied=(files_calls.CopiedFile(path="three.txt", source="two.txt"),)
    ),
    "ignored files": lambda world: files_calls.WriteFiles(
        key=RAW,
        folder=world.pool_folder,
        added=(new_file("new.txt", 3),),
        when=WriteCondition.IGNORE,
    ),
    "the files of a job": lambda world: files_calls.WriteFiles(
        key=RAW, folder=world.job_folder, put=(new_file("job.txt", 8),), job=JOB, fence=FENCE
    ),
    "begin a job": lambda _: files_calls.BeginJob(id="6" * 32, fence="7" * 32, key=RAW),
    "begin a job on its own branch": lambda _: files_calls.BeginJob(
        id="6" * 32, fence="7" * 32, key=RAW, own_branch=True
    ),
    "begin a job again": lambda _: files_calls.BeginJob(id=JOB, fence=SECOND_FENCE, key=RAW),
    "abort a job": lambda _: files_calls.AbortJob(id=JOB),
    "begin a transaction": lambda _: transaction_calls.BeginTransaction(id="8" * 32),
    "renew a transaction": lambda _: transaction_calls.RenewTransaction(id=TRANSACTION),
    "note reads": lambda _: transaction_calls.NoteReads(id=TRANSACTION, reads=(Read(key=A),)),
    "commit a transaction": lambda _: transaction_calls.CommitTransaction(id=TRANSACTION),
    "abort a transaction": lambda _: transaction_calls.AbortTransaction(id=TRANSACTION),
    "promote": lambda _: lance_calls.PromoteLance(key=VECTORS),
    "declare": lambda _: lance(lance_calls.DeclareLance(key=NEW, id=TABLE_ID, properties={"a": "b"})),
    "declare on a branch": lambda _: lance(lance_calls.DeclareLance(key=NEW), branch="dev"),
    "declare what is there": lambda _: lance(lance_calls.DeclareLance(key=VECTORS, exist_ok=True)),
    "register": lambda world: lance(
        lance_calls.RegisterLance(key=NEW, location=str(world.tables / "foreign.lance"))
    ),
    "a version of Lance": lambda world: lance(world.version(4, world.staged)),
    "delete versions": lambda _: lance(lance_calls.DeleteLanceVersions(key=VECTORS, ranges=((2, 3),))),
    "alter": lambda _: lance(lance_calls.AlterLance(key=VECTORS, properties={"owner": "ada"})),
    "tags and branches": lambda _: lance(
        lance_calls.PutLanceTag(key=VECTORS, tag_name="second", version=2),
        lance_calls.DropLanceTag(key=VECTORS, tag_name="first"),
        lance_calls.PutLanceBranch(key=VECTORS, branch="other", version=2),
        lance_calls.DropLanceBranch(key=VECTORS, branch="side"),
    ),
    "deregister": lambda _: lance(lance_calls.DeregisterLance(key=VECTORS)),
    "expect": lambda _: audit_calls.AddExpectation(
        branch="dev", name="new", sql="select * from sales.nobody", missing_ok=True
    ),
    "expect no longer": lambda _: audit_calls.RemoveExpectation(branch="dev", name="no strangers"),
}

EXAMPLES = {**READS, **WRITES}
