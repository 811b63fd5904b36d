"""A table's id, and its folder, belong to one table: in every format, in every state that the lake keeps."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import lance
import lance_namespace as ln
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import IcebergTable, Lake, Namespace
from penstock.errors import (
    CommitConflict,
    InvalidContent,
    InvalidRequest,
    LocationRefused,
    OutcomeUnknown,
    PenstockError,
    TableConflict,
    Unavailable,
)
from penstock.formats.delta.lake.calls import CreateTable
from penstock.formats.delta.ownership.tables import DeltaTableStore
from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance, RegisterLance
from penstock.kernel.kernel import Kernel
from penstock.kernel.known_tables import RESERVED_S, KnownTables
from penstock.kernel.leases import Leases
from penstock.kernel.references import References
from penstock.lake.answers import SweptTable
from penstock.lake.call import Call
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.references import Kind, Reference
from penstock.server.access import CheckedCatalogue
from penstock.stores.memory import MemoryStore
from penstock.testing.counting_store import CountingStore
from tests.queue.hooks import Caller, Gate
from tests.server.access import caller

SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
STEAL = Key("sales", "steal")


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def values(lake: Lake, key: str, ref: str) -> list[int]:
    found: list[int] = lake.at(ref).table(key).to_arrow()["x"].to_pylist()
    return sorted(found)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        lake.create_table("sales.orders", data=rows(1))
        lake.branch("dev").create()
        lake.branch("dev").put("hr", Namespace())
        yield lake


def make(lake: Lake, kind: str, at: str) -> DeltaTable | LanceTable | FilesTable:
    """A table of a kind with a row, which one branch or transaction has alone."""
    if kind == "delta":
        lake.create_table("hr.pay", data=rows(7), branch=at)
    elif kind == "lance":
        lance.write_dataset(rows(7), namespace_client=lake.lance(at), table_id=["hr", "pay"])
    else:
        lake.table("hr.pay", at).files.write({"a": b"7"})
    found = lake.at(at).get("hr.pay")
    assert isinstance(found, DeltaTable | LanceTable | FilesTable)
    return found


def steal_delta(identity: UUID) -> CreateTable:
    return CreateTable(key=STEAL, id=identity, schema=SCHEMA)


def steal_lance(identity: UUID) -> CommitLance:
    return CommitLance(branch="main", operations=(DeclareLance(key=STEAL, id=identity),))


STEALS: dict[str, Callable[[UUID], Call[Any]]] = {"delta": steal_delta, "lance": steal_lance}


def grow_old(folder: str) -> None:
    long_ago = time.time() - 90 * 86_400
    for path in Path(folder).rglob("*"):
        os.utime(path, (long_ago, long_ago))


def swept(lake: Lake) -> dict[str, SweptTable]:
    lake.finish_background()
    return {str(one.key): one for one in lake.sweep_tables(remove_data=True)}


# -- ids -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", STEALS)
@pytest.mark.parametrize("kind", ["delta", "lance", "files"])
def test_an_id_that_only_another_branch_knows_is_refused(lake: Lake, kind: str, by: str) -> None:
    table = make(lake, kind, "dev")
    assert table.id is not None
    somebody = Lake(CheckedCatalogue(lake.catalogue, caller("write:main:sales.*")), author="somebody")
    with pytest.raises(InvalidRequest, match="already had a table"):
        somebody.do(STEALS[by](table.id))
    assert lake.at("main").get(STEAL) is None
    if kind != "files":
        grow_old(table.location)
        assert not [one.problem for one in swept(lake).values() if one.problem]
        assert values(lake, "hr.pay", "dev") == [7]


def tag(lake: Lake) -> None:
    lake.tag("old").create(at="dev")
    lake.branch("dev").delete()


def dropped(lake: Lake) -> None:
    lake.branch("dev").drop("hr.pay")


def deleted(lake: Lake) -> None:
    lake.branch("dev").delete()


@pytest.mark.parametrize("by", STEALS)
@pytest.mark.parametrize("leave", [tag, dropped, deleted])
def test_an_id_is_refused_wherever_the_lake_knows_it(
    lake: Lake, leave: Callable[[Lake], None], by: str
) -> None:
    table = make(lake, "delta", "dev")
    leave(lake)
    assert table.id is not None
    with pytest.raises(InvalidRequest, match="already had a table"):
        lake.do(STEALS[by](table.id))


@pytest.mark.parametrize("by", STEALS)
def test_an_id_is_refused_that_only_an_open_transaction_knows(lake: Lake, by: str) -> None:
    with lake.transaction() as transaction:
        transaction.write(rows(7), "hr.pay")
        identity = transaction.table("hr.pay").get_commits().id
        with pytest.raises(InvalidRequest, match="already had a table"):
            lake.do(STEALS[by](identity))


def test_an_id_is_known_whose_transaction_lands_while_references_are_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction lands, and ends, between the first kind of reference that is read and the next."""
    landing, every = ExitStack(), References.list_all_references
    transaction = landing.enter_context(lake.transaction())
    transaction.write(rows(7), "hr.pay")
    identity = transaction.table("hr.pay").get_commits().id

    def overtaken(references: References, kind: Kind, *given: Any) -> Iterator[Reference]:
        monkeypatch.setattr(References, "list_all_references", every)
        found = list(every(references, kind, *given))
        landing.close()
        return iter(found)

    monkeypatch.setattr(References, "list_all_references", overtaken)
    assert lake.kernel.known_tables.is_known(identity)


