"""The default branch publishes its tables, so it cannot be moved to where they are not yet so far."""

from __future__ import annotations

import pytest

import penstock
from penstock import Delete, IcebergTable, Key, Lake
from penstock.errors import InvalidRequest
from penstock.kernel.description import read_description
from penstock.kernel.kernel import Kernel
from penstock.lake.embedded import Embedded
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.testing.drill import new_lake
from penstock.testing.journal import JournalFormat, append, lines_of


@pytest.fixture
def kept(lake: Lake, journals: JournalFormat) -> Lake:
    """A lake whose journals do not go back on main, with three commits."""
    journals.keeps_versions = True
    lake.commit([append("diary", "one")])
    lake.commit([append("diary", "two")])
    lake.branch().put("plain", IcebergTable(metadata_location="1"))
    return lake


def test_the_default_branch_is_not_moved_back_behind_a_version(kept: Lake) -> None:
    head = kept.show().id
    with pytest.raises(InvalidRequest) as refused:
        kept.branch().assign("main~2")
    assert "'diary' is at version 2 already" in str(refused.value)
    assert f"penstock restore --all --to {kept.show('main~2').id[:8]} --branch main" in str(refused.value)
    assert refused.value.details["key"] == "diary"
    assert kept.show().id == head


def test_the_default_branch_is_not_moved_to_where_a_table_is_not(kept: Lake) -> None:
    kept.branch("empty").create(NO_COMMIT.hex())
    with pytest.raises(InvalidRequest, match="'diary' is at version 2 already"):
        kept.branch().assign("empty")


def test_the_default_branch_may_be_moved_where_its_tables_stay_or_go_on(kept: Lake) -> None:
    dev = kept.branch("dev").create()
    kept.branch().assign("main~1")
    dev.commit([append("diary", "three")])
    kept.branch().assign("dev")
    assert kept.show().id == kept.show("dev").id


def test_other_branches_and_tags_are_moved_as_before(kept: Lake) -> None:
    dev, tag = kept.branch("dev").create(), kept.tag("v1").create()
    dev.assign("main~2")
    tag.assign("main~2")
    assert kept.show("dev").id == kept.show("v1").id == kept.show("main~2").id


def test_a_rebase_of_the_default_branch_is_held_to_the_same(kept: Lake) -> None:
    """A lake refuses to rebase its default branch in any case, its kernel where a table would go back."""
    kept.branch("base").create("main~2").put("other", IcebergTable(metadata_location="1"))
    rebase, meta = kept.kernel.rebase, CommitMeta(committer="tester")
    rebase("main", kept.show("base").object_id, meta)
    assert lines_of(kept.kernel, "diary") == ["one", "two"], "the second line was brought along"
    kept.branch("gone").create().commit([Delete(Key("diary"))])
    head = kept.show().id
    with pytest.raises(InvalidRequest, match="'diary' is at version 2 already"):
        rebase("main", kept.show("gone").object_id, meta)
    assert kept.show().id == head


def test_a_kernel_is_told_which_branch_is_the_default_one(journals: JournalFormat) -> None:
    journals.keeps_versions = True
    store = MemoryStore()
    new_lake(store)
    kernel = Kernel(store, [journals], default_branch="prod")
    kernel.references.create_reference("prod", Kind.BRANCH, NO_COMMIT)
    for branch in ("prod", "main"):
        kernel.commit(branch, [append("diary", "one")])
    kernel.references.assign_reference("main", NO_COMMIT)
    with pytest.raises(InvalidRequest, match="'prod' cannot be moved"):
        kernel.references.assign_reference("prod", NO_COMMIT)
    assert {(table.branch, table.is_default) for _, table in journals.asked} == {
        ("prod", True),
        ("main", False),
    }


def test_without_formats_the_default_branch_moves_freely(lake: Lake) -> None:
    lake.commit([append("diary", "one")])
    store = lake.kernel.store
    plain = penstock.Lake(Embedded(Kernel(store), read_description(store), open_lake=Lake))
    plain.branch().assign(NO_COMMIT.hex())
    assert plain.tables() == []
