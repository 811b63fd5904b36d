"""A commit stores what a format was asked to do, and a merge does it again on the other side."""

from __future__ import annotations

import pytest

from penstock import Delete, IcebergTable, Key, KeyMerge, Lake, MergeMode, Put
from penstock.errors import MergeConflict
from penstock.kernel.ledger import find_table
from penstock.kernel.objects import read_content
from penstock.model.conflicts import ConflictKind
from penstock.model.objects import Intent
from penstock.testing.journal import (
    NAME,
    JournalFormat,
    append,
    edit,
    empty_journal,
    journal_at,
    lines_of,
    replace,
    state_of,
)


def fork(lake: Lake, *lines: str) -> None:
    """A journal on main with some lines, and a branch dev that has it too."""
    lake.commit([replace("diary", *lines)], message="begin")
    lake.branch("dev").create()


def intents_of(lake: Lake, revision: str = "main") -> tuple[Intent, ...]:
    return lake.kernel.objects.read_intents(lake.kernel.history.read_commit(lake.show(revision).object_id))


def test_k1_a_commit_stores_the_intent_of_every_change(lake: Lake) -> None:
    lake.commit([append("diary", "one"), replace("log", "a", "b")])
    found = [(Key.decode(one.key), one.format, one.opaque) for one in intents_of(lake)]
    assert found == [(Key("diary"), NAME, False), (Key("log"), NAME, False)]
    assert [one.data for one in intents_of(lake)] == [
        append("diary", "one").intent,
        replace("log", "a", "b").intent,
    ]


def test_k1_plain_puts_and_deletes_store_no_intent(lake: Lake) -> None:
    lake.commit([Put(Key("plain"), IcebergTable(metadata_location="1"))])
    assert intents_of(lake) == ()
    lake.commit([Delete(Key("plain"))])
    assert intents_of(lake) == ()


def test_k1_an_intent_larger_than_an_object_may_be_is_stored_whole(lake: Lake) -> None:
    text = "x" * 600_000
    lake.commit([append("diary", "small")])
    lake.commit([replace("diary", *[text[start : start + 200_000] for start in range(0, 600_000, 200_000)])])
    (intent,) = intents_of(lake)
    assert len(intent.data) > 600_000
    assert "".join(lines_of(lake.kernel, "diary")) == text


def test_k1_a_raw_put_of_a_managed_table_is_remembered_as_opaque(lake: Lake) -> None:
    lake.commit([append("diary", "one")])
    lake.commit([Put(Key("diary"), empty_journal(7))])
    (intent,) = intents_of(lake)
    assert (intent.opaque, intent.format) == (True, NAME)


