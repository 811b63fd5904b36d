"""Connections to DynamoDB that break: what was done is found to be done, and is not done twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.stores import dynamodb_wire
from penstock.stores.dynamodb import DynamoStore
from penstock.stores.port import AdvanceResult, Row
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample
from tests.queue.hooks import wait_until
from tests.servers.dynamodb import DynamoDBPlace
from tests.servers.proxy import Direction, Proxy

ONE, TWO = row("main", data=b"1"), row("main", data=b"2")


@pytest.fixture
def proxy(dynamodb_place: DynamoDBPlace) -> Iterator[Proxy]:
    port = urlsplit(dynamodb_place.endpoint or "").port
    if port is None:
        pytest.skip("connections to this server cannot be cut")
    with Proxy(port) as running:
        yield running


@pytest.fixture
def direct(dynamodb_place: DynamoDBPlace) -> Iterator[DynamoStore]:
    """Another process, with a good connection."""
    with closing(DynamoStore(dynamodb_place.url)) as opened:
        yield opened


@pytest.fixture
def store(proxy: Proxy, direct: DynamoStore, dynamodb_place: DynamoDBPlace) -> Iterator[DynamoStore]:
    """A store behind a bad network."""
    place = msgspec.structs.replace(dynamodb_place, endpoint=f"http://127.0.0.1:{proxy.port}")
    with closing(DynamoStore(place.url, create=False)) as opened:
        yield opened


def forget_tokens(store: DynamoStore) -> None:
    """Let the server see every try as a new one, as it does with those it made long ago."""

    def change(params: dict[str, Any], **_: object) -> dict[str, Any]:
        return {**params, "ClientRequestToken": token_hex(16)}

    name = "provide-client-params.dynamodb.TransactWriteItems"
    store._table._client.meta.events.register(name, change)  # type: ignore[arg-type]


def before_try(store: DynamoStore, number: int, act: Callable[[], object]) -> None:
    """Do something before the n-th try of a transaction."""
    tries = iter(range(1, 100))

    def hook(**_: object) -> None:
        if next(tries) == number:
            act()

    store._table._client.meta.events.register("before-send.dynamodb.TransactWriteItems", hook)


STATES = [(None, ONE), (ONE, TWO), (ONE, None), (ONE, Row("main", "tag", b"1"))]


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize(("before", "after"), STATES)
def test_a_swap_whose_answer_is_lost_is_found_to_be_done(
    before: Row | None,
    after: Row | None,
    forgetful: bool,
    store: DynamoStore,
    direct: DynamoStore,
    proxy: Proxy,
) -> None:
    """By the token; where the server has forgotten that, by the write id on the row or a fresh object."""
    swap(direct, before, "main")
    if forgetful:
        forget_tokens(store)
    fresh = sample(1, "fresh")
    with store.turn("main") as turn:
        cut = proxy.cut_after("to_client", 0)
        assert turn.advance(sample(5) | fresh, after, list(fresh)) == AdvanceResult(True)
    assert cut.happened
    assert direct.reference("main") == after
    for kind in ("branch", "tag"):
        assert direct.references(kind) == ([after] if after is not None and after.kind == kind else [])


def test_a_removal_whose_answer_is_lost_and_forgotten_is_in_doubt(
    store: DynamoStore, direct: DynamoStore, proxy: Proxy
) -> None:
    """The row is gone, and nothing tells who removed it."""
    swap(direct, ONE)
    forget_tokens(store)
    with store.turn("main") as turn:
        proxy.cut_after("to_client", 0)
        with pytest.raises(OutcomeUnknown):
            turn.advance({}, None)
    assert direct.reference("main") is None


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_a_swap_in_doubt_that_another_replaced_is_not_said_to_be_lost(
    direction: Direction, store: DynamoStore, direct: DynamoStore, proxy: Proxy
) -> None:
    swap(direct, ONE)
    forget_tokens(store)
    before_try(store, 2, lambda: swap(direct, row("main", data=b"theirs")))
    with store.turn("main") as turn:
        proxy.cut_after(direction, 0)
        with pytest.raises(OutcomeUnknown):
            turn.advance({}, TWO)
    assert direct.reference("main") == row("main", data=b"theirs")


def test_a_swap_in_doubt_is_known_by_its_fresh_objects_though_another_replaced_it(
    store: DynamoStore, direct: DynamoStore, proxy: Proxy
) -> None:
    swap(direct, ONE)
    forget_tokens(store)
    before_try(store, 2, lambda: swap(direct, row("main", data=b"theirs")))
    fresh = sample(1, "fresh")
    with store.turn("main") as turn:
        proxy.cut_after("to_client", 0)
        assert turn.advance(fresh, TWO, list(fresh)) == AdvanceResult(True)
    assert direct.reference("main") == row("main", data=b"theirs")


def test_a_swap_that_did_not_arrive_and_whose_fresh_object_came_from_another_is_lost(
    store: DynamoStore, direct: DynamoStore, proxy: Proxy
) -> None:
    swap(direct, ONE)
    fresh = sample(1, "fresh")
    before_try(store, 2, lambda: direct.store(fresh))
    with store.turn("main") as turn:
        proxy.cut_after("to_server", 0)
        assert turn.advance(fresh, TWO, list(fresh)) == AdvanceResult(False, frozenset(fresh))
    assert direct.reference("main") == ONE


def test_hundreds_of_fresh_objects_whose_answers_are_lost_are_our_own(
    store: DynamoStore, direct: DynamoStore, proxy: Proxy
) -> None:
    fresh = sample(250, "fresh")
    forget_tokens(store)
    before_try(store, 1, lambda: proxy.cut_after("to_client", 0))
    with store.turn("main") as turn:
        assert turn.advance(fresh | sample(5), ONE, list(fresh)) == AdvanceResult(True)
    assert proxy.cuts == 1
    assert direct.fetch(list(fresh)) == fresh


def test_an_answer_that_breaks_off_is_not_taken_for_one_that_says_nothing_is_there(
    store: DynamoStore, direct: DynamoStore, proxy: Proxy
) -> None:
    """At any byte of it, its head included."""
    objects = sample(3)
    direct.store(objects)
    swap(direct, ONE)
    for after_bytes in range(0, 450, 9):
        cut = proxy.cut_after("to_client", after_bytes)
        assert store.fetch(list(objects)) == objects
        assert cut.happened
        proxy.cut_after("to_client", after_bytes)
        assert store.reference("main") == ONE
        proxy.cut_after("to_client", after_bytes)
        assert store.references("branch") == [ONE]
        proxy.cut_after("to_client", after_bytes)
        assert len(store.scan(b"", 10)[0]) == 3
    proxy.forget_cut()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamodb_wire, "TRIES_MAX_S", 0.3)


def test_a_server_that_falls_silent_leaves_a_swap_in_doubt_and_nothing_hangs(
    proxy: Proxy, direct: DynamoStore, dynamodb_place: DynamoDBPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamodb_wire, "READ_TIMEOUT_S", 2.0)
    place = msgspec.structs.replace(dynamodb_place, endpoint=f"http://127.0.0.1:{proxy.port}")
    with closing(DynamoStore(place.url, create=False)) as store:
        with store.turn("main") as turn:
            proxy.fall_silent()
            monkeypatch.setattr(dynamodb_wire, "TRIES_MAX_S", 0.3)
            with pytest.raises(OutcomeUnknown):
                turn.advance(sample(3), ONE)
        with pytest.raises(Unavailable):
            store.store(sample(3))
        with pytest.raises(Unavailable):
            store.fetch(list(sample(3)))
    monkeypatch.undo()
    wait_until(lambda: direct.reference("main") == ONE)  # it is done, though nobody hears of it


@pytest.mark.usefixtures("hasty")
def test_a_server_that_cannot_be_reached_swapped_nothing(
    store: DynamoStore, direct: DynamoStore, proxy: Proxy
) -> None:
    with store.turn("main") as turn:
        proxy.refuse()
        proxy.cut_all()
        with pytest.raises(Unavailable):
            turn.advance({}, ONE)
    with pytest.raises(Unavailable), store.turn("main"):
        pass
    proxy.accept()
    assert swap(store, ONE).swapped
    assert direct.reference("main") == ONE


REQUEST_BYTES, ANSWER_BYTES = 2500, 250
"""Of the transactions below, roughly: where to cut them."""


def cut_at_random(store: DynamoStore, direct: DynamoStore, proxy: Proxy, count: int, seed: int) -> int:
    """Count up in a row, over connections that are cut; say how many were, once all is as it should be."""
    chance = random.Random(seed)
    swap(direct, row("main", data=b"0"))
    for value in range(count):
        many = 130 if value % 10 == 9 else 4  # more than one transaction takes
        objects = sample(many, f"of {value}")
        fresh = sorted(objects)[: many // 2]
        after = row("main", data=b"%d" % (value + 1))
        with store.turn("main", row("main", data=b"%d" % value)) as turn:
            if chance.random() < 0.5:
                proxy.cut_after("to_server", chance.randrange(REQUEST_BYTES))
            else:
                proxy.cut_after("to_client", chance.randrange(ANSWER_BYTES))
            assert turn.advance(objects, after, fresh) == AdvanceResult(True)
        proxy.forget_cut()
        assert direct.reference("main") == after
        assert direct.fetch(list(objects)) == objects
    return proxy.cuts


def test_connections_cut_anywhere_cost_nothing_and_double_nothing(
    store: DynamoStore, direct: DynamoStore, proxy: Proxy, seed: int
) -> None:
    assert cut_at_random(store, direct, proxy, 30, seed) >= 20


@pytest.mark.reliability
def test_hundreds_of_connections_cut_anywhere_cost_nothing_and_double_nothing(
    store: DynamoStore, direct: DynamoStore, proxy: Proxy, seed: int
) -> None:
    assert cut_at_random(store, direct, proxy, 700, seed) >= 500
