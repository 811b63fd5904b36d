"""What can be done with a lake, whatever is behind it: reads of a prepared one, and writes to an empty one.

Together they use everything that a lake, branch, tag, snapshot and table offer, in good ways and bad.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.calls import (
    CommitLance,
    CreateLanceVersion,
    DeclareLance,
    DeregisterLance,
    DropLanceTag,
    GetLanceTable,
    LanceOperation,
    ListLanceBranches,
    ListLanceTags,
    ListLanceVersions,
    PromoteLance,
    PutLanceTag,
    RegisterLance,
)
from penstock.lake.lake import Lake
from penstock.lake.transactions.calls import GetTransaction, NoteReads
from penstock.model.content import AnyContent, SqlView, Unknown, load_content_types
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.model.nessie import DeltaTable, IcebergTable, IcebergView, Udf
from penstock.model.operations import Delete, Put, Unchanged
from penstock.model.reads import Read
from penstock.testing.journal import append, edit, replace

Scenario = Callable[[Lake], Any]

CONTENTS: dict[str, AnyContent] = {
    "all.iceberg": IcebergTable(metadata_location="s3://b/i/v1.json", snapshot_id=2**62, schema_id=3),
    "all.view": IcebergView(metadata_location="s3://b/v.json", sql_text="select 'ü'", dialect="spark"),
    "all.udf": Udf(metadata_location="s3://b/u.json", sql_text="x -> x", dialect="trino"),
    "all.delta": DeltaTable(metadata_location_history=("s3://b/d/1",), last_checkpoint="s3://b/d/c"),
    "all.lance": LanceTable(),
    "all.files": FilesTable(),
    "all.sql_view": SqlView(sql_text="select 'ü'", columns="{}", namespace=("all",), settings={"x": "1"}),
    "all.unknown": Unknown(type_name="MYSTERY", payload=bytes(range(256))),
}


def table(number: int) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://bucket/v{number}.json", snapshot_id=number)


def prepare(lake: Lake) -> None:
    """Every type of content, two branches with a conflict, merges, tags, a deleted branch and a journal."""
    main, dev = lake.branch(), lake.branch("dev/x")
    for key, content in CONTENTS.items():
        main.put(key, content, author="ann")
    main.create_namespace("empty.deep", {"owner": "bob"})
    main.put(
        'odd."2026.11"."ü/""%"', table(1), message="odd\n\nnames", properties={"a": ["1", "2"], "b": "3"}
    )
    dev.create()
    lake.tag("v1").create(at="main~1")
    for number in range(5):
        dev.put("all.iceberg", table(number))
    main.put("all.iceberg", table(100), author="carol")
    dev.put("dev.own", table(7))
    lake.branch("side").create(at="main~2").put("side.own", table(8), idempotency_key="side key %ü")
    lake.merge("side")
    lake.commit([append("diary", "dear diary")])
    lake.branch("gone").create().put("gone.own", table(9))
    lake.branch("gone").delete(idempotency_key="gone")
    lake.keep_history("dev/*", max_days=400)


def told(do: Callable[[], Any]) -> Any:
    """What comes of something: its result, or everything that an error says."""
    try:
        return do()
    except PenstockError as error:
        return type(error), error.code, error.message, error.details, error.exit_code, error.http_status


MISSING = "f" * 64

READS: dict[str, Scenario] = {
    "about": lambda lake: msgspec.structs.replace(lake.about, url="", page_max=None, settle_s=None),
    "id": lambda lake: (lake.id, lake.forked_from, lake.moving_to, lake.default_branch),
    "places": lambda lake: (lake.warehouse, lake.roots),
    "repr": lambda lake: (repr(lake.branch()), repr(lake.tag("v1")), repr(lake.table("a"))),
    "history rules": lambda lake: lake.history_rules,
    "branches": lambda lake: [one.name for one in lake.branches()],
    "branches by page": lambda lake: [one.name for one in lake.branches("", after="dev/x", limit=1)],
    "no branches": lambda lake: lake.branches("nothing"),
    "branches below nothing": lambda lake: lake.branches(limit=-1),
    "tags": lambda lake: [one.name for one in lake.tags()],
    "deleted": lambda lake: lake.deleted(),
    "references": lambda lake: lake.references(),
    "reflog": lambda lake: lake.reflog(),
    "reflog limited": lambda lake: lake.reflog("dev/x", limit=2),
    "reflog of none": lambda lake: lake.reflog("dev/x", limit=0),
    "reflog below nothing": lambda lake: lake.reflog("dev/x", limit=-1),
    "reflog of the deleted": lambda lake: lake.reflog("gone"),
    "reflog of nobody": lambda lake: lake.reflog("nobody"),
    "resolve": lambda lake: [lake.resolve(one) for one in (None, "main~2", "v1", "dev/x~1^1", "main^2")],
    "resolve a time": lambda lake: lake.resolve("main*2100-01-01T00:00:00Z"),
    "resolve an id": lambda lake: lake.resolve(lake.resolve("main")[:12]),
    "resolve a reachable id": lambda lake: lake.resolve(f"dev/x@{lake.resolve('dev/x~3')}"),
    "resolve an unreachable id": lambda lake: lake.resolve(f"v1@{lake.resolve('dev/x')}"),
    "resolve nobody": lambda lake: lake.resolve("nobody"),
    "resolve nothing": lambda lake: lake.resolve(""),
    "resolve nonsense": lambda lake: lake.resolve("main~x"),
    "resolve too far": lambda lake: lake.resolve("main~1000"),
    "resolve no commit": lambda lake: lake.resolve(MISSING),
    "show": lambda lake: [lake.show(one) for one in (None, "main~1", "v1", "side")],
    "show nobody": lambda lake: lake.show("nobody"),
    "show no commit": lambda lake: lake.show(MISSING),
    "changes": lambda lake: [lake.changes(one) for one in (None, "main~1", "main~2", "v1")],
    "log": lambda lake: lake.log(),
    "log of all parents": lambda lake: lake.log(all_parents=True, limit=None),
    "log of a table": lambda lake: lake.log("dev/x", table="all.iceberg"),
    "log of an author": lambda lake: lake.log(author="carol"),
    "log of a time": lambda lake: lake.log(since="2020-01-01", until=datetime(2099, 1, 1, tzinfo=UTC)),
    "log before all": lambda lake: lake.log(until=datetime(1999, 1, 1)),  # noqa: DTZ001 - taken as UTC
    "log of a text": lambda lake: lake.log(text="ODD"),
    "a part of the log": lambda lake: lake.search_log("dev/x", table="all.iceberg", within=2),
    "no part of the log": lambda lake: lake.search_log(within=0),
    "figures": lambda lake: lake.figures("dev/x"),
    "figures of a table that is not managed": lambda lake: lake.figures(table="all.iceberg"),
    "log by page": lambda lake: lake.log(limit=2, after=lake.resolve("main~1")),
    "log after another": lambda lake: lake.log(after=lake.resolve("dev/x")),
    "log below nothing": lambda lake: lake.log(limit=-1),
    "log of a bad time": lambda lake: lake.log(since="yesterday"),
    "diff": lambda lake: lake.diff("main", "dev/x"),
    "diff below": lambda lake: lake.diff("v1", "main", "all"),
    "diff nobody": lambda lake: lake.diff("main", "nobody"),
    "diff a bad key": lambda lake: lake.diff("main", "v1", "a..b"),
    "compare": lambda lake: lake.compare("main", "dev/x"),
    "compare nobody": lambda lake: lake.compare("main", "nobody"),
    "outcome": lambda lake: lake.outcome("side key %ü", "side"),
    "outcome elsewhere": lambda lake: lake.outcome("side key %ü"),
    "outcome of nobody": lambda lake: lake.outcome("k", "nobody"),
    "at": lambda lake: (lake.at("v1").id, lake.at(lake.show("v1")).id),
    "at nobody": lambda lake: lake.at("nobody"),
    "tables": lambda lake: [(one.key, one.ref, one.type, one.content) for one in lake.tables()],
    "tables below": lambda lake: [one.key for one in lake.tables("all", "v1")],
    "table": lambda lake: (lake.table("all.view").content, lake.table("all.udf", "v1").exists),
    "table of another": lambda lake: lake.table("dev.own").exists,
    "no table": lambda lake: lake.table("all.nothing").content,
    "table at nobody": lambda lake: lake.table("all.view", "nobody").exists,
    "table log": lambda lake: lake.table("all.iceberg", "dev/x").log(limit=3),
    "entries": lambda lake: list(lake.at().entries()),
    "entries after": lambda lake: list(lake.at().entries("all", after="all.lance")),
    "entries below nothing": lambda lake: list(lake.at().entries("nothing")),
    "namespaces": lambda lake: lake.at().namespaces(),
    "namespaces below": lambda lake: lake.at().namespaces("empty"),
    "get": lambda lake: (lake.at().get("all.delta"), lake.at().get("nothing")),
    "get many": lambda lake: lake.at().get_many([*CONTENTS, "nothing", Key("odd"), "all.view"]),
    "get none": lambda lake: lake.at().get_many([]),
    "snapshot": lambda lake: (
        lake.at("v1").tables()[0].key,
        lake.at("v1").log(),
        repr(lake.at("v1").table("a")),
    ),
    "branch": lambda lake: (lake.branch().reference, lake.branch("dev/x").head, lake.branch("nobody").exists),
    "branch is no tag": lambda lake: (lake.branch("v1").exists, lake.tag("v1").exists),
    "tag that is a branch": lambda lake: lake.tag("main").head,
    "branch of nobody": lambda lake: lake.branch("nobody").reference,
    "branch with a bad name": lambda lake: lake.branch("a..b").reference,
    "branch tables": lambda lake: [one.key for one in lake.branch("dev/x").tables("all")],
    "branch table": lambda lake: lake.branch("dev/x").table("dev.own").content,
    "branch log": lambda lake: lake.branch("dev/x").log(limit=2),
    "branch reflog": lambda lake: lake.branch("dev/x").reflog(limit=3),
    "tag snapshot": lambda lake: lake.tag("v1").snapshot().id,
    "branches are alike": lambda lake: (lake.branch() == lake.branch("main"), hash(lake.tag("v1"))),
    "merge dry run": lambda lake: lake.merge("dev/x", dry_run=True),
    "merge dry run of a branch": lambda lake: lake.branch("dev/x").merge_into("side", dry_run=True),
    "transplant dry run": lambda lake: lake.transplant("dev/x~2..dev/x", "side", dry_run=True),
    "revert dry run": lambda lake: lake.revert("main~1", dry_run=True),
    "rebase dry run": lambda lake: lake.rebase("dev/x", dry_run=True),
    "sweep dry run": lambda lake: lake.sweep(dry_run=True),
    "sweep of tables": lambda lake: list(lake.sweep_tables(dry_run=True)),
    "sweep of files": lambda lake: lake.sweep_files(dry_run=True),
    "fsck": lambda lake: lake.fsck(),
    "tokens": lambda lake: lake.tokens(),
    "files of another table": lambda lake: lake.table("all.iceberg").files.about(),
    "files that are only pointed at": lambda lake: lake.table("all.files").files.list(),
    "files of nothing": lambda lake: lake.table("all.nothing", "dev/x").files.list(),
    "files at nobody": lambda lake: lake.table("all.files", "nobody").files.total(),
    "lance tables": lambda lake: lake.lance().list_all_tables({}).tables,
    "lance tables at a commit": lambda lake: lake.lance("main~1").list_tables({"id": ["all"]}).tables,
    "lance at nobody": lambda lake: lake.lance("nobody"),
    "lance of another table": lambda lake: lake.table("all.iceberg").to_lance(),
    "lance that is only pointed at": lambda lake: lake.table("all.lance").to_lance(),
    "lance of nothing": lambda lake: lake.do(ListLanceVersions(key=Key("none"), at="dev/x")),
    "jobs": lambda lake: (lake.jobs(), lake.jobs("all.files", "main", all=True)),
    "jobs of a bad key": lambda lake: lake.jobs("a..b"),
    "transactions": lambda lake: (lake.transactions(), lake.transactions("main", all=True, limit=2)),
    "a transaction of nobody": lambda lake: lake.find_transaction("0" * 32),
    "a transaction of no id": lambda lake: lake.find_transaction("nobody"),
    "what nobody wrote in a transaction": lambda lake: lake.at("tx/" + "0" * 32),
}


def committing(lake: Lake) -> list[Any]:
    main = lake.branch()
    first = main.put("a.b", table(1), message="one", author="ann", properties={"x": "1", "y": ["2", "3"]})
    main.put("a.c", table(2), base=first.id)
    moved = Put(Key("z"), lake.table("a.b").content)
    return [
        told(lambda: main.put("a.b", table(9), base="main~1")),
        told(lambda: main.put("a.b", table(9), base="nobody")),
        told(
            lambda: main.commit([Put(Key("a", "b"), table(3)), Put(Key("a", "c"), table(3))], base=first.id)
        ),
        told(lambda: main.commit([Put(Key("x", "y"), table(3))], message="no namespace")),
        told(lambda: main.commit([Delete(Key("a"))], message="not empty")),
        told(lambda: main.commit([Delete(Key("a", "b")), moved], message="rename")),
        told(lambda: main.commit([Unchanged(Key("a", "c")), Put(Key("z"), table(5))], base=first.id)),
        told(lambda: main.commit([Put(Key("z"), table(1)), Put(Key("z"), table(2))])),
        told(lambda: main.commit([])),
        told(lambda: main.commit([Put(Key("z"), table(6))], if_head=first.id)),
        told(lambda: main.commit([Put(Key("z"), table(6))], if_head=main.head)),
        told(lambda: main.commit([Put(Key("z"), table(7))], incarnation=b"\x00" * 16)),
        told(lambda: main.commit([Put(Key("z"), table(7))], incarnation=main.reference.incarnation)),
        told(lambda: lake.commit([Put(Key("z"), table(8))], branch="nobody")),
        told(lambda: main.put("far", FilesTable(location="s3://elsewhere/x"))),
        told(lambda: main.put("a..b", table(1))),
        told(lambda: main.put("z", table(1), message="m" * 20_000)),
        told(lambda: main.drop("z")),
        told(lambda: main.drop("z", message="again")),
        told(lambda: main.drop("z", base="main~1")),
        told(lambda: main.create_namespace("n.m", {"owner": "ann"})),
        told(lambda: main.create_namespace("n.m")),
        lake.log(limit=None),
        list(lake.at().entries()),
    ]


def repeating(lake: Lake) -> list[Any]:
    main = lake.branch()
    base = main.put("a", table(0)).id
    return [
        main.put("a", table(1), base=base, idempotency_key="k"),
        main.put("a", table(1), base=base, idempotency_key="k"),
        told(lambda: main.put("a", table(2), base=base, idempotency_key="k")),
        told(lambda: main.put("a", table(2), idempotency_key="line\nbreak")),
        told(lambda: main.put("a", table(2), idempotency_key="")),
        told(lambda: main.put("a", table(2), idempotency_key="x" * 1000)),
        told(lambda: main.put("a", table(3), idempotency_key="100% – ü k")),
        told(lambda: main.put("a", table(3), idempotency_key="100% – ü k")),
        lake.outcome("k"),
        lake.outcome("never"),
        len(lake.log()),
    ]


def referring(lake: Lake) -> list[Any]:
    main, dev, tag = lake.branch(), lake.branch("dev/a-b_c.d"), lake.tag("v1")
    commits = [main.put("a", table(number)).id for number in range(3)]
    results = [
        told(lambda: dev.create(at="main~1").reference),
        told(dev.create),
        told(lambda: tag.create(at=commits[0]).reference),
        told(lambda: lake.branch("v1").create()),
        told(lambda: lake.branch("x").create(at="nobody")),
        told(lambda: lake.branch("x y").create()),
        told(lambda: lake.branch(MISSING).create()),
        told(lambda: dev.assign("main", expected=commits[0])),
        told(lambda: dev.assign("main", expected=commits[1]).head),
        told(lambda: tag.assign(commits[2]).head),
        told(lambda: lake.tag("dev/a-b_c.d").assign("main")),
        told(lambda: lake.branch("nobody").assign("main")),
        told(lambda: tag.delete(expected=commits[0])),
        told(lambda: tag.delete(idempotency_key="d")),
        told(lambda: tag.delete(idempotency_key="d")),
        told(tag.delete),
        told(lambda: lake.branch("dev/a-b_c.d").delete()),
        told(main.delete),
    ]
    return [*results, lake.deleted(), lake.references(), lake.reflog("v1"), lake.reflog("dev/a-b_c.d")]


def merging(lake: Lake) -> list[Any]:
    main, dev = lake.branch(), lake.branch("dev")
    main.put("a", table(1))
    dev.create()
    dev.put("a", table(2))
    dev.put("b", table(2))
    main.put("a", table(3))
    given = KeyMerge(content=table(4), expected=lake.table("a").content)
    return [
        told(lambda: lake.merge("dev")),
        told(lambda: lake.merge("dev", default="sideways")),
        told(lambda: lake.merge("dev", keys={"a": "drop"}, if_head=dev.head)),
        told(lambda: lake.merge("dev", keys={"a": KeyMerge(expect_absent=True)})),
        told(
            lambda: lake.merge("dev", keys={"a": given}, message="given", author="ann", idempotency_key="m")
        ),
        told(
            lambda: lake.merge("dev", keys={"a": given}, message="given", author="ann", idempotency_key="m")
        ),
        told(lambda: lake.merge("dev")),
        told(lambda: lake.merge("nobody")),
        told(lambda: lake.merge("dev", "nobody")),
        told(lambda: lake.merge(MISSING)),
        dev.put("c", table(5)),
        told(lambda: dev.merge_into(main, default=MergeMode.FORCE)),
        lake.log(all_parents=True, limit=None),
    ]


def moving(lake: Lake) -> list[Any]:
    main, dev = lake.branch(), lake.branch("dev")
    base = main.put("a", table(1)).id
    dev.create()
    own = [dev.put(key, table(2)).id for key in "bcd"]
    main.put("e", table(3))
    return [
        told(lambda: lake.transplant(own[:2], message="", idempotency_key="t")),
        told(lambda: lake.transplant(own[:2], message="", idempotency_key="t")),
        told(lambda: lake.transplant("dev~1..dev", "main")),
        told(lambda: lake.transplant("main..dev", "main")),
        told(lambda: lake.transplant("dev", "main", default="drop")),
        told(lambda: lake.revert("main", message="undo", author="bob")),
        told(lambda: lake.revert("main~1", keys={"d": "force"})),
        told(lambda: lake.revert("nobody")),
        told(lambda: lake.revert("dev", if_head=base)),
        told(lambda: dev.rebase(idempotency_key="r")),
        told(lambda: dev.rebase("main", default="force")),
        told(lambda: lake.rebase("main")),
        told(lambda: lake.rebase("nobody")),
        lake.log("dev"),
        lake.log(),
    ]


def restoring(lake: Lake) -> list[Any]:
    main, dev = lake.branch(), lake.branch("dev")
    main.put("a.b", table(1))
    first = main.put("a.c", table(2))
    lake.tag("v1").create()
    dev.create()
    main.put("a.b", table(3))
    main.drop("a.c")
    lake.commit([append("diary", "dear diary")])
    lake.commit([append("diary", "it rained")])
    return [
        told(lambda: lake.restore("a.b", to="v1", dry_run=True)),
        told(lambda: lake.restore(["a.b", "a.c"], to="v1", message="back", idempotency_key="r")),
        told(lambda: lake.restore(["a.b", "a.c"], to="v1", message="back", idempotency_key="r")),
        told(lambda: lake.restore("a.b", to=first)),
        told(lambda: lake.table("diary").restore(ref="main~2", author="bob")),
        told(lambda: lake.table("diary").restore(version=1)),
        told(lambda: lake.table("a.b").restore(version=1)),
        told(lambda: lake.table("a.d").restore(version=1)),
        told(lambda: lake.table("a.b").restore(timestamp="1999-01-01")),
        told(lambda: lake.table("a.b").restore()),
        told(lambda: dev.put("a.b", table(4))),
        told(lambda: dev.put("a.d", table(4))),
        told(lambda: dev.restore(namespace="a", to="main", leave="a.d")),
        told(lambda: dev.restore(all=True, to="v1", if_head=first.id)),
        told(lambda: dev.restore(all=True, to="v1", if_head=dev.head)),
        told(lambda: dev.restore("a", to="v1")),
        told(lambda: dev.restore("a.d", to="v1")),
        told(lambda: dev.restore("a.b", to="nobody")),
        told(lambda: lake.restore("a.b", to="v1", branch="nobody")),
        told(lambda: lake.restore(to="v1")),
        told(lambda: lake.restore("a.b")),
        list(lake.at("dev").entries()),
        lake.log("dev"),
        lake.log(),
    ]


def changing(lake: Lake) -> list[Any]:
    """A format decides, where the lake's kernel is."""
    dev = lake.branch("dev")
    lake.commit([append("diary", "dear diary")], message="one")
    dev.create()
    return [
        told(lambda: lake.commit([append("diary", "it rained")])),
        told(lambda: lake.commit([edit("diary", 1, 0, "dear diary", "my diary")])),
        told(lambda: lake.commit([edit("diary", 1, 0, "my diary", "our diary")])),
        told(lambda: lake.commit([edit("diary", 9, 7, "x", "y")])),
        told(lambda: dev.commit([append("diary", "it shone")])),
        told(lambda: lake.merge("dev")),
        told(lambda: lake.commit([replace("diary", "new", "year")], idempotency_key="c")),
        told(lambda: lake.commit([replace("diary", "new", "year")], idempotency_key="c")),
        lake.table("diary").content,
        lake.log(),
    ]


