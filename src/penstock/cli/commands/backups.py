"""Backups of a lake: making, listing, proving and removing them, and a lake restored from one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import click
import msgspec

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call, require_place
from penstock.cli.command_declaration import declare_command, declare_group, require_at_least
from penstock.cli.commands.roots import _describe_moved_files
from penstock.cli.progress import ProgressBar
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age, format_count, format_size
from penstock.errors import Damaged
from penstock.kernel.backup import BackupResult
from penstock.kernel.backup_data import BackupData
from penstock.kernel.backup_points import BackupPoint
from penstock.kernel.copy import CopyResult
from penstock.kernel.description import RegisteredBackup
from penstock.kernel.fsck import CheckResult
from penstock.lake.backup import (
    RestoredLake,
    backup_lake,
    expire_backups,
    forget_backups,
    list_backups,
    registered_backups,
    verify_backup,
)
from penstock.lake.backup import restore_backup as restore_lake
from penstock.model.clock import to_utc_datetime
from penstock.storage.moved_roots import MovedRoot

keep_last_option = click.option(
    "--keep-last",
    type=int,
    callback=require_at_least(1),
    metavar="COUNT",
    help="How many of the newest backups to keep.",
)
keep_days_option = click.option(
    "--keep-days",
    type=float,
    callback=require_at_least(0),
    metavar="DAYS",
    help="For how many days to keep backups.",
)


def _require_store_url(call: CommandContext) -> str:
    if call.is_behind_server:
        raise click.UsageError(
            "backups need direct access to the lake's store, not a server: give --lake the address that "
            "'penstock serve' was started with"
        )
    return call.lake_target


class BackupTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The files of tables in a backup."""

    files: int
    """All that it has, also those that it shares with other backups."""
    size_bytes: int
    """Their size."""
    new_files: int
    """Those that were copied."""
    new_bytes: int
    """Their size."""
    missing: tuple[str, ...]
    """Files that were missing already when the backup was made."""

    @classmethod
    def from_data(cls, data: BackupData) -> BackupTotals:
        return cls(
            files=data.files,
            size_bytes=data.size_bytes,
            new_files=data.new_files,
            new_bytes=data.new_bytes,
            missing=data.missing,
        )


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was made."""

    id: str
    """The backup's id."""
    target: str
    """Where it is."""
    created: datetime
    """The moment that it shows."""
    references: int
    """Branches, tags and logs of deleted ones."""
    objects: int
    """Objects that were copied."""
    size_bytes: int
    """Their size."""
    is_whole: bool
    """Whether everything was copied, and not only what changed."""
    is_verified: bool
    """Whether all that it leads to was read back and checked."""
    is_registered: bool
    """Whether the lake knows of it, and keeps files of tables for it unless it has them."""
    data: BackupTotals | None
    """The files of tables that it has, if it was made with data."""
    completed: tuple[str, ...]
    """Backups that were interrupted before, and are complete now."""
    expired: tuple[str, ...]
    """Backups that were removed by a rule."""

    @classmethod
    def from_result(cls, backed_up: BackupResult) -> Backup:
        return cls(
            id=backed_up.point.id,
            target=backed_up.target,
            created=to_utc_datetime(backed_up.point.created_us),
            references=backed_up.point.references,
            objects=backed_up.point.objects,
            size_bytes=backed_up.point.size_bytes,
            is_whole=backed_up.point.is_whole,
            is_verified=backed_up.is_verified,
            is_registered=backed_up.is_registered,
            data=None if backed_up.point.data is None else BackupTotals.from_data(backed_up.point.data),
            completed=backed_up.completed,
            expired=backed_up.expired,
        )


