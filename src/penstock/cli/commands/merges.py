"""Bringing changes from one place to another: merge, transplant, rebase, revert."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from penstock.cli import shapes
from penstock.cli.call import Call, pass_call
from penstock.cli.completions import complete_branch, complete_revision
from penstock.cli.declaration import command, expected_head_option, key_option, message_option
from penstock.cli.rendering.history import short
from penstock.cli.rendering.merges import NEEDED_AS_NAMESPACE, Sides, merge_page
from penstock.cli.rendering.screen import Screen
from penstock.cli.rendering.times import counted
from penstock.errors import ConflictError, MergeConflict
from penstock.lake.lake import Lake
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.model.conflicts import ConflictKind
from penstock.model.keys import Key
from penstock.model.merges import MergeMode, MergeResult

F = TypeVar("F", bound=Callable[..., Any])


def dry_run_option(f: F) -> F:
    return click.option(
        "--dry-run", is_flag=True, help="Only say what would happen. Exit status 3 on conflicts."
    )(f)


def take_option(f: F) -> F:
    return click.option(
        "--take",
        "takes",
        multiple=True,
        metavar="SIDE=KEY",
        help="Settle a key: take it from this side, named as in this command. Repeatable.",
    )(f)


def default_option(f: F) -> F:
    return click.option(
        "--default",
        type=click.Choice([mode.value for mode in MergeMode]),
        default=MergeMode.NORMAL.value,
        help="For all keys not named by --take: take the source's change unless both sides changed "
        "(normal), take the source's in any case (force), leave the target's (drop). [normal]",
    )(f)


def _taken(takes: Sequence[str], source: str, target: str) -> dict[str | Key, Any]:
    """What ``--take`` says, as the lake wants it: the source's side is forced, the target's side dropped."""
    chosen: dict[str | Key, Any] = {}
    for text in takes:
        side, equals, key = text.partition("=")
        if not equals or not key or side not in (source, target):
            raise click.BadParameter(
                f"{text!r} is neither {target}=KEY nor {source}=KEY", param_hint="--take"
            )
        chosen[Key.parse(key)] = MergeMode.FORCE if side == source else MergeMode.DROP
    return chosen


class _Bringing:
    """One of the four commands: what it is called, between whom, and how the lake does it."""

    def __init__(
        self,
        call: Call,
        lake: Lake,
        source: str,
        target: str,
        bring: Callable[[bool], MergeResult],
        *,
        heading: str = "",
        base: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._call, self._lake, self._bring, self._base = call, lake, bring, base
        self.source, self.target = source, target
        self._heading = heading or f"{source} → {target}"

    def run(
        self,
        dry_run: bool,
        *,
        count: Callable[[MergeResult], int | None],
        done: Callable[[Screen, MergeResult], str],
        ways_out: Callable[[MergeResult], list[str]],
    ) -> None:
        """Bring it, and answer with what came of it; conflicts are shown as a dry run shows them."""
        try:
            result = self._bring(dry_run)
        except MergeConflict:
            if self._call.json:
                raise
            result = self._bring(True)
            if not result.conflicts:
                raise  # what stood in the way has gone meanwhile

        def text(screen: Screen) -> Iterator[str]:
            if result.keys and (result.applied or result.dry_run):
                ways = ways_out(result) if result.conflicts else []
                yield from merge_page(screen, self._heading, self._sides(result), result, count(result), ways)
            if not result.dry_run or not result.keys:
                yield done(screen, result)

        self._call.answer(lambda: shapes.Merge.of(self.source, self.target, result), text)
        if result.conflicts:
            click.get_current_context().exit(ConflictError.exit_code)

    def _sides(self, result: MergeResult) -> Sides:
        base = result.base or self._base()
        since = self._lake.show(base).time if base not in (None, EMPTY_COMMIT_ID) else None

        def last_change(side: str, key: Key) -> Commit | None:
            return self._last_change(side, key, base, since)

        return Sides(self.source, self.target, last_change)

    def _last_change(self, side: str, key: Key, base: str | None, since: datetime | None) -> Commit | None:
        """The newest commit of one side that changed a key since the common ancestor."""
        if ".." in side:
            side = side.partition("..")[2]
        found = self._lake.log(side, table=key, since=since, limit=1)
        return found[0] if found and found[0].id != base else None

    def ways_out(self, result: MergeResult) -> list[str]:
        """What to do about conflicts, each as a command or an option that can be copied."""
        ways = []
        keys = _to_take(result)
        if keys:
            text = f"To take one side: --take {self.target}={keys[0]} or --take {self.source}={keys[0]}"
            ways.append(f"{text}." if len(keys) == 1 else f"{text}, and so on for the others.")
        return ways + [
            f"To have it there: penstock namespace create {shlex.quote(str(one.key))} --branch {self.target}"
            for one in result.conflicts
            if one.kind is ConflictKind.NAMESPACE_ABSENT
        ]


def _to_take(result: MergeResult) -> list[str]:
    """The keys that a side can be taken of: not namespaces that neither side brings."""
    return [
        shlex.quote(str(one.key))
        for one in result.keys
        if any(conflict.kind not in NEEDED_AS_NAMESPACE for conflict in one.conflicts)
    ]


def _nothing_to_do(screen: Screen, text: str) -> str:
    return screen.paint(text, "dim")


@command(
    "merge",
    prints="Merge",
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
@dry_run_option
@take_option
@default_option
@message_option
@expected_head_option("the target")
@key_option
@pass_call
def merge(
    call: Call,
    source: str,
    into: str | None,
    dry_run: bool,
    takes: tuple[str, ...],
    default: str,
    message: str | None,
    expected_head: str | None,
    idempotency_key: str | None,
) -> None:
    """Bring what SOURCE has and the target has not, by one commit: all tables at once, or none.

    SOURCE is a branch, tag or commit. It becomes the commit's second parent, so that merging again only
    brings what is new. Where both sides changed a table it is a conflict, and nothing is merged: take one
    side with --take, which names SOURCE or the target as written here.
    """
    lake = call.open()
    target = lake.branch(into).name
    keys = _taken(takes, source, target)

    def bring(preview: bool) -> MergeResult:
        return lake.merge(
            source,
            target,
            message=message,
            keys=keys,
            default=default,
            expected_head=expected_head,
            dry_run=preview,
            idempotency_key=idempotency_key,
        )

    def count(result: MergeResult) -> int:
        before = lake.show(result.head).parents[0] if result.applied else result.head
        assert result.source is not None
        return lake.compare(result.source, before).ahead

    def done(screen: Screen, result: MergeResult) -> str:
        if not result.applied:
            return _nothing_to_do(screen, f"{target} has everything of {source} already")
        return f"merged as {screen.paint(short(result.head), 'id')}"

    def ways_out(result: MergeResult) -> list[str]:
        ways = merging.ways_out(result)
        keys = _to_take(result)
        if keys and lake.branch(source).exists and source != lake.default_branch:
            drops = "".join(f" --take {target}={key}" for key in keys[:3])
            more = " …" if len(keys) > 3 else ""
            ways.append(
                f"To redo it: penstock rebase {source} --onto {target}{drops}{more}, then run the job again."
            )
        return ways

    merging = _Bringing(call, lake, source, target, bring)
    merging.run(dry_run, count=count, done=done, ways_out=ways_out)


@command(
    "transplant",
    prints="Merge",
    examples="""