def caring(lake: Lake) -> list[Any]:
    lake.branch().put("a", table(1))
    lake.commit([append("diary", "dear diary")])
    steps: list[tuple[str, int]] = []
    results = [
        told(lambda: lake.keep_history("dev/*", max_commits=10, max_days=1.5)),
        told(lambda: lake.keep_history("*", max_commits=-1)),
        [(rule.pattern, rule.max_commits, rule.max_days) for rule in lake.history_rules],
        told(lambda: lake.keep_history("dev/*")),
        lake.history_rules,
        told(lambda: lake.set_grace(data_grace_days=30).data_grace_days),
        told(lambda: lake.set_grace(grace_s=1.5)),
        (lake.about.grace_s, lake.about.data_grace_days),
        told(lambda: lake.add_root("s3://bucket/tables")),
        told(lambda: lake.add_root("s3://bucket/../x")),
        lake.roots,
        told(lambda: lake.remove_root("s3://other")),
        told(lambda: lake.remove_root("s3://bucket/tables")),
        told(lambda: lake.sweep(progress=lambda *step: steps.append(step)).removed),
        told(lambda: lake.fsck(lambda *step: steps.append(step))),
        told(lambda: lake.resync(dry_run=True)),
        told(lambda: lake.resync(leave_own=True)),
        told(lambda: lake.resync("a")),
        told(lambda: lake.resync("nothing")),
        told(lambda: lake.erase("a", dry_run=True)),
        told(lambda: lake.erase("diary", all_references=True)),
        told(lambda: lake.erase("nothing")),
    ]
    assert {what for what, _ in steps} >= {"read", "checked"}
    return results