@pytest.mark.parametrize("by", STEALS)
def test_an_id_that_nobody_knows_is_taken(lake: Lake, by: str) -> None:
    lake.do(STEALS[by](identity := uuid4()))
    found = lake.at("main").get(STEAL)
    assert found is not None
    assert found.id == identity


ON_DEV: dict[str, Callable[[UUID], Call[Any]]] = {
    "delta": lambda identity: CreateTable(key=STEAL, id=identity, schema=SCHEMA, branch="dev"),
    "lance": lambda identity: CommitLance(
        branch="dev", operations=(DeclareLance(key=STEAL, id=identity),), create=True
    ),
}


@pytest.mark.parametrize("second", ON_DEV)
@pytest.mark.parametrize("first", STEALS)
def test_of_two_tables_that_are_created_at_once_with_one_id_one_lands(
    lake: Lake, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is asked for on another branch when the first has been checked, and has not landed."""
    identity, commit = uuid4(), Kernel.commit

    def overtaken(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(Kernel, "commit", commit)
        with pytest.raises(InvalidRequest, match="another request is creating a table"):
            lake.do(ON_DEV[second](identity))
        return commit(*given, **more)

    monkeypatch.setattr(Kernel, "commit", overtaken)
    lake.do(STEALS[first](identity))
    found = lake.at("main").get(STEAL)
    assert found is not None
    assert found.id == identity
    with pytest.raises(InvalidRequest, match="already had a table"):
        lake.do(ON_DEV[second](identity))
    assert lake.at("dev").get(STEAL) is None


@pytest.mark.parametrize("by", STEALS)
def test_an_id_is_free_again_after_its_table_was_refused_and_kept_while_that_is_not_known(
    lake: Lake, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, commit = uuid4(), Kernel.commit
    own = msgspec.structs.replace(STEALS[by](identity), idempotency_key="mine")
    monkeypatch.setattr(Kernel, "commit", raising(Unavailable("away")))
    with pytest.raises(Unavailable):
        lake.do(STEALS[by](identity))
    monkeypatch.setattr(Kernel, "commit", raising(OutcomeUnknown("nobody knows")))
    with pytest.raises(OutcomeUnknown):
        lake.do(own)
    monkeypatch.setattr(Kernel, "commit", commit)
    with pytest.raises(InvalidRequest, match="another request is creating a table"):
        lake.do(ON_DEV[by](identity))
    lake.do(own)  # the same request once more
    found = lake.at("main").get(STEAL)
    assert found is not None
    assert found.id == identity


@pytest.mark.parametrize("then", STEALS)
@pytest.mark.parametrize("first", STEALS)
@pytest.mark.parametrize("problem", [OutcomeUnknown("nobody knows"), KeyboardInterrupt()])
def test_an_id_whose_request_was_never_decided_is_free_when_another_process_has_seen_it_for_long_enough(
    lake: Lake, first: str, then: str, problem: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, now_s = uuid4(), [0.0]
    with monkeypatch.context() as patched:
        patched.setattr(Kernel, "commit", raising(problem))
        with pytest.raises(type(problem)):
            lake.do(STEALS[first](identity))
    monkeypatch.setattr("penstock.kernel.known_tables.Leases", partial(Leases, elapsed_s=lambda: now_s[0]))
    with penstock.open(lake.about.url, author="other") as other:
        for passed_s in (0.0, RESERVED_S - 1):
            now_s[0] += passed_s
            with pytest.raises(InvalidRequest, match="another request is creating a table"):
                other.do(ON_DEV[then](identity))
        now_s[0] += 2
        other.do(ON_DEV[then](identity))
        found = other.at("dev").get(STEAL)
        assert found is not None
        assert found.id == identity


BEFORE_SENT = {
    "delta": "penstock.formats.delta.ownership.first_version.FirstVersionBuilder.encode_commit",
    "lance": "penstock.formats.lance.ownership.LanceOwnership.claim_table",
}


@pytest.mark.parametrize("by", STEALS)
@pytest.mark.parametrize("is_looked_up", [False, True])
@pytest.mark.parametrize("problem", [KeyboardInterrupt(), ValueError("wrong"), OutcomeUnknown("of storage")])
def test_an_id_is_free_at_once_after_its_request_was_interrupted_before_it_was_sent(
    lake: Lake, by: str, is_looked_up: bool, problem: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = BEFORE_SENT[by] if is_looked_up else "penstock.kernel.known_tables.KnownTables.is_known"
    identity = uuid4()
    with monkeypatch.context() as patched:
        patched.setattr(where, raising(problem))
        with pytest.raises(type(problem)):
            lake.do(STEALS[by](identity))
    lake.do(ON_DEV[by](identity))
    found = lake.at("dev").get(STEAL)
    assert found is not None
    assert found.id == identity


@pytest.mark.parametrize("is_first_refused", [True, False])
@pytest.mark.parametrize("by", STEALS)
def test_an_id_stays_reserved_for_a_request_that_was_sent_twice_until_both_are_decided(
    lake: Lake, by: str, is_first_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked up the id when one of them is refused; then a request for another branch comes, and
    then the other one lands."""
    identity, gate, commit = uuid4(), Gate(), Kernel.commit
    own = msgspec.structs.replace(STEALS[by](identity), idempotency_key="mine")

    def first_commit(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(Kernel, "commit", second_commit)
        gate.pass_through()
        if is_first_refused:
            raise Unavailable("away")
        return commit(*given, **more)

    def second_commit(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(Kernel, "commit", commit)
        if not is_first_refused:
            raise Unavailable("away")
        gate.open()
        assert isinstance(first.error, Unavailable)
        come_from_another_branch()
        return commit(*given, **more)

    def come_from_another_branch() -> None:
        with pytest.raises(InvalidRequest, match="another request is creating a table"):
            lake.do(ON_DEV[by](identity))

    monkeypatch.setattr(Kernel, "commit", first_commit)
    first = Caller(lambda: lake.do(own))
    gate.wait_until_reached()
    if is_first_refused:
        lake.do(own)
    else:
        with pytest.raises(Unavailable):
            lake.do(own)
        come_from_another_branch()
        gate.open()
        first.result()
    found = lake.at("main").get(STEAL)
    assert found is not None
    assert found.id == identity
    with pytest.raises(InvalidRequest, match="already had a table"):
        lake.do(ON_DEV[by](identity))


CREATIONS: dict[str, Callable[[str], Call[Any]]] = {
    "delta": lambda _: steal_delta(uuid4()),
    "delta at a place": lambda place: CreateTable(key=STEAL, id=uuid4(), schema=SCHEMA, location=place),
    "lance": lambda _: steal_lance(uuid4()),
}


@pytest.mark.parametrize(
    ("by", "owner", "name"),
    [
        ("delta", DeltaTableStore, "find_outcome"),
        ("delta at a place", DeltaTableStore, "find_outcome"),
        *((by, KnownTables, name) for by in CREATIONS for name in ("reserve_id", "require_unknown")),
    ],
)
def test_a_creation_that_was_sent_twice_and_has_landed_gets_its_own_table_for_an_answer(
    lake: Lake, place: str, by: str, owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one lands after it was looked for on behalf of the second."""
    own = msgspec.structs.replace(CREATIONS[by](place), idempotency_key="mine")
    original, answers = getattr(owner, name), []

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        before = original(*given) if name == "find_outcome" else None
        answers.append(lake.do(own))
        return before if name == "find_outcome" else original(*given)

    monkeypatch.setattr(owner, name, overtaken)
    answers.append(lake.do(own))
    answers.append(lake.do(own))
    assert [one.commit for one in answers] == [answers[0].commit] * 3
    found = lake.at("main").get(STEAL)
    assert found is not None
    with pytest.raises((InvalidRequest, TableConflict), match=r"already had a table|is already there"):
        lake.do(msgspec.structs.replace(own, idempotency_key="another"))


def raising(problem: BaseException) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise problem

    return fail


@pytest.mark.parametrize("branches", [10, 600])
def test_looking_up_an_id_takes_a_few_requests_however_many_branches_there_are(branches: int) -> None:
    store = CountingStore(MemoryStore())
    with penstock.open(store) as lake:
        lake.branch().put("a", Namespace())
        for number in range(branches):
            lake.branch(f"b{number}").create()
            lake.branch(f"b{number}").put(f"n{number}", Namespace())
        with penstock.open(store) as anew:  # with nothing in memory
            before = store.counts
            assert not anew.kernel.known_tables.is_known(uuid4())
            assert (store.counts - before).requests <= 30


@pytest.mark.parametrize("kind", ["delta", "lance", "files"])
def test_a_managed_content_of_another_branch_is_not_put(lake: Lake, kind: str) -> None:
    table = make(lake, kind, "dev")
    for content in (
        table,
        msgspec.structs.replace(table, id=None),
        msgspec.structs.replace(table, held=()),
        msgspec.structs.replace(table, id=None, held=()),
    ):
        with pytest.raises((CommitConflict, InvalidContent)):
            lake.branch().put(STEAL, content)
    assert lake.at("main").get(STEAL) is None


def test_a_deleted_branch_that_was_swept_already_is_in_nobodys_way(lake: Lake) -> None:
    table = make(lake, "delta", "dev")
    lake.branch("dev").delete()
    settings = penstock.Settings(grace_s=0, nobody_writes=True)
    with penstock.open(lake.about.url, settings=settings) as other:
        assert other.sweep().removed > 0
    assert table.id is not None
    with penstock.open(lake.about.url) as anew:
        anew.do(steal_delta(table.id))
        anew.create_table("more", data=rows(1))


# -- places --------------------------------------------------------------------------------------------------


@pytest.fixture
def place(lake: Lake) -> str:
    return f"{lake.warehouse}/named"


def declare(lake: Lake, place: str) -> Any:
    return lake.do(CommitLance(branch="main", operations=(DeclareLance(key=STEAL, location=place),)))


def register(lake: Lake, place: str) -> Any:
    return lake.do(CommitLance(branch="main", operations=(RegisterLance(key=STEAL, location=place),)))


def create(lake: Lake, place: str) -> Any:
    return lake.create_table(STEAL, data=rows(5), location=place)


def adopt(lake: Lake, place: str) -> Any:
    return lake.delta.adopt(place, STEAL)


def recover(lake: Lake, place: str) -> Any:
    return lake.delta.recover(place, STEAL, lost=lake.about.id)


@pytest.mark.parametrize("come", [declare, register])
@pytest.mark.parametrize("is_kept_by_branch", [True, False])
def test_a_lance_table_does_not_come_to_the_folder_of_a_delta_table(
    lake: Lake, place: str, come: Callable[[Lake, str], Any], is_kept_by_branch: bool
) -> None:
    lake.create_table("t", data=rows(1), location=place)
    before = lake.resolve("main")
    if is_kept_by_branch:
        lake.branch("keeps").create()
    lake.branch().drop("t")
    with pytest.raises(LocationRefused, match=r"is or was the location of another table of the lake \(DELTA"):
        come(lake, place)
    assert not (Path(place) / "_penstock/owner.json").exists()
    assert values(lake, "t", before) == [1]


@pytest.mark.parametrize("come", [create, adopt, recover])
def test_a_delta_table_does_not_come_to_the_folder_of_a_lance_table(
    lake: Lake, place: str, come: Callable[[Lake, str], Any]
) -> None:
    declared = ln.DeclareTableRequest(id=["t"], location=place)
    lake.lance().declare_table(declared)
    lance.write_dataset(rows(1), namespace_client=lake.lance(), table_id=["t"], mode="append")
    before = lake.resolve("main")
    lake.branch().drop("t")
    with pytest.raises(LocationRefused, match=r"is or was the location of another table of the lake \(LANCE"):
        come(lake, place)
    assert values(lake, "t", before) == [1]


@pytest.mark.parametrize("come", [create, declare])
@pytest.mark.parametrize("kind", ["delta", "lance"])
def test_no_new_table_begins_where_one_was_dropped_that_history_still_reads(
    lake: Lake, place: str, kind: str, come: Callable[[Lake, str], Any]
) -> None:
    if kind == "delta":
        lake.create_table("t", data=rows(1), location=place)
    else:
        lake.lance().declare_table(ln.DeclareTableRequest(id=["t"], location=place))
        lance.write_dataset(rows(1), namespace_client=lake.lance(), table_id=["t"], mode="append")
    before = lake.resolve("main")
    lake.branch().drop("t")
    lake.finish_background()
    shutil.rmtree(place)
    with pytest.raises(LocationRefused, match="choose another"):
        come(lake, place)
    with pytest.raises((PenstockError, ValueError)):  # what Lance raises for files that are not there
        values(lake, "t", before)


def test_a_table_that_was_released_or_deregistered_comes_back_to_its_folder(lake: Lake, place: str) -> None:
    lake.create_table("t", data=rows(1), location=place)
    lake.delta.release("t")
    lake.delta.adopt(place, "t")
    assert values(lake, "t", "main") == [1]
    elsewhere = f"{place}-2"
    lake.lance().declare_table(ln.DeclareTableRequest(id=["l"], location=elsewhere))
    lance.write_dataset(rows(2), namespace_client=lake.lance(), table_id=["l"], mode="append")
    lake.lance().deregister_table(ln.DeregisterTableRequest(id=["l"]))
    lake.lance().register_table(ln.RegisterTableRequest(id=["l"], location=elsewhere))
    assert values(lake, "l", "main") == [2]


@pytest.mark.parametrize("near", ["above/place/below", "above"])
@pytest.mark.parametrize("come", [create, declare])
def test_no_table_comes_near_one_that_was_dropped(
    lake: Lake, place: str, near: str, come: Callable[[Lake, str], Any]
) -> None:
    lake.create_table("t", data=rows(1), location=f"{place}/above/place")
    lake.branch().drop("t")
    with pytest.raises(LocationRefused, match="inside or above the folder of another table"):
        come(lake, f"{place}/{near}")


# -- two tables in one folder, however that came about -----------------------------------------------------


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake that takes every id, as the first release did."""
    monkeypatch.setattr(KnownTables, "is_known", lambda *_: False)


@pytest.mark.usefixtures("careless")
@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("by", STEALS)
@pytest.mark.parametrize("kind", ["delta", "lance"])
def test_a_sweep_removes_nothing_from_a_folder_that_tables_of_two_formats_share(
    lake: Lake, kind: str, by: str, is_dropped: bool
) -> None:
    table = make(lake, kind, "dev")
    assert table.id is not None
    lake.do(STEALS[by](table.id))
    stolen = lake.at().get(STEAL)
    assert isinstance(stolen, DeltaTable | LanceTable)
    if is_dropped:
        lake.branch().drop(STEAL)
    lake.finish_background()
    grow_old(table.location)
    found = swept(lake)
    assert values(lake, "hr.pay", "dev") == [7]
    if kind != by and stolen.location == table.location:
        assert "is also the location of another table of the lake" in found["hr.pay"].problem


@pytest.mark.usefixtures("careless")
def test_a_folder_is_not_removed_as_a_whole_while_a_table_of_another_format_is_in_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the lake tells of the Lance table any more, but a note in the folder."""
    table = make(lake, "delta", "dev")
    assert table.id is not None
    monkeypatch.setattr("penstock.kernel.kernel.Kernel.commit", refused)
    with pytest.raises(Unavailable):
        lake.do(steal_lance(table.id))
    monkeypatch.undo()
    assert (Path(table.location) / "_penstock/owner.json").exists()
    grow_old(table.location)
    swept(lake)
    assert values(lake, "hr.pay", "dev") == [7]


def refused(*_: Any, **__: Any) -> None:
    raise Unavailable("the store does not answer")


@pytest.mark.parametrize("kind", ["delta", "lance"])
def test_a_sweep_removes_nothing_from_a_folder_that_a_pointer_of_the_lake_leads_into(
    lake: Lake, kind: str
) -> None:
    table = make(lake, kind, "dev")
    theirs = Path(table.location) / "data" / f"{uuid4()}.{'lance' if kind == 'lance' else 'parquet'}"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_bytes(b"x")
    pointer = IcebergTable(metadata_location=f"{table.location}/metadata/1.json")
    lake.branch("dev").put("iceberg", pointer)
    lake.finish_background()
    grow_old(table.location)
    assert "location of another table" in swept(lake)["hr.pay"].problem
    assert theirs.exists()


def test_a_pointer_that_leads_above_tables_is_in_nobodys_way(lake: Lake) -> None:
    lake.create_table("t", data=rows(1))
    lake.branch().put("iceberg", IcebergTable(metadata_location=lake.warehouse))
    lake.branch().put("lance", LanceTable(location=lake.warehouse))
    assert not any(one.problem for one in swept(lake).values())


def test_lance_tables_are_not_in_the_way_of_themselves(lake: Lake) -> None:
    table = make(lake, "lance", "dev")
    assert isinstance(table, LanceTable)
    lake.branch("dev").drop("hr.pay")
    grow_old(table.location)
    assert not any(one.problem for one in swept(lake).values())
