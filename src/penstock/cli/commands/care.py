"""Care of a lake: checking it, saying how much history is kept, and removing what nothing needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec

from penstock.cli.advice import RESTORE
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command, require_at_least
from penstock.cli.progress import Progress, ProgressBar
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age, format_count, format_size
from penstock.errors import Damaged
from penstock.kernel.description import HistoryRule
from penstock.kernel.fsck import CheckResult
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import SweepResult
from penstock.lake.answers import About, SweptFiles, SweptTable
from penstock.model.clock import to_utc_datetime

F = TypeVar("F", bound=Callable[..., Any])


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found and did."""

    objects: SweepResult
    """Of the lake's database."""
    tables: tuple[SweptTable, ...]
    """Of each table with versions of its own."""
    files: SweptFiles
    """Of all tables of files."""


NOTES_OF_FORKS: Final = "see the notes in _penstock/data/forks/"


@declare_command("fsck", prints=CheckResult, examples="$ penstock fsck")
@pass_call
def fsck(call: CommandContext) -> None:
    """Check every object that a branch, a tag or a log references: its hash, order and structure.

    The command also checks that no file of a Lance table is missing at any branch or tag. It lists what is
    damaged, and then ends with exit status 1. Commits can continue meanwhile.
    """
    lake = call.open_lake(create=False)
    with Progress(call.json) as progress:
        checked = lake.fsck(progress)
    call.print_answer(lambda: checked, lambda screen: _render_check(screen, checked))
    if checked.damages:
        click.get_current_context().exit(Damaged.exit_code)


def _render_check(screen: Screen, checked: CheckResult) -> Iterator[str]:
    counts = [
        format_count(checked.references, "reference"),
        format_count(checked.commits, "commit"),
        format_count(checked.objects, "object"),
    ]
    yield f"checked {', '.join(counts)}"
    if not checked.damages:
        yield screen.style("nothing is wrong", "good")
        return
    yield from align_columns(
        screen, [[StyledText(damage.object, "id"), damage.what] for damage in checked.damages], indent="  "
    )
    yield screen.style(f"{format_count(len(checked.damages), 'thing')} wrong", "bad")
    yield "  What is not named here can still be read. Unless a line says otherwise:"
    yield f"  {RESTORE}."


def _make_number_option(
    name: str, metavar: str, kind: type[float], lowest: int, text: str
) -> Callable[[F], F]:
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        type=kind,
        callback=require_at_least(lowest),
        metavar=metavar,
        help=text,
    )


@declare_command(
    "horizon",
    prints=About,
    examples="""
$ penstock horizon --max-days 365
$ penstock horizon 'job/*' --max-commits 100 --max-days 7
$ penstock horizon
$ penstock horizon 'job/*' --keep-all
""",
)
@click.argument("pattern", required=False, metavar="[PATTERN]")
@_make_number_option("max_commits", "COUNT", int, 1, "Keep at least this number of commits.")
@_make_number_option("max_days", "DAYS", float, 0, "Keep commits for at least this number of days.")
@click.option("--keep-all", is_flag=True, help="Remove the rule for PATTERN: keep everything again.")
@pass_call
def horizon(
    call: CommandContext, pattern: str | None, max_commits: int | None, max_days: float | None, keep_all: bool
) -> None:
    """Set how much history is retained for the branches and tags whose names match PATTERN.

    PATTERN is a name and may contain * and ?; without it, the rule applies to all names. If several rules
    match a name, the one set last applies. With both limits, a commit stays if either keeps it; heads and
    tags always stay. Sweeps apply a new rule one grace period after it was set. Without arguments, the rules
    are listed.
    """
    is_limited = max_commits is not None or max_days is not None
    if keep_all and is_limited:
        raise click.UsageError("--keep-all cannot be used with --max-commits or --max-days")
    if pattern is not None and not keep_all and not is_limited:
        raise click.UsageError("give --max-commits or --max-days (or both), or --keep-all")
    lake = call.open_lake(create=False)
    if keep_all or is_limited:
        lake.keep_history(pattern or "*", max_commits=max_commits, max_days=max_days)
    about = lake.about
    call.print_answer(lambda: about, lambda screen: _format_history_rules(screen, about.history_rules))


def _format_history_rules(screen: Screen, rules: Sequence[HistoryRule]) -> Iterator[str]:
    if not rules:
        yield "all history is kept"
    rows: list[Row] = [
        [
            StyledText(escape_controls(rule.pattern), "name"),
            _format_limits(rule),
            StyledText(f"set {format_age(to_utc_datetime(rule.since_us), screen.now)}", "dim"),
        ]
        for rule in rules
    ]
    yield from align_columns(screen, rows)