def test_k1_a_transplanted_commit_carries_the_intent_along(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([append("diary", "two")])
    before = intents_of(lake, "dev")
    lake.transplant("dev", "main")
    assert intents_of(lake, "main") == before


def test_k2_appends_on_both_sides_both_land(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([append("diary", "from dev")])
    lake.commit([append("diary", "from main")])
    result = lake.merge("dev", "main")
    assert result.conflicts == ()
    assert lines_of(lake.kernel, "diary") == ["one", "from main", "from dev"]


def test_k2_overwrites_on_both_sides_do_not_merge_to_a_union(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([replace("diary", "dev 1", "dev 2")])
    lake.commit([replace("diary", "main 1", "main 2")])
    lake.merge("dev", "main")
    assert lines_of(lake.kernel, "diary") == ["dev 1", "dev 2"]


def test_k2_an_overwrite_meets_an_append_in_the_order_of_the_merge(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([append("diary", "from dev")])
    lake.commit([replace("diary", "main")])
    lake.merge("dev", "main")
    assert lines_of(lake.kernel, "diary") == ["main", "from dev"]


def test_k2_all_changes_of_the_source_are_replayed_oldest_first(lake: Lake) -> None:
    fork(lake, "one")
    dev = lake.branch("dev")
    for number in range(5):
        dev.commit([append("diary", f"dev {number}")])
    lake.commit([append("diary", "main")])
    lake.merge("dev", "main")
    assert lines_of(lake.kernel, "diary") == ["one", "main", *(f"dev {number}" for number in range(5))]


def test_k2_a_change_that_reads_what_an_earlier_one_of_its_branch_wrote_is_replayed(lake: Lake) -> None:
    fork(lake, "one")
    dev = lake.branch("dev")
    dev.commit([replace("diary", "draft")])
    dev.commit([edit("diary", 9, 0, "draft", "final")])
    lake.commit([append("diary", "main")])
    lake.merge("dev", "main")
    assert lines_of(lake.kernel, "diary") == ["final"]


def test_k2_changes_that_came_to_the_source_by_a_merge_are_replayed_too(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("deep").create(at="dev")
    lake.branch("deep").commit([append("diary", "from deep")])
    lake.branch("dev").commit([append("diary", "from dev")])
    lake.merge("deep", "dev")
    lake.commit([append("diary", "from main")])
    lake.merge("dev", "main")
    lines = lines_of(lake.kernel, "diary")
    assert lines[:2] == ["one", "from main"]
    assert sorted(lines[2:]) == ["from deep", "from dev"]


def test_k2_merging_again_only_brings_what_is_new(lake: Lake) -> None:
    fork(lake, "one")
    dev = lake.branch("dev")
    dev.commit([append("diary", "dev 1")])
    lake.commit([append("diary", "main 1")])
    lake.merge("dev", "main")
    dev.commit([append("diary", "dev 2")])
    lake.commit([append("diary", "main 2")])
    lake.merge("dev", "main")
    assert lines_of(lake.kernel, "diary") == ["one", "main 1", "dev 1", "main 2", "dev 2"]


def test_k2_a_merge_back_and_forth_lands_every_line_once(lake: Lake) -> None:
    fork(lake, "one")
    dev = lake.branch("dev")
    dev.commit([append("diary", "dev 1")])
    lake.commit([append("diary", "main 1")])
    lake.merge("dev", "main")
    lake.merge("main", "dev")
    dev.commit([append("diary", "dev 2")])
    lake.commit([append("diary", "main 2")])
    lake.merge("dev", "main")
    assert sorted(lines_of(lake.kernel, "diary")) == ["dev 1", "dev 2", "main 1", "main 2", "one"]


def test_k2_the_format_is_asked_also_when_only_the_source_changed(
    lake: Lake, journals: JournalFormat
) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([append("diary", "two")])
    before = journals.calls["merge"]
    lake.merge("dev", "main")
    assert journals.calls["merge"] == before + 2, "before the queue, and at its turn"
    assert lines_of(lake.kernel, "diary") == ["one", "two"]


def test_k2_the_format_is_not_asked_about_what_it_does_not_manage(
    lake: Lake, journals: JournalFormat
) -> None:
    fork(lake, "one")
    lake.branch("dev").put("plain", IcebergTable(metadata_location="1"))
    before = journals.calls["merge"]
    lake.merge("dev", "main")
    assert journals.calls["merge"] == before


def test_k2_a_change_that_was_refused_by_the_format_is_a_conflict_with_its_reason(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([edit("diary", 1, 0, "one", "dev")])
    lake.commit([edit("diary", 1, 0, "one", "main")])
    head = lake.branch().head
    preview = lake.merge("dev", "main", dry_run=True)
    with pytest.raises(MergeConflict) as refused:
        lake.merge("dev", "main")
    (conflict,) = refused.value.conflicts
    assert preview.conflicts == (conflict,)
    assert (conflict.kind, conflict.key, conflict.why) == (
        ConflictKind.FORMAT,
        Key("diary"),
        "changed line 0",
    )
    assert (conflict.expected, conflict.found) == ("version 1", "version 2")
    assert lake.branch().head == head
    assert lines_of(lake.kernel, "diary") == ["main"]


def test_k2_an_opaque_change_on_the_source_cannot_be_replayed(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([append("diary", "two")])
    lake.branch("dev").commit([Put(Key("diary"), empty_journal(9))])
    lake.commit([append("diary", "main")])
    with pytest.raises(MergeConflict) as refused:
        lake.merge("dev", "main")
    assert [(one.kind, one.key) for one in refused.value.conflicts] == [(ConflictKind.FORMAT, Key("diary"))]


def test_k2_an_opaque_change_that_only_the_source_made_is_taken(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([Put(Key("diary"), empty_journal(9))])
    lake.merge("dev", "main")
    assert state_of(journal_at(lake.kernel, "diary")).version == 9


def test_k2_a_forced_merge_restores_and_is_opaque_from_then_on(lake: Lake, journals: JournalFormat) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([replace("diary", "dev")])
    lake.commit([append("diary", "main")])
    lake.merge("dev", "main", keys={"diary": MergeMode.FORCE})
    assert lines_of(lake.kernel, "diary") == ["dev"]
    assert journals.calls["restore"] == 2, "before the queue, and at its turn"
    assert [one.opaque for one in intents_of(lake)] == [True]


def test_k2_a_given_content_goes_through_the_format(lake: Lake, journals: JournalFormat) -> None:
    fork(lake, "one")
    lake.branch("dev").commit([append("diary", "dev")])
    lake.commit([append("diary", "main")])
    lake.merge("dev", "main", keys={"diary": KeyMerge(content=empty_journal(50))})
    assert journals.calls["restore"] == 2, "before the queue, and at its turn"
    assert state_of(journal_at(lake.kernel, "diary")).version == 50


def test_k2_a_transplant_replays_each_commit_by_its_own_intent(lake: Lake) -> None:
    fork(lake, "one")
    dev = lake.branch("dev")
    dev.commit([append("diary", "dev 1")])
    dev.commit([append("diary", "dev 2")])
    lake.commit([append("diary", "main")])
    result = lake.transplant("dev~2..dev", "main")
    assert len(result.commits) == 2
    assert lines_of(lake.kernel, "diary") == ["one", "main", "dev 1", "dev 2"]


def test_k2_a_rebase_replays_intent(lake: Lake) -> None:
    fork(lake, "one")
    dev = lake.branch("dev")
    dev.commit([append("diary", "dev 1")])
    dev.commit([append("diary", "dev 2")])
    lake.commit([append("diary", "main")])
    lake.rebase("dev", "main")
    assert lines_of(lake.kernel, "diary", "dev") == ["one", "main", "dev 1", "dev 2"]
    lake.merge("dev", "main")
    assert lines_of(lake.kernel, "diary") == ["one", "main", "dev 1", "dev 2"]


def test_k2_a_transplanted_change_is_replayed_again_by_a_later_merge(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("third").create(at="main")
    lake.branch("dev").commit([append("diary", "dev")])
    lake.transplant("dev", "third")
    lake.commit([append("diary", "main")])
    lake.merge("third", "main")
    assert lines_of(lake.kernel, "diary") == ["one", "main", "dev"]


def test_k2_a_revert_restores_through_the_format(lake: Lake, journals: JournalFormat) -> None:
    fork(lake, "one")
    lake.commit([append("diary", "two")])
    lake.revert("main", "main")
    assert lines_of(lake.kernel, "diary") == ["one"]
    assert journals.calls["restore"] == 2, "before the queue, and at its turn"


def test_k2_a_journal_created_on_the_source_comes_with_its_lines(lake: Lake) -> None:
    lake.branch().put("other", IcebergTable(metadata_location="1"))
    lake.branch("dev").create()
    lake.branch("dev").commit([append("diary", "one"), append("log", "two")])
    lake.merge("dev", "main")
    assert (lines_of(lake.kernel, "diary"), lines_of(lake.kernel, "log")) == (["one"], ["two"])


def test_k2_journals_created_on_both_sides_keep_one_identity_and_both_changes(lake: Lake) -> None:
    lake.branch().put("other", IcebergTable(metadata_location="1"))
    lake.branch("dev").create()
    lake.branch("dev").commit([append("diary", "dev")])
    lake.commit([append("diary", "main")])
    before = journal_at(lake.kernel, "diary")
    lake.merge("dev", "main")
    after = journal_at(lake.kernel, "diary")
    assert before is not None
    assert after is not None
    assert after.id == before.id
    assert lines_of(lake.kernel, "diary") == ["main", "dev"]


def test_k2_a_journal_dropped_on_one_side_and_changed_on_the_other_conflicts(lake: Lake) -> None:
    fork(lake, "one")
    lake.branch("dev").drop("diary")
    lake.commit([append("diary", "main")])
    with pytest.raises(MergeConflict):
        lake.merge("dev", "main")
    with pytest.raises(MergeConflict):
        lake.merge("main", "dev")


def test_k2_a_table_that_was_dropped_for_something_else_is_dropped_by_a_merge_too(lake: Lake) -> None:
    """What comes in its place is not a table of the format, which has nothing to say about it."""
    fork(lake, "one")
    plain = IcebergTable(metadata_location="1")
    lake.branch("dev").commit([Delete(Key("diary")), Put(Key("diary"), plain)])
    before = journal_at(lake.kernel, "diary")
    assert before is not None
    lake.merge("dev", "main")
    assert isinstance(journal_at(lake.kernel, "diary"), IcebergTable)
    assert before.id is not None
    state = lake.kernel.read_state(lake.show().object_id)
    assert find_table(lambda stored: read_content(lake.kernel.objects, state.get(stored)), before.id) is None
