"""Tokens: who may use a server of the lake, and for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click
import msgspec

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_group
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age, parse_moment
from penstock.errors import InvalidRequest, PenstockError, TokenNotFound
from penstock.lake.lake import Lake
from penstock.lake.tokens import make_token, parse_token
from penstock.model.names import parse_time
from penstock.model.tokens import Token


class NewToken(Token, frozen=True, kw_only=True):
    """A token that was just created."""

    token: str
    """The token itself, which is not shown again."""


def _remove_hash(token: Token) -> Token:
    """A token as it is printed: output ends up in logs, where not even a hash of a secret has to be."""
    return msgspec.structs.replace(token, secret_hash=b"")


@declare_group(
    "token",
    prints=ListPage[Token],
    examples="$ penstock token create etl --grant read --grant 'write:dev/*'\n$ penstock token",
)
@click.pass_context
def token(ctx: click.Context) -> None:
    """List, create and revoke tokens.

    A token lets a program use a server of the lake (see 'penstock serve'). Without a subcommand, tokens are
    listed.
    """
    if ctx.invoked_subcommand is None:
        _list_tokens(ctx.ensure_object(CommandContext))


@token.command("list", prints=ListPage[Token], examples="$ penstock token list")
@pass_call
def token_list(call: CommandContext) -> None:
    """List tokens: their names and what they allow. Their secrets are not stored."""
    _list_tokens(call)


def _list_tokens(call: CommandContext) -> None:
    tokens = sorted(call.open_lake().tokens(), key=lambda token: (token.name, token.created))
    call.print_answer(
        lambda: ListPage.from_items(map(_remove_hash, tokens)), lambda screen: _format_tokens(screen, tokens)
    )


def _format_tokens(screen: Screen, tokens: Sequence[Token]) -> Iterator[str]:
    if not tokens:
        yield "no tokens"
    yield from align_columns(screen, [_format_token_row(screen, token) for token in tokens], flexible=2)


def _format_token_row(screen: Screen, token: Token) -> Row:
    return [
        StyledText(token.id, "id"),
        StyledText(escape_controls(token.name), "name"),
        escape_controls(", ".join(map(str, token.grants))),
        StyledText(f"created {format_age(token.created, screen.now)}", "dim"),
        _format_expiry(screen, token),
    ]


def _format_expiry(screen: Screen, token: Token) -> StyledText:
    if token.expires is None:
        return StyledText("")
    if token.expires <= screen.now:
        return StyledText(f"expired {format_age(token.expires, screen.now)}", "bad")
    return StyledText(f"until {token.expires.astimezone(UTC):%Y-%m-%d %H:%M} UTC", "dim")


@token.command(
    "create",
    prints=NewToken,
    examples="""
$ penstock token create dashboards --grant read:main --expires 90d
$ penstock token create sales-job --grant 'read:main:sales.*' --grant 'write:dev/*:sales.*'
""",
)
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    metavar="ROLE[:REFERENCES[:KEYS]]",
    help="What it allows: read, write, restore, erase, maintain, backup, move or admin; then, if not for "
    "all, a pattern of branches and tags and one of keys. May be given several times.",
)
@click.option(
    "--expires",
    metavar="TIME",
    help="When it expires: after 90d, 12h or 30min, or at a time such as 2027-01-01. [never]",
)
@click.option(
    "--replaces",
    metavar="ID",
    help="The token of the same NAME that this one replaces: the same writer with a new secret.",
)
@pass_call
def token_create(
    call: CommandContext, name: str, grants: tuple[str, ...], expires: str | None, replaces: str | None
) -> None:
    """Create a token for NAME, and print it.

    The token is shown only once: the lake stores a hash of it. NAME is the author of commits made with it,
    and is unique, unless one token replaces another. Patterns may contain * and ?; 'sales.*' matches
    everything in the namespace sales, and sales itself.
    """
    end = _parse_expiry(expires) if expires is not None else None
    lake = call.open_lake()
    text, request = make_token(name, grants, end, replaces)
    made = lake.do(request)
    if replaces is not None:
        call.print_note(
            f"revoke the old token when nobody uses it any more: penstock token revoke {replaces}"
        )
    call.print_note("keep this token now; it is not shown again. Clients take it from PENSTOCK_TOKEN")
    call.print_answer(
        lambda: NewToken(**msgspec.structs.asdict(_remove_hash(made)), token=text), lambda _: [text]
    )


def _parse_expiry(text: str) -> datetime:
    """The moment that a duration from now, or a date or time, names."""
    now = datetime.now(UTC)
    try:
        time = parse_moment(text, now)
        if isinstance(time, datetime):
            return now + (now - time)
        return parse_time(time)
    except (PenstockError, OverflowError, OSError, ValueError):
        raise click.UsageError(
            f"--expires {text!r} is not a time; write it like 90d, 12h or 2027-01-01T00:00:00Z"
        ) from None


@token.command("revoke", prints=Token, examples="$ penstock token revoke dashboards")
@click.argument("which", metavar="TOKEN")
@pass_call
def token_revoke(call: CommandContext, which: str) -> None:
    """Revoke TOKEN: it is refused from now on.

    TOKEN is its id, its name if only one has it, or the token itself. Servers notice within seconds.
    """
    lake = call.open_lake()
    gone = lake.revoke_token(_find_token_id(lake, which))
    call.print_answer(
        lambda: _remove_hash(gone),
        lambda screen: [
            (
                f"revoked token {screen.style(gone.id, 'id')} of "
                f"{screen.style(escape_controls(gone.name), 'name')}"
            )
        ],
    )


def _find_token_id(lake: Lake, which: str) -> str:
    if which.startswith("penstock_"):
        return parse_token(which).id
    tokens = lake.tokens()
    if any(token.id == which for token in tokens):
        return which
    named = [token.id for token in tokens if token.name == which]
    if not named:
        raise TokenNotFound(f"there is no token '{which}'", id=which)
    if len(named) > 1:
        raise InvalidRequest(f"several tokens are named '{which}'; give the id of one: {', '.join(named)}")
    return named[0]