class BackupLine(msgspec.Struct, frozen=True, kw_only=True):
    """A backup in a list."""

    id: str
    """The backup's id."""
    target: str
    """Where it is."""
    created: datetime
    """The moment that it shows."""
    size_bytes: int
    """The size of what it added to its target, with what it needs of older ones that were removed or
    forgotten: so the oldest one that is left has the size of all that it holds."""
    is_complete: bool
    """Whether it can be restored; else the next backup completes it."""
    keeps_files: bool | None
    """Whether the lake keeps files of tables for it; unknown in a list of what a place holds."""
    has_data: bool
    """Whether it has the files of tables itself, or will once it is complete."""
    data_bytes: int
    """The size of all files of tables that it has."""

    @classmethod
    def from_registered_backup(cls, backup: RegisteredBackup) -> BackupLine:
        return cls(
            id=backup.id,
            target=backup.target,
            created=to_utc_datetime(backup.created_us),
            size_bytes=backup.size_bytes,
            is_complete=backup.is_complete,
            keeps_files=backup.keeps_files,
            has_data=backup.has_data,
            data_bytes=backup.data_bytes,
        )

    @classmethod
    def from_point(cls, target: str, point: BackupPoint) -> BackupLine:
        return cls(
            id=point.id,
            target=target,
            created=to_utc_datetime(point.created_us),
            size_bytes=point.size_bytes,
            is_complete=point.is_complete,
            keeps_files=None,
            has_data=point.data is not None,
            data_bytes=0 if point.data is None else point.data.size_bytes,
        )


class RestoredBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A lake that was restored from a backup."""

    backup: str
    """The backup's id."""
    created: datetime
    """The moment that it shows."""
    owns_tables: bool
    """Whether the lake takes the place of the one that the backup is of."""
    missing: tuple[str, ...]
    """Files of tables that are gone."""
    put_back_files: int
    """Files of tables that the backup has, and that were put back where they had been."""
    put_back_bytes: int
    """Their size."""
    moved_roots: tuple[MovedRoot, ...]
    """Roots whose files lie elsewhere than where they were stored at first."""
    unregistered: tuple[str, ...]
    """Backups at other places that the former lake kept files for, and that this one keeps none for."""
    copied: CopyResult
    """What was copied."""

    @classmethod
    def from_restored_lake(cls, restored: RestoredLake) -> RestoredBackup:
        return cls(
            backup=restored.point.id,
            created=to_utc_datetime(restored.point.created_us),
            owns_tables=restored.owns_tables,
            missing=restored.missing,
            put_back_files=0 if restored.put_back is None else restored.put_back.files,
            put_back_bytes=0 if restored.put_back is None else restored.put_back.size_bytes,
            moved_roots=restored.moved_roots,
            unregistered=restored.unregistered,
            copied=restored.copied,
        )


@declare_command(
    "backup",
    prints=Backup,
    examples="""
$ penstock backup nightly.backup
$ penstock backup nightly.backup --keep-last 7 --verify
$ penstock backup nightly --data --keep-last 7
""",
)
@click.argument("target", metavar="TARGET")
@click.option(
    "--data",
    is_flag=True,
    help="Copy the files of tables too, as far as TARGET lacks them: then it is a directory or a bucket.",
)
@click.option("--verify", is_flag=True, help="Verify the backup by a restore in memory.")
@click.option(
    "--no-register",
    is_flag=True,
    help=(
        "Do not register the backup with the lake, as for a read-only lake: the lake then keeps no files "
        "for the backup."
    ),
)
@keep_last_option
@keep_days_option
@pass_call
def backup(
    call: CommandContext,
    target: str,
    data: bool,
    verify: bool,
    no_register: bool,
    keep_last: int | None,
    keep_days: float | None,
) -> None:
    """Back up the lake to TARGET while it is in use.

    TARGET is a directory, the URL of a database or a bucket, or one file: a path that ends in .backup. If
    TARGET already holds backups of the lake, only changes are copied, and each backup can be restored. A
    backup has branches, tags, the whole history, logs, hashes of tokens, expectations and settings, all of
    one moment. After an interruption, the same command completes the backup.

    Files of tables are copied with --data only. Without it the lake notes the backup, and sweeps leave what
    it counts on until 'penstock backups forget' or 'expire'. With it, the lake keeps nothing for the backup
    once that is complete, and --verify sees to it that all files are at TARGET. With --keep-last or
    --keep-days, older backups at TARGET are removed afterwards; one stays if either rule keeps it, and with
    --no-register if the lake knows of it.
    """
    with ProgressBar(call.json) as bar:
        made = backup_lake(
            _require_store_url(call),
            target,
            verify=verify,
            register=not no_register,
            keep_last=keep_last,
            keep_days=keep_days,
            data=data,
            author=call.commit_author,
            progress=bar,
        )
    call.print_answer(lambda: Backup.from_result(made), lambda screen: _render_backup(screen, made))


