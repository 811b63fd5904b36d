"""Roots: the places where the lake's tables may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_group
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.lake.answers import About
from penstock.lake.calls import ChangeRoots
from penstock.lake.root_maps import MappedRoots, map_root, unmap_root
from penstock.storage.moved_roots import MovedRoot

missing_ok_option = click.option(
    "--missing-ok", is_flag=True, help="Continue even if files of tables are missing."
)


@declare_group("root", prints=About, examples="$ penstock root add s3://bucket/sales\n$ penstock root")
@click.pass_context
def root(ctx: click.Context) -> None:
    """List, add, remove and map roots: the locations where tables may be.

    A server refuses tables outside these roots. The warehouse, where tables are created by default, is always
    a root. Without a subcommand, roots are listed.
    """
    if ctx.invoked_subcommand is None:
        call = ctx.ensure_object(CommandContext)
        _show_roots(call, call.open_lake().about)


@root.command("list", prints=About, examples="$ penstock root list")
@pass_call
def root_list(call: CommandContext) -> None:
    """List roots: the locations where tables may be."""
    _show_roots(call, call.open_lake().about)


@root.command("add", prints=About, examples="$ penstock root add s3://bucket/exports s3://bucket/archive")
@click.argument("locations", nargs=-1, required=True, metavar="LOCATION...")
@pass_call
def root_add(call: CommandContext, locations: tuple[str, ...]) -> None:
    """Allow tables at each LOCATION and below it: a directory, or a URL such as s3://bucket/prefix."""
    _show_roots(call, call.open_lake().do(ChangeRoots(add=locations)))


@root.command("remove", prints=About, examples="$ penstock root remove s3://bucket/archive")
@click.argument("locations", nargs=-1, required=True, metavar="LOCATION...")
@pass_call
def root_remove(call: CommandContext, locations: tuple[str, ...]) -> None:
    """Allow no further tables at each LOCATION. Tables that are there already stay readable."""
    _show_roots(call, call.open_lake().do(ChangeRoots(remove=locations)))


@root.command("map", prints=MappedRoots, examples="$ penstock root map s3://lake s3://lake-eu")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@missing_ok_option
@pass_call
def root_map(call: CommandContext, old: str, new: str, missing_ok: bool) -> None:
    """Map the root OLD to NEW, where its files were moved: a bucket or a directory, renamed.

    Stop all programs that use the lake, move the files, map the root, and start them again. Stored data keeps
    the old locations; commands, servers and clients get the new ones. If files move again, map from their
    last location. The command first looks for all files, and names those that are missing at NEW.

    Other programs still look at OLD for Delta tables with absolute paths and for versions of Lance tables
    that reference files of a branch: read these through the lake.
    """
    _show_mapped_roots(
        call,
        map_root(_require_store_url(call), old, new, allow_missing=missing_ok, author=call.commit_author),
    )


@root.command("unmap", prints=MappedRoots, examples="$ penstock root unmap s3://lake-eu")
@click.argument("location", metavar="LOCATION")
@missing_ok_option
@pass_call
def root_unmap(call: CommandContext, location: str, missing_ok: bool) -> None:
    """Remove the mapping from or to LOCATION: the files are at their original location again."""
    _show_mapped_roots(
        call,
        unmap_root(_require_store_url(call), location, allow_missing=missing_ok, author=call.commit_author),
    )


def _require_store_url(call: CommandContext) -> str:
    if call.is_behind_server:
        raise click.UsageError(
            "mapping roots needs direct access to the lake's store, not a server: stop the server, and give "
            "--lake the address that 'penstock serve' was started with"
        )
    return call.lake_target


def _show_mapped_roots(call: CommandContext, mapped_roots: MappedRoots) -> None:
    call.print_answer(lambda: mapped_roots, lambda screen: _render_mapped_roots(screen, mapped_roots))


def _render_mapped_roots(screen: Screen, mapped_roots: MappedRoots) -> Iterator[str]:
    if not mapped_roots.moved_roots:
        yield "no root of the lake is mapped: all files are where they were at first"
    rows: list[Row] = [
        [
            StyledText(escape_controls(root.new), "name"),
            StyledText(f"was {escape_controls(root.old)}", "dim"),
        ]
        for root in mapped_roots.moved_roots
    ]
    yield from align_columns(screen, rows)
    yield from (f"  gone: {escape_controls(file)}" for file in mapped_roots.missing)


def _show_roots(call: CommandContext, about: About) -> None:
    call.print_answer(lambda: about, lambda screen: _format_roots(screen, about))


def _format_roots(screen: Screen, about: About) -> Iterator[str]:
    if not about.roots:
        yield "no roots: the lake accepts no tables yet. 'penstock root add' adds one"
    rows: list[Row] = [
        [
            StyledText(escape_controls(place), "name"),
            StyledText("warehouse" if place == about.warehouse else "", "dim"),
        ]
        for place in about.roots
    ]
    yield from align_columns(screen, rows)
    yield from _describe_moved_files(about.moved_roots)


def _describe_moved_files(moved_roots: Iterable[MovedRoot]) -> Iterator[str]:
    """Where files are that were moved; nothing of those that are back."""
    for root in moved_roots:
        if root.old != root.new:
            yield f"files below {escape_controls(root.old)} are at {escape_controls(root.new)}"
