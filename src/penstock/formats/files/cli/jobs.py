"""Jobs that write tables of files: which there are, and stopping them from landing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_group
from penstock.cli.completions import complete_branch, complete_key, make_completer
from penstock.cli.id_prefixes import ID_CHARS, complete_id
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age
from penstock.errors import JobNotFound
from penstock.formats.files.lake.answers import JobInfo
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState

_STYLES = {JobState.COMMITTED: "good", JobState.ABORTED: "bad"}


@declare_group("jobs", prints=ListPage[JobInfo], examples="$ penstock jobs")
@click.pass_context
def jobs(ctx: click.Context) -> None:
    """List and abort jobs that write tables of files.

    The lake knows a job of Spark or another engine from its start to its end. A job lands in one commit or
    not at all. Without a subcommand, running jobs are listed.
    """
    if ctx.invoked_subcommand is None:
        _show_jobs(ctx.ensure_object(CommandContext), ctx.ensure_object(CommandContext).open_lake().jobs())


@jobs.command(
    "list",
    prints=ListPage[JobInfo],
    examples="""
$ penstock jobs list
$ penstock jobs list --all --table raw.visits --branch main
""",
)
@click.option("--all", "also_ended", is_flag=True, help="Include jobs that ended in the last days.")
@click.option(
    "--table", "key", metavar="KEY", shell_complete=complete_key, help="Only jobs that write to this table."
)
@click.option(
    "--branch", metavar="BRANCH", shell_complete=complete_branch, help="Only jobs that write to this branch."
)
@pass_call
def jobs_list(call: CommandContext, also_ended: bool, key: str | None, branch: str | None) -> None:
    """List running jobs, newest first: their tables, who runs them, and their time limit."""
    _show_jobs(call, call.open_lake().jobs(key, branch, all=also_ended))


def _complete_job_ids(lake: Lake, start: str) -> list[str]:
    return [job.id for job in lake.jobs() if job.id.startswith(start)]


@jobs.command(
    "abort",
    prints=ListPage[JobInfo],
    examples="""
$ penstock jobs abort --late
""",
)
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=make_completer(_complete_job_ids))
@click.option("--late", is_flag=True, help="Abort all jobs that timed out.")
@click.option("--why", metavar="TEXT", default="", help="The reason, which is stored with the job.")
@pass_call
def jobs_abort(call: CommandContext, ids: tuple[str, ...], late: bool, why: str) -> None:
    """Abort jobs, so that they never land. The first 8 digits of an ID are enough.

    The branch does not change, and no reader ever sees the files of the job. A job that is committing, or has
    committed, is not aborted: the command says so.
    """
    if not ids and not late:
        raise click.UsageError("give the ID of the job to abort, or --late to abort all that timed out")
    lake = call.open_lake()
    chosen = dict.fromkeys(_find_job_id(lake, start.lower()) for start in ids)
    if late:
        chosen |= {job.id: None for job in lake.jobs() if job.is_late}
    ended = [lake.abort_job(job, why) for job in chosen]
    _show_jobs(call, ended)
    if any(job.state is not JobState.ABORTED for job in ended):
        call.print_note("a job that has sent its commit cannot be aborted; 'penstock revert' undoes a commit")


def _find_job_id(lake: Lake, start: str) -> str:
    return complete_id(
        start,
        "jobs",
        lambda: (job.id for job in lake.jobs(all=True)),
        lambda: JobNotFound(f"there is no job '{start}'", job=start),
    )


def _show_jobs(call: CommandContext, jobs: Sequence[JobInfo]) -> None:
    call.print_answer(lambda: ListPage.from_items(jobs), lambda screen: _format_jobs(screen, jobs))


def _format_jobs(screen: Screen, jobs: Sequence[JobInfo]) -> Iterator[str]:
    if not jobs:
        yield "no jobs"
    yield from align_columns(screen, [_format_job_row(screen, job) for job in jobs], flexible=-1)


def _format_job_row(screen: Screen, job: JobInfo) -> Row:
    description = (
        job.why if job.state is JobState.ABORTED else " ".join(filter(None, (job.what, job.application)))
    )
    return [
        StyledText(job.id[:ID_CHARS], "id"),
        StyledText(
            "late" if job.is_late else job.state.value,
            "warning" if job.is_late else _STYLES.get(job.state, ""),
        ),
        StyledText(escape_controls(job.key), "strong"),
        StyledText(escape_controls(job.branch), "name"),
        StyledText(shorten_id(job.commit) if job.commit else "", "id"),
        StyledText(f"began {format_age(job.began, screen.now)}", "dim"),
        escape_controls(job.who),
        escape_controls(description),
    ]
