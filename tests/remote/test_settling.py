"""How long a client goes on asking what an earlier try came to, and whether that was this very request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest

from penstock.errors import (
    CommitConflict,
    IdempotencyKeyReused,
    InvalidName,
    JobOver,
    MergeConflict,
    PenstockError,
    ReferenceChanged,
    ReferenceExists,
    ReferenceNotFound,
)
from penstock.formats.files.lake.calls import CopiedFile, WriteFiles
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake import remote_connection, remote_sender
from penstock.lake.answers import About
from penstock.lake.call import request_digest
from penstock.lake.calls import (
    AssignReference,
    Call,
    CommitOperations,
    CreateReference,
    DeleteReference,
    GetOutcome,
    Merge,
    Rebase,
    Revert,
    Transplant,
    WriteCall,
)
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.lake.remote_outcome import is_same_for_every_try
from penstock.lake.remote_sender import SETTLE_S
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.server.limits import Limits
from penstock.stores.memory import MemoryStore
from penstock.testing.journal import JournalFormat, append
from penstock.wire import json
from tests.remote.conftest import QUICK, Switch
from tests.remote.patience import set_patience
from tests.remote.scenarios import table
from tests.remote.scripted import Said, refusal, scripted
from tests.remote.serving import serving
from tests.servers.proxy import Proxy

W = TypeVar("W", bound=WriteCall[Any])

LOST = Said(502, b"", "text/html")
GONE = refusal(ReferenceNotFound("there is no branch or tag 'dev'", name="dev"))
NOTHING = Said(200, b"null")


def _about(settle_s: float | None) -> Said:
    told = About(id="l", url="", default_branch="main", created=datetime.now(UTC), settle_s=settle_s)
    return Said(200, json.encode(told, About))


# -- how long ----------------------------------------------------------------------------------------------


def test_a_server_says_how_long_a_lost_request_may_still_be_carried_out(embedded: Lake) -> None:
    told: list[float] = []
    for request_timeout_s in (0.5, 30.0):
        limits = Limits(request_timeout_s=request_timeout_s)
        with serving(embedded.catalogue, limits=limits) as server, Lake(RemoteCatalogue(server.url)) as lake:
            assert isinstance(lake.catalogue, RemoteCatalogue)
            told.append(lake.catalogue.settle_s)
    assert told[0] > 0.5 + embedded.kernel.settings.write_timeout_s
    assert told[1] - told[0] == pytest.approx(29.5)


def test_a_client_knows_better_if_it_is_told_and_is_careful_if_nobody_says() -> None:
    with scripted(_about(None)) as server, Lake(RemoteCatalogue(server.url)) as lake:
        assert isinstance(lake.catalogue, RemoteCatalogue)
        assert lake.catalogue.settle_s == SETTLE_S
    with (
        scripted(_about(7.0)) as server,
        Lake(RemoteCatalogue(server.url, None, RemoteTimeouts(settle_s=0.0))) as lake,
    ):
        assert isinstance(lake.catalogue, RemoteCatalogue)
        assert lake.catalogue.settle_s == 0.0


class SleptTime:
    """A clock that goes on while a client waits by itself, and stands still while the machine works."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


def test_a_refusal_is_believed_after_as_long_as_the_server_says_even_beyond_the_time_for_all_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SleptTime()
    for module in (remote_sender, remote_connection):
        monkeypatch.setattr(module, "time", clock)
    patience = RemoteTimeouts(total_s=0.3, wait_max_s=0.05)
    with (
        scripted(_about(0.6), LOST, GONE, NOTHING) as server,
        Lake(RemoteCatalogue(server.url, None, patience)) as lake,
    ):
        with pytest.raises(ReferenceNotFound):
            lake.merge("dev")
        assert 0.6 <= clock.monotonic() < SETTLE_S
    questions = [one for one in server.asked if "/outcomes/" in one.path]
    assert len(questions) > 2


