"""Tokens in a store: one row for each, beside those of references and of a kind of their own.

They belong to the lake at its place: a move takes them along, a fork has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from penstock.errors import ConflictError, Damaged, OutcomeUnknown, TokenNotFound, Unavailable
from penstock.kernel.description import (
    GRANTS_VERSION,
    change_description,
    find_description,
    lake_moved,
    require_unmoved,
    with_version,
)
from penstock.kernel.retry import reason_of, until_moved
from penstock.kernel.settings import Settings
from penstock.model.references import Kind
from penstock.model.tokens import FIRST_ROLES, Token, decode_token, encode_token
from penstock.stores.port import Row, Store, Turn

PREFIX: Final = "@token/"
"""No branch or tag has a name that begins so."""

PAGE: Final = 1000


def tokens(store: Store) -> list[Token]:
    """All tokens by id."""
    return [decoded_token(row) for row in token_rows(store)]


def find_token(store: Store, id: str) -> Token | None:  # noqa: A002
    """The token with an id, if there is one."""
    row = store.reference(PREFIX + id)
    return decoded_token(row) if row is not None else None


def put_token(store: Store, settings: Settings, token: Token, replaces: str | None = None) -> Token:
    """Let a token be used, and return it as the lake has it.

    The same one sent again is answered by what is there. ``ConflictError`` if another token has its id, or
    its name and is not the one that it ``replaces``; ``LakeMoved`` if the lake is moving: then the token may
    or may not go along.
    """
    mine = _row(token.check())
    is_new = find_token(store, token.id) is None
    if is_new:
        _check_name(store, token, replaces)
        _raise_version(store, settings, token)

    def decide(turn: Turn, _: bool) -> Token | None:
        if turn.row is not None:
            return _same(decoded_token(turn.row), token)
        return token if turn.advance({}, mine).swapped else None

    made = _swap(store, settings, token.id, decide)
    if _row(made) == mine:
        with _landed(token.id):
            _withdraw_if_moved(store, mine)
    if is_new:
        try:
            _check_name(store, token, replaces)  # another one may have come at the same time
        except ConflictError:
            revoke_token(store, settings, token.id)
            raise
    return made


def _check_name(store: Store, token: Token, replaces: str | None) -> None:
    """``ConflictError`` if another token has the name, ``TokenNotFound`` if none has that it replaces."""
    others = [one.id for one in tokens(store) if one.name == token.name and one.id != token.id]
    if replaces is None and others:
        raise ConflictError(
            f"there is a token of '{token.name}' already, {others[0]}; give this one a name of its own, or "
            "say that it replaces that one (--replaces)",
            id=others[0],
            name=token.name,
        )
    if replaces is not None and replaces not in others:
        raise TokenNotFound(f"there is no token '{replaces}' of '{token.name}' to replace", id=replaces)


def _raise_version(store: Store, settings: Settings, token: Token) -> None:
    """Have a Penstock refuse the lake by its version that could not read the grants of a token."""
    if all(grant.role in FIRST_ROLES for grant in token.grants):
        return
    lake = find_description(store)
    if lake is not None and lake.format_version < GRANTS_VERSION:
        change_description(store, settings, lambda found: with_version(found, GRANTS_VERSION))


def revoke_token(store: Store, settings: Settings, id: str) -> Token:  # noqa: A002
    """Let a token not be used any more, and return what it was.

    ``TokenNotFound`` if there is none, ``LakeMoved`` if the lake is moving: it may have gone along.
    """
    last: Token | None = None

    def decide(turn: Turn, in_doubt: bool) -> Token | None:
        nonlocal last
        if turn.row is None:
            if in_doubt and last is not None:
                return last  # it was removed, and only the answer was lost
            raise TokenNotFound(f"there is no token '{id}'", id=id)
        last = decoded_token(turn.row)
        return last if turn.advance({}, None).swapped else None

    gone = _swap(store, settings, id, decide)
    with _landed(id):
        require_unmoved(store)
    return gone


def token_rows(store: Store) -> Iterator[Row]:
    """The rows of all tokens, as they are stored."""
    after = ""
    while page := store.references(Kind.TOKEN.value, after=after, limit=PAGE):
        yield from page
        after = page[-1].name


def decoded_token(row: Row) -> Token:
    """The token in a row; ``Damaged`` if there is none."""
    try:
        found: Token = decode_token(row.data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(f"the row of '{row.name}' cannot be read: {problem}", name=row.name) from None
    if (PREFIX + found.id, Kind.TOKEN) != (row.name, row.kind):
        raise Damaged(f"the row of '{row.name}' holds token '{found.id}'", name=row.name)
    return found


def _row(token: Token) -> Row:
    return Row(PREFIX + token.id, Kind.TOKEN.value, encode_token(token))


def _same(found: Token, wanted: Token) -> Token:
    """What is there already, if it is the same but for when it was made."""
    if msgspec.structs.replace(found, created=wanted.created) != wanted:
        raise ConflictError(
            f"there is another token '{found.id}' already; make one with a new id", id=found.id
        )
    return found


def _swap(
    store: Store,
    settings: Settings,
    id: str,  # noqa: A002
    decide: Callable[[Turn, bool], Token | None],
) -> Token:
    """Move a token's row, again where another process was faster or the store did not say what happened."""

    def move(in_doubt: bool) -> tuple[Token] | None:
        with store.turn(PREFIX + id) as turn:
            require_unmoved(store)
            done = decide(turn, in_doubt)
            return None if done is None else (done,)

    lost = f"another process changed token '{id}'"
    return until_moved(settings, move, lost, lambda reason: _doubtful(id, reason))


@contextmanager
def _landed(id: str) -> Iterator[None]:  # noqa: A002
    """What is done after a row moved: that the store does not answer now does not take it back."""
    try:
        yield
    except Unavailable as problem:
        raise _doubtful(id, reason_of(problem)) from None


def _doubtful(id: str, reason: str) -> OutcomeUnknown:  # noqa: A002
    return OutcomeUnknown(
        f"it is not known whether token '{id}' was changed: {reason}\n"
        "  'penstock token list' tells as soon as the store answers; repeating the request is safe.",
        id=id,
    )


def _withdraw_if_moved(store: Store, made: Row) -> None:
    """Take back a token that was put while the lake was being sealed: it may have been overlooked.

    Whoever moves the lake reads its tokens after the seal is set. So who finds no seal after the row was put
    knows that the token goes along.
    """
    lake = find_description(store)
    if lake is None or lake.sealed is None:
        return
    with store.turn(made.name) as turn:
        if turn.row == made:
            turn.advance({}, None)
    raise lake_moved(lake.sealed, store)
