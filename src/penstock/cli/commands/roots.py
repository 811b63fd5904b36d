"""Roots: the places where the lake's tables may be."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli import shapes
from penstock.cli.call import Call, pass_call
from penstock.cli.declaration import group
from penstock.cli.rendering.columns import Cell, Row, columns
from penstock.cli.rendering.screen import Screen, printable
from penstock.lake.answers import About
from penstock.lake.calls import ChangeRoots


@group("root", prints="Roots", examples="$ penstock root add s3://bucket/sales\n$ penstock root")
@click.pass_context
def root(ctx: click.Context) -> None:
    """List, add and remove the places where tables may be.

    A server refuses tables elsewhere. The warehouse, where tables are that have no location of their own, is
    always one of them. Without a subcommand, they are listed.
    """
    if ctx.invoked_subcommand is None:
        call = ctx.ensure_object(Call)
        _say(call, call.open().about)


@root.command("list", prints="Roots", examples="$ penstock root list")
@pass_call
def root_list(call: Call) -> None:
    """List the places where tables may be."""
    _say(call, call.open().about)


@root.command("add", prints="Roots", examples="$ penstock root add s3://bucket/exports s3://bucket/archive")
@click.argument("locations", nargs=-1, required=True, metavar="LOCATION...")
@pass_call
def root_add(call: Call, locations: tuple[str, ...]) -> None:
    """Let tables be at each LOCATION and below it: a directory, or a URL such as s3://bucket/prefix."""
    _say(call, call.open().do(ChangeRoots(add=locations)))


@root.command("remove", prints="Roots", examples="$ penstock root remove s3://bucket/archive")
@click.argument("locations", nargs=-1, required=True, metavar="LOCATION...")
@pass_call
def root_remove(call: Call, locations: tuple[str, ...]) -> None:
    """Let no further tables be at each LOCATION. Tables that are there already stay, and can be read."""
    _say(call, call.open().do(ChangeRoots(remove=locations)))


def _say(call: Call, about: About) -> None:
    call.answer(lambda: shapes.Roots.of(about), lambda screen: _listing(screen, about))


def _listing(screen: Screen, about: About) -> Iterator[str]:
    if not about.roots:
        yield "no roots: tables can be nowhere. 'penstock root add' adds one"
    rows: list[Row] = [
        [Cell(printable(place), "name"), Cell("warehouse" if place == about.warehouse else "", "dim")]
        for place in about.roots
    ]
    yield from columns(screen, rows)
