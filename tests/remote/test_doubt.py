"""A repetition that is refused after an answer was lost: what is raised or answered is still the truth."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.errors import (
    CommitConflict,
    Denied,
    InvalidName,
    InvalidRequest,
    LakeMoved,
    MergeConflict,
    OutcomeUnknown,
    PenstockError,
    ReferenceExists,
    ReferenceNotFound,
    RetriesExhausted,
    TokenNotFound,
)
from penstock.lake.answers import LandedRequest
from penstock.lake.audits.calls import RemoveExpectation
from penstock.lake.calls import (
    AssignReference,
    Call,
    ChangeRoots,
    CommitOperations,
    CreateReference,
    DeleteReference,
    GetOutcome,
    KeepHistory,
    Merge,
    PutSetting,
    Rebase,
    RevokeToken,
    SetGrace,
    Sweep,
    WriteCall,
)
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.lake.remote_outcome import recover_answer
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.server.access import TokenGate
from penstock.testing.journal import JournalFormat, append, lines_of
from tests.remote.conftest import QUICK, Switch
from tests.remote.scenarios import table
from tests.remote.scripted import Said, refusal, scripted
from tests.remote.serving import serving
from tests.servers.proxy import Cut, Proxy

ENDLESS = RemoteTimeouts(wait_max_s=0.05, settle_s=600.0)
"""Of a client that a test would not see the end of, if it waited for a first try to end."""


def _client(proxy: Proxy, patience: RemoteTimeouts = QUICK, token: str | None = None) -> Lake:
    return Lake(RemoteCatalogue(f"http://127.0.0.1:{proxy.port}", token, patience), author="tester")


@pytest.fixture
def far(embedded: Lake, proxy: Proxy) -> Iterator[Lake]:
    """The lake behind a bad network, with two branches that differ."""
    embedded.branch().put("a", table(1))
    embedded.branch("dev").create().put("b", table(2))
    with _client(proxy) as lake:
        yield lake


def _once_written(switch: Switch, act: Callable[[], object]) -> None:
    """Let others act as soon as a write was carried out, before it is answered."""

    def afterwards(call: Call[Any]) -> None:
        if isinstance(call, WriteCall):
            switch.afterwards = lambda _: None
            act()

    switch.afterwards = afterwards


# -- a first try that still runs ---------------------------------------------------------------------------


def test_a_refusal_is_not_believed_while_the_first_try_may_still_be_running(
    embedded: Lake, journal: JournalFormat, proxy: Proxy, switch: Switch
) -> None:
    embedded.commit([append("diary", "first")])
    embedded.branch("dev").create()
    embedded.commit([append("diary", "of dev")], branch="dev")
    embedded.commit([append("diary", "of main")])
    asked = threading.Event()

    def hang() -> None:
        journal.during_apply = lambda: None
        embedded.branch("dev").delete()
        assert asked.wait(60.0)

    def note(call: Call[Any]) -> None:
        if isinstance(call, GetOutcome):
            asked.set()  # and it was answered that nothing is known of the merge

    journal.during_apply, switch.afterwards = hang, note
    patience = RemoteTimeouts(answer_timeout_s=0.2, wait_max_s=0.05, settle_s=100.0)
    with _client(proxy, patience) as lake:
        merged = lake.merge("dev")
    assert asked.is_set()
    assert (merged.applied, merged.head) == (True, embedded.resolve("main"))
    assert [line.event for line in embedded.reflog()].count("merge") == 1
    assert lines_of(embedded.kernel, "diary") == ["first", "of main", "of dev"]


REFUSED: dict[str, tuple[Call[Any], type[PenstockError]]] = {
    "a commit to nobody": (
        CommitOperations(operations=(Put(Key("x"), table(1)),), branch="nobody"),
        ReferenceNotFound,
    ),
    "a deletion of nobody": (DeleteReference(name="nobody"), ReferenceNotFound),
    "an assignment of nobody": (AssignReference(name="nobody", to="main"), ReferenceNotFound),
    "a branch at nobody": (CreateReference(name="new", at="nobody"), ReferenceNotFound),
    "a merge of nobody": (Merge(source="nobody"), ReferenceNotFound),
    "a rebase onto nobody": (Rebase(branch="dev", onto="nobody"), ReferenceNotFound),
    "a deletion of main": (DeleteReference(name="main"), InvalidRequest),
    "a merge with a conflict": (Merge(source="dev"), MergeConflict),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_is_believed_once_no_try_can_be_running(
    embedded: Lake, far: Lake, proxy: Proxy, what: str
) -> None:
    embedded.branch().create_namespace("b")
    call, kind = REFUSED[what]
    cut = proxy.cut_after("to_client", 0)
    with pytest.raises(kind):
        far.do(call)
    assert cut.happened


REFUSED_FOR_GOOD: dict[str, tuple[Call[Any], type[PenstockError]]] = {
    "a conflict": (
        CommitOperations(operations=(Put(Key("a"), Namespace()),), base=EMPTY_COMMIT_ID),
        CommitConflict,
    ),
    "a merge of a commit with a conflict": (Merge(source="<dev>"), MergeConflict),
    "a branch that exists": (CreateReference(name="dev"), ReferenceExists),
    "a name that cannot be": (CreateReference(name="a b"), InvalidName),
    "a revision that cannot be": (CreateReference(name="new", at="a b"), InvalidName),
}


@pytest.mark.parametrize("what", REFUSED_FOR_GOOD)
def test_what_no_try_can_escape_is_believed_at_once(
    embedded: Lake, far: Lake, proxy: Proxy, what: str
) -> None:
    embedded.branch().create_namespace("b")
    call, kind = REFUSED_FOR_GOOD[what]
    if isinstance(call, Merge):
        call = msgspec.structs.replace(call, source=embedded.resolve("dev"))
    with _client(proxy, ENDLESS) as lake:
        cut = proxy.cut_after("to_client", 0)
        with pytest.raises(kind):
            lake.do(call)
    assert cut.happened


# -- applied, and then the lake went on --------------------------------------------------------------------


def _without_dev(lake: Lake) -> None:
    lake.branch("dev").delete()


def _deleted_too(lake: Lake) -> None:
    _without_dev(lake)
    lake.do(DeleteReference(name="new"))


def _moved_on(lake: Lake) -> None:
    _without_dev(lake)
    lake.branch("new").put("c", table(3))


def _created_anew(lake: Lake) -> None:
    lake.branch("new").delete()
    lake.branch("new").create(at="main").put("c", table(3))
    _without_dev(lake)


def _back(lake: Lake) -> None:
    lake.branch("new").create(at="main").put("c", table(3))


GONE_ON: dict[str, tuple[WriteCall[Any], Callable[[Lake], None]]] = {
    "a branch": (CreateReference(name="new", at="dev"), _without_dev),
    "a branch that is gone": (CreateReference(name="new", at="dev"), _deleted_too),
    "a branch that has moved": (CreateReference(name="new", at="dev"), _moved_on),
    "a branch that is another": (CreateReference(name="new", at="dev"), _created_anew),
    "a tag": (CreateReference(name="new", at="dev", kind=Kind.TAG), _without_dev),
    "a tag that is gone": (CreateReference(name="new", at="dev", kind=Kind.TAG), _deleted_too),
    "an assignment": (AssignReference(name="new", to="dev"), _without_dev),
    "an assignment of what is gone": (AssignReference(name="new", to="dev"), _deleted_too),
    "an assignment of what has moved": (AssignReference(name="new", to="dev"), _moved_on),
    "a deletion": (DeleteReference(name="new", expected="new"), _without_dev),
    "a deletion of what is back": (DeleteReference(name="new", expected="new"), _back),
}


def _prepare(lake: Lake, call: WriteCall[Any]) -> str:
    """Let there be what a call needs; the head that it leads to."""
    if isinstance(call, AssignReference | DeleteReference):
        lake.branch("new").create(at="main" if isinstance(call, AssignReference) else "dev")
    return lake.branch("dev").head


@pytest.mark.parametrize("what", GONE_ON)
def test_what_was_done_to_a_reference_is_answered_though_the_lake_went_on(
    embedded: Lake, far: Lake, proxy: Proxy, switch: Switch, what: str
) -> None:
    call, then = GONE_ON[what]
    head = _prepare(embedded, call)
    _once_written(switch, lambda: then(embedded))
    cut = proxy.cut_after("to_client", 0)
    answer = far.do(call)
    assert cut.happened
    assert (answer.name, answer.id) == ("new", head)


@pytest.mark.parametrize("what", GONE_ON)
def test_what_is_known_to_be_applied_is_answered_as_it_was(embedded: Lake, far: Lake, what: str) -> None:
    call, then = GONE_ON[what]
    head = _prepare(embedded, call)
    call = msgspec.structs.replace(call, idempotency_key="k")
    expected = embedded.do(call)
    then(embedded)
    answer = call.recover(embedded.do, LandedRequest(commits=(), head=head))
    assert (answer.name, answer.kind, answer.was, answer.id) == (
        expected.name,
        expected.kind,
        expected.was,
        head,
    )


@pytest.mark.parametrize(
    "call", [CreateReference(name="v1", kind=Kind.TAG), AssignReference(name="v1", to="x")]
)
def test_a_reference_of_which_nothing_is_left_is_answered_from_what_is_known(call: WriteCall[Any]) -> None:
    def forgotten(_: Call[Any]) -> Any:
        raise ReferenceNotFound("there is no branch or tag 'v1'")

    found = call.recover(forgotten, LandedRequest(commits=(), head="ab" * 32))
    kind = Kind.TAG if isinstance(call, CreateReference) else Kind.BRANCH
    assert (found.name, found.kind, found.id) == ("v1", kind, "ab" * 32)


def test_a_commit_is_answered_though_its_branch_is_gone(
    embedded: Lake, far: Lake, proxy: Proxy, switch: Switch
) -> None:
    def leave() -> None:
        embedded.merge("dev")
        embedded.branch("dev").delete()

    _once_written(switch, leave)
    cut = proxy.cut_after("to_client", 0)
    commit = far.branch("dev").put("c", table(3), base="dev")
    assert cut.happened
    assert commit.message == "put c"
    assert commit in embedded.log(all_parents=True)


def test_a_commit_is_answered_to_who_may_read_only_the_branch_that_is_gone(
    switch: Switch, embedded: Lake
) -> None:
    switch.lake = embedded
    embedded.add_root("s3://bucket")
    embedded.branch("dev/x").create()
    token = embedded.create_token("ci", "write:dev/*")
    made: list[str] = []

    def leave() -> None:
        made.append(embedded.resolve("dev/x"))
        embedded.branch("dev/x").delete()

    with (
        serving(switch, gate=TokenGate(embedded.catalogue)) as server,
        Proxy(server.port) as proxy,
        _client(proxy, token=token) as lake,
    ):
        _once_written(switch, leave)
        cut = proxy.cut_after("to_client", 0)
        commit = lake.branch("dev/x").put("c", table(3))
    assert cut.happened
    assert [commit.id] == made


def test_a_commit_that_may_not_be_read_is_told_to_be_applied() -> None:
    def closed(_: Call[Any]) -> Any:
        raise Denied("it may not be read")

    call = CommitOperations(operations=(), branch="dev", idempotency_key="k")
    with pytest.raises(OutcomeUnknown, match=f"was applied as commit {'ab' * 32}") as caught:
        recover_answer(closed, call, LandedRequest(commits=(), head="ab" * 32))
    assert caught.value.details == {"key": "k", "name": "dev", "commit": "ab" * 32}


# -- calls without a key -----------------------------------------------------------------------------------


def test_what_comes_to_the_same_is_repeated(embedded: Lake, far: Lake, proxy: Proxy) -> None:
    calls: list[Call[Any]] = [
        KeepHistory(pattern="dev/*", max_commits=5),
        SetGrace(data_grace_days=30),
        ChangeRoots(add=("s3://bucket/x", "s3://other")),
        ChangeRoots(add=("s3://third",), remove=("s3://other/",)),
    ]
    for call in calls:
        cut = proxy.cut_after("to_client", 0)
        far.do(call)
        assert cut.happened
    assert [rule.pattern for rule in embedded.history_rules] == ["dev/*"]
    assert [root.rstrip("/") for root in embedded.roots] == ["s3://bucket/x", "s3://third"]


def test_a_root_that_stays_is_told_to_stay(tmp_path: Path) -> None:
    with (
        penstock.open(tmp_path) as embedded,
        serving(embedded.catalogue) as server,
        Proxy(server.port) as proxy,
        _client(proxy) as lake,
    ):
        cut = proxy.cut_after("to_client", 0)
        with pytest.raises(InvalidRequest, match="is the lake's warehouse"):
            lake.remove_root(str(tmp_path / "warehouse"))
        assert cut.happened


def test_a_token_is_revoked_once_and_answered(
    embedded: Lake, far: Lake, proxy: Proxy, switch: Switch
) -> None:
    embedded.create_token("ci", "read")
    [token] = embedded.tokens()
    cuts: list[Cut] = []

    def cut(call: Call[Any]) -> None:
        if isinstance(call, RevokeToken):
            cuts.append(proxy.cut_after("to_client", 0))

    switch.afterwards = cut
    assert far.revoke_token(token.id) == token
    assert [one.happened for one in cuts] == [True]
    assert embedded.tokens() == ()


def test_a_token_that_never_was_is_not_revoked() -> None:
    lost, refused = Said(502, b"", "text/html"), refusal(TokenNotFound("there is no token '0'", id="0"))
    with scripted(Said(200, b"[]"), lost, refused) as server:
        remote = RemoteCatalogue(server.url, patience=QUICK)
        with pytest.raises(TokenNotFound):
            remote.do(RevokeToken(id="0"))
        remote.close()
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "error", [LakeMoved("it moved"), RetriesExhausted("it moved"), Denied("not any more")]
)
def test_what_was_refused_for_another_reason_may_have_been_done(error: PenstockError) -> None:
    with scripted(Said(502, b"", "text/html"), refusal(error)) as server:
        remote = RemoteCatalogue(server.url, patience=QUICK)
        with pytest.raises(OutcomeUnknown):
            remote.do(KeepHistory(max_commits=5))
        remote.close()


@pytest.mark.parametrize(
    "call",
    [ChangeRoots(remove=("s3://gone",)), RemoveExpectation(branch="main", name="gone")],
    ids=["roots", "an expectation"],
)
def test_a_refusal_that_may_come_of_an_earlier_try_is_not_believed_without_a_look(call: Call[Any]) -> None:
    lost, refused = Said(502, b"", "text/html"), refusal(InvalidRequest("it is not there"))
    with scripted(lost, refused, refusal(Denied("not any more"))) as server:
        remote = RemoteCatalogue(server.url, patience=QUICK)
        with pytest.raises(OutcomeUnknown):
            remote.do(call)
        remote.close()
    assert len(server.asked) == 3


@pytest.mark.parametrize("call", [Sweep(), PutSetting(name="colour", value="red")], ids=["sweep", "setting"])
def test_what_cannot_be_repeated_may_be_unknown(far: Lake, proxy: Proxy, call: Call[Any]) -> None:
    cut = proxy.cut_after("to_client", 0)
    with pytest.raises(OutcomeUnknown, match="repeating it is safe"):
        far.do(call)
    assert cut.happened


# -- a lake that was closed --------------------------------------------------------------------------------


def test_a_lake_that_was_closed_says_so_at_once(far: Lake, proxy: Proxy) -> None:
    lake = _client(proxy, ENDLESS)
    lake.close()
    lake.close()
    for use in (lake.log, lambda: lake.branch().put("a", table(9)), lake.fsck):
        with pytest.raises(InvalidRequest, match=r"http://127\.0\.0\.1:\d+ was closed; open the lake again"):
            use()
