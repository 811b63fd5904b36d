"""Idempotency keys belong to the token that used them: nobody takes, meets or asks for another's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import (
    Denied,
    IdempotencyKeyReused,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
)
from penstock.formats.files.lake.calls import BeginJob, WriteFiles
from penstock.kernel.settings import IDEMPOTENCY_DAYS, Settings
from penstock.lake import calls
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.transactions.calls import BeginTransaction, CommitTransaction
from penstock.model.clock import now_us
from penstock.model.commits import KEY_MAX_CHARS, add_key_owner, remove_key_owner
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from penstock.model.references import Kind
from penstock.server.access import CheckedCatalogue, OpenGate, TokenGate, UnmarkedKeys
from penstock.server.access.idempotency_keys import NOTE
from penstock.stores.memory import MemoryStore
from penstock.testing import FaultyStore, Point
from tests.server.access import ROOT, caller, new_lake, put

HR, SALES = ("write:*:hr.*", "read"), ("write:*:sales.*", "read")
KEY = "nightly"


@pytest.fixture
def lake() -> Iterator[Lake]:
    with new_lake() as own:
        yield own


def as_token(lake: Lake, name: str, *grants: str, unmarked: UnmarkedKeys | None = None) -> CheckedCatalogue:
    return CheckedCatalogue(lake.catalogue, caller(*(grants or ("write",)), name=name), unmarked=unmarked)


def commit(key: str, content: str = "new", **more: Any) -> calls.CommitOperations:
    return calls.CommitOperations(
        branch="main", operations=(put(key, content),), **{"idempotency_key": KEY, **more}
    )


# -- whose a key is ----------------------------------------------------------------------------------------


def test_two_tokens_use_one_key_on_a_branch_without_meeting(lake: Lake) -> None:
    sales, hr = as_token(lake, "sales-job", *SALES), as_token(lake, "hr-job", *HR)
    first, second = sales.do(commit("sales.orders", "s1")), hr.do(commit("hr.pay", "h1"))
    assert first.id != second.id
    assert sales.do(commit("sales.orders", "s1")).id == first.id
    assert hr.do(commit("hr.pay", "h1")).id == second.id
    assert {first.key, second.key} == {KEY}
    with pytest.raises(IdempotencyKeyReused, match="idempotency key 'nightly' was used before") as reused:
        hr.do(commit("hr.pay", "another"))
    assert reused.value.details["key"] == KEY


def moves(message: str) -> list[calls.WriteCall[Any]]:
    """Requests of every kind that is not a plain commit, in the life of a branch."""
    wanted: list[calls.WriteCall[Any]] = [
        calls.CreateReference(name="a", kind=Kind.BRANCH, at="main"),
        calls.AssignReference(name="a", to="v1"),
        calls.Merge(source="dev/etl", into="a", said=calls.CommitDescription(message=message)),
        calls.Rebase(branch="a", onto="main"),
        calls.DeleteReference(name="a"),
    ]
    return [
        msgspec.structs.replace(call, idempotency_key=f"{KEY}-{number}") for number, call in enumerate(wanted)
    ]


def test_requests_about_references_have_keys_of_their_token_too(lake: Lake) -> None:
    """A token makes a branch and removes it, then another one does, under the same keys."""
    one, other = as_token(lake, "one"), as_token(lake, "other")
    for who, message in ((one, "1"), (other, "2")):
        for call in moves(message):
            who.do(call)
            assert lake.branch("a").exists != isinstance(call, calls.DeleteReference)
    for who, message in ((one, "1"), (other, "2")):  # repeated, they are all done already
        for call in moves(message):
            if not isinstance(call, calls.MergeCall):  # a branch that is gone remembers nothing of these
                who.do(call)
    assert not lake.branch("a").exists


def test_nobody_asks_for_the_outcome_of_anothers_key(lake: Lake) -> None:
    made = as_token(lake, "hr-job", *HR).do(commit("hr.pay"))
    asked = calls.GetOutcome(key=KEY, branch="main")
    for grants in (SALES, ("read",), ("write",), ("admin",)):
        assert as_token(lake, "curious", *grants).do(asked) is None
    told = as_token(lake, "hr-job", *HR).do(asked)
    assert told is not None
    assert told.commits == (made.id,)
    by_name = msgspec.structs.replace(asked, who="hr-job")
    for grants in (SALES, ("read",), ("write",)):
        with pytest.raises(Denied):
            as_token(lake, "curious", *grants).do(by_name)
    for boss in (as_token(lake, "boss", "admin"), lake):  # and who has the store itself
        told = boss.do(by_name)
        assert told is not None
        assert told.commits == (made.id,)
    assert lake.outcome(KEY) is None
    assert lake.outcome(KEY, who="hr-job") == made


def test_a_key_with_the_mark_of_another_token_is_none_of_theirs(lake: Lake) -> None:
    marked = add_key_owner(KEY, "hr-job")
    hr = as_token(lake, "hr-job", *HR)
    forger = as_token(lake, "sales-job", *SALES)
    forged = forger.do(commit("sales.orders", idempotency_key=marked))
    made = hr.do(commit("hr.pay"))
    assert made.id != forged.id
    assert forger.do(calls.GetOutcome(key=marked, branch="main")).head == forged.id  # type: ignore[union-attr]
    assert as_token(lake, "x").do(calls.GetOutcome(key=marked, branch="main")) is None


def test_a_token_that_replaces_another_one_finds_its_keys(lake: Lake) -> None:
    texts = [lake.create_token("etl", "write")]
    texts.append(lake.create_token("etl", "write", replaces=lake.tokens()[0].id))
    gate = TokenGate(lake.catalogue)
    old, new = (CheckedCatalogue(lake.catalogue, gate({"authorization": f"Bearer {text}"})) for text in texts)
    assert old.do(commit("sales.orders")).id == new.do(commit("sales.orders")).id


def test_without_tokens_there_is_one_owner(lake: Lake) -> None:
    insecure = CheckedCatalogue(lake.catalogue, OpenGate()({}))
    made = insecure.do(commit("sales.orders"))
    assert lake.do(commit("sales.orders")).id == made.id
    assert lake.outcome(KEY) == made
    assert as_token(lake, "etl").do(commit("sales.orders", "other")).id != made.id


def test_a_key_may_be_as_long_as_ever(lake: Lake) -> None:
    one = as_token(lake, "one")
    longest = "k" * KEY_MAX_CHARS
    assert one.do(commit("sales.orders", idempotency_key=longest)).key == longest
    for wrong in ("", longest + "k", "a\nb"):
        with pytest.raises(InvalidRequest, match="1 to 200 printable characters"):
            one.do(commit("sales.orders", "x", idempotency_key=wrong))
    assert remove_key_owner(add_key_owner(longest, "one")) == longest


def test_a_request_in_doubt_names_the_key_that_was_given() -> None:
    store = FaultyStore(MemoryStore())
    settings = Settings(write_timeout_s=0.05)
    with penstock.open(store, settings=settings) as lake:
        lake.add_root("s3://lake")
        one = as_token(lake, "one")
        store.lose_answer()
        store.fail(Point.TURN, Unavailable("nobody answers"), times=None, skip=1)
        call = commit("t")
        with pytest.raises(OutcomeUnknown) as doubt:
            one.do(call)
        assert doubt.value.details["key"] == KEY
        assert "idempotency key nightly is safe" in str(doubt.value)
        store.heal()
        assert one.do(call).id == one.do(calls.GetOutcome(key=KEY, branch="main")).head  # type: ignore[union-attr]
        assert len(lake.log()) == 1


def test_a_key_that_penstock_made_is_repeated_as_it_is() -> None:
    store = FaultyStore(MemoryStore())
    with penstock.open(store, settings=Settings(write_timeout_s=0.05)) as lake:
        lake.add_root("s3://lake")
        one = as_token(lake, "one")
        store.lose_answer()
        store.fail(Point.TURN, Unavailable("nobody answers"), times=None, skip=1)
        with pytest.raises(OutcomeUnknown) as doubt:
            one.do(commit("t", idempotency_key=None))
        store.heal()
        made = doubt.value.details["key"]
        assert one.do(commit("t", idempotency_key=made)).key == made
        assert len(lake.log()) == 1
        asked = calls.GetOutcome(key=made, branch="main")
        assert one.do(asked) is not None
        assert as_token(lake, "other").do(asked) is None


# -- names that are keys too -------------------------------------------------------------------------------


def test_nobody_takes_the_id_of_a_transaction_or_job_for_a_key(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.add_root("s3://lake")
        hr, sales = as_token(lake, "hr-job"), as_token(lake, "sales-job")
        files = Lake(hr).table("files").files
        files.write({"a.csv": b"1"})
        begun = hr.do(BeginTransaction(id=uuid4().hex, target="main"))
        job = hr.do(BeginJob(id=uuid4().hex, fence=uuid4().hex, key=Key("files"))).job
        for taken in (begun.id, job.id):
            sales.do(commit("t", taken, idempotency_key=taken))
        hr.do(msgspec.structs.replace(commit("u"), branch=begun.branch))
        assert hr.do(CommitTransaction(id=begun.id)).info.id == begun.id
        fence = uuid4().hex
        again = hr.do(BeginJob(id=job.id, fence=fence, key=Key("files")))
        folder = again.folder.partition("_penstock/data/")[2]
        call = WriteFiles(key=Key("files"), folder=folder, removed=("a.csv",), job=job.id, fence=fence)
        written = hr.do(msgspec.structs.replace(call, idempotency_key=job.id))
        assert written.commit is not None
        told = hr.do(calls.GetOutcome(key=job.id, branch="main"))
        assert told is not None
        assert told.head == written.commit.id
        assert sales.do(calls.GetOutcome(key=job.id, branch="main")).head != told.head  # type: ignore[union-attr]


def test_lance_tables_are_created_under_one_key_by_two_tokens(tmp_path: Path) -> None:
    pytest.importorskip("lance")
    rows = pa.table({"a": [1]})
    with penstock.open(tmp_path / "lake", create=True) as lake:
        one, other = Lake(as_token(lake, "one")), Lake(as_token(lake, "other"))
        how: Any = {"mode": "error", "format": "lance", "idempotency_key": KEY}
        assert one.table("t").write(rows, **how) is not None
        assert one.table("t").write(rows, **how) is not None
        assert len(one.log()) == 1
        lake.commit([Delete(Key("t"))])
        assert other.table("t").write(rows, **how) is not None
        assert other.log()[0].committer == "other"


# -- keys of earlier releases ------------------------------------------------------------------------------


def test_a_key_that_a_token_used_with_an_earlier_release_is_found(lake: Lake) -> None:
    """That release stored keys as they were given; what is written said who wrote it, as it does now."""
    before = msgspec.structs.replace(commit("sales.orders", "early"), who="etl")
    made = lake.do(before)
    branch = calls.CreateReference(name="b", kind=Kind.BRANCH, at="main", idempotency_key=KEY, who="etl")
    lake.do(branch)
    lake.branch("b").delete()
    clock_us = [now_us()]
    unmarked = UnmarkedKeys(lake.catalogue, clock=lambda: clock_us[0])
    etl = as_token(lake, "etl", unmarked=unmarked)
    assert etl.do(commit("sales.orders", "early")).id == made.id
    etl.do(branch)
    assert not lake.branch("b").exists  # it was done before
    assert etl.do(calls.GetOutcome(key=KEY, branch="main")).head == made.id  # type: ignore[union-attr]
    other = as_token(lake, "other", unmarked=unmarked)
    assert other.do(commit("sales.orders", "early")).id != made.id
    assert lake.do(calls.GetSetting(name=NOTE)) is not None
    clock_us[0] += int(timedelta(days=IDEMPOTENCY_DAYS).total_seconds() * 1e6)
    assert not unmarked.may_exist()
    assert not UnmarkedKeys(lake.catalogue, clock=lambda: clock_us[0]).may_exist()


@pytest.mark.parametrize("noted", ["", "yesterday", "2026-11-16", "9999-12-31T23:59:59+00:00"])
def test_a_note_that_somebody_else_made_harms_nothing(lake: Lake, noted: str) -> None:
    lake.do(calls.PutSetting(name=NOTE, value=noted))
    etl = as_token(lake, "etl", unmarked=UnmarkedKeys(lake.catalogue))
    assert etl.do(commit("sales.orders")).id == etl.do(commit("sales.orders")).id


def test_what_cannot_be_asked_is_refused_by_the_request_itself(lake: Lake) -> None:
    etl = as_token(lake, "etl", unmarked=UnmarkedKeys(lake.catalogue))
    for branch in ("no such", "nowhere", "penstock/tx/0"):
        operations = (Put(Key("t"), put("t").content),)
        with pytest.raises(penstock.errors.PenstockError, match=r"branch|name|transaction|reference"):
            etl.do(calls.CommitOperations(branch=branch, operations=operations, idempotency_key=KEY))


def test_a_lake_that_was_never_written_to_has_no_keys_without_a_mark(lake: Lake) -> None:
    assert UnmarkedKeys(lake.catalogue).may_exist()
    with open_lake(MemoryStore()) as fresh:
        fresh.add_root(ROOT)
        assert not UnmarkedKeys(fresh.catalogue).may_exist()
        fresh.commit([put("a")], message="the first one")
        assert not UnmarkedKeys(fresh.catalogue).may_exist()  # it was noted
