"""Merge, transplant, rebase and revert: four ways to bring changes from one place to another."""

from __future__ import annotations

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command
from penstock.cli.completions import complete_branch, complete_revision
from penstock.cli.conflict_options import ConflictOptions, add_side_options
from penstock.cli.merge_command import MergeCommand, RevertCommand, list_keys_to_take
from penstock.cli.option_groups import RequestOptions, add_request_options
from penstock.cli.reference_access import find_reference_name, get_commit, read_or_none, write_revision
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen
from penstock.cli.rendering.times import format_count
from penstock.errors import Denied
from penstock.lake.lake import Lake
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.merges import MergeResult


def _find_head_before_merge(lake: Lake, target: str, result: MergeResult) -> str:
    """Where the target was before a merge."""
    if not result.applied:
        return result.head
    parents = get_commit(lake, result.head, target).parents
    # A branch that was empty has no commit that could be the first parent; the source is the only one.
    return parents[0] if len(parents) > 1 else EMPTY_COMMIT_ID


def _format_nothing_to_do(screen: Screen, text: str) -> str:
    return screen.style(text, "dim")


@declare_command(
    "merge",
    prints=MergeResult,
    examples="""
$ penstock merge dev --into main --dry-run
$ penstock merge dev --into main -m 'land the returns'
$ penstock merge fix --dry-run
exit status 3
$ penstock merge fix --take fix=sales.orders
""",
)
@click.argument("source", shell_complete=complete_revision)
@click.option(
    "--into", metavar="BRANCH", shell_complete=complete_branch, help="The target. [the default branch]"
)
@pass_call
@add_side_options()
@add_request_options("the target")
def merge(
    call: CommandContext,
    source: str,
    into: str | None,
    sides: ConflictOptions,
    request: RequestOptions,
) -> None:
    """Merge SOURCE into another branch, by one commit: all tables at once, or none.

    SOURCE is a branch, tag or commit. It becomes the second parent of the new commit, so that merging again
    brings only newer changes. A table that both sides changed is a conflict, and nothing is merged: choose a
    side with --take, which names SOURCE or the target as given here, or with --theirs (SOURCE) and --ours
    (the target). For a table of files, these also accept a folder, such as raw.events/day=1/.
    """
    lake = call.open_lake()
    target = lake.branch(into).name
    keys = sides.merge_modes(source, target)

    def run_merge(preview: bool) -> MergeResult:
        return lake.merge(
            source,
            target,
            message=request.message,
            author=call.commit_author,
            keys=keys,
            default=sides.default,
            if_head=request.if_head,
            dry_run=preview,
            idempotency_key=request.idempotency_key,
        )

    def count_commits(result: MergeResult) -> int:
        assert result.source is not None
        before = _find_head_before_merge(lake, target, result)
        return lake.compare(
            write_revision(result.source, find_reference_name(source)), write_revision(before, target)
        ).ahead

    def describe_result(screen: Screen, result: MergeResult) -> str:
        if not result.applied:
            return _format_nothing_to_do(screen, f"{target} has everything of {source} already")
        return f"merged as {screen.style(shorten_id(result.head), 'id')}"

    def suggest_resolutions(result: MergeResult) -> list[str]:
        ways = shown.suggest_resolutions(result)
        keys = list_keys_to_take(result)
        is_branch = read_or_none(lambda: lake.branch(source).exists)
        if keys and is_branch and source != lake.default_branch:
            drops = "".join(f" --take {target}={key}" for key in keys[:3])
            more = " …" if len(keys) > 3 else ""
            ways.append(
                f"To redo it: penstock rebase {source} --onto {target}{drops}{more},"
                " then the job, under a new id."
            )
        return ways

    shown = MergeCommand(call, lake, source, target, run_merge)
    shown.run_merge(
        request.dry_run, count=count_commits, done=describe_result, suggest_resolutions=suggest_resolutions
    )


@declare_command(
    "transplant",
    prints=MergeResult,
    examples="""
$ penstock transplant hotfix~1..hotfix --onto main --dry-run
$ penstock transplant hotfix
""",
)
@click.argument("commits", metavar="RANGE", shell_complete=complete_revision)
@click.option(
    "--onto", metavar="BRANCH", shell_complete=complete_branch, help="The target. [the default branch]"
)
@pass_call
@add_side_options()
@add_request_options("the target")
def transplant(
    call: CommandContext,
    commits: str,
    onto: str | None,
    sides: ConflictOptions,
    request: RequestOptions,
) -> None:
    """Transplant (cherry-pick) commits to a branch, each as its own commit; all of them at once, or none.

    RANGE is one commit, or A..B: the commits after A up to B. They keep their messages and authors; --message
    can replace the message of a single commit.
    """
    lake = call.open_lake()
    target = lake.branch(onto).name
    keys = sides.merge_modes(commits, target)

    def run_transplant(preview: bool) -> MergeResult:
        return lake.transplant(
            commits,
            target,
            message=request.message or "",
            keys=keys,
            default=sides.default,
            if_head=request.if_head,
            dry_run=preview,
            idempotency_key=request.idempotency_key,
        )

    def describe_result(screen: Screen, result: MergeResult) -> str:
        if not result.applied:
            return _format_nothing_to_do(screen, f"{target} has all of that already")
        ids = (screen.style(shorten_id(commit), "id") for commit in result.commits)
        return f"transplanted as {', '.join(ids)}"

    last = commits.rpartition("..")[2]

    def find_fork() -> str:
        return lake.compare(target, last).base

    shown = MergeCommand(call, lake, commits, target, run_transplant, revision=last, base=find_fork)
    shown.run_merge(request.dry_run, done=describe_result)


