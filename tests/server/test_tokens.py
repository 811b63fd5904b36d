"""Making tokens, and the gate that knows them: at once when made, for seconds when revoked, never without."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from threading import Event, Semaphore
from typing import TypeVar, cast

import pytest

from penstock.errors import InvalidRequest, Unauthenticated, Unavailable
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call, FindToken
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.tokens import hash_secret, make_token, parse_grant, parse_token
from penstock.model.tokens import Grant, Role
from penstock.server.access import OpenGate, TokenGate
from penstock.server.access import gate as gate_module
from penstock.server.access.gate import STRANGERS_MAX, TOKENS_KEPT_S, UNKNOWN_KEPT_S
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row
from tests.queue.hooks import WAIT_S, Caller, SetClock

R = TypeVar("R")


class Watched:
    """A catalogue that counts how often tokens are read, and can be away."""

    page_max: int | None = None

    def __init__(self, inner: Catalogue) -> None:
        self._inner = inner
        self.readings, self.is_away = 0, False
        self.before_first: Callable[[], object] = lambda: None

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        self.readings += isinstance(call, FindToken)
        if self.readings == 1:
            self.before_first()
        if self.is_away:
            raise Unavailable("the store does not answer")
        return self._inner.do(call, progress)

    def close(self) -> None:
        self._inner.close()


class Site:
    """A lake, its gate, and the clocks that the gate goes by."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.seconds = 100.0
        self.lake: Lake = open_lake(MemoryStore(self.clock), author="ada", clock=self.clock)
        self.watched = Watched(self.lake.catalogue)
        self.gate = TokenGate(self.watched, self.clock, lambda: self.seconds)

    def go_on(self, seconds: float) -> None:
        self.clock.go_on(seconds)
        self.seconds += seconds

    def enter(self, text: str) -> str:
        """The name of whoever shows a token."""
        return self.gate({"authorization": f"Bearer {text}"}).name


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.lake.close()


def test_a_token_lets_in_with_its_name_and_its_grants(site: Site) -> None:
    text = site.lake.create_token("etl", "read", "write:dev/*:sales.*")
    caller = site.gate({"authorization": f"Bearer {text}"})
    assert caller.name == "etl"
    assert caller.grants == (Grant(Role.READ), Grant(Role.WRITE, "dev/*", "sales.*"))
    assert not caller.any_location
    assert site.gate({"authorization": f"bearer   {text} "}) == caller


def test_the_lake_does_not_know_the_secret(site: Site) -> None:
    text = site.lake.create_token("etl", "read")
    shown = parse_token(text)
    (token,) = site.lake.tokens()
    assert (token.id, token.secret_hash) == (shown.id, hash_secret(shown.secret))
    store = site.lake.kernel.store
    assert isinstance(store, MemoryStore)
    kept = [row.data for row in store._rows.values()] + [data for data, _ in store._objects.values()]
    assert not any(shown.secret.encode() in data for data in kept)


def test_no_two_tokens_are_alike() -> None:
    made = [make_token("etl", ["read"]) for _ in range(100)]
    assert len({text for text, _ in made}) == len({call.id for _, call in made}) == 100
    assert all(len(parse_token(text).secret) == 43 for text, _ in made)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "   ",
        "Bearer",
        "Bearer ",
        "Basic cGVuc3RvY2s6cGVuc3RvY2s=",
        "Bearer penstock",
        "Bearer penstock_0123456789ab_",
        "Bearer penstock_0123456789ab_" + "x" * 42,
        "Bearer penstock_0123456789ab_" + "x" * 44,
        "Bearer penstock_0123456789AB_" + "x" * 43,
        "Bearer penstock_0123456789ab_" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 43,
        "Bearer penstock_0123456789ab_" + "x" * 43,
        "Bearer penstock_@lake_" + "x" * 43,
    ],
)
def test_who_shows_no_token_or_an_unknown_one_is_not_let_in(site: Site, header: str) -> None:
    site.lake.create_token("etl", "admin")
    with pytest.raises(Unauthenticated) as refused:
        site.gate({"authorization": header})
    assert "x" * 42 not in refused.value.message
    with pytest.raises(Unauthenticated, match="needs a token: send 'Authorization: Bearer"):
        site.gate({})


def test_a_token_is_taken_as_a_bearer_token_or_as_an_api_key_and_in_no_other_way(site: Site) -> None:
    text, other = (site.lake.create_token(name, "read") for name in ("etl", "other"))
    assert site.gate({"authorization": f"bearer  {text} "}).name == "etl"
    assert site.gate({"x-api-key": text}).name == "etl"
    assert site.gate({"authorization": f"Bearer {text}", "x-api-key": other}).name == "etl"
    with pytest.raises(Unauthenticated, match="accepts bearer tokens only"):
        site.gate({"authorization": f"Basic {text}", "x-api-key": text})


