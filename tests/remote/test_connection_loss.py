"""A connection that is lost in the middle of a write: one effect, and the true answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.formats.delta.lake import calls as delta_calls
from penstock.formats.files.lake import calls as files_calls
from penstock.formats.lance.lake import calls as lance_calls
from penstock.lake.calls import (
    CALLS,
    AssignReference,
    CommitOperations,
    CreateReference,
    DeleteReference,
    Fsck,
    GetCommit,
    GetOutcome,
    GetReference,
    Merge,
    Rebase,
    Restore,
    Revert,
    Transplant,
    WriteCall,
)
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.testing.threads import at_once
from tests.remote.conftest import QUICK, Switch
from tests.remote.patience import set_patience
from tests.remote.scenarios import table
from tests.remote.serving import Served
from tests.servers.proxy import Cut, Proxy


@pytest.fixture
def far(embedded: Lake, proxy: Proxy) -> Iterator[Lake]:
    """The lake behind a bad network, with two branches that differ."""
    main = embedded.branch()
    main.put("a", table(1))
    embedded.branch("dev").create().put("b", table(2))
    main.put("c", table(3))
    with Lake(RemoteCatalogue(f"http://127.0.0.1:{proxy.port}", patience=QUICK), author="tester") as lake:
        yield lake


WRITES: dict[str, WriteCall[Any]] = {
    "commit": CommitOperations(operations=(Put(Key("a"), table(9)),)),
    "commit with a base": CommitOperations(operations=(Put(Key("a"), table(9)),), base="main"),
    "commit at a head": CommitOperations(operations=(Put(Key("a"), table(9)),), if_head="main"),
    "create": CreateReference(name="new", at="main~1"),
    "create a tag": CreateReference(name="v1", kind=Kind.TAG),
    "assign": AssignReference(name="dev", to="main", expected="dev"),
    "assign relatively": AssignReference(name="dev", to="dev~1"),
    "delete": DeleteReference(name="dev"),
    "delete if it is there": DeleteReference(name="dev", expected="dev"),
    "merge": Merge(source="dev"),
    "merge to a head": Merge(source="dev", into="main", if_head="main"),
    "transplant": Transplant(commits=("dev~1..dev",)),
    "revert": Revert(commit="main"),
    "restore": Restore(keys=(Key("b"),), to="dev"),
    "restore all": Restore(all=True, to="main~1"),
    "restore at a head": Restore(all=True, to="main~1", branch="main", if_head="main"),
    "rebase": Rebase(branch="dev"),
    "rebase a head": Rebase(branch="dev", if_head="dev"),
}
CUTS: dict[str, Callable[[Proxy], Cut]] = {
    "before the request was sent": lambda proxy: proxy.cut_after("to_server", 0),
    "in the middle of the request": lambda proxy: proxy.cut_after("to_server", 100),
    "before the answer came": lambda proxy: proxy.cut_after("to_client", 0),
    "in the middle of the answer": lambda proxy: proxy.cut_after("to_client", 200),
}


def test_every_write_is_tried() -> None:
    writes = {kind for kind in CALLS if issubclass(kind, WriteCall)}
    # Those of tables take files: ``test_delta_loss``, ``tests/files`` and ``tests/lance`` try them.
    of_tables = {*delta_calls.CALLS, *files_calls.CALLS, *lance_calls.CALLS}
    assert {type(call) for call in WRITES.values()} == writes - of_tables


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_has_one_effect_and_its_true_answer(
    embedded: Lake, far: Lake, proxy: Proxy, write: str, cut: str
) -> None:
    call = WRITES[write]
    name = call.target_name or "main"
    events = len(embedded.reflog(name)) if name not in ("new", "v1") else 0
    happening = CUTS[cut](proxy)
    answer = far.do(call)
    assert happening.happened
    assert len(embedded.reflog(name)) == events + 1
    if isinstance(call, CommitOperations):
        assert answer == embedded.do(GetCommit(revision=name))
    elif isinstance(call, DeleteReference):
        assert answer in embedded.references(Kind.DELETED)
    elif isinstance(call, CreateReference | AssignReference):
        assert answer == embedded.do(GetReference(name=name))
    else:
        assert (answer.head, answer.applied) == (embedded.resolve(name), True)
        assert answer.commits[-1] == answer.head
    assert embedded.fsck().damages == ()


@pytest.mark.parametrize("cut", CUTS)
def test_a_read_is_repeated(embedded: Lake, far: Lake, proxy: Proxy, cut: str) -> None:
    happening = CUTS[cut](proxy)
    assert far.log() == embedded.log()
    assert happening.happened


@pytest.mark.parametrize("write", WRITES)
def test_if_no_answer_ever_comes_the_outcome_is_unknown_and_can_be_found_out(
    embedded: Lake, far: Lake, proxy: Proxy, switch: Switch, write: str
) -> None:
    call = WRITES[write]
    name = call.target_name
    carried_out = switch.wait_for(type(call))
    set_patience(far)
    proxy.fall_silent()
    with pytest.raises(OutcomeUnknown, match="it is not known whether request") as caught:
        far.do(call)
    key = caught.value.details["key"]
    assert "repeating it with that key is safe" in str(caught.value)
    assert str(caught.value).count(key) == 1
    assert caught.value.details.get("name") == name
    assert carried_out.wait(60)
    proxy.speak()
    proxy.cut_all()
    landing = embedded.do(GetOutcome(key=key, branch=name))
    assert landing is not None


def test_a_read_that_is_never_answered_is_unavailable(far: Lake, proxy: Proxy) -> None:
    set_patience(far)
    proxy.fall_silent()
    with pytest.raises(Unavailable, match="was lost: there was no answer in time"):
        far.log()


def test_a_server_that_never_was_there_is_unavailable_at_once(proxy: Proxy) -> None:
    remote = RemoteCatalogue(f"http://127.0.0.1:{proxy.port}", patience=RemoteTimeouts(total_s=600.0))
    proxy.refuse()
    with pytest.raises(Unavailable, match=r"cannot connect to http://127\.0\.0\.1:\d+: connection refused"):
        Lake(remote)
    remote.close()


def test_a_write_that_was_never_sent_is_unavailable(embedded: Lake, far: Lake, proxy: Proxy) -> None:
    set_patience(far)
    proxy.refuse()
    proxy.cut_all()
    with pytest.raises(Unavailable, match="cannot connect"):
        far.branch().put("a", table(9))
    assert embedded.table("a").content.snapshot_id == 1  # type: ignore[attr-defined]


def test_a_server_that_was_there_is_waited_for(embedded: Lake, far: Lake, proxy: Proxy) -> None:
    proxy.refuse()
    proxy.cut_all()
    back = threading.Timer(0.2, proxy.accept)
    back.start()
    commit = far.branch().put("a", table(9))
    back.join()
    assert embedded.show() == commit


def test_connections_that_were_cut_while_idle_do_no_harm(embedded: Lake, far: Lake, proxy: Proxy) -> None:
    for number in range(5):
        commit = far.branch().put("a", table(10 + number))
        proxy.cut_all()
        assert embedded.show() == commit


def test_a_check_that_is_cut_is_unavailable(far: Lake, proxy: Proxy) -> None:
    cut = proxy.cut_after("to_client", 200)
    with pytest.raises(Unavailable, match="lost"):
        far.do(Fsck())
    assert cut.happened


def test_a_key_that_another_request_used_is_not_taken_for_ones_own(
    embedded: Lake, far: Lake, proxy: Proxy
) -> None:
    embedded.branch().put("z", table(1), idempotency_key="k")
    cut = proxy.cut_after("to_client", 0)
    with pytest.raises(OutcomeUnknown, match="whether request k was applied"):
        far.branch().put("a", table(9), idempotency_key="k")
    assert cut.happened


def test_many_clients_with_one_key_have_one_effect(embedded: Lake, far: Lake, served: Served) -> None:
    base = embedded.resolve()
    with ExitStack() as opened:
        lakes = [opened.enter_context(Lake(RemoteCatalogue(served.url, patience=QUICK))) for _ in range(8)]
        commits = at_once(
            *(partial(lake.branch().put, "a", table(9), base=base, idempotency_key="k") for lake in lakes)
        )
    assert commits == [embedded.show()] * 8
    assert embedded.show().parents == (base,)
