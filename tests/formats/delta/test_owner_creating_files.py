"""Tables that are created together with their first files: one version, one commit, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from uuid import UUID, uuid4

import pytest
from deltalake import DeltaTable as ForeignTable

from penstock.errors import CommitConflict, InvalidContent, InvalidRequest, TableConflict
from penstock.formats.delta.branch_log.intents import ActionsBodyFile
from penstock.formats.delta.branch_log.ownership import NewTable
from penstock.formats.delta.ownership.handover import Handover, HandoverResult
from penstock.formats.delta.ownership.tables import TableRequest
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    Txn,
    parse_commit,
    write_commit,
)
from penstock.kernel.known_tables import NewTableId
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import DeltaLake, create_branch, data_file, foreign_ids, opened
from tests.formats.delta.logs import SCHEMA, add, metadata, protocol, remove

T = Key("t")


@pytest.fixture
def lake() -> Iterator[DeltaLake]:
    """A lake in which nothing is published unless somebody asks for it."""
    with opened(MemoryStore(), publishes=False) as lake:
        yield lake


def new(actions: list[Action] | bytes | ActionsBodyFile, table_id: UUID | None = None) -> NewTable:
    given = actions if isinstance(actions, bytes | ActionsBodyFile) else write_commit(actions)
    return NewTable(schema_string=SCHEMA, id=table_id, actions=given)


def made(
    lake: DeltaLake,
    root: Path,
    wanted: NewTable,
    *,
    branch: str = "main",
    asked: TableRequest = TableRequest(),
) -> HandoverResult:
    return lake.owner.create_table(branch, T, wanted, warehouse=str(root), request=asked)


def first_version(lake: DeltaLake, branch: str = "main") -> list[Action]:
    content = lake.content("t", branch)
    table = lake.tables.as_format_table(T, content, branch)
    entry = lake.line("t", branch).find_entry(0, lake.tables.read_object)
    return [
        one.action for one in parse_commit(lake.commits.read_commit_bytes(table, content.location, 0, entry))
    ]


def paths(lake: DeltaLake) -> list[str]:
    return [
        one.path
        for one in lake.commits.read_snapshot(lake.content("t"), lake.tables.read_object).read_files()
    ]


def test_a_table_begins_with_the_files_that_it_is_created_with(lake: DeltaLake, tmp_path: Path) -> None:
    identity = uuid4()
    root = tmp_path / str(identity)
    root.mkdir()
    files = [data_file(root, 1, 2), data_file(root, 3)]
    batch = Txn(app_id="job", version=7)
    told = CommitInfo({"operation": "WRITE", "engineInfo": "an engine", "isBlindAppend": True})
    found = made(lake, tmp_path, new([told, *files, batch], identity))
    assert (found.id, found.location, found.version) == (identity, str(root), 0)
    assert lake.line("t").latest == 0
    info, *others = first_version(lake)
    assert isinstance(info, CommitInfo)
    assert (info.operation, info.fields["engineInfo"], info.is_blind_append) == ("WRITE", "an engine", False)
    assert info.in_commit_timestamp == lake.line("t").timestamp_ms
    assert [type(one) for one in others] == [Protocol, Metadata, Add, Add, Txn]
    lake.owner.publish_table("main", T)
    assert foreign_ids(root) == [1, 2, 3]


def test_who_says_nothing_of_the_commit_is_taken_to_have_selected_rows(
    lake: DeltaLake, tmp_path: Path
) -> None:
    made(lake, tmp_path, new([add("a")]))
    info, *_ = first_version(lake)
    assert isinstance(info, CommitInfo)
    assert info.operation == "CREATE TABLE AS SELECT"
    assert info.transaction_id


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        ([add("a"), add("a")], "line 2, add: .* second time"),
        ([add("../a")], "line 1, add"),
        (
            [add("a"), remove("b")],
            "line 2, remove: a table is created with files, batches and clustering columns alone",
        ),
        ([protocol()], "line 1, protocol: a table is created with"),
        ([metadata()], "line 1, metaData: a table is created with"),
        (
            b'{"add":{"path":"a","partitionValues":{"day":"1"},"size":1,"modificationTime":0,"dataChange":true}}',
            "day",
        ),
        (
            b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true,"stats":"x"}}',
            "stats",
        ),
        (b"{", "line 1"),
        (b'{"add":{}}', "line 1"),
    ],
    ids=["twice", "outside", "remove", "protocol", "metadata", "partitions", "stats", "no line", "no add"],
)
def test_what_would_break_the_table_is_refused_by_its_line_and_there_is_no_table(
    lake: DeltaLake, tmp_path: Path, actions: list[Action] | bytes, told: str
) -> None:
    with pytest.raises(InvalidContent, match=told):
        made(lake, tmp_path, new(actions))
    assert not lake.has("t")


def test_the_actions_may_be_in_a_file_beside_the_table_that_is_to_be(lake: DeltaLake, tmp_path: Path) -> None:
    identity = uuid4()
    lines = write_commit([add(f"{number:0100}") for number in range(2000)])
    body = tmp_path / str(identity) / "_penstock" / "bodies" / "mine.json"
    body.parent.mkdir(parents=True)
    body.write_bytes(lines)
    name = "_penstock/bodies/mine.json"
    wrong = ActionsBodyFile(name, len(lines), bytes(32))
    with pytest.raises(InvalidRequest, match="does not match"):
        made(lake, tmp_path, new(wrong, identity))
    found = made(
        lake, tmp_path, new(ActionsBodyFile(name, len(lines), hashlib.sha256(lines).digest()), identity)
    )
    body.unlink()  # what the lake needs of it, it has put itself
    assert found.version == 0
    lake.owner.publish_table("main", T)
    assert len(ForeignTable(found.location).file_uris()) == 2000


# --- ids --------------------------------------------------------------------------------------------------


def test_an_id_is_given_to_one_table_only(lake: DeltaLake, tmp_path: Path) -> None:
    identity = uuid4()
    create_branch(lake.kernel, "dev")
    wanted = new([add("a")], identity)
    made(lake, tmp_path, wanted, branch="dev")
    for branch, key in (("main", T), ("dev", T), ("dev", Key("other")), ("main", Key("other"))):
        with pytest.raises(InvalidRequest, match="another id"):
            lake.owner.create_table(branch, key, wanted, warehouse=str(tmp_path))
    lake.kernel.commit("dev", [Delete(T)])
    with pytest.raises(InvalidRequest, match="another id"):
        made(lake, tmp_path, wanted)


def test_of_two_who_give_one_id_at_once_the_files_of_one_are_the_tables(tmp_path: Path) -> None:
    store, identity, both = MemoryStore(), uuid4(), Barrier(2)

    class Meeting(Handover):
        @contextmanager
        def _choose_new_id(self, new: NewTable, branch: str, asked: TableRequest) -> Iterator[NewTableId]:
            """The id of both, as if it were not reserved for one of them."""
            assert (new.id, branch, asked.key) == (identity, "main", None)
            both.wait(30)
            yield NewTableId(identity)

    def ask(name: str) -> str | None:
        with opened(store, publishes=False, handover=Meeting) as lake:
            try:
                made(lake, tmp_path, new([add(name)], identity))
            except CommitConflict:
                return None
            return name

    with ThreadPoolExecutor(2) as pool:
        won = [name for name in pool.map(ask, ["a", "b"]) if name is not None]
    with opened(store) as lake:
        assert paths(lake) == won


def test_of_many_who_create_one_key_with_files_one_wins_and_has_its_own(tmp_path: Path) -> None:
    store, all_of_them = MemoryStore(), Barrier(4)

    def ask(name: str) -> str | None:
        with opened(store, publishes=False) as lake:
            all_of_them.wait(30)
            try:
                made(lake, tmp_path, new([add(name)], uuid4()))
            except CommitConflict:
                return None
            return name

    with ThreadPoolExecutor(4) as pool:
        won = [name for name in pool.map(ask, "abcd") if name is not None]
    with opened(store) as lake:
        assert paths(lake) == won
        assert lake.line("t").latest == 0


def test_the_same_request_is_answered_as_before_and_its_id_is_not_held_against_it(
    lake: DeltaLake, tmp_path: Path
) -> None:
    wanted = new([add("a")], uuid4())
    asked = TableRequest(key="once", digest=lambda: b"the same")
    first = made(lake, tmp_path, wanted, asked=asked)
    lake.append("t")
    assert made(lake, tmp_path, wanted, asked=asked) == first
    lake.kernel.commit("main", [Delete(T)])
    assert made(lake, tmp_path, wanted, asked=asked) == first
    assert not lake.has("t")


# --- elsewhere --------------------------------------------------------------------------------------------


def test_a_table_with_files_that_is_created_on_a_branch_arrives_by_a_merge(
    lake: DeltaLake, tmp_path: Path
) -> None:
    create_branch(lake.kernel, "dev")
    identity = uuid4()
    root = tmp_path / str(identity)
    (root / "_penstock" / "data").mkdir(parents=True)
    plain = data_file(root, 1, 2)
    (root / plain.path).rename(root / "_penstock" / "data" / plain.path)
    file = Add(
        path=f"_penstock/data/{plain.path}",
        partition_values={},
        size=plain.size,
        modification_time=plain.modification_time,
        data_change=True,
    )
    made(lake, tmp_path, new([file], identity), branch="dev")
    assert not lake.has("t")
    head = lake.kernel.references.get_reference("dev").head
    lake.kernel.merge(head, "main", CommitMeta(message="merge"), MergeOptions())
    assert lake.line("t").latest == 0
    lake.owner.publish_table("main", T)
    assert foreign_ids(root) == [1, 2]
    assert (root / file.path).exists()


def test_a_table_at_a_named_place_begins_with_its_files_too(lake: DeltaLake, tmp_path: Path) -> None:
    root = tmp_path / "named"
    root.mkdir()
    file = data_file(root, 1)
    found = lake.owner.create_table("main", T, new([file]), location=str(root))
    assert (found.version, foreign_ids(root)) == (0, [1])
    with pytest.raises(TableConflict):
        lake.owner.create_table("main", T, new([add("b")]), location=str(root))
    assert foreign_ids(root) == [1]
