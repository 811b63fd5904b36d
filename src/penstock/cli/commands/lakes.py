"""Making lakes, copying them, and moving them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call, require_place
from penstock.cli.command_declaration import declare_command
from penstock.cli.progress import ProgressBar
from penstock.cli.rendering.screen import Screen
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_count, format_size
from penstock.kernel.copy import CopyResult
from penstock.lake.answers import About
from penstock.lake.copy import cancel_move, copy_lake, move_lake, undo_move
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake
from penstock.lake.upgrade import UpgradeResult, upgrade_lake


@declare_command(
    "init",
    prints=About,
    examples="""
$ penstock init other
$ penstock init third --default-branch trunk --warehouse s3://bucket/tables --root /data/shared
""",
)
@click.argument("path", required=False, metavar="[PATH]")
@click.option(
    "--warehouse",
    metavar="LOCATION",
    help="The location of tables that are created without one. [<lake>/warehouse]",
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="LOCATION",
    help="Another root: a location below which tables are allowed. Repeatable.",
)
@click.option(
    "--default-branch",
    default="main",
    metavar="NAME",
    help="The name of the first branch. [main]",
)
@pass_call
def init(
    call: CommandContext, path: str | None, warehouse: str | None, roots: tuple[str, ...], default_branch: str
) -> None:
    """Create a lake.

    PATH is a directory, or the URL of a database; without it, --lake or PENSTOCK_LAKE, else the current
    directory. A directory must be new or empty. Local lakes are also made by the first command that writes
    to them; 'init' is for a warehouse, roots or a default branch of your own, and for databases that several
    people share.
    """
    if path is not None and call.lake is not None and path != call.lake:
        raise click.UsageError(f"two places are given: {path} and --lake {call.lake}")
    lake = init_lake(
        require_place(path) if path else call.lake_address or ".",
        warehouse=warehouse,
        roots=roots,
        default_branch=default_branch,
        author=call.commit_author,
    )
    click.get_current_context().call_on_close(lake.close)
    call.print_answer(lambda: lake.about, lambda screen: _format_lake(screen, lake))
    if not lake.roots:
        call.print_note(
            "a server of this lake takes no tables until 'penstock root add' says where they may be"
        )


def _format_lake(screen: Screen, lake: Lake) -> Iterator[str]:
    yield f"made a lake at {screen.style(lake.url, 'strong')}"
    rows: list[Row] = [
        ["default branch", StyledText(lake.default_branch, "name")],
        ["warehouse", lake.warehouse or "none"],
        *(["root", root] for root in lake.roots if root != lake.warehouse),
    ]
    yield from align_columns(screen, rows, indent="  ")


@declare_command("copy", prints=CopyResult, examples="$ penstock copy other twin")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@pass_call
def copy(call: CommandContext, source: str, target: str) -> None:
    """Copy the lake at SOURCE to TARGET, with its history, references, ref logs and idempotency keys.

    SOURCE and TARGET are directories or URLs of databases; TARGET must be empty. SOURCE does not change, and
    can be written to meanwhile. The copy is a lake with its own id. Tables stay where they are: managed
    tables belong to SOURCE, and are read-only in the copy. Everything is checked before TARGET opens. After
    an interruption, the same command continues. To keep a copy for recovery, use 'penstock backup'.
    """
    _refuse_lake_option(call, "copy")
    with ProgressBar(call.json) as bar:
        copied = copy_lake(require_place(source), target, author=call.commit_author, progress=bar)
    call.print_answer(lambda: copied, lambda screen: _render_copied(screen, copied))


class MoveReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move."""

    state: str
    """`moved`, `cancelled` or `undone`: the lake lives at the target, or at the source."""
    source: str
    """Where the lake was."""
    target: str
    """Where it was to go."""
    copied: CopyResult | None = None
    """What was copied to the target; `null` of a move that was cancelled or undone."""