$ penstock transplant hotfix~1..hotfix --onto main --dry-run
$ penstock transplant hotfix
""",
)
@click.argument("commits", metavar="RANGE", shell_complete=complete_revision)
@click.option(
    "--onto", metavar="BRANCH", shell_complete=complete_branch, help="The target. [the default branch]"
)
@dry_run_option
@take_option
@default_option
@message_option
@expected_head_option("the target")
@key_option
@pass_call
def transplant(
    call: Call,
    commits: str,
    onto: str | None,
    dry_run: bool,
    takes: tuple[str, ...],
    default: str,
    message: str | None,
    expected_head: str | None,
    idempotency_key: str | None,
) -> None:
    """Repeat commits on a branch, each as a commit of its own; all of them at one instant, or none.

    RANGE is one commit, or A..B: the commits after A up to B. They keep their messages and authors; a single
    one may get another --message.
    """
    lake = call.open()
    target = lake.branch(onto).name
    keys = _taken(takes, commits, target)

    def bring(preview: bool) -> MergeResult:
        return lake.transplant(
            commits,
            target,
            message=message or "",
            keys=keys,
            default=default,
            expected_head=expected_head,
            dry_run=preview,
            idempotency_key=idempotency_key,
        )

    def done(screen: Screen, result: MergeResult) -> str:
        if not result.applied:
            return _nothing_to_do(screen, f"{target} has all of that already")
        return f"transplanted as {', '.join(screen.paint(short(one), 'id') for one in result.commits)}"

    def fork() -> str:
        last = lake.resolve(commits.rpartition("..")[2])
        return lake.compare(target, last).base

    bringing = _Bringing(call, lake, commits, target, bring, base=fork)
    bringing.run(
        dry_run,
        count=lambda result: len(result.commits) if result.applied else None,
        done=done,
        ways_out=bringing.ways_out,
    )


@command(
    "rebase",
    prints="Merge",
    examples="$ penstock rebase feature/returns --onto main --dry-run\n$ penstock rebase feature/returns",
)
@click.argument("branch", shell_complete=complete_branch)
@click.option(
    "--onto", metavar="REVISION", shell_complete=complete_revision, help="The new base. [the default branch]"
)
@dry_run_option
@take_option
@default_option
@expected_head_option("BRANCH")
@key_option
@pass_call
def rebase(
    call: Call,
    branch: str,
    onto: str | None,
    dry_run: bool,
    takes: tuple[str, ...],
    default: str,
    expected_head: str | None,
    idempotency_key: str | None,
) -> None:
    """Repeat the own commits of BRANCH on a new base, and move BRANCH there.

    Its old commits stay in its reflog for a while.
    """
    lake = call.open()
    base = lake.default_branch if onto is None else onto
    keys = _taken(takes, branch, base)

    def bring(preview: bool) -> MergeResult:
        return lake.rebase(
            branch,
            base,
            keys=keys,
            default=default,
            expected_head=expected_head,
            dry_run=preview,
            idempotency_key=idempotency_key,
        )

    def done(screen: Screen, result: MergeResult) -> str:
        if result.dry_run:
            return _nothing_to_do(screen, f"{branch} has no commits of its own to repeat on {base}")
        if not result.applied:
            return _nothing_to_do(screen, f"{branch} stands on {base} already")
        repeated = counted(len(result.commits), "commit")
        head = screen.paint(short(result.head), "id")
        return f"{screen.paint(branch, 'name')} is at {head}, {repeated} repeated"

    bringing = _Bringing(call, lake, branch, base, bring)
    bringing.run(
        dry_run,
        count=lambda result: len(result.commits) if result.applied else None,
        done=done,
        ways_out=bringing.ways_out,
    )


@command(
    "revert",
    prints="Merge",
    examples="$ penstock revert main --dry-run\n$ penstock revert main --on main -m 'that was wrong'",
)
@click.argument("commit", metavar="COMMIT", shell_complete=complete_revision)
@click.option(
    "--on", metavar="BRANCH", shell_complete=complete_branch, help="Where to undo it. [the default branch]"
)
@dry_run_option
@take_option
@message_option
@expected_head_option("the branch")
@key_option
@pass_call
def revert(
    call: Call,
    commit: str,
    on: str | None,
    dry_run: bool,
    takes: tuple[str, ...],
    message: str | None,
    expected_head: str | None,
    idempotency_key: str | None,
) -> None:
    """Undo on a branch what COMMIT did, by a new commit. Nothing is removed from history.

    Where a table changed again since, it is a conflict: --take COMMIT=KEY undoes it all the same, --take
    BRANCH=KEY leaves it as it is.
    """
    lake = call.open()
    branch = lake.branch(on).name
    found = lake.resolve(commit)
    # Resolved once: a revision such as 'main' names another commit as soon as this one has landed.
    keys = _taken(takes, commit, branch) if commit != branch else _taken(takes, short(found), branch)

    def bring(preview: bool) -> MergeResult:
        return lake.revert(
            found,
            branch,
            message=message,
            keys=keys,
            expected_head=expected_head,
            dry_run=preview,
            idempotency_key=idempotency_key,
        )

    def done(screen: Screen, result: MergeResult) -> str:
        if not result.applied:
            return _nothing_to_do(screen, f"{branch} has nothing left of {short(found)} to undo")
        return f"reverted {screen.paint(short(found), 'id')} as {screen.paint(short(result.head), 'id')}"

    def parent() -> str | None:
        return next(iter(lake.show(found).parents), None)

    label = commit if commit != branch else short(found)
    bringing = _Bringing(
        call, lake, label, branch, bring, heading=f"undo {short(found)} on {branch}", base=parent
    )
    bringing.run(
        dry_run,
        count=lambda _: None,
        done=done,
        ways_out=bringing.ways_out,
    )
