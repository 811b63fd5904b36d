"""Contents that a merge is given for a managed table: only states that the table has had are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from penstock.errors import InvalidContent, MergeConflict
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import ConflictKind
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.model.nessie import DeltaTable, IcebergTable
from penstock.model.operations import Delete, Put
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import KEY, Owner, add, remove

META = CommitMeta(message="merge")


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    """A table that both sides changed, so that they do not go together."""
    store = MemoryStore()
    owner = Owner(store, tmp_path)
    owner.create()
    owner.commit([add("base")])
    owner.branch("dev")
    owner.commit([remove("base"), add("d1")], branch="dev", read_version=1)
    owner.commit([remove("base"), add("m1")], read_version=1)
    yield owner
    owner.close()
    store.close()


def merge(owner: Owner, content: AnyContent) -> None:
    head = owner.kernel.references.get_reference("dev").head
    owner.kernel.merge(head, "main", META, MergeOptions({Key.parse(KEY): KeyMerge(content=content)}))


GIVEN: dict[str, Callable[[DeltaTable], AnyContent]] = {
    "garbage": lambda table: msgspec.structs.replace(table, state=b"garbage", held=()),
    "garbage that decodes": lambda table: msgspec.structs.replace(table, state=b"\x90", held=()),
    "another place": lambda table: msgspec.structs.replace(table, location=table.location + "/elsewhere"),
    "another id": lambda table: msgspec.structs.replace(table, id=UUID(int=7)),
    "no id": lambda table: msgspec.structs.replace(table, id=None),
    "unmanaged": lambda table: DeltaTable(id=table.id, location=table.location),
    "unmanaged and new": lambda table: DeltaTable(location=table.location + "/elsewhere"),
    "another type": lambda table: IcebergTable(id=table.id, metadata_location="/x"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_content_that_the_table_never_was_is_refused(owner: Owner, name: str) -> None:
    before = owner.content()
    with pytest.raises(MergeConflict) as caught:
        merge(owner, GIVEN[name](before))
    (conflict,) = caught.value.conflicts
    if name == "another type":
        assert conflict.kind is ConflictKind.PAYLOAD_DIFFERS
    else:
        assert "not by put" in conflict.why
    assert owner.content() == before


def test_the_state_of_another_table_is_refused(owner: Owner) -> None:
    owner.create(key="other")
    before, other = owner.content(), owner.content("other")
    with pytest.raises(InvalidContent, match="which does not belong to it"):
        merge(owner, msgspec.structs.replace(before, state=other.state, held=other.held))
    with pytest.raises(MergeConflict):
        merge(owner, msgspec.structs.replace(before, state=other.state))
    assert owner.content() == before


@pytest.mark.parametrize(("branch", "files"), [("main", {"m1"}), ("dev", {"d1"})])
def test_the_state_of_either_side_is_taken(owner: Owner, branch: str, files: set[str]) -> None:
    merge(owner, owner.content(branch=branch))
    assert owner.paths() == files
    assert {one.path for one in owner.published().read_files()} == files


def test_a_forced_merge_does_not_put_another_table_where_one_is_managed(tmp_path: Path) -> None:
    """The lake would forget a table whose log names it as the owner."""
    store = MemoryStore()
    owner = Owner(store, tmp_path)
    key = Key.parse(KEY)
    owner.kernel.commit("main", [Put(key, DeltaTable(location="/plain"))])
    owner.branch("dev")
    plain = owner.content(branch="dev")
    owner.kernel.commit("dev", [Put(key, msgspec.structs.replace(plain, location="/moved"))])
    owner.kernel.commit("main", [Delete(key)])
    managed = owner.create()
    head = owner.kernel.references.get_reference("dev").head
    with pytest.raises(MergeConflict):
        owner.kernel.merge(head, "main", META, MergeOptions({key: KeyMerge(mode=MergeMode.FORCE)}))
    assert owner.content() == managed
    owner.close()
    store.close()
