"""Gates: who sent a request.

A gate is asked with the headers of each request. Other ways to know somebody, such as an identity provider,
are further gates; what a caller may do is not their business.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from math import inf
from threading import Lock
from typing import Final, Protocol

from penstock.errors import Unauthenticated
from penstock.lake.calls import ListTokens
from penstock.lake.catalogue import Catalogue
from penstock.lake.tokens import parse_token, secret_hash
from penstock.model.clock import Clock, now_us, utc
from penstock.model.tokens import HASH_BYTES, Grant, Role, Token
from penstock.server.access.caller import Caller

TOKENS_KEPT_S: Final = 5.0
"""How long a token can still be used after it was revoked, at most."""

API_KEY: Final = "x-api-key"

NO_HASH: Final = bytes(HASH_BYTES)
"""No secret has this hash, as far as anybody knows. What an unknown token is compared with."""


class Gate(Protocol):
    """Says who sent a request. May be asked by many threads, and may take as long as the store to answer."""

    def __call__(self, headers: Mapping[str, str], /) -> Caller:
        """The caller; ``Unauthenticated`` if it is nobody who is known. Headers have names in lower case."""


class OpenGate:
    """Lets everybody in, with all rights: for a server that only its owner can reach."""

    def __init__(self, *, any_location: bool = False) -> None:
        self._caller = Caller(grants=(Grant(Role.ADMIN),), any_location=any_location)

    def __call__(self, _: Mapping[str, str], /) -> Caller:
        return self._caller


class TokenGate:
    """Lets in who shows one of the lake's tokens, as ``Authorization: Bearer penstock_…`` or, as some
    clients of Lance do, as ``x-api-key: penstock_…``.

    Tokens are read again every few seconds, and when one is shown that is not among them: a new one can be
    used at once, a revoked one ``TOKENS_KEPT_S`` longer. If the store does not answer, nobody gets in.
    """

    def __init__(
        self, catalogue: Catalogue, clock: Clock = now_us, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalogue, self._clock, self._monotonic = catalogue, clock, monotonic
        self._lock = Lock()
        self._known: tuple[dict[str, Token], float] = {}, -inf
        """Tokens by id, and when reading them began."""

    def __call__(self, headers: Mapping[str, str], /) -> Caller:
        shown = parse_token(_token(headers))
        token = self._find(shown.id)
        wanted = token.secret_hash if token is not None else NO_HASH
        if not hmac.compare_digest(secret_hash(shown.secret), wanted) or token is None:
            raise Unauthenticated("this token is not known here; it may have been revoked")
        if token.expires is not None and token.expires <= self._now():
            raise Unauthenticated(f"token '{token.name}' has expired, at {token.expires:%Y-%m-%d %H:%M} UTC")
        return Caller(name=token.name, grants=token.grants)

    def _now(self) -> datetime:
        return utc(self._clock())

    def _find(self, token_id: str) -> Token | None:
        asked_s = self._monotonic()
        known, read_s = self._known
        if asked_s - read_s < TOKENS_KEPT_S and token_id in known:
            return known[token_id]
        with self._lock:  # whoever waited for another's reading, which began later, need not read again
            known, read_s = self._known
            if read_s <= asked_s:
                read_s = self._monotonic()
                known = {token.id: token for token in self._catalogue.do(ListTokens())}
                self._known = known, read_s
        return known.get(token_id)


def _token(headers: Mapping[str, str]) -> str:
    """The token that a request shows."""
    header, key = headers.get("authorization", "").strip(), headers.get(API_KEY, "").strip()
    scheme, _, text = header.partition(" ")
    if not header and key:
        return key
    if not header:
        raise Unauthenticated("this server asks for a token: send 'Authorization: Bearer penstock_…'")
    if scheme.lower() != "bearer":
        raise Unauthenticated("this server takes bearer tokens only: 'Authorization: Bearer penstock_…'")
    return text.strip()