def _render_backup(screen: Screen, backed_up: BackupResult) -> Iterator[str]:
    point = backed_up.point
    yield f"made backup {screen.style(point.id, 'id')} at {screen.style(backed_up.target, 'strong')}"
    added = f"{format_count(point.objects, 'object')}, {format_size(point.size_bytes)}"
    rows: list[Row] = [
        ["has", format_count(point.references, "reference")],
        ["copied", added if point.is_whole else f"{added}: what changed since the last one"],
    ]
    if point.data is not None:
        rows.append(
            [
                "",
                (
                    f"{format_count(point.data.new_files, 'file')} of tables, "
                    f"{format_size(point.data.new_bytes)}"
                ),
            ]
        )
        rows.append(
            ["data", f"{format_count(point.data.files, 'file')}, {format_size(point.data.size_bytes)}"]
        )
    yield from align_columns(screen, rows, indent="  ")
    if backed_up.is_verified:
        yield screen.style("checked: nothing is wrong", "good")
    if point.data is not None:
        yield from (f"  was gone already: {escape_controls(file)}" for file in point.data.missing)
    for backup_id in backed_up.completed:
        yield f"completed backup {backup_id}, which was interrupted"
    for backup_id in backed_up.expired:
        yield f"removed backup {backup_id}"
    if point.data is not None:
        yield "It has the files of tables itself: the lake keeps none for it."
    elif backed_up.is_registered:
        yield (
            "The lake keeps the files of tables that the backup needs; 'penstock backups' lists what is kept."
        )
    else:
        yield "It is not registered: the lake keeps no files of tables for it, and sweeps may remove them."


@declare_group(
    "backups",
    prints=ListPage[BackupLine],
    examples="$ penstock backups\n$ penstock backups list nightly.backup",
)
@click.pass_context
def backups(ctx: click.Context) -> None:
    """List, verify, expire and forget backups.

    Without a subcommand, the backups that the lake knows of are listed, with their age and size, and whether
    it keeps files of tables for them.
    """
    if ctx.invoked_subcommand is None:
        _list_registered(ctx.ensure_object(CommandContext))


def _list_registered(call: CommandContext) -> None:
    backups = registered_backups(_require_store_url(call))
    call.print_answer(
        lambda: ListPage.from_items(map(BackupLine.from_registered_backup, backups)),
        lambda screen: _render_registered_backups(screen, backups),
    )


def _render_registered_backups(screen: Screen, backups: Sequence[RegisteredBackup]) -> Iterator[str]:
    if not backups:
        yield "the lake knows of no backup"
    rows: list[Row] = [
        [
            StyledText(backup.id, "id"),
            format_age(to_utc_datetime(backup.created_us), screen.now),
            format_size(backup.size_bytes) if backup.is_complete else "not complete",
            f"keeps files of {format_count(backup.references, 'reference')}"
            if backup.keeps_files
            else f"has data, {format_size(backup.data_bytes)}",
            escape_controls(backup.target),
        ]
        for backup in backups
    ]
    yield from align_columns(screen, rows)


@backups.command(
    "list",
    prints=ListPage[BackupLine],
    examples="$ penstock backups list\n$ penstock backups list nightly.backup",
)
@click.argument("target", required=False, metavar="[TARGET]")
@pass_call
def backups_list(call: CommandContext, target: str | None) -> None:
    """List the backups that TARGET holds; without it, those that the lake knows of."""
    if target is None:
        _list_registered(call)
        return
    backups = list_backups(target)
    call.print_answer(
        lambda: ListPage.from_items(BackupLine.from_point(target, point) for point in backups),
        lambda screen: _format_points(screen, backups),
    )


def _format_points(screen: Screen, points: Sequence[BackupPoint]) -> Iterator[str]:
    if not points:
        yield "there is no backup left"
    rows: list[Row] = [
        [
            StyledText(point.id, "id"),
            format_age(to_utc_datetime(point.created_us), screen.now),
            f"{format_size(point.size_bytes)} added" if point.is_complete else "not complete",
            "without data" if point.data is None else f"with data, {format_size(point.data.size_bytes)}",
            f"of {escape_controls(point.source)}",
        ]
        for point in points
    ]
    yield from align_columns(screen, rows)