def _format_limits(rule: HistoryRule) -> str:
    limits = [format_count(rule.max_commits, "commit")] if rule.max_commits is not None else []
    if rule.max_days is not None:
        limits.append("1 day" if rule.max_days == 1 else f"{rule.max_days:,g} days")
    return f"keeps {' and '.join(limits)}"


@declare_command(
    "grace",
    prints=About,
    examples="""
$ penstock grace
$ penstock grace --data-grace-days 30
""",
)
@_make_number_option(
    "grace_s", "SECONDS", float, 0, "The grace period of unreferenced objects, in seconds: 3600 or more."
)
@_make_number_option(
    "data_grace_days", "DAYS", float, 0, "The grace period of unreferenced data files, in days: 4 or more."
)
@pass_call
def grace(call: CommandContext, grace_s: float | None, data_grace_days: float | None) -> None:
    """Show or set the grace period: how long sweeps keep files and objects that nothing references.

    The period applies to all writers and sweeps of the lake: a job must commit within half of
    --data-grace-days after its start, or is refused. A longer period takes effect at once. A shorter one
    takes effect for sweeps after the previous period has passed, because running jobs rely on that. Once a
    period was set, releases of Penstock without this command refuse the lake: they would sweep by their own
    defaults.
    """
    lake = call.open_lake(create=False)
    about = lake.about
    if grace_s is not None or data_grace_days is not None:
        about = lake.set_grace(grace_s=grace_s, data_grace_days=data_grace_days)
    call.print_answer(lambda: about, lambda screen: _format_grace_periods(screen, about))


def _format_grace_periods(screen: Screen, about: About) -> Iterator[str]:
    rows: list[Row] = [
        [StyledText("objects", "strong"), f"{about.grace_s:,g} seconds"],
        [StyledText("data files", "strong"), f"{about.data_grace_days:,g} days"],
    ]
    yield from align_columns(screen, rows)


