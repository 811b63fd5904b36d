"""What has landed is told to formats: every managed table that changed, once, whatever way it came."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock
from penstock import Delete, IcebergTable, Key, Lake, Put
from penstock.errors import CommitConflict
from penstock.kernel.format import AppliedChange, FormatRefused, Table
from penstock.kernel.kernel import Kernel
from penstock.model.content import AnyContent
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.nessie import DeltaTable
from penstock.model.operations import Change
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.testing.journal import (
    JournalFormat,
    LandedJournal,
    State,
    append,
    empty_journal,
    ensure,
    journal_at,
    lines_of,
    replace,
)

BRING: dict[str, Callable[[Lake], object]] = {
    "merge": lambda lake: lake.merge("dev", "main"),
    "transplant": lambda lake: lake.transplant("dev~2..dev", "main"),
    "revert": lambda lake: lake.revert("main", "main"),
    "rebase": lambda lake: lake.rebase("dev", "main"),
}
VERSIONS = {"merge": 4, "transplant": 4, "revert": 1, "rebase": 4}


def head(lake: Lake, branch: str = "main") -> bytes:
    return lake.show(branch).object_id


@pytest.mark.parametrize("way", BRING)
def test_what_is_brought_is_told_once_as_it_landed(lake: Lake, journals: JournalFormat, way: str) -> None:
    lake.commit([replace("diary", "one"), append("untouched", "a")])
    dev = lake.branch("dev").create()
    dev.commit([append("diary", "two")])
    dev.commit([append("diary", "three"), Put(Key("plain"), IcebergTable(metadata_location="1"))])
    lake.commit([append("diary", "from main")])
    journals.published.clear()
    BRING[way](lake)
    target = "dev" if way == "rebase" else "main"
    assert journals.published == [LandedJournal(Key("diary"), head(lake, target), VERSIONS[way], target)]


def test_of_commits_that_land_together_the_last_that_changed_a_table_is_told(
    lake: Lake, journals: JournalFormat
) -> None:
    lake.commit([append("other", "a")])
    dev = lake.branch("dev").create()
    dev.commit([append("diary", "one")])
    dev.commit([append("diary", "two")])
    dev.commit([append("log", "three")])
    journals.published.clear()
    lake.transplant("dev~3..dev", "main")
    assert sorted(journals.published) == [
        LandedJournal(Key("diary"), head(lake, "main~1"), 2),
        LandedJournal(Key("log"), head(lake), 1),
    ]


def test_a_raw_put_a_rename_and_a_drop_are_told_too(lake: Lake, journals: JournalFormat) -> None:
    lake.commit([Put(Key("diary"), empty_journal(7))])
    assert journals.published == [LandedJournal(Key("diary"), head(lake), 7)]
    content = journal_at(lake.kernel, "diary")
    assert content is not None
    lake.commit([Delete(Key("diary")), Put(Key("log"), content)])
    assert journals.published[1:] == [
        LandedJournal(Key("diary"), head(lake), 0),
        LandedJournal(Key("log"), head(lake), 7),
    ]
    lake.commit([Delete(Key("log"))])
    assert journals.published[3:] == [LandedJournal(Key("log"), head(lake), 0)]


def test_formats_are_told_which_branch_is_the_default_one(journals: JournalFormat) -> None:
    with penstock.open("memory:", formats=[journals]) as lake:
        lake.branch("dev").create()
        lake.commit([append("diary", "one")])
        lake.branch("dev").commit([append("diary", "two")])
        seen = {(table.branch, table.is_default, table.incarnation) for _, table in journals.asked}
        row = {name: lake.kernel.references.get_reference(name).incarnation for name in ("main", "dev")}
    assert seen == {("main", True, row["main"]), ("dev", False, row["dev"])}
    assert [one.branch for one in journals.published] == ["main", "dev"]


@pytest.mark.parametrize("way", ["commit", "merge", "transplant"])
def test_a_repetition_tells_formats_once_more_since_whoever_landed_it_may_have_died(
    lake: Lake, journals: JournalFormat, way: str
) -> None:
    repeat: dict[str, Callable[[], object]] = {
        "commit": lambda: lake.commit([append("diary", "four")], idempotency_key="k"),
        "merge": lambda: lake.merge("dev", "main", idempotency_key="k"),
        "transplant": lambda: lake.transplant("dev", "main", idempotency_key="k"),
    }
    lake.commit([append("diary", "one")])
    lake.branch("dev").create().commit([append("diary", "two")])
    lake.commit([append("diary", "three")])
    journals.published.clear()
    repeat[way]()
    told = list(journals.published)
    assert len(told) == 1
    repeat[way]()
    assert journals.published == told * 2


def test_a_repetition_tells_how_a_table_is_by_now(lake: Lake, journals: JournalFormat) -> None:
    dev = lake.branch("dev").create()
    first = dev.commit([append("diary", "one")], idempotency_key="k")
    dev.commit([append("diary", "two")])
    newest = journals.published[-1]
    again = dev.commit([append("diary", "one")], idempotency_key="k")
    assert again.id == first.id
    assert journals.published[-1] == newest._replace(commit=first.object_id)


def test_what_a_repetition_cannot_publish_does_not_fail_it(lake: Lake, journals: JournalFormat) -> None:
    def fail() -> None:
        raise OSError("the bucket is away")

    first = lake.commit([append("diary", "one")], idempotency_key="k")
    journals.during_landed = fail
    assert lake.commit([append("diary", "one")], idempotency_key="k").id == first.id


def test_a_repeated_rebase_tells_nobody_anything(lake: Lake, journals: JournalFormat) -> None:
    lake.commit([append("diary", "one")])
    lake.branch("dev").create().commit([append("diary", "two")])
    lake.commit([append("diary", "three")])
    lake.rebase("dev", "main", idempotency_key="k")
    journals.published.clear()
    lake.rebase("dev", "main", idempotency_key="k")
    assert journals.published == []


def test_one_table_that_cannot_be_published_keeps_no_other_from_it(
    lake: Lake, journals: JournalFormat, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_once() -> None:
        if journals.calls["landed"] == 1:
            raise OSError("the bucket is away")

    journals.during_landed = fail_once
    lake.commit([append("diary", "one"), append("log", "two")])
    assert [one.key for one in journals.published] == [Key("log")]
    assert "the bucket is away" in caplog.text
    journals.during_landed = lambda: None


def test_a_change_that_changes_nothing_makes_no_commit(lake: Lake, journals: JournalFormat) -> None:
    commit = lake.commit([ensure("diary", "one")])
    journals.published.clear()
    kernel = lake.kernel
    outcome = kernel.commit("main", [ensure("diary", "one")])
    assert (outcome.commits, outcome.head) == ((), commit.object_id)
    assert head(lake) == commit.object_id
    assert journals.published == []


def test_a_change_that_changes_nothing_is_answered_alike_when_it_is_repeated(lake: Lake) -> None:
    commit = lake.commit([ensure("diary", "one")])
    for _ in range(2):
        outcome = lake.kernel.commit("main", [ensure("diary", "one")], key="k")
        assert (outcome.commits, outcome.head) == ((), commit.object_id)


def test_a_change_that_landed_is_found_though_its_repetition_would_change_nothing(lake: Lake) -> None:
    first = lake.kernel.commit("main", [ensure("diary", "one")], key="k")
    lake.commit([append("diary", "two")])
    again = lake.kernel.commit("main", [ensure("diary", "one")], key="k")
    assert (again.commits, again.repeated) == (first.commits, True)


def test_what_else_is_in_the_commit_lands_beside_a_change_of_nothing(lake: Lake) -> None:
    lake.commit([ensure("diary", "one")])
    plain = Put(Key("plain"), IcebergTable(metadata_location="1"))
    lake.commit([ensure("diary", "one"), plain])
    lake.commit([ensure("diary", "one"), ensure("diary2", "two")])
    assert len(lake.log()) == 3
    assert lines_of(lake.kernel, "diary2") == ["two"]


class Brief(JournalFormat):
    """Keeps another intent than it was given."""

    def apply(self, table: Table, change: Change, prepared: State | None) -> AppliedChange:
        return super().apply(table, change, prepared)._replace(intent=append("diary", "kept").intent)


def test_a_format_may_keep_a_shorter_intent_than_it_was_given() -> None:
    with penstock.open("memory:", formats=[Brief()]) as lake:
        lake.commit([replace("diary", "one")])
        lake.branch("dev").create().commit([append("diary", "long")])
        lake.commit([append("diary", "main")])
        intents = lake.kernel.objects.read_intents(lake.kernel.history.read_commit(head(lake, "dev")))
        assert [one.data for one in intents] == [append("diary", "kept").intent]
        lake.merge("dev", "main")
        assert lines_of(lake.kernel, "diary") == ["one", "main", "kept"]


class Owned(JournalFormat):
    """Delta tables with a state, which are not to be replaced by hand."""

    def manages(self, content: AnyContent) -> bool:
        return isinstance(content, DeltaTable) and content.state != b""

    def prepare(self, table: Table, change: Change) -> State:
        return State()

    def apply(self, table: Table, change: Change, prepared: State | None) -> AppliedChange:
        return AppliedChange(DeltaTable(state=change.intent))

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        raise FormatRefused("is managed")

    def after_commit(
        self, key: Key, content: AnyContent | None, commit: ObjectId, *, branch: str, is_default: bool
    ) -> None:
        pass


def test_a_managed_table_is_not_replaced_by_an_unmanaged_content_unless_its_format_allows_it() -> None:
    kernel = Kernel(MemoryStore(), [Owned()])
    kernel.references.create_reference("main", Kind.BRANCH, NO_COMMIT)
    kernel.commit("main", [Change(Key("table"), "journal", b"owned")])
    owned = journal_at(kernel, "table")
    assert owned is not None
    with pytest.raises(CommitConflict, match="'table' is managed"):
        kernel.commit("main", [Put(Key("table"), DeltaTable(id=owned.id))])
    assert journal_at(kernel, "table") == owned
