"""A branch has a managed table at one key at most, and remembers those that it dropped."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

import penstock
from penstock import Delete, Key, Lake, Put
from penstock.errors import CommitConflict, MergeConflict
from penstock.kernel.format import AppliedChange, Table
from penstock.kernel.ledger import encode_ledger_key, find_table
from penstock.kernel.objects import read_content
from penstock.model.conflicts import ConflictKind
from penstock.model.content import Unknown
from penstock.model.operations import Change
from penstock.testing.journal import JournalFormat, State, append, journal_at, lines_of


def head(lake: Lake, revision: str = "main") -> bytes:
    return lake.show(revision).object_id


def identity(lake: Lake, key: str, branch: str = "main") -> UUID:
    content = journal_at(lake.kernel, key, branch)
    assert content is not None
    assert content.id is not None
    return content.id


def where(lake: Lake, one: UUID, revision: str = "main") -> Key | None:
    objects, state = lake.kernel.objects, lake.kernel.read_state(head(lake, revision))
    return find_table(lambda stored: read_content(objects, state.get(stored)), one)


def rename(lake: Lake, old: str, new: str, branch: str = "main") -> None:
    content = journal_at(lake.kernel, old, branch)
    assert content is not None
    lake.branch(branch).commit([Delete(Key(old)), Put(Key(new), content)])


def test_a_table_is_found_by_its_id_from_when_it_is_created_until_it_is_dropped(lake: Lake) -> None:
    lake.commit([append("other", "a")])
    lake.commit([append("diary", "one")])
    one = identity(lake, "diary")
    assert where(lake, one, "main~1") is None
    assert where(lake, one) == Key("diary")
    rename(lake, "diary", "log")
    assert where(lake, one) == Key("log")
    assert where(lake, one, "main~1") == Key("diary")
    lake.commit([Delete(Key("log"))])
    assert where(lake, one) is None


def test_what_no_format_manages_is_not_in_the_ledger(lake: Lake) -> None:
    lake.commit([Put(Key("plain"), Unknown(type_name="OTHER", payload=b"x"))])
    one = identity(lake, "plain")
    assert where(lake, one) is None
    assert lake.kernel.read_state(head(lake)).get(encode_ledger_key(one)) is None


def test_what_only_changes_a_table_leaves_the_ledger_alone(lake: Lake) -> None:
    lake.commit([append("diary", "one")])
    lake.commit([append("diary", "two")])
    assert list(lake.kernel.diff_commits(head(lake, "main~1"), head(lake))) == [Key("diary").encode()]
    assert where(lake, identity(lake, "diary")) == Key("diary")


def test_the_ledger_is_neither_listed_nor_part_of_a_difference(lake: Lake) -> None:
    lake.commit([append("other", "a")])
    lake.commit([append("diary", "one")])
    assert [table.key for table in lake.tables()] == [Key("diary"), Key("other")]
    assert [one.key for one in lake.diff("main~1", "main")] == [Key("diary")]


class Same(JournalFormat):
    """Journals that are all the same table, as where one in storage is adopted at two keys."""

    def apply(self, table: Table, change: Change, prepared: State | None) -> AppliedChange:
        applied = super().apply(table, change, prepared)
        assert applied.content is not None
        return applied._replace(content=msgspec.structs.replace(applied.content, id=UUID(int=7)))


def test_a_second_key_of_a_table_is_a_conflict_that_names_the_first() -> None:
    with penstock.open("memory:", formats=[Same()]) as lake:
        lake.commit([append("diary", "one")])
        with pytest.raises(CommitConflict) as refused:
            lake.commit([append("log", "two")])
        (conflict,) = refused.value.conflicts
        assert (conflict.kind, conflict.key) == (ConflictKind.FORMAT, Key("log"))
        assert str(conflict) == "'log' is already in the lake, as 'diary'"
        lake.commit([append("diary", "two")])
        lake.commit([Delete(Key("diary"))])
        lake.commit([append("log", "three")])
        assert where(lake, UUID(int=7)) == Key("log")


def test_two_new_keys_of_one_table_in_one_commit_are_a_conflict() -> None:
    with penstock.open("memory:", formats=[Same()]) as lake:
        with pytest.raises(CommitConflict, match="'log' is already in the lake, as 'diary'"):
            lake.commit([append("diary", "one"), append("log", "two")])
        assert lake.tables() == []


def test_two_branches_that_rename_a_table_differently_cannot_be_merged(lake: Lake) -> None:
    lake.commit([append("diary", "one")])
    lake.branch("dev").create()
    rename(lake, "diary", "ours")
    rename(lake, "diary", "theirs", "dev")
    with pytest.raises(MergeConflict) as refused:
        lake.merge("dev", "main")
    assert [str(one) for one in refused.value.conflicts] == ["'theirs' is already in the lake, as 'ours'"]
    found = lake.merge("dev", "main", dry_run=True)
    assert [str(one) for one in found.conflicts] == ["'theirs' is already in the lake, as 'ours'"]


def test_a_rename_that_is_merged_moves_the_table_in_the_ledger_too(lake: Lake) -> None:
    lake.commit([append("diary", "one")])
    one = identity(lake, "diary")
    lake.branch("dev").create()
    rename(lake, "diary", "log", "dev")
    lake.commit([append("other", "a")])
    lake.merge("dev", "main")
    assert where(lake, one) == Key("log")
    lake.revert("main", "main")
    assert where(lake, one) == Key("diary")
    assert lines_of(lake.kernel, "diary") == ["one"]


def test_both_branches_may_drop_a_table_or_rename_it_alike(lake: Lake) -> None:
    lake.commit([append("gone", "a"), append("diary", "one")])
    one, gone = identity(lake, "diary"), identity(lake, "gone")
    lake.branch("dev").create()
    for branch in ("main", "dev"):
        rename(lake, "diary", "log", branch)
        lake.branch(branch).commit([Delete(Key("gone"))])
    lake.merge("dev", "main")
    assert (where(lake, one), where(lake, gone)) == (Key("log"), None)


def test_a_table_that_is_brought_back_is_shown_as_it_was_when_it_was_dropped(
    lake: Lake, journals: JournalFormat
) -> None:
    """What is wanted may be older: it comes from a branch that did not go along."""
    lake.commit([append("diary", "one")])
    lake.branch("dev").create().commit([append("diary", "from dev")])
    lake.commit([append("diary", "two")])
    dropped = journal_at(lake.kernel, "diary")
    lake.commit([Delete(Key("diary"))])
    journals.asked.clear()
    lake.merge("dev", "main", default="force")
    assert [(what, table.may_read) for what, table in journals.asked] == [
        ("restore", True),
        ("restore", False),
    ]
    assert [(table.content, table.last) for _, table in journals.asked] == [(None, dropped)] * 2
    assert lines_of(lake.kernel, "diary") == ["one", "from dev"]


def test_a_table_that_is_renamed_by_a_merge_is_shown_as_it_is_at_its_old_key(
    lake: Lake, journals: JournalFormat
) -> None:
    """Also by force: what the default branch has published of it meanwhile cannot be undone."""
    lake.commit([append("diary", "one")])
    lake.branch("dev").create()
    rename(lake, "diary", "log", "dev")
    lake.commit([append("diary", "two")])
    here = journal_at(lake.kernel, "diary")
    journals.asked.clear()
    lake.merge("dev", "main", default="force")
    shown = {(table.key, table.content, table.last) for _, table in journals.asked}
    assert shown == {(Key("diary"), here, None), (Key("log"), None, here)}


def test_a_table_that_this_branch_never_had_has_no_last_content(lake: Lake, journals: JournalFormat) -> None:
    lake.commit([append("other", "a")])
    lake.branch("dev").create().commit([append("diary", "one")])
    lake.commit([append("other", "b")])
    journals.asked.clear()
    lake.merge("dev", "main")
    assert {(what, table.last) for what, table in journals.asked} == {("merge", None)}


def test_a_transplant_of_creation_and_a_rename_keeps_the_ledger(lake: Lake) -> None:
    lake.commit([append("other", "a")])
    lake.branch("dev").create().commit([append("diary", "one")])
    rename(lake, "diary", "log", "dev")
    one = identity(lake, "log", "dev")
    lake.transplant("main..dev", "main")
    assert where(lake, one) == Key("log")
    assert where(lake, one, "main~1") == Key("diary")


def test_a_rename_cannot_take_a_table_back_to_what_it_was(lake: Lake, journals: JournalFormat) -> None:
    """A writer that renames what it read a while ago asks for another content: the format has its say."""
    lake.commit([append("diary", "one")])
    stale = journal_at(lake.kernel, "diary")
    assert stale is not None
    lake.commit([append("diary", "two")])
    rename(lake, "diary", "log")
    assert journals.calls["admit"] == 0, "nothing but its key changes"
    lake.commit([Delete(Key("log")), Put(Key("diary"), stale)])
    assert journals.calls["admit"] == 1