def letting_in(lake: Lake) -> list[Any]:
    text = lake.create_token("ci", "read", "write:dev/*:sales.*", expires=datetime(2099, 1, 1, tzinfo=UTC))
    found = text.split("_")[1]
    told_grants = [(one.name, one.grants, one.expires, one.id == found) for one in lake.tokens()]
    return [
        told_grants,
        told(lambda: lake.create_token("ci", "fly")),
        told(lambda: lake.revoke_token(found).name),
        told(lambda: lake.revoke_token("0" * 12)),
        lake.tokens(),
    ]


def keeping_files(lake: Lake) -> list[Any]:
    """Without a place for files; ``tests/files`` has one."""
    files = lake.table("raw.events").files
    return [
        told(lambda: files.put("a", b"1")),
        told(lambda: files.delete("a")),
        told(lambda: files.put("../a", b"1")),
        told(files.write),
        told(lambda: lake.abort_job("0" * 32)),
        told(lambda: lake.abort_job("nobody")),
        lake.log(),
    ]


def transacting(lake: Lake) -> list[Any]:
    main = lake.branch()
    main.put("a.b", table(1))
    with lake.transaction(message="two tables", properties={"x": "1"}) as tx:
        tx.writes.put("a.b", table(2))
        tx.writes.put("a.c", table(3))
        inside: list[Any] = [
            tx.table("a.c").content,
            tx.info,
            tx.renew(60.0, {"x": None, "y": "2"}),
            lake.branches(),
        ]
        inside += [[one.key for one in tx.tables("a")], tx.table("a.d").exists]
        inside.append(sorted(map(str, lake.do(GetTransaction(id=tx.id, reads=True)).reads)))
        refused = [
            told(lambda: lake.branch("copy").create(at=tx.branch)),
            told(lambda: lake.merge(tx.branch)),
            told(lambda: lake.branch(tx.branch).delete()),
            told(lambda: lake.branch("tx/mine").create()),
            told(lambda: lake.transaction("nobody")),
            told(lambda: lake.transaction(lease_s=1e9)),
            told(lambda: lake.transaction(policy="chaos")),
            told(lambda: lake.transaction(isolation="chaos")),
            told(lambda: lake.do(NoteReads(id=tx.id, reads=(Read(),)))),
            told(lambda: lake.transaction(id="nobody")),
        ]
    other = lake.transaction()
    other.writes.put("a.b", table(4))
    main.put("a.b", table(5))
    return [
        *inside,
        *refused,
        tx.land(),
        told(lambda: tx.writes.put("a.d", table(9))),
        told(tx.renew),
        told(lambda: lake.at(tx.branch)),
        told(lambda: lake.transaction(id=tx.id)),
        told(lambda: lake.do(NoteReads(id=tx.id, reads=(Read(key=Key("a", "b")),)))),
        told(lambda: lake.run(lambda one: one.check("sound", lambda _: "it is not"))),
        lake.run(lambda one: one.writes.put("a.e", table(6)).message, isolation="serializable")[::2],
        told(other.land),
        told(other.land),
        other.abort("late"),
        lake.transaction().land(),
        lake.transaction().abort("not needed"),
        sorted(one.state for one in lake.transactions(all=True)),
        lake.transactions(),
        lake.log(all_parents=True),
    ]


