"""Tokens in a store: one row for each, beside those of references and of a kind of their own.

They belong to the lake at its place: a move takes them along, a fork has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from penstock.errors import ConflictError, TokenNotFound, TryAgainError
from penstock.kernel.description import (
    GRANTS_VERSION,
    find_description,
    lake_moved_error,
    raise_version,
    require_unmoved,
)
from penstock.kernel.records import KeepRow, RecordType, RemoveRow, ReplaceRow, RowSubject, list_rows_of_kind
from penstock.kernel.settings import Settings
from penstock.kernel.time_limits import describe_reason
from penstock.model.references import Kind
from penstock.model.tokens import FIRST_ROLES, Token, decode_token, encode_token
from penstock.stores.port import Row, Store

PREFIX: Final = "@token/"
"""No branch or tag has a name that begins so."""


def _token_subject(id: str) -> RowSubject:  # noqa: A002
    advice = "'penstock token list' shows it once the store answers; repeating the request is safe."
    return RowSubject(f"token '{id}'", advice, {"id": id})


TOKENS: Final[RecordType[Token]] = RecordType(
    PREFIX, lambda _: Kind.TOKEN.value, encode_token, decode_token, _token_subject, lambda token: token.id
)


def list_tokens(store: Store) -> list[Token]:
    """All tokens by id."""
    return [TOKENS.decode_row(row) for row in read_token_rows(store)]


def find_token(store: Store, id: str) -> Token | None:  # noqa: A002
    """The token with an id, if there is one."""
    return TOKENS.find_record(store, id)


def put_token(store: Store, settings: Settings, token: Token, replaces: str | None = None) -> Token:
    """Let a token be used, and return it as the lake has it.

    The same one sent again is answered by what is there. ``ConflictError`` if another token has its id, or
    its name and is not the one that it ``replaces``; ``LakeMoved`` if the lake is moving: then the token may
    or may not go along.
    """
    token.check()
    is_new = find_token(store, token.id) is None
    if is_new:
        _check_name(store, token, replaces)
        if any(grant.role not in FIRST_ROLES for grant in token.grants):
            raise_version(store, settings, GRANTS_VERSION)

    def decide_change(stored_token: Token | None) -> ReplaceRow[Token] | KeepRow[Token]:
        require_unmoved(store)
        return ReplaceRow(token) if stored_token is None else KeepRow(_require_same(stored_token, token))

    stored_token = TOKENS.update_record(store, settings, token.id, decide_change)
    if encode_token(stored_token) == encode_token(token):
        with _ignore_outage(store, token.id):
            _withdraw_if_moved(store, settings, token)
    if is_new:
        try:
            _check_name(store, token, replaces)  # another one may have come at the same time
        except ConflictError:
            revoke_token(store, settings, token.id)
            raise
    return stored_token


def _check_name(store: Store, token: Token, replaces: str | None) -> None:
    """``ConflictError`` if another token has the name, ``TokenNotFound`` if none has that it replaces."""
    others = [
        other_token.id
        for other_token in list_tokens(store)
        if other_token.name == token.name and other_token.id != token.id
    ]
    if replaces is None and others:
        raise ConflictError(
            f"'{token.name}' already has a token, {others[0]}; choose another name, or use --replaces to "
            "replace that token",
            id=others[0],
            name=token.name,
        )
    if replaces is not None and replaces not in others:
        raise TokenNotFound(f"there is no token '{replaces}' of '{token.name}' to replace", id=replaces)


def revoke_token(store: Store, settings: Settings, id: str) -> Token:  # noqa: A002
    """Let a token not be used any more, and return what it was.

    ``TokenNotFound`` if there is none, ``LakeMoved`` if the lake is moving: it may have gone along.
    """

    def decide_change(token: Token | None) -> RemoveRow[Token]:
        require_unmoved(store)
        if token is None:
            raise TokenNotFound(f"there is no token '{id}'", id=id)
        return RemoveRow(token)

    token = TOKENS.update_record(store, settings, id, decide_change)
    with _ignore_outage(store, id):
        require_unmoved(store)
    return token


def read_token_rows(store: Store) -> Iterator[Row]:
    """The rows of all tokens, as they are stored."""
    return list_rows_of_kind(store, Kind.TOKEN)


def _require_same(stored_token: Token, token: Token) -> Token:
    """What is there already, if it is the same but for when it was made."""
    if msgspec.structs.replace(stored_token, created=token.created) != token:
        raise ConflictError(
            f"a token with the id '{stored_token.id}' already exists; create one with another id",
            id=stored_token.id,
        )
    return stored_token


@contextmanager
def _ignore_outage(store: Store, id: str) -> Iterator[None]:  # noqa: A002
    """What is done after a row was swapped: that the store does not answer now does not take it back."""
    try:
        yield
    except TryAgainError as problem:
        raise _token_subject(id).make_outcome_unknown(store, describe_reason(problem)) from None


def _withdraw_if_moved(store: Store, settings: Settings, token: Token) -> None:
    """Take back a token that was put while the lake was being sealed: it may have been overlooked.

    Whoever moves the lake reads its tokens after the seal is set. So who finds no seal after the row was put
    knows that the token goes along.
    """
    lake = find_description(store)
    if lake is None or lake.sealed is None:
        return

    def decide_change(stored_token: Token | None) -> RemoveRow[Token] | KeepRow[None]:
        is_ours = stored_token is not None and encode_token(stored_token) == encode_token(token)
        return RemoveRow(token) if is_ours else KeepRow(None)

    TOKENS.update_record(store, settings, token.id, decide_change)
    raise lake_moved_error(lake.sealed, store)
