"""Restore: setting tables to what they were at an earlier commit, time or version."""

from __future__ import annotations

import re
import shlex
from typing import Final, NamedTuple

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command
from penstock.cli.completions import complete_branch, complete_key, complete_revision
from penstock.cli.merge_command import MergeCommand
from penstock.cli.option_groups import RequestOptions, add_request_options
from penstock.cli.reference_access import find_reference_name, read_or_none, write_revision
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen
from penstock.errors import InvalidName, ReferenceNotFound
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.merges import MergedKey, MergeResult
from penstock.model.names import parse_time_us, write_revision_at

_VERSION: Final = re.compile(r"v?(\d{1,7})")
"""A version of a table: a number too short to be a commit's id."""
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}.*")
LEFT_MAX: Final = 3
"""How many tables are named that could be left as they are."""


class RestorePoint(NamedTuple):
    """What ``--to`` names: a revision, or a version of the one table."""

    revision: str | None
    version: int | None = None

    def __str__(self) -> str:
        return f"version {self.version}" if self.revision is None else self.revision


@declare_command(
    "restore",
    prints=MergeResult,
    examples="""
$ penstock restore sales.orders --to main~1 --dry-run
$ penstock restore --namespace sales --to main~1
$ penstock restore --all --to main~2 --dry-run
""",
)
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=complete_key)
@click.option(
    "--to",
    required=True,
    metavar="WHEN",
    shell_complete=complete_revision,
    help="A branch, tag or commit such as main~3, a time such as 2026-11-14T06:00:00Z, or of one Delta or "
    "Lance table a version such as 41.",
)
@click.option(
    "--namespace",
    metavar="NAMESPACE",
    shell_complete=complete_key,
    help="A namespace and all that is below it.",
)
@click.option("--all", "everything", is_flag=True, help="Every table and namespace.")
@click.option(
    "--leave",
    multiple=True,
    metavar="KEY",
    shell_complete=complete_key,
    help="With --namespace or --all: leave this as it is, and all that is below it. Repeatable.",
)
@click.option(
    "--branch", metavar="BRANCH", shell_complete=complete_branch, help="Where. [the default branch]"
)
@pass_call
@add_request_options("the branch")
def restore(
    call: CommandContext,
    keys: tuple[str, ...],
    to: str,
    namespace: str | None,
    everything: bool,
    leave: tuple[str, ...],
    branch: str | None,
    request: RequestOptions,
) -> None:
    """Restore tables to an earlier state, by one new commit. Nothing is removed from history.

    KEY names tables; a table that was dropped since is restored. With --namespace and --all, tables that were
    created since are dropped: --dry-run shows which, and what changes in each table. The restore replaces
    what others wrote meanwhile, unless --if-head names the commit at which the branch must be.
    """
    if sum((bool(keys), namespace is not None, everything)) != 1:
        raise click.UsageError("Give one or more KEYs, or --namespace, or --all.")
    lake = call.open_lake()
    name = lake.branch(branch).name
    point = _parse_restore_point(lake, to, name, is_one_table=len(keys) == 1)
    revision = point.revision
    if revision is not None and request.idempotency_key is None:
        # Resolved once, so that it names the same commit however often it is sent.
        revision = write_revision(lake.resolve(revision), find_reference_name(revision))

    def run_restore(preview: bool) -> MergeResult:
        return lake.restore(
            keys,
            to=revision,
            version=point.version,
            namespace=namespace,
            all=everything,
            leave=leave,
            branch=name,
            message=request.message,
            author=call.commit_author,
            if_head=request.if_head,
            dry_run=preview,
            idempotency_key=request.idempotency_key,
        )

    def describe_result(screen: Screen, result: MergeResult) -> str:
        if not result.applied:
            return screen.style(f"{name} is as it was at {point} already", "dim")
        return f"restored to {point} as {screen.style(shorten_id(result.head), 'id')}"

    def suggest_resolutions(result: MergeResult) -> list[str]:
        blocked = [shlex.quote(str(key.key)) for key in result.keys if key.conflicts]
        if keys or not blocked:
            return []
        options = " ".join(f"--leave {key}" for key in blocked[:LEFT_MAX])
        return [f"To restore the others: {options}{' …' if len(blocked) > LEFT_MAX else ''}."]

    shown = MergeCommand(
        call,
        lake,
        str(point),
        name,
        run_restore,
        heading=f"restore {_describe_scope(keys, namespace)} on {name} to {point}",
        revision=name,
        outcome=_describe_outcome,
    )
    shown.run_merge(
        request.dry_run, count=lambda _: None, done=describe_result, suggest_resolutions=suggest_resolutions
    )


def _parse_restore_point(lake: Lake, text: str, branch: str, *, is_one_table: bool) -> RestorePoint:
    """What a text names. A reference of that name comes first, then a version, then a time of the branch."""
    match = _VERSION.fullmatch(text)
    if match and (text.isdecimal() or not read_or_none(lambda: _is_reference(lake, text))):
        if not is_one_table:
            raise click.BadParameter(
                f"{text!r} is a version of a table, which needs exactly one KEY", param_hint="--to"
            )
        return RestorePoint(None, int(match[1]))
    if _TIME.fullmatch(text):
        try:
            parse_time_us(text)
        except InvalidName as problem:
            raise click.BadParameter(problem.message, param_hint="--to") from None
        return RestorePoint(write_revision_at(branch, text))
    return RestorePoint(text)


def _is_reference(lake: Lake, name: str) -> bool:
    try:
        return bool(lake.resolve(name))
    except ReferenceNotFound:
        return False


def _describe_scope(keys: tuple[str, ...], namespace: str | None) -> str:
    if keys:
        return ", ".join(map(str, map(Key.parse, keys)))
    return "everything" if namespace is None else f"namespace {Key.parse(namespace)}"


def _describe_outcome(merged_key: MergedKey) -> str:
    """What becomes of a key."""
    return {"created": "comes back", "dropped": "dropped: created since", "unchanged": "as it was"}.get(
        merged_key.action, "restored"
    )
