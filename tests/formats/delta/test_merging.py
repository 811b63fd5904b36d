"""How Delta tables merge, are transplanted and are brought back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from deltalake import DeltaTable as ForeignTable

from penstock.errors import MergeConflict
from penstock.formats.delta.branch_log.branch_log import CommitTerms, decode_branch_log, read_commit_record
from penstock.formats.delta.protocol.actions import Action, Add, Cdc, Remove, Txn
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from penstock.kernel.format import FormatRefused
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode, MergeResult
from penstock.model.nessie import DeltaTable
from penstock.model.operations import Delete, Put
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import KEY, Owner, add, remove

FORCE = MergeOptions({Key.parse(KEY): KeyMerge(mode=MergeMode.FORCE)})
META = CommitMeta(message="merge")
ALL = DeltaReads(whole_table=True)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    store = MemoryStore()
    owner = Owner(store, tmp_path)
    yield owner
    owner.close()
    store.close()


def merge(owner: Owner, source: str, into: str, options: MergeOptions = MergeOptions()) -> MergeResult:
    return owner.kernel.merge(head(owner, source), into, META, options)


def head(owner: Owner, branch: str = "main") -> ObjectId:
    return owner.kernel.references.get_reference(branch).head


def branched(owner: Owner, *names: str, **how: object) -> None:
    """A table with the file ``base`` at version 1, on main and on branches."""
    owner.create(**how)  # type: ignore[arg-type]
    owner.commit([add("base", "mon") if "partition_by" in how else add("base")])
    for name in names or ("dev",):
        owner.branch(name)


def refused(owner: Owner, source: str, into: str) -> str:
    with pytest.raises(MergeConflict) as caught:
        merge(owner, source, into)
    (conflict,) = caught.value.conflicts
    return conflict.why


def days(*names: str) -> PartitionFilter:
    return PartitionFilter({"day": names})


# --- both sides changed the table ---------------------------------------------------------------------------


def test_what_both_sides_appended_lands_as_one_version_of_main(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("d2")], branch="dev")
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    assert owner.paths() == {"base", "d1", "d2", "m1"}
    assert owner.line().latest == 3
    assert {one.path for one in owner.actions(3) if isinstance(one, Add)} == {"d1", "d2"}
    assert {one.path for one in owner.published().read_files()} == owner.paths()


def test_the_version_of_a_merge_is_later_than_the_one_before_and_tells_what_it_is(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    info, before = owner.info(3), owner.info(2)
    assert info.in_commit_timestamp is not None
    assert before.in_commit_timestamp is not None
    assert info.in_commit_timestamp > before.in_commit_timestamp
    assert (info.operation, info.is_blind_append) == ("MERGE BRANCH", True)
    assert info.transaction_id


def test_a_branch_sees_nothing_of_main_before_it_merges_and_all_of_it_afterwards(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("m1")])
    owner.published()
    assert owner.paths(branch="dev") == {"base", "d1"}
    merge(owner, "main", "dev")
    line = owner.line(branch="dev")
    assert (line.fork_version, line.latest) == (2, 3)
    assert owner.paths(branch="dev") == {"base", "m1", "d1"}
    assert owner.paths() == {"base", "m1"}


def test_where_only_the_branch_changed_main_still_gets_one_version(owner: Owner) -> None:
    branched(owner)
    for name in ("d1", "d2", "d3"):
        owner.commit([add(name)], branch="dev")
    merge(owner, "dev", "main")
    assert owner.line().latest == 2
    assert owner.line().tail is None
    assert owner.paths() == {"base", "d1", "d2", "d3"}


def test_a_branch_without_commits_of_its_own_takes_the_line_of_another_one(owner: Owner) -> None:
    branched(owner, "dev", "test")
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("d2")], branch="dev")
    merge(owner, "dev", "test")
    assert owner.content(branch="test") == owner.content(branch="dev")
    owner.commit([add("t1")], branch="test")
    assert owner.paths(branch="test") == {"base", "d1", "d2", "t1"}
    assert owner.paths(branch="dev") == {"base", "d1", "d2"}


def test_a_branch_with_nothing_to_say_takes_the_line_of_main(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("m1")])
    merge(owner, "main", "dev")
    assert owner.line(branch="dev").tail is None
    assert owner.paths(branch="dev") == {"base", "m1"}


def test_merging_back_and_forth_brings_each_file_once(owner: Owner) -> None:
    branched(owner)
    expected = {"base"}
    for number in range(4):
        owner.commit([add(f"d{number}")], branch="dev")
        owner.commit([add(f"m{number}")])
        expected |= {f"d{number}", f"m{number}"}
        merge(owner, "dev", "main")
        assert owner.paths() == expected
        merge(owner, "main", "dev")
        assert owner.paths(branch="dev") == expected
        assert owner.line(branch="dev").tail is None
    added = [
        one.path for v in range(owner.line().latest + 1) for one in owner.actions(v) if isinstance(one, Add)
    ]
    assert sorted(added) == sorted(expected)


def test_a_branch_that_is_merged_again_and_again_brings_only_what_is_new(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    owner.commit(
        [remove("d1"), add("d2")], branch="dev", read_version=2, reads=DeltaReads(files=frozenset({"d1"}))
    )
    merge(owner, "dev", "main")
    assert owner.paths() == {"base", "m1", "d2"}
    assert owner.line().latest == 4


def test_a_file_that_came_and_went_on_the_branch_is_in_no_version_of_main(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([remove("d1"), add("d2")], branch="dev", read_version=2)
    merge(owner, "dev", "main")
    assert [one for one in owner.actions(2) if isinstance(one, Add | Remove)] == [add("d2")]


def test_a_file_that_main_needed_until_the_merge_is_removed_at_that_time(owner: Owner) -> None:
    branched(owner)
    owner.commit([remove("base"), add("d1")], branch="dev", read_version=1)
    merge(owner, "dev", "main")
    (removed,) = [one for one in owner.actions(2) if isinstance(one, Remove)]
    assert removed.deletion_timestamp is not None
    assert removed.deletion_timestamp > 1_000_000_000_000


def test_an_engine_that_never_heard_of_branches_reads_every_version_of_the_merged_log(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([remove("base"), remove("d1"), add("d2")], branch="dev", read_version=2)
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    owner.published()
    location = owner.content().location
    seen = []
    for version in range(4):
        uris = ForeignTable(location, version=version).file_uris()
        seen.append({uri.rpartition("/")[2] for uri in uris})
    assert seen == [set(), {"base"}, {"base", "m1"}, {"d2", "m1"}]


def test_a_preview_tells_of_every_version_and_conflict_and_changes_nothing(owner: Owner) -> None:
    branched(owner, "dev", "late")
    for branch in ("dev", "late"):
        owner.commit([remove("base"), add(branch)], branch=branch, read_version=1)
    before = owner.content()
    (clean,) = owner.kernel.merge(head(owner, "dev"), "main", META, dry_run=True).keys
    assert isinstance(clean.after, DeltaTable)
    assert decode_branch_log(clean.after).latest == 2
    assert owner.content() == before
    merge(owner, "dev", "main")
    (clashing,) = owner.kernel.merge(head(owner, "late"), "main", META, dry_run=True).keys
    assert clashing.conflict is not None
    assert "version 2 (MERGE BRANCH) added dev" in clashing.conflict.why


def test_an_old_branch_that_only_appended_merges_however_much_came_meanwhile(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    owner.commit([add("d2")], branch="dev")
    for number in range(20):
        owner.commit([add(f"m{number}")])
    merge(owner, "dev", "main")
    latest = owner.line().latest
    assert [one for one in owner.actions(latest) if isinstance(one, Add)] == [add("d2")]
    assert len(owner.paths()) == 20 + 3


# --- conflicts ----------------------------------------------------------------------------------------------


def test_both_sides_removed_the_same_file_and_that_is_a_conflict(owner: Owner) -> None:
    branched(owner)
    reads = DeltaReads(files=frozenset({"base"}))
    owner.commit([remove("base"), add("d1")], branch="dev", read_version=1, reads=reads)
    owner.commit([remove("base"), add("m1")], read_version=1, reads=reads)
    before = owner.content()
    why = refused(owner, "dev", "main")
    assert "version 2 (WRITE) removed base" in why
    assert (
        "; version 2 replaced 1 file by 1, and since version 1 the other side replaced 1 file by 1; to" in why
    )
    assert "'force'" in why
    assert owner.content() == before
    why = refused(owner, "main", "dev")
    assert "version 2 of the other side (WRITE) removed base, which this branch has read" in why


def test_an_append_beside_a_delete_that_read_the_whole_table_lands_under_the_default_level(
    owner: Owner,
) -> None:
    branched(owner)
    owner.commit([remove("base"), add("d1")], branch="dev", read_version=1, reads=ALL)
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    assert owner.paths() == {"d1", "m1"}


def test_the_same_under_serializable_is_a_conflict(owner: Owner) -> None:
    branched(owner, properties={"delta.isolationLevel": "Serializable"})
    owner.commit([remove("base"), add("d1")], branch="dev", read_version=1, reads=ALL)
    owner.commit([add("m1")])
    assert "version 2 (WRITE) appended m1" in refused(owner, "dev", "main")


def test_the_same_batch_of_an_application_on_both_sides_is_a_conflict(owner: Owner) -> None:
    branched(owner)
    owner.commit([Txn(app_id="etl", version=1), add("d1")], branch="dev")
    owner.commit([Txn(app_id="etl", version=1), add("m1")])
    assert "batch 1 of the application 'etl'" in refused(owner, "dev", "main")


def test_batches_of_a_branch_are_known_on_main_after_the_merge(owner: Owner) -> None:
    branched(owner)
    owner.commit([Txn(app_id="etl", version=1), add("d1")], branch="dev")
    owner.commit([Txn(app_id="etl", version=2), add("d2")], branch="dev")
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    owner.commit([Txn(app_id="etl", version=2), add("d2-again")])
    assert owner.paths() == {"base", "d1", "d2", "m1"}


def test_metadata_changed_on_both_sides_is_a_conflict_and_on_one_side_it_lands(owner: Owner) -> None:
    branched(owner, "dev", "other")
    metadata = owner.snapshot().metadata
    for branch in ("dev", "other"):
        configuration = {**metadata.configuration, "who": branch}
        changed = msgspec.structs.replace(metadata, configuration=configuration)
        owner.commit([changed, add(branch)], branch=branch, read_version=1)
    merge(owner, "dev", "main")
    assert owner.snapshot().properties["who"] == "dev"
    assert "changed the metadata" in refused(owner, "other", "main")
    owner.commit([add("after")])
    assert owner.paths() == {"base", "dev", "after"}


# --- replacing ----------------------------------------------------------------------------------------------


def test_overwrites_on_both_sides_are_one_sides_files_and_never_a_union(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.commit([add("m1")], replaces=())
    owner.commit([add("m2")])
    merge(owner, "dev", "main")
    assert owner.paths() == {"d1"}
    assert {one.path for one in owner.published().read_files()} == {"d1"}


def test_a_replaced_partition_also_loses_what_main_has_put_there_since(owner: Owner) -> None:
    branched(owner, partition_by=("day",))
    owner.commit([add("d1", "mon")], branch="dev", replaces=(days("mon"),))
    owner.commit([add("m1", "mon"), add("m2", "tue")])
    merge(owner, "dev", "main")
    assert owner.paths() == {"d1", "m2"}


def test_what_a_branch_does_to_a_table_that_it_wrote_anew_depends_on_nobody(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.commit([remove("d1"), add("d2")], branch="dev", read_version=2, reads=ALL)
    owner.commit([remove("base"), add("m1")], read_version=1, reads=ALL)
    merge(owner, "dev", "main")
    assert owner.paths() == {"d2"}


def test_an_overwrite_that_was_reverted_on_its_branch_costs_main_nothing(owner: Owner) -> None:
    branched(owner)
    owner.put_files("base")
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.kernel.revert(head(owner, "dev"), "dev", META)
    owner.commit([add("d2")], branch="dev")
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    assert owner.paths() == {"base", "d2", "m1"}


def test_an_overwrite_that_comes_back_by_another_branch_replaces_nothing_again(owner: Owner) -> None:
    branched(owner, "dev", "test")
    owner.commit([add("t1")], branch="test")
    owner.commit([add("d1")], branch="dev", replaces=())
    merge(owner, "dev", "test")
    assert owner.paths(branch="test") == {"d1"}
    owner.commit([add("d2")], branch="dev")
    owner.commit([add("t2")], branch="test")
    merge(owner, "test", "dev")
    assert owner.paths(branch="dev") == {"d1", "d2", "t2"}


def test_an_overwrite_that_was_transplanted_is_not_done_again_by_a_merge(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    assert owner.paths() == {"d1", "m1"}


# --- the change feed ----------------------------------------------------------------------------------------


def feed(path: str) -> Cdc:
    return Cdc(path=f"_change_data/{path}", partition_values={}, size=1, data_change=False)


def test_commits_with_and_without_files_of_the_change_feed_land_one_after_the_other(owner: Owner) -> None:
    branched(owner, properties={"delta.enableChangeDataFeed": "true"})
    owner.commit([add("d1")], branch="dev")
    owner.commit([remove("base"), add("d2"), feed("c")], branch="dev", read_version=2)
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    assert owner.line().latest == 4
    assert not any(isinstance(one, Cdc) for one in owner.actions(3))
    assert feed("c") in owner.actions(4)
    assert owner.paths() == {"d1", "d2", "m1"}


# --- tables that come, go and move --------------------------------------------------------------------------


def test_a_table_created_on_a_branch_begins_on_main_at_version_0_with_all_it_has(owner: Owner) -> None:
    owner.create("other")
    owner.branch("dev")
    created = owner.create(branch="dev")
    owner.commit([add("d1")], branch="dev")
    owner.commit([remove("d1"), add("d2")], branch="dev", read_version=1)
    merge(owner, "dev", "main")
    content = owner.content()
    assert (content.id, content.location) == (created.id, created.location)
    assert owner.line().latest == 0
    assert owner.paths() == {"d2"}
    owner.commit([add("m1")])
    published = owner.published()
    assert published.version == 1
    assert {one.path for one in published.read_files()} == {"d2", "m1"}


def test_a_table_created_on_a_branch_merges_back_and_forth_afterwards(owner: Owner) -> None:
    owner.create("other")
    owner.branch("dev")
    owner.create(branch="dev", actions=[add("d0")])
    merge(owner, "dev", "main")
    owner.commit([add("m1")])
    owner.commit([add("d1")], branch="dev")
    merge(owner, "dev", "main")
    assert owner.paths() == {"d0", "m1", "d1"}
    merge(owner, "main", "dev")
    assert owner.paths(branch="dev") == {"d0", "m1", "d1"}
    assert owner.line(branch="dev").tail is None


def test_two_tables_created_under_one_name_do_not_merge(owner: Owner) -> None:
    owner.create("other")
    owner.branch("dev")
    owner.create(branch="dev")
    owner.create()
    assert "another table" in refused(owner, "dev", "main")


def test_a_table_that_was_adopted_again_is_not_said_to_be_at_another_place(owner: Owner) -> None:
    owner.create()
    target = owner.content()
    again = msgspec.structs.replace(target, id=uuid4())
    with pytest.raises(FormatRefused, match="released and adopted again since"):
        owner.format.merge(owner.table(), None, again, None)


def test_a_drop_lands_where_nobody_changed_the_table_and_conflicts_where_somebody_did(owner: Owner) -> None:
    branched(owner, "dev", "late")
    for branch in ("dev", "late"):
        owner.kernel.commit(branch, [Delete(Key.parse(KEY))])
    merge(owner, "dev", "main")
    owner.kernel.revert(head(owner), "main", META)
    owner.commit([add("m1")])
    assert "version 2" in refused(owner, "late", "main")


def test_a_table_that_was_dropped_here_and_changed_there_conflicts(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.kernel.commit("main", [Delete(Key.parse(KEY))])
    assert "was dropped or renamed here" in refused(owner, "dev", "main")


def rename(owner: Owner, branch: str) -> None:
    content = owner.content(branch=branch)
    owner.kernel.commit(branch, [Delete(Key.parse(KEY)), Put(Key.parse("moved"), content)])


def test_a_table_that_was_renamed_and_appended_to_on_a_branch_goes_on_under_its_new_name(
    owner: Owner,
) -> None:
    branched(owner)
    rename(owner, "dev")
    owner.commit([add("d1")], key="moved", branch="dev")
    merge(owner, "dev", "main")
    assert owner.line("moved").latest == 2
    assert owner.line("moved").tail is None
    assert owner.paths("moved") == {"base", "d1"}
    assert {one.path for one in owner.published("moved").read_files()} == {"base", "d1"}


# --- force, given contents, revert --------------------------------------------------------------------------


def test_a_forced_merge_moves_main_forward_to_the_state_of_the_branch(owner: Owner) -> None:
    branched(owner)
    owner.commit([remove("base"), add("d1")], branch="dev", read_version=1)
    owner.commit([remove("base"), add("m1")], read_version=1)
    merge(owner, "dev", "main", FORCE)
    assert owner.line().latest == 3
    assert owner.paths() == {"d1"}
    assert {one.path for one in owner.published().read_files()} == {"d1"}


def test_a_given_content_is_reached_by_a_new_version(owner: Owner) -> None:
    branched(owner)
    wanted = owner.content()
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("m1")])
    options = MergeOptions({Key.parse(KEY): KeyMerge(content=wanted)})
    merge(owner, "dev", "main", options)
    assert owner.line().latest == 3
    assert owner.paths() == {"base"}


def test_reverting_an_append_is_a_new_version_without_its_files(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("m1")])
    owner.kernel.revert(head(owner), "main", META)
    assert owner.line().latest == 3
    assert owner.paths() == {"base"}
    assert owner.info(3).operation == "RESTORE"
    assert {one.path for one in owner.published().read_files()} == {"base"}


def test_reverting_a_delete_brings_its_files_back_as_they_were(owner: Owner) -> None:
    branched(owner)
    owner.put_files("base")
    owner.commit([remove("base")], read_version=1)
    owner.kernel.revert(head(owner), "main", META)
    assert list(owner.snapshot().read_files()) == [add("base")]


def test_reverting_a_drop_goes_on_from_the_last_version(owner: Owner) -> None:
    branched(owner)
    before = owner.content()
    owner.kernel.commit("main", [Delete(Key.parse(KEY))])
    owner.kernel.revert(head(owner), "main", META)
    assert owner.content() == before
    owner.commit([add("m1")])
    assert owner.line().latest == 2


def test_reverting_a_change_of_the_metadata_keeps_features_that_came_with_it(owner: Owner) -> None:
    branched(owner)
    was = owner.snapshot()
    protocol = msgspec.structs.replace(
        was.protocol, writer_features=(*(was.protocol.writer_features or ()), "changeDataFeed")
    )
    metadata = msgspec.structs.replace(
        was.metadata, configuration={**was.metadata.configuration, "delta.enableChangeDataFeed": "true"}
    )
    owner.commit([protocol, metadata], read_version=1)
    owner.kernel.revert(head(owner), "main", META)
    now = owner.snapshot()
    assert now.metadata == was.metadata
    assert "changeDataFeed" in (now.protocol.writer_features or ())
    owner.commit([add("m1")])


def test_a_revert_on_a_branch_moves_forward_too(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.kernel.revert(head(owner, "dev"), "dev", META)
    assert owner.line(branch="dev").latest == 3
    assert owner.paths(branch="dev") == {"base"}
    merge(owner, "dev", "main")
    assert owner.paths() == {"base"}


# --- transplants and rebases --------------------------------------------------------------------------------


def test_a_transplanted_append_brings_its_own_files_alone(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("d2")], branch="dev")
    owner.commit([add("m1")])
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    assert owner.paths() == {"base", "m1", "d2"}


def test_a_commit_of_main_transplanted_to_a_branch_brings_nothing_that_was_before_it(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("m1")])
    owner.commit([add("m2")])
    owner.kernel.transplant([head(owner)], "dev", META)
    assert owner.paths(branch="dev") == {"base", "m2"}


def test_what_was_transplanted_is_not_brought_again_by_a_merge(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([remove("base"), add("d2")], branch="dev", read_version=2)
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    owner.commit([add("m1")])
    merge(owner, "dev", "main")
    assert owner.paths() == {"d1", "d2", "m1"}
    added = [
        one.path for v in range(owner.line().latest + 1) for one in owner.actions(v) if isinstance(one, Add)
    ]
    assert sorted(added) == ["base", "d1", "d2", "m1"]


def test_several_commits_transplanted_at_once_land_as_versions_of_their_own(owner: Owner) -> None:
    branched(owner)
    commits = []
    written: list[list[Action]] = [[add("d1")], [remove("d1"), add("d2")], [remove("base")]]
    for version, actions in enumerate(written, 1):
        owner.commit(actions, branch="dev", read_version=version)
        commits.append(head(owner, "dev"))
    owner.commit([add("m1")])
    owner.kernel.transplant(commits, "main", CommitMeta())
    assert owner.line().latest == 5
    assert owner.paths() == {"d2", "m1"}


def test_a_rebased_branch_stands_on_mains_line(owner: Owner) -> None:
    branched(owner)
    owner.commit([add("d1")], branch="dev")
    owner.commit([remove("d1"), add("d2")], branch="dev", read_version=2)
    owner.commit([add("m1")])
    owner.kernel.rebase("dev", head(owner), CommitMeta())
    line = owner.line(branch="dev")
    assert (line.fork_version, line.latest) == (2, 4)
    assert owner.paths(branch="dev") == {"base", "m1", "d2"}
    merge(owner, "dev", "main")
    assert owner.paths() == {"base", "m1", "d2"}


def test_what_a_merge_rests_on_is_kept_for_the_next_one(owner: Owner) -> None:
    branched(owner)
    owner.commit([remove("base"), add("d1")], branch="dev", read_version=1, reads=ALL)
    owner.commit([add("d2")], branch="dev", replaces=())
    merge(owner, "dev", "main")
    entry = owner.line().find_entry(2, owner.read)
    assert entry is not None
    assert read_commit_record(entry, owner.read).terms == CommitTerms(DeltaReads(), replaces=())