def keeping_lance(lake: Lake) -> list[Any]:
    """Without a place for tables; ``tests/lance`` has one."""
    lake.branch().create_namespace("a")
    key = Key("a", "vectors")

    def commit(*operations: LanceOperation, **more: Any) -> Any:
        return told(lambda: lake.do(CommitLance(operations=operations, **more)))

    return [
        commit(),
        commit(DeclareLance(key=key)),
        commit(DeclareLance(key=key, location="s3://nowhere/vectors")),
        commit(RegisterLance(key=key, location="/somewhere")),
        commit(DeregisterLance(key=key), idempotency_key="gone"),
        commit(CreateLanceVersion(key=key, version=1, manifest="/v/1.manifest"), branch="nobody"),
        commit(PutLanceTag(key=key, tag_name="t", version=1), DropLanceTag(key=key, tag_name="t")),
        commit(DeclareLance(key=key), DeregisterLance(key=key)),
        told(lambda: lake.do(PromoteLance(key=key))),
        told(lambda: lake.do(GetLanceTable(key=key, to_write=True))),
        told(lambda: lake.do(GetLanceTable(key=key, at="main~1", to_write=True))),
        told(lambda: lake.do(ListLanceBranches(key=key, at="nobody"))),
        told(lambda: lake.do(ListLanceTags(key=key))),
    ]


