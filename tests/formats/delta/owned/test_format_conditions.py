"""Commits that say by a condition on partition columns what they looked at, or what they replace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from penstock.errors import CommitConflict, InvalidRequest, MergeConflict
from penstock.formats.delta.branch_log.branch_log import read_commit_record
from penstock.formats.delta.branch_log.intents import CreateIntent
from penstock.formats.delta.branch_log.ownership import NewTable, first_commit
from penstock.formats.delta.protocol.actions import Action, CommitInfo, Metadata, write_commit
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.stores.port import Store
from tests.formats.delta.legal_commits import schema_string
from tests.formats.delta.managed import SCHEMA, Owner, add, days, remove
from tests.formats.delta.owned.interrupted import Interrupted, rounds

RECENT = PartitionFilter(where="day >= 'm'")
LOOKED = DeltaReads(partitions=(RECENT,))


@pytest.fixture
def owner(store: Store, tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(store, tmp_path, kind=Interrupted)
    yield owner
    owner.close()


@pytest.fixture
def other(store: Store, tmp_path: Path) -> Iterator[Owner]:
    """Another process."""
    other = Owner(store, tmp_path)
    yield other
    other.close()


def merged(owner: Owner, source: str, into: str = "main") -> None:
    kernel: Kernel = owner.kernel
    kernel.merge(kernel.references.get_reference(source).head, into, CommitMeta(message="merge"))


# --- what was looked at -----------------------------------------------------------------------------------


def test_a_file_that_is_added_where_a_condition_looked_is_a_conflict_and_nowhere_else(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("old", "a"), add("new", "x")])
    rewritten: list[Action] = [remove("old", "a"), add("old2", "a")]
    owner.commit(rewritten, read_version=1, reads=DeltaReads(partitions=(days("a"),)))
    assert owner.commit([remove("new", "x"), add("new2", "x")], read_version=1, reads=LOOKED) == 3
    with pytest.raises(CommitConflict, match="new2"):
        owner.commit([add("more", "z")], read_version=2, reads=LOOKED)


def test_so_is_a_file_that_is_removed_there(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("old", "a"), add("new", "x")])
    owner.commit([remove("old", "a")], read_version=1, reads=DeltaReads(partitions=(days("a"),)))
    owner.commit([add("b", "z")], read_version=1, reads=LOOKED)
    owner.commit([remove("new", "x")], read_version=3, reads=LOOKED)
    with pytest.raises(CommitConflict, match="new"):
        owner.commit([add("c", "z")], read_version=3, reads=LOOKED)


def test_a_partition_without_a_value_is_not_looked_at_unless_it_is_asked_for(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("nothing", "")])
    nobody = DeltaReads(partitions=(PartitionFilter(where="day is null"),))
    owner.commit([remove("nothing", ""), add("nothing2", "")], read_version=1, reads=nobody)
    assert owner.commit([add("a", "x")], read_version=1, reads=LOOKED) == 3
    with pytest.raises(CommitConflict, match="nothing"):
        owner.commit([add("b", "x")], read_version=1, reads=nobody)


@pytest.mark.parametrize("where", ["id = 1", "day = 'x' and id = 1", "nothing = 1", "day ="])
def test_a_condition_on_other_than_partition_columns_is_refused(owner: Owner, where: str) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "x")])
    wrong = (PartitionFilter(where=where),)
    for asked in ({"reads": DeltaReads(partitions=wrong)}, {"replaces": wrong, "reads": DeltaReads()}):
        with pytest.raises(InvalidRequest):
            owner.commit([add("b", "x")], read_version=1, **asked)
        with pytest.raises(InvalidRequest):
            owner.commit([add("b", "x")], version=2, **asked)
    assert owner.line().latest == 1


# --- what is replaced -------------------------------------------------------------------------------------


def test_a_replacement_by_a_condition_takes_the_files_for_which_it_is_true(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "a"), add("m", "m"), add("x", "x"), add("null", "")])
    owner.commit([add("new", "z")], replaces=(RECENT,))
    assert owner.paths() == {"a", "null", "new"}
    assert {one.path for one in owner.published().read_files()} == {"a", "null", "new"}
    owner.commit([], replaces=(PartitionFilter(where="day is null"), days("a")))
    assert owner.paths() == {"new"}


def test_it_takes_along_what_comes_there_before_its_turn_and_leaves_the_rest(
    owner: Owner, other: Owner
) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "a"), add("x", "x")])

    def meanwhile() -> None:
        other.commit([add("a2", "a"), add("x2", "x"), add("null", "")])

    rounds(owner, meanwhile, lambda: owner.commit([add("new", "z")], replaces=(RECENT,)))
    assert owner.paths() == {"a", "a2", "null", "new"}


@pytest.mark.parametrize("part", [RECENT, days("x")], ids=["a condition", "values"])
def test_a_table_that_is_partitioned_otherwise_at_the_turn_is_not_emptied(
    owner: Owner, other: Owner, part: PartitionFilter
) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("x", "x")])
    becomes = msgspec.structs.replace(owner.snapshot().metadata, partition_columns=())

    def meanwhile() -> None:
        other.commit(
            [becomes, remove("x", "x"), add("whole")], read_version=1, reads=DeltaReads(whole_table=True)
        )

    with pytest.raises(InvalidRequest, match="partition column"):
        rounds(owner, meanwhile, lambda: owner.commit([], replaces=(part,)))
    assert owner.paths() == {"whole"}
    with pytest.raises(InvalidRequest, match="partition column"):
        owner.commit([], replaces=(part,))


def test_a_file_of_which_nobody_can_tell_is_neither_taken_nor_left(owner: Owner) -> None:
    dated = schema_string({"id": "long", "day": "date"})
    identity, uuid = uuid4(), uuid4()
    new = NewTable(schema_string=dated, partition_columns=("day",))
    first = first_commit(new, owner.identity, identity, uuid, owner.clock() // 1000)
    location = str(owner.directory / "dated")
    owner.ask(CreateIntent(id=identity, location=location, actions=write_commit(first), uuid=uuid))
    owner.commit([add("a", "2026-11-01")])
    textual = msgspec.structs.replace(owner.snapshot().metadata, schema_string=SCHEMA)
    assert isinstance(textual, Metadata)
    owner.commit([textual, remove("a", "2026-11-01"), add("odd", "first")], read_version=1)
    back = msgspec.structs.replace(textual, schema_string=dated)
    owner.commit([back], read_version=2)  # as other engines leave tables that were adopted
    with pytest.raises(InvalidRequest, match="day=first, and it cannot be determined"):
        owner.commit([add("b", "2026-11-02")], replaces=(PartitionFilter(where="day > '2026-11-01'"),))
    assert owner.paths() == {"odd"}


def test_the_condition_is_kept_with_the_commit_in_the_lake_and_in_the_log(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("x", "x")], replaces=(RECENT,), read_version=0, reads=LOOKED)
    entry = owner.line().find_entry(1, owner.read)
    assert entry is not None
    terms = read_commit_record(entry, owner.read).terms
    assert (terms.replaces, terms.reads) == ((RECENT,), LOOKED)
    told = owner.info(1).fields["penstockReplaces"]
    assert told["partitions"] == [{"where": "day >= 'm'"}]


# --- elsewhere --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_published", [False, True])
def test_a_merge_replaces_what_the_condition_is_true_for_where_it_lands(
    owner: Owner, is_published: bool
) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "a"), add("x", "x")])
    owner.branch("dev")
    owner.commit([add("dev", "z")], branch="dev", replaces=(RECENT,))
    owner.commit([add("a2", "a"), add("x2", "x")])
    if is_published:
        owner.published()
    merged(owner, "dev")
    assert owner.paths() == {"a", "a2", "dev"}
    owner.commit([add("later", "x")])
    merged(owner, "dev")  # nothing is replaced a second time
    assert owner.paths() == {"a", "a2", "dev", "later"}


def test_a_replacement_of_main_comes_to_a_branch_from_the_log_alone(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "a"), add("x", "x")])
    owner.branch("dev")
    owner.commit([add("dev-a", "a"), add("dev-x", "x")], branch="dev")
    owner.commit([add("new", "z")], replaces=(RECENT,))
    owner.published()
    owner.commit([add("more", "a")])
    merged(owner, "main", "dev")
    assert owner.paths(branch="dev") >= {"a", "dev-a", "new", "more"}
    assert "x" not in owner.paths(branch="dev")


def test_who_looked_by_a_condition_on_a_branch_conflicts_with_what_main_did_there(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "a"), add("x", "x")])
    for name in ("dev", "test"):
        owner.branch(name)
        rewritten: list[Action] = [remove("x", "x"), add(f"x-{name}", "x")]
        owner.commit(rewritten, branch=name, read_version=1, reads=LOOKED)
    owner.commit(
        [remove("a", "a"), add("a2", "a")], read_version=1, reads=DeltaReads(partitions=(days("a"),))
    )
    merged(owner, "dev")
    assert owner.paths() == {"a2", "x-dev"}
    with pytest.raises(MergeConflict):
        merged(owner, "test")


# --- together with other columns --------------------------------------------------------------------------


@pytest.mark.parametrize("read", [None, DeltaReads()], ids=["the whole table", "nothing"])
def test_a_table_is_written_anew_with_other_columns_in_one_version(
    owner: Owner, other: Owner, read: DeltaReads | None
) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "a"), add("x", "x")])
    was = owner.snapshot().metadata
    wide = schema_string({"id": "long", "day": "string", "city": "string"})
    becomes = msgspec.structs.replace(was, schema_string=wide, partition_columns=("city",))
    fresh = msgspec.structs.replace(add("new"), partition_values={"city": "Bonn"})
    assert owner.commit([becomes, fresh], read_version=1, reads=read, replaces=()) == 2
    found = owner.published()
    assert {one.path for one in found.read_files()} == {"new"}
    assert (found.metadata.partition_columns, found.metadata.schema_string) == (("city",), wide)
    with pytest.raises(CommitConflict, match="metadata"):
        owner.commit([becomes, fresh], read_version=1, reads=read, replaces=())


def test_what_is_appended_while_columns_are_replaced_is_a_conflict_only_for_who_read_it(
    owner: Owner, other: Owner
) -> None:
    owner.create()
    owner.commit([add("a")])
    was = owner.snapshot().metadata
    wide = msgspec.structs.replace(was, schema_string=schema_string({"id": "long", "city": "string"}))
    blindly = CommitInfo({"operation": "WRITE", "isBlindAppend": True})

    def anew(read: DeltaReads | None) -> None:
        rounds(
            owner,
            lambda: other.commit([blindly, add(f"b-{uuid4()}")]),
            lambda: owner.commit(
                [wide, add("new")], read_version=owner.line().latest, reads=read, replaces=()
            ),
        )

    with pytest.raises(CommitConflict):
        anew(None)
    anew(DeltaReads())
    assert owner.paths() == {"new"}


def test_a_branch_that_wrote_the_table_anew_with_other_columns_is_merged(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "a")])
    owner.branch("dev")
    was = owner.snapshot().metadata
    wide = schema_string({"id": "long", "day": "string", "city": "string"})
    becomes = msgspec.structs.replace(was, schema_string=wide)
    owner.commit([becomes, add("new", "x")], branch="dev", read_version=1, reads=DeltaReads(), replaces=())
    owner.commit([add("main", "y")])
    merged(owner, "dev")
    assert owner.paths() == {"new"}
    assert owner.snapshot().metadata.schema_string == wide