def test_the_time_counts_from_when_the_try_was_sent(
    embedded: Lake, journal: JournalFormat, proxy: Proxy, switch: Switch
) -> None:
    embedded.commit([append("diary", "first")])
    embedded.branch("dev").create()
    embedded.commit([append("diary", "of dev")], branch="dev")
    embedded.commit([append("diary", "of main")])
    told, questions = threading.Event(), list[Call[Any]]()

    def hang() -> None:
        journal.during_apply = lambda: None
        embedded.branch("dev").delete()
        set_patience(lake, QUICK)  # its question is to be answered, if not at once
        assert told.wait(60.0)

    def note(call: Call[Any]) -> None:
        if isinstance(call, GetOutcome):
            questions.append(call)

    journal.during_apply, switch.afterwards = hang, note
    patience = RemoteTimeouts(answer_timeout_s=0.5, wait_max_s=0.05, settle_s=0.5)
    with Lake(RemoteCatalogue(f"http://127.0.0.1:{proxy.port}", None, patience)) as lake:
        try:
            with pytest.raises(ReferenceNotFound):
                lake.merge("dev")
        finally:
            told.set()
    assert len(questions) == 1, "it waited for an answer for as long as the try could take"


# -- conflicts ---------------------------------------------------------------------------------------------

COMMIT = "ab" * 32

CERTAIN: list[tuple[WriteCall[Any], PenstockError]] = [
    (Merge(source=COMMIT), MergeConflict((), "c")),
    (Merge(source=COMMIT, if_head=COMMIT), MergeConflict((), "c")),
    (Transplant(commits=(COMMIT, COMMIT)), MergeConflict((), "c")),
    (Revert(commit=COMMIT), MergeConflict((), "c")),
    (Rebase(branch="dev", onto=COMMIT), MergeConflict((), "c")),
    (CommitOperations(operations=()), CommitConflict((), "c")),
    (CommitOperations(operations=(), base=COMMIT), CommitConflict((), "c")),
    (CreateReference(name="dev"), ReferenceExists("c")),
    (AssignReference(name="dev", to=COMMIT, expected=COMMIT), ReferenceChanged("c")),
    (DeleteReference(name="dev", expected=COMMIT), ReferenceChanged("c")),
    (Merge(source="a b"), InvalidName("c")),
    (WriteFiles(key=Key("t"), expected={"x": None}), CommitConflict((), "c")),
    (
        WriteFiles(key=Key("t"), copied=(CopiedFile(path="x", source="y", at=COMMIT),)),
        CommitConflict((), "c"),
    ),
]

OF_THE_MOMENT: list[tuple[WriteCall[Any], PenstockError]] = [
    (Merge(source="dev"), MergeConflict((), "c")),
    (Merge(source=COMMIT[:8]), MergeConflict((), "c")),
    (Merge(source=COMMIT, if_head="main"), MergeConflict((), "c")),
    (Transplant(commits=(COMMIT, "dev")), MergeConflict((), "c")),
    (Transplant(commits=("dev~2..dev",)), MergeConflict((), "c")),
    (Revert(commit="main"), MergeConflict((), "c")),
    (Rebase(branch="dev"), MergeConflict((), "c")),
    (CommitOperations(operations=(), base="main"), CommitConflict((), "c")),
    (AssignReference(name="dev", to="main", expected=COMMIT), ReferenceChanged("c")),
    (DeleteReference(name="dev", expected="main~1"), ReferenceChanged("c")),
    (Merge(source=COMMIT), ReferenceNotFound("c")),
    (WriteFiles(key=Key("t"), copied=(CopiedFile(path="x", source="y"),)), CommitConflict((), "c")),
    (WriteFiles(key=Key("t"), job="0" * 32, fence="1" * 32), JobOver("c")),
]


def test_a_conflict_holds_for_every_try_only_if_all_of_them_began_with_the_same_commits() -> None:
    assert [call for call, error in CERTAIN if not is_same_for_every_try(call, error)] == []
    assert [call for call, error in OF_THE_MOMENT if is_same_for_every_try(call, error)] == []


