"""Care of a lake: checking it, and removing what nothing needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import msgspec

from penstock.cli import shapes
from penstock.cli.call import Call, pass_call
from penstock.cli.declaration import at_least, command
from penstock.cli.progress import Progress
from penstock.cli.rendering.columns import Cell, Row, columns
from penstock.cli.rendering.screen import Screen
from penstock.cli.rendering.times import counted, size
from penstock.errors import Damaged
from penstock.kernel.fsck import Checked
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import Swept

F = TypeVar("F", bound=Callable[..., Any])


@command("fsck", prints="Fsck", examples="$ penstock fsck")
@pass_call
def fsck(call: Call) -> None:
    """Check every object that a branch, a tag or a log leads to: its hash, its order and its shape.

    Says what is damaged, and ends with exit status 1 if anything is. Commits may go on meanwhile.
    """
    lake = call.open(create=False)
    with Progress(call.json) as progress:
        checked = lake.fsck(progress)
    call.answer(lambda: shapes.Fsck.of(checked), lambda screen: _checked(screen, checked))
    if checked.damages:
        click.get_current_context().exit(Damaged.exit_code)


def _checked(screen: Screen, checked: Checked) -> Iterator[str]:
    counts = [
        counted(checked.references, "reference"),
        counted(checked.commits, "commit"),
        counted(checked.objects, "object"),
    ]
    yield f"checked {', '.join(counts)}"
    if not checked.damages:
        yield screen.paint("nothing is wrong", "good")
        return
    yield from columns(screen, [[Cell(one.object, "id"), one.what] for one in checked.damages], indent="  ")
    yield screen.paint(f"{counted(len(checked.damages), 'thing')} wrong", "bad")
    yield "  Restore the lake's database from a backup; what is not named here can still be read."


def _setting(name: str, metavar: str, kind: type[float], lowest: int, text: str) -> Callable[[F], F]:
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        type=kind,
        callback=at_least(lowest),
        metavar=metavar,
        help=text,
    )


@command(
    "sweep",
    prints="Sweep",
    examples="$ penstock sweep --dry-run\n$ penstock sweep --history-max-days 365",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@_setting(
    "grace_s",
    "SECONDS",
    float,
    0,
    "How long unneeded objects stay; longer than any write may take, on any machine. [24 hours]",
)
@_setting("history_max_commits", "COUNT", int, 1, "Keep at least so many commits of each branch. [all]")
@_setting("history_max_days", "DAYS", float, 0, "Keep commits for at least so long. [for ever]")
@_setting("idempotency_days", "DAYS", float, 0, "Forget idempotency keys after so long. [7]")
@_setting("tombstone_days", "DAYS", float, 0, "Forget logs of deleted branches after so long. [90]")
@pass_call
def sweep(call: Call, /, dry_run: bool, **chosen: float | int | None) -> None:
    """Remove what nothing needs any more: objects that no branch, tag or log leads to.

    Commits may go on meanwhile. With a history limit, older commits are removed as well; heads and tags
    always stay.
    """
    given = {name: value for name, value in chosen.items() if value is not None}
    lake = call.open(create=False, settings=msgspec.structs.replace(Settings(), **given))
    with Progress(call.json) as progress:
        swept = lake.sweep(dry_run=dry_run, progress=progress)
    call.answer(lambda: shapes.Sweep.of(swept), lambda screen: _swept(screen, swept))


def _swept(screen: Screen, swept: Swept) -> Iterator[str]:
    removed = "would remove" if swept.dry_run else "removed"
    rows: list[Row] = [
        [Cell(removed, "strong"), counted(swept.removed, "object"), size(swept.removed_bytes)],
        [Cell("kept", "strong"), counted(swept.kept, "object"), size(swept.kept_bytes)],
    ]
    if swept.waiting:
        rows.append([Cell("too young", "strong"), counted(swept.waiting, "object"), "to be removed later"])
    yield from columns(screen, rows)
    forgotten = []
    if swept.receipts:
        forgotten.append(counted(swept.receipts, "idempotency key"))
    if swept.tombstones:
        forgotten.append(
            counted(swept.tombstones, "log of a deleted reference", "logs of deleted references")
        )
    if forgotten:
        yield f"{'would forget' if swept.dry_run else 'forgot'} {' and '.join(forgotten)}"