@declare_command(
    "rebase",
    prints=MergeResult,
    examples="$ penstock rebase feature/returns --onto main --dry-run\n$ penstock rebase feature/returns",
)
@click.argument("branch", shell_complete=complete_branch)
@click.option(
    "--onto", metavar="REVISION", shell_complete=complete_revision, help="The new base. [the default branch]"
)
@pass_call
@add_side_options()
@add_request_options("BRANCH", message=False)
def rebase(
    call: CommandContext,
    branch: str,
    onto: str | None,
    sides: ConflictOptions,
    request: RequestOptions,
) -> None:
    """Repeat the own commits of BRANCH on a new base, and move BRANCH there.

    Its old commits stay in its reflog for a while.
    """
    lake = call.open_lake()
    base = lake.default_branch if onto is None else onto
    keys = sides.merge_modes(branch, base)

    def run_rebase(preview: bool) -> MergeResult:
        return lake.rebase(
            branch,
            base,
            keys=keys,
            default=sides.default,
            if_head=request.if_head,
            dry_run=preview,
            idempotency_key=request.idempotency_key,
        )

    def describe_result(screen: Screen, result: MergeResult) -> str:
        if result.dry_run:
            return _format_nothing_to_do(screen, f"{branch} has no commits of its own to repeat on {base}")
        if not result.applied:
            return _format_nothing_to_do(screen, f"{branch} stands on {base} already")
        repeated = format_count(len(result.commits), "commit")
        head = screen.style(shorten_id(result.head), "id")
        return f"{screen.style(branch, 'name')} is at {head}, {repeated} repeated"

    shown = MergeCommand(call, lake, branch, base, run_rebase)
    shown.run_merge(request.dry_run, done=describe_result)


@declare_command(
    "revert",
    prints=MergeResult,
    examples="$ penstock revert main --dry-run\n$ penstock revert main --on main -m 'that was wrong'",
)
@click.argument("commit", metavar="COMMIT", shell_complete=complete_revision)
@click.option(
    "--on",
    metavar="BRANCH",
    shell_complete=complete_branch,
    help="The branch on which to undo it. [the default branch]",
)
@pass_call
@add_side_options(default=False)
@add_request_options("the branch")
def revert(
    call: CommandContext,
    commit: str,
    on: str | None,
    sides: ConflictOptions,
    request: RequestOptions,
) -> None:
    """Revert COMMIT on a branch, by a new commit. Nothing is removed from history.

    Later changes stay. If later commits rewrote what COMMIT did, that is a conflict: --take COMMIT=KEY sets
    the table to its state before COMMIT, without any later change; --take BRANCH=KEY leaves it as it is.
    """
    lake = call.open_lake()
    branch = lake.branch(on).name
    commit_id, via = _commit_on(lake, commit, branch)
    # Resolved once: a revision such as 'main' names another commit as soon as this one has landed. Under a
    # key it is sent as it is written, so that a repetition is known again.
    undone = write_revision(commit_id, via) if request.idempotency_key is None else commit
    keys = sides.merge_modes(commit if commit != branch else shorten_id(commit_id), branch)

    def run_revert(preview: bool) -> MergeResult:
        return lake.revert(
            undone,
            branch,
            message=request.message,
            author=call.commit_author,
            keys=keys,
            if_head=request.if_head,
            dry_run=preview,
            idempotency_key=request.idempotency_key,
        )

    def describe_result(screen: Screen, result: MergeResult) -> str:
        if not result.applied:
            return _format_nothing_to_do(
                screen, f"{branch} has nothing left of {shorten_id(commit_id)} to undo"
            )
        reverted, head = (screen.style(shorten_id(commit), "id") for commit in (commit_id, result.head))
        return f"reverted {reverted} as {head}"

    def find_parent() -> str | None:
        return next(iter(get_commit(lake, commit_id, via).parents), None)

    shown = RevertCommand(
        call,
        lake,
        commit if commit != branch else shorten_id(commit_id),
        branch,
        run_revert,
        heading=f"undo {shorten_id(commit_id)} on {branch}",
        revision=write_revision(commit_id, via),
        base=find_parent,
    )
    shown.run_merge(request.dry_run, count=lambda _: None, done=describe_result)


def _commit_on(lake: Lake, revision: str, branch: str) -> tuple[str, str | None]:
    """A commit to undo on a branch, and the reference that leads to it.

    Who may not read every reference names it by its id all the same, since it is on the branch.
    """
    via = find_reference_name(revision)
    try:
        return lake.resolve(revision), via
    except Denied:
        if via is not None:
            raise
        return lake.resolve(write_revision(revision, branch)), branch