def expecting(lake: Lake) -> list[Any]:
    """With tables whose rows nobody reads; ``tests/audits`` has others."""
    main = lake.branch()
    main.put("a.b", table(1))
    lake.branch("dev").create()
    failing: dict[str, Any] = {"no rows": "select * from a.e", "some": lambda _: False}
    return [
        lake.expectations(),
        told(lambda: lake.expect("none", "select * from a.c")),
        told(lambda: lake.expect("none", "select * from a.c")),
        told(lambda: lake.expect("none", "select * from a.d")),
        told(lambda: lake.expect("rows", "select * from a.b")),
        told(lambda: lake.expect("bad", "selec")),
        told(lambda: lake.expect("away", "select * from a.c", "nobody")),
        told(lambda: main.put("a.c", table(2))),
        told(lambda: main.put("a.d", table(2))),
        lake.expectations("dev"),
        told(lambda: lake.unexpect("none", "dev")),
        told(lambda: lake.unexpect("none")),
        told(lambda: lake.unexpect("none")),
        told(lambda: main.put("a.c", table(2))),
        told(lambda: lake.branch("dev").put("a.e", table(3))),
        told(lambda: lake.publish("dev", checks=failing)),
        told(lambda: lake.publish("dev", checks={"e": lambda audited: audited.get("a.e") is not None})),
        told(lambda: lake.publish("dev")),
        told(lambda: lake.publish("main")),
        told(lambda: lake.publish("dev", checks={"no": lambda _: "it is late"}, otherwise="drop")),
        told(lambda: lake.publish("dev")),
        lake.log(),
    ]


