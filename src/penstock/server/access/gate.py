"""Gates: authentication, from the headers of a request to its caller.

Another way to authenticate, such as an identity provider, is another gate; what a caller may do is decided
elsewhere (``caller``, ``checked_catalogue``).
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from threading import Lock, Semaphore
from typing import Final, NamedTuple, Protocol

from penstock.errors import Unauthenticated
from penstock.lake.calls import FindToken
from penstock.lake.catalogue import Catalogue
from penstock.lake.tokens import hash_secret, parse_token
from penstock.model.clock import Clock, now_us, to_utc_datetime
from penstock.model.encoding import ObjectId
from penstock.model.tokens import HASH_BYTES, Grant, Role, Token
from penstock.server.access.caller import Caller

TOKENS_KEPT_S: Final = 5.0
"""How long a token can still be used after it was revoked, at most."""
UNKNOWN_KEPT_S: Final = 1.0
"""How long a token is refused that was shown before it was made, at most."""
KEPT_MAX: Final = 10_000
"""How many tokens are remembered, those that there are and those that there are not."""
SHOWN_MAX: Final = 1_000
"""How many headers with tokens are read, and their secrets hashed, once only."""
STRANGERS_MAX: Final = 4
"""Look-ups at the same time of tokens that were not known a moment ago."""

API_KEY: Final = "x-api-key"

NO_HASH: Final = bytes(HASH_BYTES)
"""No secret has this hash, as far as anybody knows. What an unknown token is compared with."""


class AccessGate(Protocol):
    """Says who sent a request. May be asked by many threads, and may take as long as the store to answer."""

    def __call__(self, headers: Mapping[str, str], /) -> Caller:
        """The caller; ``Unauthenticated`` if it is nobody who is known. Headers have names in lower case."""

    def recognise_caller(self, headers: Mapping[str, str], /) -> str:  # noqa: ARG002
        """Who sent a request, as far as that is known without asking anybody; else nothing.

        It says whose share of the server the request uses, and lets nobody in.
        """
        return ""


class OpenGate(AccessGate):
    """Lets everybody in, with all rights: for a server that only its owner can reach."""

    def __init__(self, *, any_location: bool = False) -> None:
        self._caller = Caller(grants=(Grant(Role.ADMIN),), any_location=any_location)

    def __call__(self, _: Mapping[str, str], /) -> Caller:
        return self._caller


class TokenGate(AccessGate):
    """Lets in who shows one of the lake's tokens, as ``Authorization: Bearer penstock_…`` or, as some clients
    of Lance do, as ``x-api-key: penstock_…``.

    A token is looked up by its id, one row of the store, and looked up again every few seconds while it is
    used: a new one can be used at once, a revoked one ``TOKENS_KEPT_S`` longer. Whoever shows tokens that
    there are not is answered from memory for ``UNKNOWN_KEPT_S``, and waits for others who do, not for those
    who are known. If the store does not answer, nobody gets in.
    """

    def __init__(
        self, catalogue: Catalogue, clock: Clock = now_us, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalogue, self._clock, self._monotonic = catalogue, clock, monotonic
        self._known: dict[str, _TokenLookup] = {}
        """Tokens that there are, or were lately, by id."""
        self._unknown: dict[str, _TokenLookup] = {}
        self._lock = Lock()
        self._lookups: dict[str, _GateTurn] = {}
        """Those that go on now, by id."""
        self._strangers = Semaphore(STRANGERS_MAX)

    def __call__(self, headers: Mapping[str, str], /) -> Caller:
        shown = _read_shown_token(headers.get("authorization", ""), headers.get(API_KEY, ""))
        token = self._find_token(shown.id)
        if not _has_secret(token, shown) or token is None:
            raise Unauthenticated("unknown token; it may have been revoked")
        if token.expires is not None and token.expires <= self._get_current_time():
            raise Unauthenticated(f"token '{token.name}' has expired, at {token.expires:%Y-%m-%d %H:%M} UTC")
        return Caller(name=token.name, grants=token.grants)

    def recognise_caller(self, headers: Mapping[str, str], /) -> str:
        """The id of a token that was looked up before, also if that is some time ago."""
        try:
            shown = _read_shown_token(headers.get("authorization", ""), headers.get(API_KEY, ""))
        except Unauthenticated:
            return ""
        lookup = self._known.get(shown.id)
        return shown.id if lookup is not None and _has_secret(lookup.token, shown) else ""

    def _get_current_time(self) -> datetime:
        return to_utc_datetime(self._clock())

    def _find_token(self, token_id: str) -> Token | None:
        asked_s = self._monotonic()
        if (cached := self._known.get(token_id)) and asked_s - cached.began_s < TOKENS_KEPT_S:
            return cached.token
        if (unknown := self._unknown.get(token_id)) and asked_s - unknown.began_s < UNKNOWN_KEPT_S:
            return None
        if cached is not None:
            return self._look_up_token(token_id, asked_s)
        with self._strangers:
            return self._look_up_token(token_id, asked_s)

    def _look_up_token(self, token_id: str, asked_s: float) -> Token | None:
        """Ask the store for a token, once for all who ask for it at the same time."""
        with self._lock:
            turn = self._lookups.setdefault(token_id, _GateTurn())
            turn.users += 1
        try:
            with turn.lock:  # whoever waited for another's reading, which began later, need not read again
                last = self._known.get(token_id) or self._unknown.get(token_id)
                if last is None or last.began_s <= asked_s:
                    began_s = self._monotonic()
                    last = _TokenLookup(self._catalogue.do(FindToken(id=token_id)), began_s)
                    self._remember_lookup(token_id, last)
                return last.token
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    self._lookups.pop(token_id, None)

    def _remember_lookup(self, token_id: str, lookup: _TokenLookup) -> None:
        remembered, other = (self._known, self._unknown) if lookup.token else (self._unknown, self._known)
        with self._lock:
            other.pop(token_id, None)
            remembered.pop(token_id, None)
            remembered[token_id] = lookup
            if len(remembered) > KEPT_MAX:
                del remembered[next(iter(remembered))]


class _TokenLookup(NamedTuple):
    """What a look at the store found, and when it began."""

    token: Token | None
    began_s: float


class _GateTurn:
    """The threads that want to look up one token at the same time."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0


class _ShownToken(NamedTuple):
    """A token as somebody shows it: its id, and the hash of its secret."""

    id: str
    secret_hash: ObjectId


@lru_cache(maxsize=SHOWN_MAX)
def _read_shown_token(authorization: str, api_key: str) -> _ShownToken:
    """The token that a request's headers show. Whether there is such a token is asked with each request."""
    presented = parse_token(_parse_token(authorization.strip(), api_key.strip()))
    return _ShownToken(presented.id, hash_secret(presented.secret))


def _has_secret(token: Token | None, shown: _ShownToken) -> bool:
    """Whether the secret is right; it takes as long if there is no such token."""
    expected_hash = token.secret_hash if token is not None else NO_HASH
    return hmac.compare_digest(shown.secret_hash, expected_hash)


def _parse_token(header: str, api_key: str) -> str:
    """The text of the token that headers show."""
    scheme, _, text = header.partition(" ")
    if not header and api_key:
        return api_key
    if not header:
        raise Unauthenticated("this server needs a token: send 'Authorization: Bearer penstock_…'")
    if scheme.lower() != "bearer":
        raise Unauthenticated("this server accepts bearer tokens only: 'Authorization: Bearer penstock_…'")
    return text.strip()
