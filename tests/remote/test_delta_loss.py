"""A connection that is lost in the middle of a write to Delta tables: one effect, and the true answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import HistoryExpired, OutcomeUnknown
from penstock.formats.delta.lake import calls as delta_calls
from penstock.formats.delta.lake.calls import (
    AdoptTable,
    CloneTable,
    CommitTables,
    CreateTable,
    ReleaseTable,
    TableCommit,
)
from penstock.formats.delta.lake.handlers import DeltaHandlers
from penstock.lake.call import WriteCall
from penstock.lake.calls import GetOutcome
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.model.keys import Key
from tests.remote.conftest import QUICK
from tests.remote.test_connection_loss import CUTS
from tests.servers.proxy import Proxy

ORDERS = Key("sales", "orders")
ROWS = pa.table({"day": ["1"]})
LINE = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'
SCHEMA = '{"type":"struct","fields":[{"name":"day","type":"string","nullable":true,"metadata":{}}]}'


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Lake]:
    """A lake with a table, and another table of the file system beside it."""
    deltalake.write_deltalake(tmp_path / "tables" / "free", ROWS)
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path / "tables"))
        lake.create_table(ORDERS, schema=ROWS.schema).append(ROWS)
        yield lake


@pytest.fixture
def far(embedded: Lake, proxy: Proxy) -> Iterator[Lake]:
    with Lake(RemoteCatalogue(f"http://127.0.0.1:{proxy.port}", patience=QUICK), author="tester") as lake:
        yield lake


WRITES: dict[str, Callable[[Path], WriteCall[Any]]] = {
    "append": lambda _: CommitTables(tables=(TableCommit(key=ORDERS, actions=LINE),)),
    "a version": lambda _: CommitTables(tables=(TableCommit(key=ORDERS, actions=LINE, version=2),)),
    "create": lambda _: CreateTable(key=Key("new"), schema=SCHEMA),
    "create with files": lambda _: CreateTable(key=Key("new"), schema=SCHEMA, id=uuid4(), actions=LINE),
    "create at a place": lambda path: CreateTable(
        key=Key("new"), schema=SCHEMA, location=str(path / "tables" / "new")
    ),
    "adopt": lambda path: AdoptTable(location=str(path / "tables" / "free")),
    "clone": lambda _: CloneTable(source=ORDERS, key=Key("copy"), version=0),
    "release": lambda _: ReleaseTable(key=ORDERS),
}
LEFT = {
    "append": {"sales.orders": 2},
    "a version": {"sales.orders": 2},
    "create": {"new": 0, "sales.orders": 1},
    "create with files": {"new": 0, "sales.orders": 1},
    "create at a place": {"new": 0, "sales.orders": 1},
    "adopt": {"free": 1, "sales.orders": 1},
    "clone": {"copy": 0, "sales.orders": 1},
    "release": {},
}
"""The latest versions of all tables afterwards."""


def test_every_write_is_tried(tmp_path: Path) -> None:
    writes = {kind for kind in delta_calls.CALLS if issubclass(kind, WriteCall)}
    assert {type(make(tmp_path)) for make in WRITES.values()} == writes


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_has_one_effect_and_its_true_answer(
    embedded: Lake, far: Lake, proxy: Proxy, tmp_path: Path, write: str, cut: str
) -> None:
    call = WRITES[write](tmp_path)
    happening = CUTS[cut](proxy)
    answer = far.do(call)
    assert happening.happened
    assert {str(one.key): one.latest_version for one in embedded.delta.status()} == LEFT[write]
    if isinstance(call, CommitTables):
        assert (answer.version, answer.commit.id) == (2, embedded.resolve())
    else:
        (key,) = set(LEFT[write]) - {"sales.orders"} or {"sales.orders"}
        assert (str(answer.key), answer.version) == (key, LEFT[write].get(key, 2))


def test_a_clone_whose_answer_and_files_are_lost_is_not_told_to_be_made(
    embedded: Lake, far: Lake, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a server that dies before its last look at the source."""
    (file,) = Path(embedded.table(ORDERS).location).glob("*.parquet")
    monkeypatch.setattr(DeltaHandlers, "_require_source", lambda *_: file.unlink(missing_ok=True))
    happening = CUTS["before the answer came"](proxy)
    with pytest.raises(OutcomeUnknown, match="files that it needs were removed during that"):
        far.delta.clone(ORDERS, "copy")
    assert happening.happened


def test_what_became_of_a_write_can_be_looked_up(embedded: Lake, far: Lake, tmp_path: Path) -> None:
    for number, make in enumerate(WRITES.values()):
        if number in (1, 3, 4):
            continue  # the version is taken by then, and so is the key
        call = make(tmp_path)
        answer = far.do(type(call)(**{**_fields(call), "idempotency_key": f"key-{number}"}))
        landing = embedded.do(GetOutcome(key=f"key-{number}"))
        assert landing is not None
        made = answer.commit.id if isinstance(call, CommitTables) else answer.commit
        assert made in (*landing.commits, landing.head)


@pytest.mark.parametrize("cut", CUTS)
def test_an_erase_that_is_cut_is_in_doubt_and_asked_for_again(
    embedded: Lake, far: Lake, proxy: Proxy, cut: str
) -> None:
    embedded.table(ORDERS).overwrite(pa.table({"day": ["2"]}))
    embedded.finish_background()
    happening = CUTS[cut](proxy)
    with pytest.raises(OutcomeUnknown, match="repeating it is safe"):
        far.erase(ORDERS)
    assert happening.happened
    assert far.erase(ORDERS).who == "tester"
    with pytest.raises(HistoryExpired):
        embedded.table(ORDERS).snapshot(1)
    assert embedded.table(ORDERS).to_arrow().to_pylist() == [{"day": "2"}]
    assert embedded.fsck().damages == ()


@pytest.mark.parametrize("cut", CUTS)
def test_a_resync_that_is_cut_is_in_doubt_and_asked_for_again(
    embedded: Lake, far: Lake, proxy: Proxy, cut: str
) -> None:
    table = embedded.table(ORDERS)
    table.backfill_to_version()
    log = Path(table.location) / "_delta_log"
    (file,) = log.parent.rglob("*.parquet")
    shutil.copy(file, file.with_name("more.parquet"))
    told = (log / f"{1:020}.json").read_text().replace(file.name, "more.parquet")
    (log / f"{2:020}.json").write_text(told)  # past the lake
    happening = CUTS[cut](proxy)
    with pytest.raises(OutcomeUnknown, match="repeating it is safe"):
        far.resync(ORDERS)
    assert happening.happened
    far.resync(ORDERS)
    assert far.resync(ORDERS).in_sync == 1
    assert {str(one.key): one.latest_version for one in embedded.delta.status()} == {"sales.orders": 2}
    assert embedded.table(ORDERS).to_arrow().to_pylist() == [{"day": "1"}] * 2
    assert embedded.fsck().damages == ()


def _fields(call: Any) -> dict[str, Any]:
    return {name: getattr(call, name) for name in call.__struct_fields__}