class _Workers(Switch):
    """Two processes behind one address: the first write goes to one, all else to the other."""

    def __init__(self, first: Lake, other: Lake) -> None:
        super().__init__()
        self._first, self.lake = first, other
        self._writes = 0

    def do(self, call: Call[Any], progress: Progress = show_no_progress) -> Any:
        self._writes += isinstance(call, WriteCall)
        if isinstance(call, WriteCall) and self._writes == 1:
            return self._first.do(call, progress)
        return super().do(call, progress)


def test_a_conflict_of_what_a_name_leads_to_now_is_not_believed_while_another_try_may_be_running() -> None:
    store, slow = MemoryStore(), JournalFormat()
    first = open_lake(store, author="t", formats=[slow])
    other = open_lake(store, author="t", formats=[JournalFormat()])
    first.commit([append("diary", "first")])
    first.branch("dev").create()
    first.commit([append("diary", "of dev")], branch="dev")
    first.commit([append("diary", "of main")])
    first.branch().put("t", table(5))
    looked_up = threading.Event()

    def hang() -> None:
        slow.during_apply = lambda: None
        other.branch("dev").put("t", table(7))  # so that a merge of dev conflicts from now on
        assert looked_up.wait(60.0)

    def note(call: Call[Any]) -> None:
        if isinstance(call, GetOutcome):
            looked_up.set()

    workers = _Workers(first, other)
    slow.during_apply, workers.afterwards = hang, note
    patience = RemoteTimeouts(answer_timeout_s=0.5, wait_max_s=0.05, settle_s=100.0)
    with serving(workers) as server, Lake(RemoteCatalogue(server.url, None, patience)) as lake:
        assert lake.merge("dev").applied
    assert looked_up.is_set()
    assert [line.event for line in other.reflog()].count("merge") == 1


# -- whose outcome -----------------------------------------------------------------------------------------


@pytest.fixture
def far(embedded: Lake, proxy: Proxy) -> Iterator[Lake]:
    """A lake behind a bad network, where a commit to dev was made under the key ``run-1``."""
    embedded.branch().put("a", table(1))
    embedded.branch("dev").create()
    with Lake(RemoteCatalogue(f"http://127.0.0.1:{proxy.port}", None, QUICK), author="t") as lake:
        commit = CommitOperations(operations=(Put(Key("b"), table(2)),), branch="dev")
        lake.do(_keyed(commit))
        yield lake


def _keyed(call: W) -> W:
    return msgspec.structs.replace(call, idempotency_key="run-1")


@pytest.mark.parametrize("kind", [DeleteReference, AssignReference])
def test_a_commit_under_the_same_key_is_not_taken_for_what_was_refused(
    embedded: Lake, far: Lake, proxy: Proxy, kind: type[Any]
) -> None:
    old = embedded.resolve("dev")
    head = embedded.branch("dev").put("c", table(3)).id
    more = {"to": "main"} if kind is AssignReference else {}
    cut = proxy.cut_after("to_client", 0)
    with pytest.raises(ReferenceChanged):
        far.do(_keyed(kind(name="dev", expected=old, **more)))
    assert cut.happened
    assert embedded.resolve("dev") == head


def test_what_came_of_a_key_of_the_caller_is_asked_for_by_the_request_itself() -> None:
    call = _keyed(Merge(source="dev"))
    with scripted(LOST, GONE, NOTHING) as server:
        remote = RemoteCatalogue(server.url, None, QUICK)
        with pytest.raises(ReferenceNotFound):
            remote.do(call)
        with scripted(LOST, GONE, refusal(IdempotencyKeyReused("used for another"))) as strict:
            other = RemoteCatalogue(strict.url, None, QUICK)
            with pytest.raises(ReferenceNotFound):
                other.do(call)
            other.close()
        remote.close()
    for one in (*server.asked[2:], *strict.asked[2:]):
        assert one.path.endswith(f"/outcomes/run-1?asked={request_digest(call).hex()}")
