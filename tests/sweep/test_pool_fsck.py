"""fsck looks into tables of files: their trees, what they count, and the rows of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

import penstock
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import File, FilesState, decode_state, encode_file, encode_state_into_table
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.calls import BeginJob
from penstock.kernel.tree import pack_node
from penstock.lake.lake import Lake
from penstock.model.content import encode_checked_content
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import Key
from penstock.model.objects import Leaf, Node, Segment
from tests.sweep.damage import Database, check, names_damaged
from tests.sweep.pool import Pool

KEY = Key("raw_events")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        yield lake


@pytest.fixture
def place(lake: Lake) -> Path:
    Pool(lake).write("raw_events", *(f"p={number:02}/part" for number in range(60)))
    return Path(lake.url)


@pytest.fixture
def database(place: Path) -> Iterator[Database]:
    found = Database(place / "penstock.db")
    yield found
    found.close()


@pytest.fixture
def table(lake: Lake, place: Path) -> FilesTable:
    found = lake.table("raw_events").content
    assert isinstance(found, FilesTable)
    return found


def put_state(database: Database, table: FilesTable, **changes: Any) -> None:
    """Let the table be in another state, with valid hashes all the way up."""
    put_table(
        database, encode_state_into_table(table, msgspec.structs.replace(decode_state(table), **changes))
    )


def put_table(database: Database, table: FilesTable) -> None:
    database.put_segment(Segment([KEY.encode()], [encode_checked_content(table)]))


def first_leaf(database: Database, root: ObjectId) -> tuple[ObjectId, Leaf]:
    node = database.node(root)
    assert isinstance(node, Node)
    leaf = database.node(node.children[0])
    assert isinstance(leaf, Leaf)
    return node.children[0], leaf


def put_leaf(database: Database, table: FilesTable, keys: list[bytes], values: list[Any]) -> ObjectId:
    """Let the first leaf of the table's tree be another one."""
    node = database.node(decode_state(table).root)
    assert isinstance(node, Node)
    new = database.add(pack_node(0, keys, values)[0])
    root = database.add(pack_node(node.level, node.keys, [new, *node.children[1:]])[0])
    put_state(database, table, root=root)
    return new


def test_a_sound_table_is_sound(place: Path) -> None:
    assert check(place).damages == ()


@pytest.mark.parametrize("field", ["files", "size"])
def test_a_table_that_counts_wrongly_is_told_by_its_key(
    place: Path, database: Database, table: FilesTable, field: str
) -> None:
    right: int = getattr(decode_state(table), field)
    put_state(database, table, **{field: right + 1})
    root = decode_state(table).root.hex()
    (damage,) = [one for one in check(place).damages if one.object == root]
    assert all(one in damage.what for one in ("'raw_events'", str(right + 1)))


def test_a_node_of_a_table_that_is_missing_is_told_with_its_commit(
    place: Path, database: Database, table: FilesTable, lake: Lake
) -> None:
    missing, _ = first_leaf(database, decode_state(table).root)
    database.remove(missing)
    told = names_damaged(place)
    assert f"{missing.hex()}: is needed by commit {lake.branch().head[:8]}" in told
    assert "says" not in told, "what cannot be counted is not said to be counted wrongly"


def test_nodes_in_the_wrong_order_are_told(place: Path, database: Database, table: FilesTable) -> None:
    root = decode_state(table).root
    node = database.node(root)
    assert isinstance(node, Node)
    first, second, *others = node.children
    put_state(
        database, table, root=database.add(pack_node(node.level, node.keys, [second, first, *others])[0])
    )
    assert "ends with another key than its parent says" in names_damaged(place)


def test_an_entry_that_is_no_file_is_told(place: Path, database: Database, table: FilesTable) -> None:
    _, leaf = first_leaf(database, decode_state(table).root)
    new = put_leaf(database, table, leaf.keys, [encode(("no file",)), *leaf.values[1:]])
    assert f"{new.hex()}: an entry in the list of a table's files is damaged" in names_damaged(place)


def test_an_address_outside_of_the_pool_is_told(place: Path, database: Database, table: FilesTable) -> None:
    _, leaf = first_leaf(database, decode_state(table).root)
    file = encode_file(File("../../etc/passwd", 1, 1))
    new = put_leaf(database, table, leaf.keys, [file, *leaf.values[1:]])
    told = names_damaged(place)
    assert f"{new.hex()}: the address of '" in told
    assert "is not in the lake's file storage: '../../etc/passwd'" in told


def test_a_state_that_cannot_be_read_is_told(place: Path, database: Database, table: FilesTable) -> None:
    put_table(database, msgspec.structs.replace(table, state=b"?"))
    assert "raw_events: the state of a table of files cannot be read" in names_damaged(place)


def test_a_tree_that_nothing_holds_is_told(place: Path, database: Database, table: FilesTable) -> None:
    """A sweep would take it."""
    put_table(database, msgspec.structs.replace(table, held=()))
    assert "raw_events: does not hold the tree of its state" in names_damaged(place)


def test_a_large_state_is_checked_as_well(lake: Lake, place: Path, database: Database) -> None:
    pool = Pool(lake)
    folder = pool.folder()
    pool.put(folder, "a")
    lake.do(pool.writing("big", folder, "a", layout=TableLayout(format="csv", schema="x" * 5000)))
    assert check(place).damages == ()
    content = lake.table("big").content
    assert isinstance(content, FilesTable)
    leaf = decode_state(content).root
    database.remove(leaf)
    assert leaf.hex() in names_damaged(place)


def test_the_row_of_a_job_that_cannot_be_read_is_told(place: Path, database: Database, lake: Lake) -> None:
    job = uuid4().hex
    lake.do(BeginJob(id=job, fence=uuid4().hex, key=Key("t")))
    assert check(place).damages == ()
    database.replace_row(f"@job/{job}", b"?")
    assert f"@job/{job}: the row of '@job/{job}' cannot be read" in names_damaged(place)


def test_states_of_commits_that_are_kept_are_checked_and_others_are_not(
    place: Path, database: Database, table: FilesTable
) -> None:
    """What nothing leads to may lack its tree: a sweep is about to take it, too."""
    lost = encode_state_into_table(table, FilesState(ObjectId(hash_object(b"nothing")), 1, 1))
    database.add(Segment([KEY.encode()], [encode_checked_content(lost)]))
    assert check(place).damages == ()
