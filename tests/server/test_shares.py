"""Shares: no caller takes all places or all computing time of a server, whatever they ask, however often."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from random import Random
from time import monotonic

import msgspec
import pytest

from penstock.errors import TimedOut
from penstock.kernel.time_limits import check_read_may_go_on, paced_reads
from penstock.lake import calls
from penstock.lake.lake import Lake
from penstock.metrics.table import HTTP_REFUSALS, HTTP_STOPPED_READS
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.references import Kind
from penstock.server.access import TokenGate
from penstock.server.health import Readiness, make_server_api
from penstock.server.limits import Limits
from penstock.server.native import NATIVE
from penstock.server.read_start_queue import AT_ONCE
from penstock.server.read_turns import ReadAbandoned, ReadPace, ReadTurns
from penstock.server.request_slots import RequestSlots, normalise_client_address
from penstock.server.routes import Route, RouteRequest
from tests.queue.hooks import WAIT_S, wait_until
from tests.server.running import Local, Reply, local, read_all
from tests.server.trying import Trial, trial_api


@pytest.fixture
def trial() -> Iterator[Trial]:
    trial = Trial()
    yield trial
    trial.opened.set()


def asked(server: Local, path: str, token: str) -> Future[Reply]:
    """A request that is under way."""
    future: Future[Reply] = Future()
    headers = {"authorization": f"Bearer {token}"}
    threading.Thread(target=lambda: future.set_result(server.ask("GET", path, headers=headers))).start()
    return future


# -- places ------------------------------------------------------------------------------------------------


def test_a_caller_takes_no_more_places_than_are_left() -> None:
    places = RequestSlots(128, 128)
    while places.may_take("greedy"):
        places.take_slot("greedy")
    assert places.count_slots("greedy") == 64
    while places.may_take("as greedy"):
        places.take_slot("as greedy")
    assert places.may_take("modest")


def test_a_caller_takes_no_more_places_than_one_may_have() -> None:
    places = RequestSlots(128, 5)
    held = []
    while places.may_take("etl"):
        held.append(places.take_slot("etl"))
    assert len(held) == 5
    held[0].give_back()
    held[0].give_back()
    assert places.count_slots("etl") == places.taken == 4
    assert places.may_take("etl")


@pytest.mark.parametrize("callers", [1, 2, 7, 18])
def test_there_is_always_a_place_for_the_next_caller(callers: int) -> None:
    """The first ones take what they can get, and leave an eighth, sixteen places, for those who have none."""
    random, places, held = Random(callers), RequestSlots(128, 64), []
    for _ in range(5000):
        caller = f"caller {random.randrange(callers)}"
        if places.may_take(caller):
            held.append(places.take_slot(caller))
        elif random.random() < 0.3:
            held.pop(random.randrange(len(held))).give_back()
        assert places.may_take("a new caller")
    for one in held:
        one.give_back()
    assert places.taken == 0


def test_the_only_place_of_a_server_can_be_taken() -> None:
    assert RequestSlots(1, 1).may_take("anybody")


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("192.0.2.7", 4711), "192.0.2.7"),
        (("::1", 4711), "::1"),
        (("::ffff:192.0.2.7", 4711), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 4711), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::9", 4711), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 4711), "fe80::/64"),
        (("a name", 4711), "a name"),
        (None, ""),
    ],
)
def test_connections_of_one_owner_have_one_address(client: tuple[str, int] | None, address: str) -> None:
    assert normalise_client_address(client) == address


def test_one_token_leaves_places_for_others_and_is_told_why_it_gets_no_more(lake: Lake, trial: Trial) -> None:
    greedy, modest = lake.create_token("greedy", "read"), lake.create_token("modest", "write")
    gate, limits = TokenGate(lake.catalogue), Limits(open_requests_max=8)
    with local(lake.catalogue, [trial_api(trial), NATIVE], gate=gate, limits=limits) as server:
        for token in (greedy, modest):
            assert server.get("/try/echo/a", authorization=f"Bearer {token}").status == 200
        held = [asked(server, "/try/wait", greedy) for _ in range(4)]
        for _ in held:
            assert trial.arrived.acquire(timeout=WAIT_S)
        refused = server.get("/try/echo/a", authorization=f"Bearer {greedy}")
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.message.startswith("your token already has 4 open requests")
        assert int(refused.headers["retry-after"]) >= 1
        committed = server.ask(
            "POST",
            "/api/penstock/v1/commits",
            {"branch": "main", "operations": [{"operation": "put", "key": "a", "content": NOTE}]},
            {"authorization": f"Bearer {modest}"},
        )
        assert committed.status == 200, committed.body
        assert server.metrics.snapshot().count(HTTP_REFUSALS, reason="caller_places") == 1
        trial.opened.set()
        assert [one.result(WAIT_S).status for one in held] == [200] * 4
        assert server.get("/try/echo/a", authorization=f"Bearer {greedy}").status == 200


NOTE = {"type": "NAMESPACE"}


def test_one_token_does_not_keep_others_out_by_bodies_that_do_not_come(lake: Lake, trial: Trial) -> None:
    slow, other = lake.create_token("slow", "read"), lake.create_token("other", "read")
    gate, limits = TokenGate(lake.catalogue), Limits(open_requests_max=8)
    with local(lake.catalogue, [trial_api(trial)], gate=gate, limits=limits) as server:
        for token in (slow, other):
            assert server.get("/try/echo/a", authorization=f"Bearer {token}").status == 200
        head = b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n"
        head += b"authorization: Bearer %s\r\n\r\n{"
        with contextlib.ExitStack() as held:
            connections = [held.enter_context(server.raw()) for _ in range(20)]
            for connection in connections:
                connection.sendall(head % slow.encode())
            answered: set[socket.socket] = set()
            while len(answered) < 16:  # one token has four of eight places at most
                ready, _, _ = select.select(
                    [one for one in connections if one not in answered], [], [], WAIT_S
                )
                assert ready, f"only {len(answered)} are answered, and the others are read from"
                assert all(read_all(one).startswith(b"HTTP/1.1 429") for one in ready)
                answered.update(ready)
            assert server.get("/try/echo/a", authorization=f"Bearer {other}").status == 200
            assert server.application.open_requests <= 4


def test_without_tokens_an_address_has_a_share(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(open_requests_max=4)) as server:
        held = [asked(server, "/try/wait", "") for _ in range(2)]
        for _ in held:
            assert trial.arrived.acquire(timeout=WAIT_S)
        refused = server.get("/try/echo/a")
        assert refused.status == 429
        assert refused.message.startswith("your address, 127.0.0.1, already has 2 open requests")
        with socket.create_connection((server.host, server.port), WAIT_S, ("127.0.0.2", 0)) as elsewhere:
            elsewhere.sendall(b"GET /try/echo/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert read_all(elsewhere).startswith(b"HTTP/1.1 200")
        trial.opened.set()
        assert [one.result(WAIT_S).status for one in held] == [200, 200]


def test_the_server_says_that_it_is_there_though_every_thread_of_it_is_busy(
    lake: Lake, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_server_api((), Readiness(lake.catalogue), TokenGate(lake.catalogue), lambda: b"")
    with local(lake.catalogue, [trial_api(trial), own], limits=Limits(open_requests_max=1)) as server:
        held = asked(server, "/try/wait", "")
        assert trial.arrived.acquire(timeout=WAIT_S)
        monkeypatch.setattr(
            server.application._vital_threads, "run_task", lambda *_: pytest.fail("it took a thread")
        )
        assert server.get("/healthz").json == {"status": "ok"}
        trial.opened.set()
        assert held.result(WAIT_S).status == 200


# -- turns -------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is its holder's until it is given back, however slow the machine is."""
    monkeypatch.setattr("penstock.server.read_turns.UNUSED_MAX_S", WAIT_S)