@declare_command(
    "sweep",
    prints=SweepReport,
    examples="""
$ penstock sweep --dry-run
$ penstock sweep --remove-data
$ penstock sweep --grace-s 172800
""",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--remove-data", is_flag=True, help="Also remove data files of tables, not only count them.")
@_make_number_option(
    "grace_s",
    "SECONDS",
    float,
    0,
    "A longer grace period of unreferenced objects. [as set by 'penstock grace']",
)
@_make_number_option(
    "data_grace_days",
    "DAYS",
    float,
    0,
    "A longer grace period of unreferenced data files. [as set by 'penstock grace']",
)
@click.option(
    "--nobody-writes",
    is_flag=True,
    help="State that nobody writes to the lake until the sweep has ended: this allows shorter grace periods.",
)
@_make_number_option(
    "idempotency_days",
    "DAYS",
    float,
    0,
    "Forget idempotency keys after this number of days; less than 7 needs --nobody-writes. [7]",
)
@_make_number_option(
    "tombstone_days", "DAYS", float, 0, "Forget logs of deleted branches after this number of days. [90]"
)
@pass_call
def sweep(
    call: CommandContext,
    /,
    dry_run: bool,
    remove_data: bool,
    nobody_writes: bool,
    **chosen: float | int | None,
) -> None:
    """Remove unreferenced data: objects that no branch, tag or log references, and files of tables.

    Unused staged commits and other files beside the logs of Delta tables are removed after a day. Data files
    that no retained commit references, such as those of failed jobs, are counted, and removed only with
    --remove-data. The same holds for Lance tables and tables of files. Jobs that ended long ago are
    forgotten, with their branches.

    Commits can continue meanwhile, except with --nobody-writes: a write during such a sweep may be lost.
    Commits beyond the history horizon (see 'penstock horizon') are removed as well; heads and tags always
    stay. Behind a server, the server's settings apply, and only --dry-run and --remove-data are available.
    """
    options: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    if nobody_writes:
        options["nobody_writes"] = True
    if options and call.is_behind_server:
        option = next(iter(options)).replace("_", "-")
        raise click.UsageError(f"--{option} cannot be used with a server, which has its own settings")
    settings = msgspec.structs.replace(Settings(), **options) if options else None
    lake = call.open_lake(create=False, settings=settings)
    with Progress(call.json) as progress:
        swept = lake.sweep(dry_run=dry_run, progress=progress)
    with ProgressBar(call.json) as progress:
        tables = lake.sweep_tables(remove_data=remove_data, dry_run=dry_run, progress=progress)
    with ProgressBar(call.json) as progress:
        files = lake.sweep_files(remove_data=remove_data, dry_run=dry_run, progress=progress)
    call.print_answer(
        lambda: SweepReport(objects=swept, tables=tuple(tables), files=files),
        lambda screen: _format_swept(screen, swept, tables, files),
    )


def _format_swept(
    screen: Screen, swept: SweepResult, tables: Sequence[SweptTable], files: SweptFiles
) -> Iterator[str]:
    removed = "would remove" if swept.dry_run else "removed"
    rows: list[Row] = [
        [
            StyledText(removed, "strong"),
            format_count(swept.removed, "object"),
            format_size(swept.removed_bytes),
        ],
        [StyledText("kept", "strong"), format_count(swept.kept, "object"), format_size(swept.kept_bytes)],
    ]
    if swept.waiting:
        rows.append(
            [StyledText("too young", "strong"), format_count(swept.waiting, "object"), "to be removed later"]
        )
    yield from align_columns(screen, rows)
    forgotten = []
    if swept.receipts:
        forgotten.append(format_count(swept.receipts, "idempotency key"))
    if swept.tombstones:
        forgotten.append(
            format_count(swept.tombstones, "log of a deleted reference", "logs of deleted references")
        )
    if forgotten:
        yield f"{'would forget' if swept.dry_run else 'forgot'} {' and '.join(forgotten)}"
    yield from _format_swept_tables(screen, tables)
    yield from _format_swept_files(screen, files)
    is_left = any(table.data_files and not table.data_removed for table in tables)
    if is_left or (files.data_files and not files.data_removed):
        yield "  'penstock sweep --remove-data' removes data files."


def _format_swept_tables(screen: Screen, tables: Sequence[SweptTable]) -> Iterator[str]:
    """What was found among the files of tables; of those of which nothing goes, only how many there are."""
    if not tables:
        return
    rows: list[Row] = []
    for table in tables:
        key = StyledText(escape_controls(str(table.key)), "name")
        if table.data_files:
            verb = "removed" if table.data_removed else "would remove"
            rows.append(
                [key, verb, format_count(table.data_files, "data file"), format_size(table.data_bytes)]
            )
        if table.scratch_files:
            verb = "would remove" if table.dry_run else "removed"
            files = format_count(table.scratch_files, "file beside its versions", "files beside its versions")
            rows.append([key, verb, files, format_size(table.scratch_bytes)])
        if table.waiting:
            rows.append([key, "too young", format_count(table.waiting, "data file"), "to be removed later"])
        if table.forked:
            rows.append([key, "kept for forks", format_count(table.forked, "file"), NOTES_OF_FORKS])
    yield (
        f"{format_count(len(tables), 'table')}, "
        f"{format_count(sum(table.kept for table in tables), 'data file')} needed"
    )
    yield from align_columns(screen, rows, indent="  ")
    for table in tables:
        if table.problem:
            yield screen.style(f"nothing more is removed of {escape_controls(str(table.key))}:", "bad")
            yield from (f"  {escape_controls(line)}" for line in table.problem.splitlines())


def _format_swept_files(screen: Screen, files: SweptFiles) -> Iterator[str]:
    """What was found among the files of tables of files, and of jobs; nothing if there was nothing."""
    rows: list[Row] = []
    if files.data_files:
        verb = "removed" if files.data_removed else "would remove"
        rows.append([verb, format_count(files.data_files, "file"), format_size(files.data_bytes)])
    if files.waiting:
        rows.append(["too young", format_count(files.waiting, "file"), "to be removed later"])
    if files.forked:
        rows.append(["kept for forks", format_count(files.forked, "file"), NOTES_OF_FORKS])
    if rows or files.kept:
        yield f"tables of files, {format_count(files.kept, 'old file')} needed"
        yield from align_columns(screen, rows, indent="  ")
    did = ("settled", "dropped", "forgot")
    if files.dry_run:
        did = ("would settle", "would drop", "would forget")
    if files.jobs_settled:
        yield f"{did[0]} {format_count(files.jobs_settled, 'job')} whose process had ended"
    if files.branches:
        yield f"{did[1]} {format_count(files.branches, 'branch of a job', 'branches of jobs')}"
    if files.jobs_forgotten:
        yield f"{did[2]} {format_count(files.jobs_forgotten, 'job')} that ended long ago"
    if files.problem:
        yield screen.style("of tables of files nothing more is removed:", "bad")
        yield from (f"  {escape_controls(line)}" for line in files.problem.splitlines())
