"""A request under a key that the caller gave is known again as it was written, wherever its names lead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import IcebergTable, Key, Namespace, Put, Settings
from penstock.errors import (
    CommitNotFound,
    HistoryExpired,
    IdempotencyKeyReused,
    LocationRefused,
    OutcomeUnknown,
    RequestError,
    Unavailable,
)
from penstock.lake.answers import LandedRequest
from penstock.lake.call import request_digest
from penstock.lake.calls import (
    CommitDescription,
    CommitOperations,
    CreateReference,
    DeleteReference,
    GetOutcome,
    Merge,
    Revert,
    WriteCall,
)
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.tokens import parse_grant
from penstock.server.access import Caller, CheckedCatalogue
from penstock.stores.memory import MemoryStore
from penstock.testing import FaultyStore, Point

Ask = Callable[[Lake], Any]


def table(number: int) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://lake/{number}.json")


def _prepare(lake: Lake) -> None:
    lake.branch().put("a", table(1))
    lake.branch("dev").create().put("b", table(2))


def _move(lake: Lake) -> None:
    lake.branch("dev").put("c", table(3))
    lake.branch().put("d", table(4))


def head_of(lake: Lake, name: str) -> str:
    return lake.branch(name).head


ASKED: dict[str, Ask] = {
    "a commit based on main": lambda lake: (
        lake.commit([Put(Key("x"), table(9))], base="main", idempotency_key="k").id
    ),
    "a merge of dev": lambda lake: lake.merge("dev", idempotency_key="k").commits,
    "a transplant of dev's last commit": lambda lake: lake.transplant("dev", idempotency_key="k").commits,
    "a transplant of a range": lambda lake: lake.transplant("main..dev", idempotency_key="k").commits,
    "a revert of main's last commit": lambda lake: lake.revert("main", idempotency_key="k").commits,
    "a branch at main": lambda lake: (
        lake.branch("new").create(idempotency_key="k"),
        head_of(lake, "new"),
    )[1],
}


@pytest.mark.parametrize("name", ASKED)
def test_a_repeated_request_is_answered_though_its_names_lead_elsewhere(lake: Lake, name: str) -> None:
    _prepare(lake)
    first = ASKED[name](lake)
    landed = len(lake.log(all_parents=True))
    _move(lake)
    assert ASKED[name](lake) == first
    assert len(lake.log(all_parents=True)) == landed + 1, "only what moved main has come since"


def test_an_assignment_is_answered_once_though_its_name_leads_elsewhere(lake: Lake) -> None:
    _prepare(lake)
    lake.branch("dev").assign("main", idempotency_key="k")
    lake.branch().put("d", table(4))
    lake.branch("dev").assign("main", idempotency_key="k")
    assert lake.branch("dev").head == lake.resolve("main~1")


def test_who_asks_again_and_how_the_branch_is_named_does_not_matter(lake: Lake) -> None:
    operations = [Put(Key("x"), table(9))]
    first = lake.commit(operations, author="ada", idempotency_key="k")
    assert lake.commit(operations, author="bob", branch="main", idempotency_key="k").id == first.id


def test_another_request_under_the_same_key_is_refused(lake: Lake) -> None:
    _prepare(lake)
    lake.merge("dev", idempotency_key="k")
    for other in (
        lambda: lake.merge("dev", message="another", idempotency_key="k"),
        lambda: lake.merge("main~1", idempotency_key="k"),
        lambda: lake.commit([Put(Key("x"), table(1))], idempotency_key="k"),
    ):
        with pytest.raises(IdempotencyKeyReused):
            other()


def test_a_merge_whose_source_is_gone_is_answered_only_as_itself(lake: Lake) -> None:
    _prepare(lake)
    first = lake.merge("dev", idempotency_key="k")
    lake.branch("dev").delete()
    assert lake.merge("dev", idempotency_key="k").commits == first.commits
    with pytest.raises(IdempotencyKeyReused):
        lake.merge("dev", message="another", idempotency_key="k")


def test_the_outcome_of_a_commit_is_found_on_a_branch_that_is_deleted_by_now(lake: Lake) -> None:
    _prepare(lake)
    dev = lake.branch("dev")
    landed = dev.put("x", table(9), idempotency_key="k")
    dev.merge_into("main")
    dev.delete()
    found = lake.outcome("k", "dev")
    assert found is not None
    assert found.id == landed.id


def test_the_outcome_of_a_request_about_a_tag_is_found(lake: Lake) -> None:
    _prepare(lake)
    lake.tag("v1").create(at="dev", idempotency_key="k")
    found = lake.outcome("k", "v1")
    assert found is not None
    assert found.id == lake.resolve("dev")
    assert lake.outcome("other", "v1") is None
    assert lake.outcome("k", "never") is None


def test_a_request_that_led_to_the_empty_lake_came_to_no_commit(lake: Lake) -> None:
    lake.branch("dev").create(idempotency_key="k")
    assert lake.outcome("k", "dev") is None


def test_a_branch_that_was_made_before_the_store_fell_silent_is_not_said_to_be_missing() -> None:
    store = FaultyStore(MemoryStore())
    lake = open_lake(store, author="tester")
    # The lake's row is read before, and once more when the new name is there.
    store.fail(Point.REFERENCE, Unavailable("away"), times=None, skip=1, name="@lake")
    with pytest.raises(OutcomeUnknown, match="'dev' was created, but it is not known"):
        lake.kernel.references.create_reference(
            "dev", lake.branch().kind, lake.kernel.references.get_reference("main").head
        )


@pytest.mark.parametrize(
    "ask",
    [
        lambda lake: lake.commit([Put(Key("x"), table(1))], message=object(), idempotency_key="k"),
        lambda lake: lake.commit([Put(Key("x"), table(1))], branch="\ud800", idempotency_key="k"),
        lambda lake: lake.merge("\ud800", idempotency_key="k"),
        lambda lake: lake.branch("dev").create(at="\ud800", idempotency_key="k"),
        lambda lake: lake.branch("dev").create(at=object(), idempotency_key="k"),
    ],
    ids=["a message", "a branch", "a source", "a revision", "an object"],
)
def test_what_cannot_be_asked_is_refused_under_a_key_too(lake: Lake, ask: Ask) -> None:
    with pytest.raises(RequestError):
        ask(lake)


def test_a_repeated_merge_names_what_was_merged_then(lake: Lake) -> None:
    _prepare(lake)
    first = lake.merge("dev", idempotency_key="k")
    lake.branch("dev").put("c", table(3))
    again = lake.merge("dev", idempotency_key="k")
    assert (again.commits, again.source, again.base) == (first.commits, first.source, None)


def test_a_repeated_rebase_tells_nothing_of_what_it_did_not_do(lake: Lake) -> None:
    _prepare(lake)
    lake.branch().put("d", table(4))
    first = lake.rebase("dev", idempotency_key="k")
    lake.branch().put("e", table(5))
    again = lake.rebase("dev", idempotency_key="k")
    assert (again.commits, again.base, again.keys) == (first.commits, None, ())


def test_a_request_is_answered_though_its_commit_has_expired(tmp_path: Path) -> None:
    clock = [1_800_000_000_000_000]
    settings = Settings(grace_s=1, idempotency_days=400, nobody_writes=True)
    with penstock.open(tmp_path / "lake", settings=settings, clock=lambda: clock[0]) as lake:
        main = lake.branch()
        for number in range(5):
            main.put("a", table(number))
        old = lake.resolve("main~4")
        lake.branch("old").create(at=old, idempotency_key="k").delete()
        lake.keep_history(max_commits=1)
        clock[0] += 10_000_000
        lake.sweep()
        clock[0] += 10_000_000
        lake.sweep()
        with pytest.raises((HistoryExpired, CommitNotFound)):
            lake.branch("other").create(at=old)
        again = CreateReference(name="old", at=old, who=lake.author, idempotency_key="k")
        assert lake.do(again).head.hex() == old


def test_what_a_repeated_request_left_is_told_as_it_left_it(lake: Lake) -> None:
    _prepare(lake)
    made = CreateReference(name="new", idempotency_key="made")
    gone = DeleteReference(name="new", idempotency_key="gone")
    lake.do(made)
    lake.do(gone)
    assert lake.do(made).kind == "branch"
    lake.branch("new").create()
    again = lake.do(gone)
    assert (again.kind, again.was) == ("deleted", "branch")
    assert lake.branch("new").exists


def test_the_outcome_of_a_very_request_is_not_that_of_another_under_its_key(lake: Lake) -> None:
    _prepare(lake)
    commit = CommitOperations(operations=(Put(Key("x"), table(1)),), branch="dev", idempotency_key="run-1")
    delete = DeleteReference(name="dev", idempotency_key="run-1")
    landed = lake.do(commit)

    def outcome(call: WriteCall[Any]) -> LandedRequest | None:
        return lake.do(GetOutcome(key="run-1", branch="dev", asked=request_digest(call)))

    found = outcome(commit)
    assert found is not None
    assert found.head == landed.id
    assert outcome(delete) is None
    lake.do(delete)
    assert outcome(delete) is not None


def test_a_request_has_the_hash_that_it_had_in_the_first_release() -> None:
    """A job that repeats a request after an upgrade is told what the first one did."""
    told = CommitDescription(
        message="m", authors=("ada",), properties={"a": ("b",)}, author_time=datetime.now(UTC)
    )
    operations = (Put(Key("n"), Namespace()),)
    commit = CommitOperations(branch="main", operations=operations, said=told, idempotency_key="k")
    assert request_digest(commit).hex() == "6be943acf153ce70f72cf3e6ea7db89a741ec0dd1fad89da9452bee6ad58e9fe"
    merge = Merge(source="dev", into="main", said=CommitDescription(message=None))
    assert request_digest(merge).hex() == "85412f70eb45527a0d1fe68c1550cd37a14264d49a21d3983d7ddfbc2710b8ae"


@pytest.mark.parametrize(
    "call",
    [
        CreateReference(name="dev/new", idempotency_key="k"),
        Revert(commit="main", on="main", idempotency_key="k"),
        CommitOperations(operations=(Put(Key("x"), table(1)),), base="main", idempotency_key="k"),
    ],
    ids=["create", "revert", "commit"],
)
def test_a_request_stays_the_same_whatever_rights_its_sender_has(lake: Lake, call: WriteCall[Any]) -> None:
    _prepare(lake)
    narrow = CheckedCatalogue(lake.catalogue, _caller("write:main", "write:dev/*"))
    wide = CheckedCatalogue(lake.catalogue, _caller("write"))
    first = narrow.do(call)
    assert _id(wide.do(call)) == _id(first)


def _caller(*grants: str) -> Caller:
    return Caller(name="job", grants=tuple(map(parse_grant, grants)), any_location=True)


def _id(answer: Any) -> Any:
    return getattr(answer, "commits", None) or getattr(answer, "head", None) or answer.id


def test_a_commit_is_answered_though_its_place_is_no_root_any_more(lake: Lake) -> None:
    caller = Caller(name="job", grants=(parse_grant("write"),))
    guarded = CheckedCatalogue(lake.catalogue, caller)
    lake.add_root("s3://lake")
    call = CommitOperations(operations=(Put(Key("x"), table(1)),), idempotency_key="k")
    first = guarded.do(call)
    lake.remove_root("s3://lake")
    assert guarded.do(call).id == first.id
    with pytest.raises(LocationRefused):
        guarded.do(msgspec.structs.replace(call, idempotency_key="other"))


def test_what_cannot_be_asked_does_not_come_to_a_turn_that_others_share() -> None:
    store = FaultyStore(MemoryStore())
    lake = open_lake(store, author="tester")
    bad = CommitOperations(operations=(Put(Key("x"), table(1)),), create_namespaces=object())  # type: ignore[arg-type]
    before = store.passed[Point.TURN]
    with pytest.raises(RequestError):
        lake.do(bad)
    assert store.passed[Point.TURN] == before