@backups.command("verify", prints=CheckResult, examples="$ penstock backups verify nightly.backup")
@click.argument("target", metavar="TARGET")
@click.argument("backup_id", required=False, metavar="[ID]")
@pass_call
def backups_verify(call: CommandContext, target: str, backup_id: str | None) -> None:
    """Verify a backup at TARGET, the newest or the one with an ID, by a restore in memory.

    All objects of the backup are read and checked. For a backup with data, the command also checks that all
    files exist with their sizes. If anything is wrong, it ends with exit status 1.
    """
    with ProgressBar(call.json) as bar:
        checked = verify_backup(target, backup_id, progress=bar)
    call.print_answer(lambda: checked, lambda screen: _render_verification(screen, checked))
    if checked.damages:
        click.get_current_context().exit(Damaged.exit_code)


def _render_verification(screen: Screen, checked: CheckResult) -> Iterator[str]:
    yield (
        f"checked {format_count(checked.references, 'reference')}, {format_count(checked.commits, 'commit')}"
    )
    if not checked.damages:
        yield screen.style("nothing is wrong", "good")
    yield from (f"  {damage}" for damage in checked.damages)


@backups.command(
    "expire", prints=ListPage[str], examples="$ penstock backups expire nightly.backup --keep-last 3"
)
@click.argument("target", metavar="TARGET")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@keep_last_option
@keep_days_option
@pass_call
def backups_expire(
    call: CommandContext, target: str, ids: tuple[str, ...], keep_last: int | None, keep_days: float | None
) -> None:
    """Remove backups from TARGET: those with an ID, or those that no rule keeps.

    Objects and files of tables that no other backup there needs are removed. A rule always keeps the newest
    backup. The lake forgets the removed backups; without --lake, only TARGET changes.
    """
    if bool(ids) == (keep_last is not None or keep_days is not None):
        raise click.UsageError("give the backups to remove: their IDs, or --keep-last and --keep-days")
    source = _require_store_url(call) if call.has_target else None
    with ProgressBar(call.json) as bar:
        gone = expire_backups(source, target, *ids, keep_last=keep_last, keep_days=keep_days, progress=bar)
    call.print_answer(
        lambda: ListPage.from_items(gone),
        lambda _: [f"removed backup {backup_id}" for backup_id in gone] or ["no backup was to be removed"],
    )


@backups.command("forget", prints=ListPage[str], examples="$ penstock backups forget --all")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Forget all backups that the lake knows of.")
@click.option("--lost", is_flag=True, help="State that the locations of backups with data are lost for good.")
@pass_call
def backups_forget(call: CommandContext, ids: tuple[str, ...], everything: bool, lost: bool) -> None:
    """Forget the backups with these IDs, such as lost ones: the lake stops keeping files for them.

    Sweeps may then remove files of tables that only these backups need. The backups stay at their target, and
    can be restored as far as their files exist. Backups with data hold rows of tables: they are removed at
    their target as well, unless --lost states that the target is lost.
    """
    if bool(ids) == everything:
        raise click.UsageError("give the IDs of backups, or --all")
    source = _require_store_url(call)
    backup_ids = (
        [registered_backup.id for registered_backup in registered_backups(source)] if everything else ids
    )
    gone = forget_backups(source, *backup_ids, lost=lost) if backup_ids else []
    call.print_answer(
        lambda: ListPage.from_items(gone),
        lambda _: [f"forgot backup {backup_id}" for backup_id in gone] or ["the lake knows of no backup"],
    )