@declare_command(
    "move",
    prints=MoveReport,
    examples="""
$ penstock move other moved --yes
$ penstock move other moved --undo
""",
)
@click.argument("source", metavar="SOURCE")
@click.argument("target", required=False, metavar="TARGET")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--cancel", is_flag=True, help="Cancel a move of SOURCE that is not complete.")
@click.option("--undo", is_flag=True, help="Undo a complete move, if nobody wrote to TARGET since.")
@pass_call
def move(call: CommandContext, source: str, target: str | None, yes: bool, cancel: bool, undo: bool) -> None:
    """Move the lake at SOURCE to TARGET, with its history, references, ref logs, tokens and idempotency keys.

    From the beginning of the move on, SOURCE is read-only for good; writers get an error that names TARGET.
    Delete nothing of SOURCE while tables are in its directory: tables stay where they are, only the lake
    moves.

    SOURCE and TARGET are directories or URLs of databases; TARGET must be empty. The command asks for
    confirmation, unless --yes is given. Everything is checked before TARGET opens. After an interruption, the
    same command continues. --cancel stops a move that is not complete; --undo moves the lake back to SOURCE,
    as long as nothing was written to TARGET.
    """
    _refuse_lake_option(call, "move")
    if cancel:
        if target is not None or undo or yes:
            raise click.UsageError("--cancel needs SOURCE only")
        seal = cancel_move(require_place(source))
        call.print_answer(
            lambda: MoveReport(state="cancelled", source=source, target=seal.target),
            lambda screen: [f"{screen.style(source, 'strong')} stays where it is and takes writes again"],
        )
        return
    if target is None:
        raise click.UsageError("TARGET is missing: penstock move SOURCE TARGET")
    if undo:
        undo_move(require_place(source), target, author=call.commit_author)
        call.print_answer(
            lambda: MoveReport(state="undone", source=source, target=target),
            lambda screen: [
                f"the lake is at {screen.style(source, 'strong')} again, and takes writes there",
                f"{target} can only be read; it may be deleted, but no files of tables",
            ],
        )
        return
    if not yes:
        _confirm_move(call, source, target)
    with ProgressBar(call.json) as bar:
        moved = move_lake(require_place(source), target, author=call.commit_author, progress=bar)
    call.print_answer(
        lambda: MoveReport(state="moved", source=moved.source, target=moved.target, copied=moved),
        lambda screen: _render_moved(screen, moved),
    )


def _refuse_lake_option(call: CommandContext, command_name: str) -> None:
    if call.lake is not None:
        raise click.UsageError(f"'{command_name}' needs its lakes as SOURCE and TARGET, not as --lake")


def _confirm_move(call: CommandContext, source: str, target: str) -> None:
    """Ask whether a lake is to be moved; a usage error if nobody is there to answer."""
    if call.json or not sys.stdin.isatty():
        raise click.UsageError(
            f"a move makes {source} read-only, and must be confirmed: use --yes. 'penstock copy' makes a "
            "copy and leaves the lake as it is."
        )
    print(f"The lake moves to {target}. From now on {source} takes no more writes; it can still be read.")
    print("To make a copy instead, answer no and use 'penstock copy' or 'penstock backup'.")
    if not click.confirm("Move it?", default=False):
        raise click.ClickException("nothing was moved")


def _render_copied(screen: Screen, copied: CopyResult) -> Iterator[str]:
    yield from _format_copied_counts(screen, "copied", copied)
    yield screen.style("checked: nothing is wrong", "good")


def _render_moved(screen: Screen, moved: CopyResult) -> Iterator[str]:
    yield from _format_copied_counts(screen, "moved", moved)
    yield screen.style("checked: nothing is wrong", "good")
    yield f"{moved.source} can still be read; write to {moved.target} from now on"


def _format_copied_counts(screen: Screen, operation: str, copied: CopyResult) -> Iterator[str]:
    note = " (it was complete before)" if copied.repeated else ""
    yield f"{operation} {copied.source} to {screen.style(copied.target, 'strong')}{note}"
    rows: list[Row] = [
        ["copied", format_count(copied.references, "reference")],
        ["", format_count(copied.commits, "commit")],
        ["", f"{format_count(copied.objects, 'object')}, {format_size(copied.size_bytes)}"],
    ]
    yield from align_columns(screen, rows, indent="  ")


@declare_command(
    "upgrade",
    prints=UpgradeResult,
    examples="""
$ penstock upgrade --backup before-upgrade.backup
$ penstock upgrade --no-backup
""",
)
@click.option("--backup", metavar="TARGET", help="Make a backup at TARGET first, as 'penstock backup' does.")
@click.option("--no-backup", is_flag=True, help="Upgrade without a backup.")
@pass_call
def upgrade(call: CommandContext, backup: str | None, no_backup: bool) -> None:
    """Upgrade the lake to the storage format of this release. Older releases refuse it from then on.

    A lake of an earlier release works without an upgrade; the first write that an earlier release would
    misread upgrades it. This command upgrades it at once. Only the lake's format version changes, and an
    upgrade cannot be undone; a backup from before the upgrade has the earlier version.
    """
    if (backup is None) != no_backup:
        raise click.UsageError("give --backup TARGET to make a backup first, or --no-backup")
    if call.is_behind_server:
        raise click.UsageError(
            "an upgrade needs direct access to the lake's store, not a server: give --lake the address that "
            "'penstock serve' was started with"
        )
    upgraded = upgrade_lake(call.lake_target, backup=backup)
    call.print_answer(lambda: upgraded, lambda _: _render_upgraded(upgraded, backup))


def _render_upgraded(upgraded: UpgradeResult, backup: str | None) -> Iterator[str]:
    if upgraded.backup:
        yield f"made backup {upgraded.backup} at {backup}"
    if upgraded.before == upgraded.after:
        yield f"the lake has format version {upgraded.after} already, the newest that this Penstock knows"
    else:
        yield f"the lake has format version {upgraded.after} now, and had {upgraded.before}"