class Computing:
    """A thread that takes steps of a long read when it is told to, and notes that it was its turn."""

    def __init__(self, turns: ReadTurns, caller: str, order: list[str]) -> None:
        self.pace = ReadPace(turns, caller, computed_s=lambda: 1.0)
        self.pace._free_until_s = 0.0
        self._caller, self._order = caller, order
        self._go, self.arrived = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._go.acquire()
            self.arrived.release()
            try:
                self.pace.yield_and_check_time()
            except ReadAbandoned:
                return
            self._order.append(self._caller)
            self.pace.end_read()

    def want(self) -> None:
        self._go.release()
        assert self.arrived.acquire(timeout=WAIT_S)

    def end(self) -> None:
        self.pace.abandon_read()
        self._go.release()
        self._thread.join(WAIT_S)


def wait_for(turns: ReadTurns, count: int) -> None:
    wait_until(lambda: turns.waiting == count)


def test_callers_take_turns_however_many_requests_one_of_them_has() -> None:
    turns, order = ReadTurns(1), list[str]()
    holder = ReadPace(turns, "holder")
    turns.wait_for_turn(holder)
    many = [Computing(turns, "many", order) for _ in range(5)]
    few = [Computing(turns, "few", order) for _ in range(2)]
    for number, one in enumerate((*many, *few), 1):
        one.want()
        wait_for(turns, number)
    turns.return_turn(holder)
    wait_until(lambda: len(order) == len(many) + len(few))
    for one in (*many, *few):
        one.end()
    assert order == ["many", "few", "many", "few", "many", "many", "many"]


