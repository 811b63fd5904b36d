"""What the MongoDB store does that the contract does not ask for: databases, limits, connections, secrets."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo.errors import AutoReconnect, OperationFailure, WriteConcernError, WTimeoutError
from pymongo.monitoring import CommandListener, CommandStartedEvent

from penstock.errors import (
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
    UnsupportedFormat,
)
from penstock.stores import mongodb as adapter
from penstock.stores.mongodb import DOCUMENT_MAX_BYTES, MARK, OBJECTS, ROWS, MongoStore
from penstock.stores.port import AdvanceResult, Row
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample, scan_all
from penstock.testing.threads import at_once
from tests.queue.hooks import wait_until
from tests.servers.mongodb import connected
from tests.servers.proxy import Proxy

ONE, TWO = row("main", data=b"1"), row("main", data=b"2")


@pytest.fixture
def direct(mongodb_url: str) -> Iterator[MongoStore]:
    """A store with a good connection."""
    with closing(MongoStore(mongodb_url)) as opened:
        yield opened


@pytest.fixture
def proxy(mongodb_url: str) -> Iterator[Proxy]:
    parts = urlsplit(mongodb_url)
    if parts.hostname != "127.0.0.1" or parts.port is None:
        pytest.skip("connections to this server cannot be cut")
    with Proxy(parts.port) as running:
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver looks for a lost server at once, not twice a second."""
    monkeypatch.setattr("pymongo.common.MIN_HEARTBEAT_INTERVAL", 0.02)


@pytest.fixture
def store(proxy: Proxy, direct: MongoStore, mongodb_url: str) -> Iterator[MongoStore]:
    """A store behind a bad network."""
    with closing(MongoStore(behind(proxy, mongodb_url), create=False)) as opened:
        yield opened


