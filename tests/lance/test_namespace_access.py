"""Lance tables behind tokens: who may read, write and place them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import lance_namespace as ln
import pytest
from lance_namespace.errors import PermissionDeniedError

from penstock.errors import Denied, InvalidManifest
from penstock.formats.lance.lake.calls import (
    CommitLance,
    CreateLanceVersion,
    DeclareLance,
    GetLanceTable,
    ListLanceBranches,
    ListLanceTags,
    ListLanceVersions,
    PromoteLance,
    PutLanceTag,
    RegisterLance,
)
from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.server.access import CheckedCatalogue
from tests.lance.tables import ids_at, rows, written
from tests.server.access import caller

ITEMS, PAY = Key("sales", "items"), Key("hr", "pay")


@pytest.fixture
def lake(own: Lake) -> Lake:
    for key in (ITEMS, PAY):
        own.branch().create_namespace(key[:1][0])
        written(own.lance(), *key, ids=[1], mode="create")
    own.branch("dev/etl").create()
    own.finish_background()
    return own


def as_(lake: Lake, *grants: str) -> Lake:
    return Lake(CheckedCatalogue(lake.catalogue, caller(*grants)), author="somebody")


def denied(lake: Lake, call: Call[Any]) -> None:
    with pytest.raises(Denied):
        lake.do(call)


def denied_by(do: Callable[[], Any]) -> None:
    with pytest.raises(PermissionDeniedError):
        do()


def test_a_reader_reads_what_it_may_and_on_a_branch_that_has_no_line_yet(lake: Lake) -> None:
    reader = as_(lake, "read:dev/etl:sales.*")
    namespace = PenstockNamespace(reader, "dev/etl")
    assert ids_at(namespace, *ITEMS) == [1]
    denied_by(lambda: namespace.describe_table(ln.DescribeTableRequest(id=list(PAY))))
    tag = ln.CreateTableTagRequest(id=list(ITEMS), tag="t", version=1)
    denied_by(lambda: namespace.create_table_tag(tag))
    denied_by(lambda: namespace.deregister_table(ln.DeregisterTableRequest(id=list(ITEMS))))
    denied_by(lambda: namespace.drop_table(ln.DropTableRequest(id=list(ITEMS))))


@pytest.mark.parametrize("kind", [GetLanceTable, ListLanceVersions, ListLanceBranches, ListLanceTags])
def test_what_is_told_of_a_table_is_for_those_who_may_read_it(lake: Lake, kind: Any) -> None:
    reader = as_(lake, "read:main:sales.*")
    reader.do(kind(key=ITEMS, at="main"))
    reader.do(kind(key=ITEMS, at=lake.resolve(), via="main"))
    denied(reader, kind(key=PAY, at="main"))
    denied(reader, kind(key=ITEMS, at="dev/etl"))
    denied(reader, kind(key=ITEMS, at=lake.resolve()))


def test_a_writer_writes_its_keys_on_its_branches(lake: Lake) -> None:
    writer = as_(lake, "write:dev/*:sales.*")
    namespace = PenstockNamespace(writer, "dev/etl")
    written(namespace, *ITEMS, ids=[2])
    written(namespace, "sales", "more", ids=[3], mode="create")
    assert ids_at(namespace, *ITEMS) == [1, 2]
    writer.do(PromoteLance(key=ITEMS, branch="dev/etl"))
    denied(writer, PromoteLance(key=ITEMS, branch="main"))
    one = PutLanceTag(key=ITEMS, tag_name="t", version=1)
    other = PutLanceTag(key=PAY, tag_name="t", version=1)
    denied(writer, CommitLance(branch="main", operations=(one,)))
    denied(writer, CommitLance(branch="dev/etl", operations=(one, other)))
    assert writer.do(ListLanceTags(key=ITEMS, at="dev/etl")) == ()


def test_a_place_is_for_those_to_name_who_may_change_everything(lake: Lake) -> None:
    place = f"{lake.warehouse}/outside/t.lance"
    lance.write_dataset(rows([1]), place)
    operations = (
        RegisterLance(key=Key("sales", "t"), location=place),
        DeclareLance(key=Key("sales", "t"), location=f"{lake.warehouse}/outside/u.lance"),
    )
    for one in operations:
        denied(as_(lake, "write:main:sales.*"), CommitLance(operations=(one,)))
    assert as_(lake, "write:main").do(CommitLance(operations=operations[:1])).commit is not None


def test_a_namespace_above_a_new_table_is_created_by_those_who_may(lake: Lake) -> None:
    writer = as_(lake, "write:main:shop.own.*")
    denied(writer, CommitLance(operations=(DeclareLance(key=Key("shop", "own", "t")),)))
    writer = as_(lake, "write:main:shop.*")
    assert writer.do(CommitLance(operations=(DeclareLance(key=Key("shop", "t")),))).done[0].location


def test_a_version_does_not_bring_in_files_of_another_table(lake: Lake, tmp_path: Path) -> None:
    """A clone of what its writer may not read, put into storage as a version of a table of theirs: the server
    would read the rows for them."""
    writer = as_(lake, "write:main:sales.*")
    pay = lake.do(GetLanceTable(key=PAY)).location
    writer.do(CommitLance(operations=(DeclareLance(key=Key("sales", "mine")),)))
    lance.dataset(pay).shallow_clone(str(tmp_path / "clone"), 1)
    for key, version in ((Key("sales", "mine"), 1), (ITEMS, 2)):
        if version == 2:  # one that is made anew, and need not go on from the version before
            lance.dataset(str(tmp_path / "clone")).restore()  # type: ignore[no-untyped-call]
        place = Path(lake.do(GetLanceTable(key=key)).location) / "_versions"
        place.mkdir(exist_ok=True)
        data = min((tmp_path / "clone" / "_versions").glob("*.manifest")).read_bytes()
        (staged := place / f"{version}.manifest-{uuid4()}").write_bytes(data)
        one = CreateLanceVersion(key=key, version=version, manifest=str(staged), size=len(data))
        for who in (writer, as_(lake, "admin")):
            with pytest.raises(InvalidManifest, match=r"has files at .*only a registered table"):
                who.do(CommitLance(operations=(one,)))
    whole = RegisterLance(key=Key("sales", "clone"), location=str(tmp_path / "clone"))
    denied(writer, CommitLance(operations=(whole,)))


def test_a_clone_that_was_registered_is_written_on(lake: Lake) -> None:
    items = Path(lake.do(GetLanceTable(key=ITEMS)).location)
    clone = items.parent / "clone"
    lance.dataset(str(items)).shallow_clone(str(clone), 1)
    key = Key("sales", "clone")
    lake.do(CommitLance(operations=(RegisterLance(key=key, location=str(clone)),)))
    written(lake.lance(), *key, ids=[2], mode="append")
    assert ids_at(lake.lance(), *key) == [1, 2]
    written(lake.lance(), *key, ids=[3], mode="overwrite")
    lance.dataset(namespace_client=lake.lance(), table_id=list(key), version=2).restore()  # type: ignore[no-untyped-call]
    assert ids_at(lake.lance(), *key) == [1, 2]