def test_the_secret_of_another_token_does_not_help(site: Site) -> None:
    one, other = (parse_token(site.lake.create_token(name, "admin")) for name in ("one", "other"))
    with pytest.raises(Unauthenticated):
        site.enter(f"penstock_{one.id}_{other.secret}")


def test_secrets_are_compared_in_constant_time_also_those_of_unknown_tokens(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr("penstock.server.access.gate.hmac.compare_digest", compare)
    text = site.lake.create_token("etl", "read")
    site.enter(text)
    with pytest.raises(Unauthenticated):
        site.enter("penstock_0123456789ab_" + "x" * 43)
    (token,) = site.lake.tokens()
    assert [other for _, other in compared] == [token.secret_hash, bytes(32)]
    assert [one for one, _ in compared] == [hash_secret(parse_token(text).secret), hash_secret("x" * 43)]


def test_a_new_token_can_be_used_at_once(site: Site) -> None:
    site.enter(site.lake.create_token("one", "read"))
    assert site.enter(site.lake.create_token("other", "read")) == "other"


def test_a_revoked_token_stops_within_the_time_that_tokens_are_kept(site: Site) -> None:
    text = site.lake.create_token("etl", "read")
    site.enter(text)
    site.lake.revoke_token(parse_token(text).id)
    site.go_on(TOKENS_KEPT_S - 0.1)
    assert site.enter(text) == "etl"
    site.go_on(0.1)
    with pytest.raises(Unauthenticated, match="revoked"):
        site.enter(text)


def test_known_tokens_are_not_read_for_every_request(site: Site) -> None:
    text = site.lake.create_token("etl", "read")
    for _ in range(50):
        site.go_on(0.09)
        site.enter(text)
    assert site.watched.readings == 1
    site.go_on(TOKENS_KEPT_S)
    site.enter(text)
    assert site.watched.readings == 2


def test_who_comes_while_others_wait_for_tokens_shares_their_reading() -> None:
    """The first one reads alone; who asks meanwhile needs tokens as they are later, and one reads for all."""
    lake = open_lake(MemoryStore())
    text = lake.create_token("etl", "read")
    watched, moments, all_asked = Watched(lake.catalogue), count(), Event()

    def monotonic() -> float:
        moment = next(moments)
        if moment == 8:  # the first one asked and began to read, seven more asked
            all_asked.set()
        return float(moment)

    gate = TokenGate(watched, monotonic=monotonic)
    watched.before_first = lambda: all_asked.wait(WAIT_S)
    callers = [Caller(lambda: gate({"authorization": f"Bearer {text}"}).name) for _ in range(8)]
    assert [one.result() for one in callers] == ["etl"] * 8
    assert watched.readings == 2
    lake.close()


def test_one_token_is_looked_up_and_not_all_of_them(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [site.lake.create_token(f"etl{number}", "read") for number in range(20)]
    asked: list[str] = []
    real = site.lake.kernel.store.reference

    def reference(name: str) -> Row | None:
        asked.append(name)
        return real(name)

    monkeypatch.setattr(site.lake.kernel.store, "reference", reference)
    monkeypatch.setattr(site.lake.kernel.store, "references", lambda *_: pytest.fail("all tokens were read"))
    assert site.enter(texts[7]) == "etl7"
    assert asked == [f"@token/{parse_token(texts[7]).id}"]


def made_up(number: int) -> str:
    return f"penstock_{number:012x}_" + "x" * 43


def test_a_token_that_there_is_not_is_looked_up_once_however_often_it_is_shown(site: Site) -> None:
    for _ in range(50):
        with pytest.raises(Unauthenticated):
            site.enter(made_up(1))
    assert site.watched.readings == 1
    site.go_on(UNKNOWN_KEPT_S)
    with pytest.raises(Unauthenticated):
        site.enter(made_up(1))
    assert site.watched.readings == 2


def test_what_is_remembered_of_tokens_that_there_are_not_is_bounded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "KEPT_MAX", 10)
    text = site.lake.create_token("etl", "read")
    site.enter(text)
    for number in range(50):
        with pytest.raises(Unauthenticated):
            site.enter(made_up(number))
    assert len(site.gate._unknown) == 10
    assert not site.gate._lookups
    readings = site.watched.readings
    assert site.enter(text) == "etl", "who is known is not forgotten for those who are not"
    assert site.watched.readings == readings


def test_whoever_is_known_does_not_wait_for_those_whose_tokens_are_looked_up() -> None:
    """More strangers than are looked up at once, and a store that answers none of them: who is known gets in,
    also when it is time to look again, and nobody else's token is read for it."""
    lake = open_lake(MemoryStore())
    text, seconds = lake.create_token("etl", "read"), 0.0
    held = Held(lake.catalogue)
    gate = TokenGate(held, monotonic=lambda: seconds)
    headers = {"authorization": f"Bearer {text}"}
    assert gate(headers).name == "etl"
    held.holds = True
    strangers = [Caller(partial(refused, gate, made_up(number))) for number in range(2 * STRANGERS_MAX)]
    for _ in range(STRANGERS_MAX):
        assert held.arrived.acquire(timeout=WAIT_S)
    assert gate(headers).name == "etl"
    seconds, held.known = 2 * TOKENS_KEPT_S, parse_token(text).id
    assert gate(headers).name == "etl"
    assert held.asked == STRANGERS_MAX + 2
    held.opened.set()
    assert all(one.result() for one in strangers)
    lake.close()


class Held:
    """A catalogue that answers about one token only, until it is let go."""

    page_max: int | None = None

    def __init__(self, inner: Catalogue) -> None:
        self._inner = inner
        self.holds, self.known, self.asked = False, "", 0
        self.arrived, self.opened = Semaphore(0), Event()

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        assert isinstance(call, FindToken)
        self.asked += 1
        if self.holds and call.id != self.known:
            self.arrived.release()
            assert self.opened.wait(WAIT_S)
        return cast("R", self._inner.do(call, progress))

    def close(self) -> None:
        pass


def refused(gate: TokenGate, text: str) -> bool:
    with pytest.raises(Unauthenticated):
        gate({"authorization": f"Bearer {text}"})
    return True


def test_a_caller_is_recognised_by_a_token_that_was_looked_up_and_lets_nobody_in_by_that(site: Site) -> None:
    text = site.lake.create_token("etl", "read")
    headers = {"authorization": f"Bearer {text}"}
    assert site.gate.recognise_caller(headers) == ""
    site.enter(text)
    assert site.gate.recognise_caller(headers) == parse_token(text).id
    site.go_on(2 * TOKENS_KEPT_S)
    assert site.gate.recognise_caller(headers) == parse_token(text).id, "also if it is some time ago"
    assert (
        site.gate.recognise_caller({"authorization": f"Bearer penstock_{parse_token(text).id}_{'x' * 43}"})
        == ""
    )
    assert (
        site.gate.recognise_caller({}) == site.gate.recognise_caller({"authorization": "Bearer junk"}) == ""
    )
    assert site.watched.readings == 1


def test_an_expired_token_stops_at_that_moment_though_it_is_known(site: Site) -> None:
    now = datetime.fromtimestamp(site.clock() / 1_000_000, UTC)
    text, call = make_token("etl", ["read"], now + timedelta(seconds=2))
    site.lake.catalogue.do(call)
    assert site.enter(text) == "etl"
    site.go_on(1.9)
    assert site.enter(text) == "etl"
    site.go_on(0.2)
    with pytest.raises(Unauthenticated, match="'etl' has expired"):
        site.enter(text)


def test_nobody_gets_in_while_tokens_cannot_be_read(site: Site) -> None:
    text = site.lake.create_token("etl", "read")
    site.enter(text)
    site.watched.is_away = True
    assert site.enter(text) == "etl"  # still known
    site.go_on(TOKENS_KEPT_S)
    with pytest.raises(Unavailable):
        site.enter(text)


def test_an_open_gate_lets_everybody_in_with_all_rights() -> None:
    caller = OpenGate()({})
    assert (caller.name, caller.is_admin, caller.any_location) == ("", True, False)
    assert OpenGate(any_location=True)({"authorization": "Bearer junk"}).any_location


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("read", Grant(Role.READ)),
        ("admin", Grant(Role.ADMIN)),
        ("write:dev/*", Grant(Role.WRITE, "dev/*")),
        ("write:dev/*:sales.*", Grant(Role.WRITE, "dev/*", "sales.*")),
        ("read:*:a:b", Grant(Role.READ, "*", "a:b")),
    ],
)
def test_grants_are_read_as_they_are_written(text: str, grant: Grant) -> None:
    assert parse_grant(text) == grant
    assert str(grant) == text
    assert parse_grant(grant) == grant


@pytest.mark.parametrize(
    "text", ["", "own", "READ", "read:", "read::x", "write:dev:", "admin:dev/*", "admin:*:x"]
)
def test_what_is_no_grant_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        make_token("etl", [text])


def test_a_token_that_could_never_be_used_is_not_made() -> None:
    with pytest.raises(InvalidRequest, match="cannot expire"):
        make_token("etl", ["read"], datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidRequest, match="grants"):
        make_token("etl", [])