def test_of_one_callers_reads_one_is_done_after_the_other() -> None:
    """A turn that ends because another caller waits goes to that one, and comes back before that of later
    reads."""
    turns = ReadTurns(1)
    first, later, other = ReadPace(turns, "a"), ReadPace(turns, "a"), ReadPace(turns, "b")
    turns.wait_for_turn(first)
    threads = [threading.Thread(target=turns.wait_for_turn, args=(one,)) for one in (later, other)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        wait_for(turns, number)
    again = threading.Thread(target=turns.pass_turn_on, args=(first,))
    again.start()
    wait_until(lambda: other.has_turn)
    assert turns.waiting == 2
    assert (first.has_turn, later.has_turn, other.has_turn) == (False, False, True)
    turns.return_turn(other)
    again.join(WAIT_S)
    assert first.has_turn
    assert not later.has_turn
    turns.return_turn(first)
    for thread in threads:
        thread.join(WAIT_S)
    assert later.has_turn


def test_a_read_that_nobody_waits_for_does_not_wait_for_its_turn() -> None:
    turns, order = ReadTurns(1), list[str]()
    turns.wait_for_turn(ReadPace(turns, "holder"))
    waiting = Computing(turns, "waiting", order)
    waiting.want()
    wait_for(turns, 1)
    waiting.end()
    assert turns.waiting == 0
    assert order == []


def test_a_read_ends_at_its_deadline_also_while_it_waits() -> None:
    turns = ReadTurns(1)
    turns.wait_for_turn(ReadPace(turns, "holder"))
    late = ReadPace(turns, "late", monotonic() + 0.05, computed_s=lambda: 1.0)
    late._free_until_s = 0.0
    with pytest.raises(TimedOut, match="nothing was changed"):
        late.yield_and_check_time()
    assert turns.waiting == 0


def test_a_turn_that_its_holder_does_not_use_is_given_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.read_turns.UNUSED_MAX_S", 0.0)
    turns = ReadTurns(1)
    stuck, other = ReadPace(turns, "stuck"), ReadPace(turns, "other")
    turns.wait_for_turn(stuck)
    turns.wait_for_turn(other)
    assert other.has_turn
    assert not stuck.has_turn
    turns.return_turn(stuck)
    turns.return_turn(other)
    turns.wait_for_turn(stuck)
    assert stuck.has_turn


def test_a_short_read_needs_no_turn() -> None:
    turns = ReadTurns(1)
    turns.wait_for_turn(ReadPace(turns, "holder"))
    short = ReadPace(turns, "short", computed_s=lambda: 0.0)
    short.begin_read()
    for _ in range(1000):
        short.yield_if_awaited()
    assert not short.has_turn


def test_it_is_told_when_reads_begin_to_compute_for_long_and_when_none_does_any_more() -> None:
    turns, told = ReadTurns(2), list[bool]()
    turns.when_used = told.append
    one, other = ReadPace(turns, "one"), ReadPace(turns, "other")
    turns.wait_for_turn(one)
    turns.wait_for_turn(other)
    turns.return_turn(one)
    assert told == [True]
    turns.return_turn(other)
    assert told == [True, False]


# -- starts ------------------------------------------------------------------------------------------------


def test_of_one_callers_reads_a_few_begin_at_a_time_and_others_are_not_kept_waiting(
    lake: Lake, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.read_start_queue.YOUNG_S", WAIT_S)
    many, other = lake.create_token("many", "read"), lake.create_token("other", "read")
    with local(lake.catalogue, [trial_api(trial)], gate=TokenGate(lake.catalogue)) as server:
        for token in (many, other):
            assert server.get("/try/echo/a", authorization=f"Bearer {token}").status == 200
        held = [asked(server, "/try/wait", many) for _ in range(AT_ONCE + 3)]
        for _ in range(AT_ONCE):
            assert trial.arrived.acquire(timeout=WAIT_S)
        wait_until(lambda: server.application.open_requests == len(held))
        assert server.get("/try/echo/a", authorization=f"Bearer {other}").status == 200
        assert not trial.arrived.acquire(blocking=False)
        trial.opened.set()
        assert [one.result(WAIT_S).status for one in held] == [200] * len(held)
        assert server.application._starts._lines == {}


def test_a_read_that_goes_on_does_not_keep_others_of_its_caller_from_beginning(
    lake: Lake, trial: Trial
) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server:
        held = [asked(server, "/try/wait", "") for _ in range(2 * AT_ONCE)]
        for _ in held:
            assert trial.arrived.acquire(timeout=WAIT_S), "they wait for a store, and compute nothing"
        trial.opened.set()
        assert [one.result(WAIT_S).status for one in held] == [200] * len(held)


# -- what is stopped, and where ----------------------------------------------------------------------------


@pytest.fixture
def grown(lake: Lake) -> Lake:
    """A lake with commits, keys and branches to go through."""
    branch = lake.branch()
    for number in range(40):
        branch.put(
            f"s.t{number}", IcebergTable(metadata_location=f"s3://lake/{number}"), message=f"load {number}"
        )
    for number in range(20):
        lake.branch(f"dev{number}").create()
    return lake


LONG = {
    "a search of the log": calls.ListCommits(text="nowhere", limit=10),
    "the log of a key": calls.ListCommits(table=Key("s", "t1"), limit=10),
    "a part of a search of the log": calls.SearchLog(text="nowhere", limit=10),
    "the log by all parents": calls.ListCommits(all_parents=True, limit=1000),
    "entries": calls.ListEntries(limit=1000),
    "references": calls.ListReferences(kind=Kind.BRANCH, limit=None),
    "a reference's log": calls.GetReferenceLog(name="main", limit=1000),
    "fsck": calls.Fsck(),
    "a sweep": calls.Sweep(dry_run=True),
}


@pytest.mark.parametrize("call", LONG.values(), ids=LONG)
def test_what_goes_through_the_lake_takes_steps_and_ends_at_any_of_them(
    grown: Lake, call: calls.Call[object]
) -> None:
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with paced_reads(count):
        grown.catalogue.do(call)
    assert steps >= 1

    def end() -> None:
        raise ReadAbandoned

    with paced_reads(end), pytest.raises(ReadAbandoned):
        grown.catalogue.do(call)


def test_who_leads_a_batch_or_moves_a_row_is_not_stopped_on_the_way(lake: Lake) -> None:
    def end() -> None:
        pytest.fail("others wait for what is done here")

    with paced_reads(end):
        lake.branch().put("a", IcebergTable(metadata_location="s3://lake/a"))
        lake.create_token("etl", "read")
    assert len(lake.log()) == 1


def test_a_search_says_how_far_it_came_and_goes_on_from_there(grown: Lake) -> None:
    turns, wanted = ReadTurns(1), {f"load {number}" for number in range(40) if "3" in f"{number}"}
    pace = ReadPace(turns, "etl", deadline_s=0.0)
    with paced_reads(pace.yield_if_awaited), pytest.raises(TimedOut) as late:
        grown.log(text="3")
    reached = grown.catalogue.do(calls.GetCommit(revision=late.value.details["commit"]))
    assert f"{reached.time:%Y-%m-%d %H:%M:%S} UTC" in late.value.message
    newer = grown.log(text="3", since=reached.time)
    older = grown.log(text="3", until=reached.time)
    assert {commit.message for commit in (*newer, *older)} == wanted


def test_a_read_ends_when_its_client_has_gone(lake: Lake, trial: Trial) -> None:
    def search(_: RouteRequest) -> None:
        trial.arrived.release()
        try:
            while True:
                check_read_may_go_on()
        except ReadAbandoned:
            trial.stopped.set()
            raise

    route = Route(method="GET", path="/search", handle=search, summary="Search")
    api = msgspec.structs.replace(trial_api(trial), routes=(route,))
    with local(lake.catalogue, [api], limits=Limits(open_requests_max=1)) as server:
        with server.raw() as connection:
            connection.sendall(b"GET /try/search HTTP/1.1\r\nhost: x\r\n\r\n")
            assert trial.arrived.acquire(timeout=WAIT_S)
        assert trial.stopped.wait(WAIT_S)
        wait_until(lambda: not server.application.open_requests)
        assert [line["status"] for line in server.lines] == [499]
        assert server.metrics.snapshot().count(HTTP_STOPPED_READS, reason="client_gone") == 1


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_write_goes_on_though_its_client_has_gone(lake: Lake, trial: Trial, method: str) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server:
        with server.raw() as connection:
            connection.sendall(
                b"%s /try/wait HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n" % method.encode()
            )
            assert trial.arrived.acquire(timeout=WAIT_S)
        trial.opened.set()
        assert trial.finished.acquire(timeout=WAIT_S)