@declare_command(
    "restore-backup",
    prints=RestoredBackup,
    examples="""
$ penstock restore-backup nightly.backup restored
$ penstock restore-backup nightly.backup copied --map s3://lake=s3://lake-eu
""",
)
@click.argument("backup_place", metavar="BACKUP")
@click.argument("target", metavar="PLACE")
@click.option(
    "--at",
    metavar="ID|TIME",
    help="The backup: its id, or a time, for the newest one before it. [the newest]",
)
@click.option(
    "--own", is_flag=True, help="Make the backed-up lake read-only, and replace it with the restored one."
)
@click.option(
    "--source",
    metavar="ADDRESS",
    help="The location of the backed-up lake. [its location at the time of the backup]",
)
@click.option("--source-is-gone", is_flag=True, help="State that the backed-up lake is lost for good.")
@click.option("--missing-ok", is_flag=True, help="Restore the lake even if files of tables are missing.")
@click.option(
    "--map",
    "mapped",
    multiple=True,
    metavar="OLD=NEW",
    help="Files below the root OLD are now below NEW. Repeatable.",
)
@pass_call
def restore_backup(
    call: CommandContext,
    backup_place: str,
    target: str,
    at: str | None,
    own: bool,
    source: str | None,
    source_is_gone: bool,
    missing_ok: bool,
    mapped: tuple[str, ...],
) -> None:
    """Restore BACKUP as a lake at PLACE, a new directory or an empty database.

    Commits keep their ids. Files of tables that are gone are named before the lake is made; a backup with
    data puts them back where they were, if the lake takes the place of the other one. Two lakes must not own
    one table: if the lake that the backup is of is gone, the new one takes its place, with its id,
    its tokens and its tables. If it is there, or cannot be reached, the new one is a copy in which managed
    tables can only be read. --own and --source-is-gone decide that, at once or later by the same command. If
    it is interrupted, the same command goes on where it was.

    With --map, the files of tables are expected, and restored, at another location, such as a bucket of
    another name. 'penstock root map' does the same later.
    """
    if call.lake is not None:
        raise click.UsageError("'restore-backup' needs BACKUP and PLACE, not --lake")
    with ProgressBar(call.json) as bar:
        made = restore_lake(
            backup_place,
            require_place(target),
            at=at,
            own=own,
            source=source,
            source_is_gone=source_is_gone,
            allow_missing=missing_ok,
            moved_roots=dict(map(_parse_root_mapping, mapped)),
            author=call.commit_author,
            progress=bar,
        )
    call.print_answer(
        lambda: RestoredBackup.from_restored_lake(made), lambda screen: _render_restored_lake(screen, made)
    )


def _parse_root_mapping(given: str) -> tuple[str, str]:
    old, equals, new = given.partition("=")
    if not (old and equals and new):
        raise click.UsageError(f"--map must be OLD=NEW, such as s3://old=s3://new, got {given!r}")
    return old, new


def _render_restored_lake(screen: Screen, restored: RestoredLake) -> Iterator[str]:
    copied = restored.copied
    what = f"backup {screen.style(restored.point.id, 'id')}"
    if restored.was_restored:
        yield f"{what} was restored to {screen.style(copied.target, 'strong')} before: nothing was changed"
        return
    yield f"restored {what} to {screen.style(copied.target, 'strong')}"
    rows: list[Row] = [
        ["has", format_count(copied.references, "reference")],
        ["", format_count(copied.commits, "commit")],
        ["", f"{format_count(copied.objects, 'object')}, {format_size(copied.size_bytes)}"],
    ]
    yield from align_columns(screen, rows, indent="  ")
    yield screen.style("checked: nothing is wrong", "good")
    if restored.put_back is not None and restored.put_back.files:
        put_back = restored.put_back
        files = f"{format_count(put_back.files, 'file')} of tables, {format_size(put_back.size_bytes)}"
        yield f"put back {files}"
    yield from (f"  gone: {escape_controls(file)}" for file in restored.missing)
    yield from _describe_moved_files(restored.moved_roots)
    if restored.owns_tables:
        for name in restored.unregistered:
            yield f"It keeps no files for the backup {name}, which has commits that this lake lacks."
        yield f"It takes the place of the lake that was at {restored.point.source}, and owns its tables."
    else:
        yield f"Managed tables can only be read in it: they belong to the lake at {restored.point.source}."
        if restored.point.data is not None:
            yield "  It reads the files of that lake; those of the backup were not put back."
        yield "  To have it take that lake's place, run the command again with --own, which seals that lake,"
        yield "  or with --source-is-gone if that lake is gone for good."
