"""Making lakes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli import shapes
from penstock.cli.call import Call, pass_call
from penstock.cli.declaration import command
from penstock.cli.rendering.columns import Cell, Row, columns
from penstock.cli.rendering.screen import Screen
from penstock.lake.lake import Lake, init_lake


@command(
    "init",
    prints="Lake",
    examples="""
$ penstock init other
$ penstock init third --default-branch trunk --warehouse s3://bucket/tables --root /data/shared
""",
)
@click.argument("path", required=False, metavar="[PATH]")
@click.option(
    "--warehouse",
    metavar="LOCATION",
    help="Where tables are that have no location of their own. [<lake>/warehouse]",
)
@click.option(
    "--root", "roots", multiple=True, metavar="LOCATION", help="A further place for tables; repeatable."
)
@click.option(
    "--default-branch",
    default="main",
    metavar="NAME",
    help="The name of the first branch. [main]",
)
@pass_call
def init(
    call: Call, path: str | None, warehouse: str | None, roots: tuple[str, ...], default_branch: str
) -> None:
    """Make a lake.

    PATH is a directory, or the URL of a database; without it, --lake or PENSTOCK_LAKE, else the current
    directory. Local lakes are also made by the first command that uses them; 'init' is for a warehouse,
    roots or a default branch of your own, and for databases that several people share.
    """
    if path is not None and call.lake is not None and path != call.lake:
        raise click.UsageError(f"two places are given: {path} and --lake {call.lake}")
    lake = init_lake(
        path or call.told or ".",
        warehouse=warehouse,
        roots=roots,
        default_branch=default_branch,
        author=call.who,
    )
    click.get_current_context().call_on_close(lake.close)
    call.answer(lambda: describe(lake), lambda screen: _text(screen, lake))


def describe(lake: Lake) -> shapes.Lake:
    return shapes.Lake(
        id=lake.id,
        url=lake.url,
        default_branch=lake.default_branch,
        warehouse=lake.warehouse,
        roots=lake.roots,
    )


def _text(screen: Screen, lake: Lake) -> Iterator[str]:
    yield f"made a lake at {screen.paint(lake.url, 'strong')}"
    rows: list[Row] = [
        ["default branch", Cell(lake.default_branch, "name")],
        ["warehouse", lake.warehouse or "none"],
        *(["root", root] for root in lake.roots if root != lake.warehouse),
    ]
    yield from columns(screen, rows, indent="  ")
