"""Making lakes, and moving them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli import shapes
from penstock.cli.call import Call, pass_call, require_place
from penstock.cli.declaration import command
from penstock.cli.progress import Bar
from penstock.cli.rendering.columns import Cell, Row, columns
from penstock.cli.rendering.screen import Screen
from penstock.cli.rendering.times import counted, size
from penstock.kernel.copy import Copied
from penstock.lake.copy import cancel_copy, copy_lake
from penstock.lake.lake import Lake
from penstock.lake.opening import init_lake


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
    directory. A directory must be new or empty. Local lakes are also made by the first command that writes
    to them; 'init' is for a warehouse, roots or a default branch of your own, and for databases that several
    people share.
    """
    if path is not None and call.lake is not None and path != call.lake:
        raise click.UsageError(f"two places are given: {path} and --lake {call.lake}")
    lake = init_lake(
        require_place(path) if path else call.told or ".",
        warehouse=warehouse,
        roots=roots,
        default_branch=default_branch,
        author=call.who,
    )
    click.get_current_context().call_on_close(lake.close)
    call.answer(lambda: describe(lake), lambda screen: _text(screen, lake))
    if not lake.roots:
        call.note("a server of this lake takes no tables until 'penstock root add' says where they may be")


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


@command(
    "copy",
    prints="Copy",
    examples="""
$ penstock copy other moved
$ penstock copy moved fork --fork
""",
)
@click.argument("source", metavar="SOURCE")
@click.argument("target", required=False, metavar="TARGET")
@click.option("--fork", is_flag=True, help="Leave SOURCE as it is, and make a lake with an id of its own.")
@click.option("--cancel", is_flag=True, help="Let SOURCE stay where it is, if it is still on the way.")
@pass_call
def copy(call: Call, source: str, target: str | None, fork: bool, cancel: bool) -> None:
    """Move the lake at SOURCE to TARGET, with its history, references, ref logs and idempotency keys.

    SOURCE and TARGET are directories or URLs of databases; TARGET is empty. While the lake is on the way, and
    afterwards, SOURCE can be read but takes no more writes. Everything is checked before TARGET opens. If it
    is interrupted, the same command goes on where it was; --cancel lets SOURCE stay. Tables stay where they
    are: only the lake moves.

    With --fork, SOURCE goes on as it is. Managed tables belong to SOURCE, and can only be read in the fork.
    """
    if call.lake is not None:
        raise click.UsageError("'copy' is told its lakes as SOURCE and TARGET, not by --lake")
    if cancel:
        if target is not None or fork:
            raise click.UsageError("--cancel takes SOURCE and nothing else")
        seal = cancel_copy(source)
        call.answer(
            lambda: shapes.Copy.of_cancelled(source, seal.target),
            lambda screen: [f"{screen.paint(source, 'strong')} stays where it is and takes writes again"],
        )
        return
    if target is None:
        raise click.UsageError("say where to: penstock copy SOURCE TARGET")
    with Bar(call.json) as bar:
        copied = copy_lake(source, target, fork=fork, author=call.who, progress=bar)
    call.answer(lambda: shapes.Copy.of(copied), lambda screen: _copied(screen, copied))


def _copied(screen: Screen, copied: Copied) -> Iterator[str]:
    done = "forked" if copied.is_fork else "moved"
    was = " (it was complete before)" if copied.repeated else ""
    yield f"{done} {copied.source} to {screen.paint(copied.target, 'strong')}{was}"
    rows: list[Row] = [
        ["copied", counted(copied.references, "reference")],
        ["", counted(copied.commits, "commit")],
        ["", f"{counted(copied.objects, 'object')}, {size(copied.size_bytes)}"],
    ]
    yield from columns(screen, rows, indent="  ")
    yield screen.paint("checked: nothing is wrong", "good")
    if not copied.is_fork:
        yield f"{copied.source} can still be read; write to {copied.target} from now on"