WRITES: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        committing, repeating, referring, merging, moving, restoring, changing, caring, letting_in,
        keeping_files, keeping_lance, transacting, expecting,
    )
}  # fmt: skip

_PASSING = re.compile(
    r"(?P<commit>[0-9a-f]{64})|(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<made>\d+~\d+~[0-9a-f]+~[0-9a-f]+|\b[0-9a-f]{32}\b)|(?P<short>\b[0-9a-f]{8}\b)"
    r"|(?P<bytes>(?<!['\w.])b(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))"
    r"|(?P<time>datetime\.datetime\([^)]*\)|\b20\d\d-\d\d-\d\dT[\d:]{8}\+00:00)|(?P<us>\b1[0-9]{15}\b)"
)


def without_chance(results: Any) -> list[str]:
    """Results as text, in which ids, times and made keys are numbered in the order in which they come."""
    numbers: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        text = found[0][:8] if found["commit"] or found["short"] else found[0]
        return numbers.setdefault(text, f"<{found.lastgroup} {len(numbers)}>")

    return [_PASSING.sub(name, _shown(result)) for result in results]


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return f"[{', '.join(_shown(one) for one in value)}]"
    fields = getattr(value, "__struct_fields__", ())
    if fields and not isinstance(value, Key):
        return (
            f"{type(value).__name__}({', '.join(f'{one}={_shown(getattr(value, one))}' for one in fields)})"
        )
    return repr(value)


assert len(CONTENTS) == len(load_content_types()) - 1, "every type of content but a namespace"
