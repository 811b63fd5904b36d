"""Making tokens, and reading what people write: a token's text, a grant.

The text is made here, by whoever asks for the token, and only the hash of its secret goes to the lake. So
nobody who reads the lake, or what is sent to it, can use the token.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.errors import InvalidRequest, Unauthenticated
from penstock.lake.calls import PutToken
from penstock.model.encoding import ObjectId
from penstock.model.tokens import Grant, Role, Token

ID_BYTES: Final = 6
SECRET_BYTES: Final = 32

_TEXT = re.compile(r"penstock_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class PresentedToken(NamedTuple):
    """A token as somebody shows it."""

    id: str
    secret: str


def make_token(
    name: str,
    grants: Iterable[str | Grant],
    expires: datetime | None = None,
    replaces: str | None = None,
) -> tuple[str, PutToken]:
    """The text of a new token, and the call that lets it be used. The text is nowhere else.

    ``InvalidRequest`` if the lake would refuse it, also if it is to expire in the past.
    """
    token_id, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    now = datetime.now(UTC)
    token = Token(
        id=token_id,
        name=name,
        secret_hash=hash_secret(secret),
        grants=tuple(parse_grant(grant) for grant in grants),
        created=now,
        expires=expires,
    ).check()
    if expires is not None and expires <= now:
        raise InvalidRequest(f"a token cannot expire in the past, got {expires}")
    call = PutToken(
        id=token.id,
        name=token.name,
        secret_hash=token.secret_hash,
        grants=token.grants,
        expires=token.expires,
        replaces=replaces,
    )
    return f"penstock_{token_id}_{secret}", call


def hash_secret(secret: str) -> ObjectId:
    """What a lake keeps of a secret.

    A secret has 256 random bits, so that a plain hash cannot be turned back by guessing.
    """
    return hashlib.sha256(secret.encode()).digest()


def parse_token(text: str) -> PresentedToken:
    """The id and the secret in a token's text; ``Unauthenticated``, without the text, if it is none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise Unauthenticated("this is not a token of Penstock, which has the form penstock_<id>_<secret>")
    return PresentedToken(match[1], match[2])


def parse_grant(text: str | Grant) -> Grant:
    """Read ``ROLE``, ``ROLE:REFERENCES`` or ``ROLE:REFERENCES:KEYS``.

    >>> parse_grant("write:dev/*:sales.*")
    Grant(role=<Role.WRITE: 'write'>, references='dev/*', keys='sales.*')
    """
    if isinstance(text, Grant):
        return text.check()
    role, *patterns = text.split(":", 2)
    if role not in set(Role):
        roles = ", ".join(Role)
        raise InvalidRequest(
            f"invalid grant {text!r}: it must begin with one of {roles}, as in 'write:dev/*:sales.*'"
        )
    if "" in patterns:
        raise InvalidRequest(
            f"invalid grant {text!r}: after ':' it must have a pattern of references, and optionally a "
            "pattern of keys, as in 'write:dev/*:sales.*'"
        )
    return Grant(Role(role), *patterns).check()
