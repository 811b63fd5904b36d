"""A small world that every call finds something to do in: a lake with tables of each format, and what lies
beside it. It is made once, and put back as it was before each case."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

import penstock
from penstock.formats.delta.lake.calls import GetTableStatus
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake.calls import BeginJob, ListFiles, ListJobs
from penstock.formats.files.lake.pool import find_pool
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.calls import (
    CommitLance,
    CreateLanceVersion,
    DeclareLance,
    ListLanceBranches,
    ListLanceTags,
    ListLanceVersions,
    PutLanceBranch,
    PutLanceTag,
)
from penstock.lake.audits.calls import ListExpectations
from penstock.lake.calls import Call, GetSetting, PutSetting
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.transactions.calls import BeginTransaction, ListTransactions
from penstock.model.clock import now_us
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.references import Kind
from penstock.stores import open_store
from penstock.testing import FaultyStore
from tests.lance import versions as lance_versions
from tests.remote.scenarios import table

ORDERS, RAW, VECTORS = Key("sales", "orders"), Key("raw"), Key("vectors")
JOB, FENCE, SECOND_FENCE = "1" * 32, "2" * 32, "3" * 32
TRANSACTION = "4" * 32
FOLDER = UUID(int=5)
"""Of files in the pool that nobody has committed yet."""
ROWS = {"day": ["1"]}
FINISH_S = 60.0


class World:
    """A lake and the folders beside it."""

    def __init__(self, folder: Path) -> None:
        self.lake_folder, self.tables = folder / "world" / "lake", folder / "world" / "tables"
        self._world, self._kept = folder / "world", folder / "kept"
        self._world.mkdir()
        template = lance_versions.make_template(folder / "template")
        with penstock.open(self.lake_folder, create=True, author="tester") as lake:
            self.lake_id = lake.id
            _fill(lake, self.tables)
            self.pool_folder = make_folder_name(lake.id, FOLDER, now_us())
            self.token_id = lake.tokens()[0].id
            pooled = Path(find_pool(lake.warehouse)) / self.pool_folder / "new.txt"
            pooled.parent.mkdir(parents=True)
            pooled.write_bytes(b"new")
            begun = lake.do(BeginJob(id=JOB, fence=FENCE, key=RAW))
            self.job_folder = begun.folder.removeprefix(find_pool(lake.warehouse))
            Path(begun.folder).mkdir(parents=True)
            (Path(begun.folder) / "job.txt").write_bytes(b"of a job")
            self.staged = self._vectors(lake, template)
            lake.finish_background(FINISH_S)
        self._lost_table()
        shutil.copytree(self._world, self._kept)
        self._kept_files = _files(self._kept)

    def _vectors(self, lake: Lake, template: Path) -> str:
        """A Lance table of three versions, with a branch and a tag of Lance's own; the next one is staged."""
        made = lake.do(CommitLance(operations=(DeclareLance(key=VECTORS),)))
        self.vectors = Path(made.done[0].location)
        lance_versions.put_data(template, self.vectors)
        for number in (1, 2, 3):
            staged = lance_versions.stage(template, self.vectors, number)
            lake.do(CommitLance(operations=(self.version(number, staged),)))
        own_branch = PutLanceBranch(key=VECTORS, branch="side", version=1)
        lake.do(CommitLance(operations=(own_branch, PutLanceTag(key=VECTORS, tag_name="first", version=1))))
        shutil.copytree(template, self.tables / "foreign.lance")
        return lance_versions.stage(template, self.vectors, 4)

    def version(self, number: int, staged: str) -> CreateLanceVersion:
        return CreateLanceVersion(key=VECTORS, version=number, manifest=f"{self.vectors}/{staged}")

    def _lost_table(self) -> None:
        """A Delta table of a lake that is gone."""
        with penstock.open(self._world / "other", create=True) as other:
            other.add_root(str(self.tables))
            other.create_table("lost", data=_arrow(), location=str(self.tables / "lost"))
            other.finish_background(FINISH_S)
        shutil.rmtree(self._world / "other")

    def restore(self) -> None:
        """Put everything back as it was: what was changed since, and what came or went."""
        kept, there = self._kept_files, _files(self._world)
        for name in sorted(there.keys() - kept.keys(), reverse=True):  # what is in a folder before it
            path = self._world / name
            path.rmdir() if path.is_dir() else path.unlink()
        for name in sorted(name for name in kept if kept[name] != there.get(name)):
            path = self._world / name
            path.mkdir() if kept[name] is None else shutil.copy2(self._kept / name, path)

    def open(self) -> Lake:
        return penstock.open(self.lake_folder, create=False, author="tester")

    def open_faulty(self) -> tuple[Lake, FaultyStore]:
        """The lake, and its store, which fails when it is told to."""
        store = FaultyStore(open_store(str(self.lake_folder), False, now_us))
        return open_lake(store, author="tester"), store