def behind(proxy: Proxy, url: str) -> str:
    """The same database through a proxy; the driver looks after the server seldom, to be cut seldom there."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"127.0.0.1:{proxy.port}", query="heartbeatFrequencyMS=60000").geturl()


# -- connections that break --------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(None, ONE), (ONE, TWO), (ONE, Row("main", "tag", b"1"))])
def test_a_swap_whose_answer_is_lost_is_found_by_its_write_id(
    before: Row | None, after: Row, store: MongoStore, direct: MongoStore, proxy: Proxy
) -> None:
    swap(direct, before, "main")
    with store.turn("main") as turn:
        cut = proxy.cut_after("to_client", 0)
        assert turn.advance({}, after) == AdvanceResult(True)
    assert cut.happened
    assert direct.reference("main") == after


def test_a_removal_whose_answer_is_lost_is_in_doubt(
    store: MongoStore, direct: MongoStore, proxy: Proxy
) -> None:
    """The row is gone, and nothing tells who removed it."""
    swap(direct, ONE)
    with store.turn("main") as turn:
        proxy.cut_after("to_client", 0)
        with pytest.raises(OutcomeUnknown):
            turn.advance({}, None)
    assert direct.reference("main") is None


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_a_swap_in_doubt_that_another_replaced_is_not_said_to_be_lost(
    direction: Any, store: MongoStore, direct: MongoStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap(direct, ONE)
    read = store._read_newest_document

    def replaced_before_it_is_read(name: str) -> Any:
        swap(direct, row("main", data=b"theirs"))
        return read(name)

    with store.turn("main") as turn:
        monkeypatch.setattr(store, "_read_newest_document", replaced_before_it_is_read)
        proxy.cut_after(direction, 0)
        with pytest.raises(OutcomeUnknown):
            turn.advance({}, TWO)
    assert direct.reference("main") == row("main", data=b"theirs")


def test_fresh_objects_whose_answer_is_lost_are_our_own(
    store: MongoStore, direct: MongoStore, proxy: Proxy
) -> None:
    fresh = sample(5, "fresh")
    with store.turn("main") as turn:
        cut = proxy.cut_after("to_client", 0)
        assert turn.advance(sample(5) | fresh, ONE, list(fresh)) == AdvanceResult(True)
    assert cut.happened
    assert direct.reference("main") == ONE
    assert direct.fetch(list(fresh)) == fresh


def test_a_server_that_falls_silent_leaves_a_swap_in_doubt_and_nothing_hangs(
    proxy: Proxy, direct: MongoStore, mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = "&socketTimeoutMS=1500&serverSelectionTimeoutMS=2000&connectTimeoutMS=1500"
    url = behind(proxy, mongodb_url) + times
    with closing(MongoStore(url, create=False)) as store:
        with store.turn("main") as turn:
            proxy.fall_silent()
            monkeypatch.setattr(adapter, "TRIES_MAX_S", 0.5)
            with pytest.raises(OutcomeUnknown):
                turn.advance({}, ONE)
        with pytest.raises(Unavailable):
            store.store(sample(3))
        with pytest.raises(Unavailable):
            store.fetch(list(sample(3)))
        proxy.speak()
    monkeypatch.undo()
    wait_until(lambda: direct.reference("main") == ONE)  # it is done, though nobody hears of it


def test_a_server_that_cannot_be_reached_is_said_to_be_away(
    proxy: Proxy, direct: MongoStore, mongodb_url: str
) -> None:
    url = behind(proxy, mongodb_url) + "&serverSelectionTimeoutMS=2000"
    with closing(MongoStore(url, create=False)) as store:
        proxy.refuse()
        proxy.cut_all()
        with pytest.raises(Unavailable), store.turn("main"):
            pass
        with store.turn("main", ONE) as turn, pytest.raises(Unavailable):
            turn.advance(sample(3), TWO)
        proxy.accept()
        assert swap(store, ONE).swapped


def cut_at_random(store: MongoStore, direct: MongoStore, proxy: Proxy, count: int, seed: int) -> int:
    """Count up in a row, over connections that are cut; say how many were, once all is as it should be."""
    chance = random.Random(seed)
    swap(direct, row("main", data=b"0"))
    for value in range(count):
        before, after = row("main", data=b"%d" % value), row("main", data=b"%d" % (value + 1))
        objects = sample(4, f"of {value}")
        fresh = sorted(objects)[:2]
        swapped = False
        with store.turn("main", before) as turn:
            direction: Any = chance.choice(["to_server", "to_client"])
            proxy.cut_after(direction, chance.randrange(1200 if direction == "to_server" else 300))
            try:
                advanced = turn.advance(objects, after, fresh)
                assert advanced == AdvanceResult(True)
                swapped = True
            except OutcomeUnknown:
                pass  # it broke off on its way there
        proxy.forget_cut()
        assert direct.fetch(list(objects)) == objects
        found = direct.reference("main")
        assert found == after if swapped else found in (before, after)
        if found == before:
            swap(direct, after)
    return proxy.cuts


def test_connections_cut_anywhere_lose_nothing_and_double_nothing(
    store: MongoStore, direct: MongoStore, proxy: Proxy, seed: int
) -> None:
    assert cut_at_random(store, direct, proxy, 30, seed) >= 15


@pytest.mark.reliability
def test_hundreds_of_connections_cut_anywhere_lose_nothing_and_double_nothing(
    store: MongoStore, direct: MongoStore, proxy: Proxy, seed: int
) -> None:
    assert cut_at_random(store, direct, proxy, 900, seed) >= 500


# -- what the driver raises ----------------------------------------------------------------------------------


class Failing:
    """A collection that does what it is told and then fails, as often as it is told."""

    def __init__(self, inner: Any, failures: list[Exception], before: bool) -> None:
        self._inner, self._failures, self._before = inner, failures, before

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._failures and self._before:
                raise self._failures.pop()
            answer = getattr(self._inner, name)(*arguments, **options)
            if self._failures:
                raise self._failures.pop()
            return answer

        return call


@pytest.mark.parametrize(
    "failure",
    [
        AutoReconnect("gone"),
        WriteConcernError("no majority", 64),
        WTimeoutError("no majority in time", 64),
        OperationFailure("stepped down", 189),
        OperationFailure("something new", 424242),
    ],
)
def test_a_swap_that_fails_is_looked_up(
    failure: Exception, direct: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the driver says: done if the row is ours, unknown if it is not."""
    rows = direct._rows
    with direct.turn("main") as turn:
        monkeypatch.setattr(direct, "_rows", Failing(rows, [failure], before=False))
        assert turn.advance({}, ONE) == AdvanceResult(True)
    with direct.turn("main") as turn:
        monkeypatch.setattr(direct, "_rows", Failing(rows, [failure], before=True))
        with pytest.raises(OutcomeUnknown):
            turn.advance({}, TWO)
    assert direct.reference("main") == ONE


@pytest.mark.parametrize("failure", [AutoReconnect("gone"), OperationFailure("stepped down", 189)])
@pytest.mark.parametrize("before", [True, False])
def test_objects_are_stored_again_when_it_is_not_known_that_they_are(
    failure: Exception, before: bool, direct: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = direct._objects
    fresh = sample(3, "fresh")
    with direct.turn("main") as turn:
        monkeypatch.setattr(direct, "_objects", Failing(objects, [failure] * 2, before))
        assert turn.advance(sample(3) | fresh, ONE, list(fresh)) == AdvanceResult(True)
    assert direct.fetch([*sample(3), *fresh]) == sample(3) | fresh


def test_who_may_not_is_told_so(direct: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OperationFailure("not authorized", 13)
    rows, objects = direct._rows, direct._objects
    monkeypatch.setattr(direct, "_rows", Failing(rows, [refused], before=True))
    with direct.turn("main", ONE) as turn, pytest.raises(Denied, match="not authorized"):
        turn.advance({}, TWO)
    monkeypatch.setattr(direct, "_objects", Failing(objects, [refused], before=True))
    with pytest.raises(Denied, match="not authorized"):
        direct.store(sample(1))


def test_a_server_without_linearizable_reads_is_read_as_it_can(
    direct: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap(direct, ONE)
    standing_alone = OperationFailure("node needs to be a replica set member to use read concern", 123)
    monkeypatch.setattr(
        direct, "_newest_rows", Failing(direct._newest_rows, [standing_alone] * 9, before=True)
    )
    assert direct.reference("main") == ONE
    assert direct._newest_rows is direct._rows
    assert direct.fetch([b"x" * 32]) == {}


class Listener(CommandListener):
    """What the driver sends."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, dict[str, Any]]] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.commands.append((event.command_name, dict(event.command)))

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass


def test_decisions_hang_on_a_majority_and_on_a_primary_that_is_sure_of_itself(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    monkeypatch.setitem(adapter._DEFAULTS, "event_listeners", [listener])
    careless = f"{mongodb_url}?w=0&readConcernLevel=local&readPreference=secondaryPreferred&retryWrites=true"
    with closing(MongoStore(careless)) as store:
        listener.commands.clear()
        with store.turn("main") as turn:
            assert turn.advance(sample(2), ONE, list(sample(1))).swapped
        with store.turn("main", ONE) as turn:
            assert turn.advance({}, TWO).swapped
        store.fetch([b"absent" * 5 + b"??"])
        store.references("branch")
    sent = [name for name, _ in listener.commands]
    assert sent[:4] == ["find", "update", "insert", "update"], "a remembered row is not read"
    for name, command in listener.commands:
        if (
            name == "find"
            and command["find"] == ROWS
            and "_id" in command["filter"]
            and "kind" not in command["filter"]
        ):
            assert command["readConcern"]["level"] == "linearizable"
        if name in ("insert", "update"):
            assert command["writeConcern"]["w"] == "majority"
            assert command["writeConcern"]["j"] is True
            assert "txnNumber" not in command
    reads = [command["find"] for name, command in listener.commands[4:] if name == "find"]
    assert reads == [OBJECTS, ROWS, OBJECTS, ROWS, ROWS], (
        "what is absent or listed is asked of a sure primary"
    )


def test_of_two_that_want_the_same_fresh_objects_one_swaps(direct: MongoStore, mongodb_url: str) -> None:
    with closing(MongoStore(mongodb_url, create=False)) as other:
        fresh = sample(1, "fresh")

        def advance(handle: MongoStore, name: str) -> AdvanceResult:
            with handle.turn(name) as turn:
                return turn.advance(fresh | sample(30), row(name), list(fresh))

        answers = at_once(
            *(partial(advance, direct if number % 2 else other, f"row-{number}") for number in range(8))
        )
        assert [answer.swapped for answer in answers].count(True) == 1
        assert {answer.present for answer in answers if not answer.swapped} == {frozenset(fresh)}


def test_what_is_too_large_is_refused_before_anything_is_written(direct: MongoStore) -> None:
    large = {b"l" * 32: b"x" * (DOCUMENT_MAX_BYTES + 1)}
    with pytest.raises(InvalidRequest, match="MongoDB takes at most"):
        direct.store(sample(3) | large)
    with direct.turn("main") as turn, pytest.raises(InvalidRequest, match="MongoDB"):
        turn.advance(sample(3) | large, row("main"))
    with direct.turn("main") as turn, pytest.raises(InvalidRequest, match="'main' cannot be stored: its row"):
        turn.advance(sample(3), row("main", data=large[b"l" * 32]))
    assert scan_all(direct) == []
    assert direct.reference("main") is None
    just_fits = {b"l" * 32: b"x" * DOCUMENT_MAX_BYTES}
    direct.store(just_fits)
    assert direct.fetch([b"l" * 32]) == just_fits


# -- databases -----------------------------------------------------------------------------------------------


def test_what_is_not_there_is_not_found(mongodb_url: str) -> None:
    with pytest.raises(LakeNotFound, match="penstock init 'mongodb://"):
        MongoStore(mongodb_url, create=False)
    MongoStore(mongodb_url).close()
    MongoStore(mongodb_url, create=False).close()


@pytest.mark.parametrize("collection", [ROWS, OBJECTS])
def test_collections_of_another_program_are_left_alone(mongodb_url: str, collection: str) -> None:
    with connected(mongodb_url) as client:
        client.get_default_database()[collection].insert_one({"_id": "mine"})
        with pytest.raises(InvalidRequest, match="not belong to a lake"):
            MongoStore(mongodb_url)
        assert list(client.get_default_database()[collection].find()) == [{"_id": "mine"}]


def test_a_lake_of_a_newer_penstock_is_left_alone(direct: MongoStore, mongodb_url: str) -> None:
    with connected(mongodb_url) as client:
        client.get_default_database()[ROWS].update_one({"_id": MARK}, {"$set": {"version": 2}})
    for create in (True, False):
        with pytest.raises(UnsupportedFormat, match="newer"):
            MongoStore(mongodb_url, create=create)


def test_many_may_make_the_same_lake_at_once(mongodb_url: str) -> None:
    def make(number: int) -> bool:
        with closing(MongoStore(mongodb_url)) as store:
            store.store(sample(1))
            return swap(store, row(f"of-{number}")).swapped

    assert at_once(*(partial(make, number) for number in range(8))) == [True] * 8
    with closing(MongoStore(mongodb_url, create=False)) as store:
        assert len(store.references("branch")) == 8


# -- addresses, secrets, handles -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mongodb://me:SECRET@host", "names no database"),
        ("mongodb://me:SECRET@host/", "names no database"),
        ("mongodb://me:SECRET@host:port/db", "not a valid address for"),
        ("mongodb://me:SEC%RET@SECRET@host/db", "not a valid address for"),
        ("mongodb://me:SECRET@host/db?authMechanism=nonsense", "not a valid address for"),
        ("mongodb://me:SECRET@host/db?retyrWrites=true", "not a valid address for"),
        ("mongodb://me:SECRET/x@host/db", "%2F"),
    ],
)
def test_addresses_that_cannot_be_are_refused(url: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as refused:
        MongoStore(url)
    assert "SEC" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_secrets_are_shown_nowhere(mongodb_url: str) -> None:
    parts = urlsplit(mongodb_url)
    options = (
        "authMechanismProperties=AWS_SESSION_TOKEN:SECRET&replicaSet=rs&tlsCertificateKeyFilePassword=SECRET"
    )
    url = parts._replace(netloc=f"me:SECRET@{parts.netloc}", query=options).geturl()
    assert adapter._hide_secrets(url) == f"mongodb://me@{parts.netloc}{parts.path}?replicaSet=rs"
    url = parts._replace(netloc="me:SECRET@127.0.0.1:1", query="serverSelectionTimeoutMS=200").geturl()
    with pytest.raises(Unavailable) as away:
        MongoStore(url)
    assert "SECRET" not in f"{away.value!r} {away.value.details}"
    assert f"mongodb://me@127.0.0.1:1{parts.path}" in str(away.value)


def test_a_wrong_password_is_denied_without_being_shown(mongodb_url: str) -> None:
    """The substitute knows no users, and refuses whoever brings a password."""
    parts = urlsplit(mongodb_url)
    url = parts._replace(netloc=f"me:SECRET@{parts.netloc}").geturl()
    with pytest.raises((Denied, Unavailable)) as refused:
        MongoStore(url)
    assert "SECRET" not in str(refused.value)


def test_a_closed_store_says_so(mongodb_url: str) -> None:
    store = MongoStore(mongodb_url)
    calls: list[Callable[[], object]] = [
        lambda: store.fetch([b"x" * 32]),
        lambda: store.store(sample(1)),
        lambda: store.reference("main"),
        lambda: store.references("branch"),
        lambda: store.scan(b"", 1),
        lambda: store.delete([]),
        store.erase,
    ]
    with store.turn("main") as turn:
        store.close()
        calls.append(lambda: turn.advance({}, row("main")))
        for call in calls:
            with pytest.raises(InvalidRequest, match="was closed"):
                call()


def _use(store: MongoStore, answers: Any) -> None:
    try:
        store.reference("main")
    except PenstockError as problem:
        answers.send(type(problem).__name__)


def test_a_store_is_not_used_across_a_fork(direct: MongoStore) -> None:
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_use, args=(direct, theirs))
    child.start()
    assert ours.recv() == "InvalidRequest"
    child.join()
    ours.close()
    theirs.close()