def _files(folder: Path) -> dict[str, tuple[int, int] | None]:
    """Files below a folder, by what would tell that one was written since; and the folders."""
    found: dict[str, tuple[int, int] | None] = {}
    for place, folders, files in os.walk(folder):
        within = os.path.relpath(place, folder)
        found.update((os.path.normpath(f"{within}/{name}"), None) for name in folders)
        for name in files:
            about = Path(place, name).stat()
            found[os.path.normpath(f"{within}/{name}")] = (about.st_size, about.st_mtime_ns)
    return found


def _arrow() -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]

    return pa.table(ROWS)


def _numbered(schema: Any) -> Any:
    """Columns, and one that numbers rows."""
    from penstock.formats.rows.arrow_types import make_schema
    from penstock.formats.rows.schema import Field, StructType

    notes = {"delta.identity.start": 1, "delta.identity.step": 1}
    number = Field(name="n", type="long", nullable=True, metadata=notes)
    return StructType((*make_schema(schema).fields, number))


def _fill(lake: Lake, tables: Path) -> None:
    import deltalake

    deltalake.write_deltalake(tables / "free", _arrow())
    lake.add_root(str(tables))
    lake.add_root("s3://bucket/old")
    lake.branch().put("a", table(1))
    lake.branch("dev").create().put("b", table(2))
    lake.branch().put("c", table(3))
    lake.tag("v1").create()
    lake.create_token("ci", "read")
    lake.do(PutSetting(name="colour", value="blue"))
    orders = lake.create_table(ORDERS, schema=_numbered(_arrow().schema), data=_arrow())
    orders.append(_arrow())
    orders.append(_arrow())
    files = lake.table(RAW).files
    files.put("one.txt", b"1")
    files.put("two.txt", b"22")
    lake.expect("no strangers", "select * from sales.strangers", "dev", missing_ok=True)
    lake.do(BeginTransaction(id=TRANSACTION))
    lake.branch(f"tx/{TRANSACTION}").put("d", table(4))


# -- what a lake is, without what differs between two that were told the same ------------------------------


def state_of(lake: Lake) -> dict[str, Any]:
    """All that a call can have changed, when nothing moves any more."""
    lake.finish_background(FINISH_S)
    about = lake.about
    state: dict[str, Any] = {
        "roots": about.roots,
        "rules": [(rule.pattern, rule.max_commits) for rule in about.history_rules],
        "grace": (about.grace_s, about.data_grace_days),
        "colour": lake.do(GetSetting(name="colour")),
        "tokens": [token.id for token in lake.tokens()],
        "jobs": [(job.id, job.state, job.own_branch) for job in lake.do(ListJobs(all=True))],
        "transactions": [(one.id, one.state) for one in lake.do(ListTransactions(all=True))],
        "delta": [(one.key, one.phase, one.latest_version, one.published) for one in _all(lake)],
    }
    for kind in (Kind.BRANCH, Kind.TAG, Kind.DELETED):
        for reference in lake.references(kind):
            state[f"{kind} {reference.name}"] = _reference_state(lake, reference.name, kind)
    return state


def _all(lake: Lake) -> Any:
    return lake.do(GetTableStatus())


def _reference_state(lake: Lake, name: str, kind: Kind) -> Any:
    events = [line.event for line in lake.reflog(name)]
    if kind is Kind.DELETED:
        return events
    expected = lake.do(ListExpectations(branch=name)) if kind is Kind.BRANCH else ()
    messages = [commit.message for commit in lake.log(name, all_parents=True)]
    held = {str(key): _held(lake, name, key, content) for key, content in lake.at(name).entries()}
    return events, [one.name for one in expected], messages, held


def _held(lake: Lake, at: str, key: Key, content: AnyContent) -> Any:
    match content:
        case FilesTable(state=state) if state:
            return [(file.path, file.size) for file in lake.do(ListFiles(key=key, at=at))]
        case LanceTable(state=state) if state:
            asked: tuple[Call[Any], ...] = (
                ListLanceVersions(key=key, at=at),
                ListLanceBranches(key=key, at=at),
                ListLanceTags(key=key, at=at),
            )
            return [[getattr(one, "name", None) or one.version for one in lake.do(call)] for call in asked]
        case DeltaTable(state=state) if state:
            return type(content).__name__
        case _:
            return msgspec.to_builtins(content, builtin_types=(bytes, UUID))
