"""Measuring a store: how many commits a second it takes, beside the loop that everybody writes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click
import msgspec

from penstock.bench.benchmark import SECONDS, WRITERS, BenchmarkComparison, BenchmarkPlan, run_benchmark
from penstock.bench.benchmark_lake import clean_up, open_guest_lake, own_lake
from penstock.bench.commit_strategies import CommitStrategy
from penstock.bench.load import LoadShape
from penstock.bench.measure import LoadMeasurement
from penstock.cli.command_context import CommandContext, pass_call, require_place
from penstock.cli.command_declaration import declare_command
from penstock.cli.progress import Progress
from penstock.cli.rendering.screen import Screen
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_count
from penstock.lake.opener import is_remote

WRITERS_MAX: Final = 1000
SECONDS_MAX: Final = 3600
HEADER: Final = (
    "writers", "way", "commits/s", "p50 ms", "p99 ms", "swaps", "commits a swap", "calls a commit",
    "lost swaps", "times naive",
)  # fmt: skip


def _parse_seconds(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not 0 < value <= SECONDS_MAX:
        raise click.BadParameter(
            f"must be greater than 0 and at most {SECONDS_MAX:,}, got {value:g}", ctx, param
        )
    return value


def _parse_writer_counts(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """``1,16,64`` as numbers, each once."""
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 1,16,64", ctx, param) from None
    for number in numbers:
        if not 1 <= number <= WRITERS_MAX:
            raise click.BadParameter(f"must be between 1 and {WRITERS_MAX:,}, got {number}", ctx, param)
    return numbers


def _parse_shapes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[LoadShape, ...]:
    """``one-branch,one-table`` as shapes, each once."""
    try:
        return tuple(dict.fromkeys(LoadShape(part) for part in value.split(",")))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a list of shapes with commas between; the shapes are {', '.join(LoadShape)}",
            ctx,
            param,
        ) from None


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one load on a store, with one way of committing."""

    shape: str
    """`one-branch`, `many-branches` or `one-table`: how the writers meet."""
    writers: int
    """How many writers there are."""
    way: str
    """`group commit`, or `naive`: every writer for itself, one commit a swap."""
    commits: int
    """Commits that were acknowledged within the time."""
    commits_per_s: float
    """Commits a second."""
    p50_ms: float | None
    """How long at most half of the commits took."""
    p99_ms: float | None
    """How long at most 99 of 100 commits took."""
    swaps: int
    """Batches that landed, each by one swap."""
    lost_swaps: int
    """Swaps that came too late, and were done again."""
    commits_per_swap: float | None
    """Commits of a batch, on average."""
    calls_per_commit: float | None
    """How often a commit, on average, waited for the store."""
    times_naive: float | None
    """How many times the naive loop's commits a second; only of group commit, and if that was measured."""


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a store is."""

    url: str
    """The store."""
    seconds: float
    """How long each measurement took."""
    measurements: tuple[Measurement, ...]
    """One for each load and way."""
    removed: int
    """Branches of an earlier bench that were removed, if that was asked for."""


@declare_command(
    "bench",
    prints=Bench,
    examples="""
$ penstock bench trial --seconds 0.2 --writers 1,16 --shapes one-branch
$ penstock bench --in-lake --seconds 0.2 --writers 4 --shapes one-branch,one-table --no-naive
""",
)
@click.argument("url", required=False, metavar="[URL]")
@click.option("--in-lake", is_flag=True, help="Measure in an existing lake, on separate branches.")
@click.option(
    "--seconds",
    type=float,
    default=SECONDS,
    callback=_parse_seconds,
    metavar="SECONDS",
    help=f"How long each measurement takes. [{SECONDS:g}]",
)
@click.option(
    "--writers",
    default=",".join(map(str, WRITERS)),
    callback=_parse_writer_counts,
    metavar="LIST",
    help=f"Numbers of writers. [{','.join(map(str, WRITERS))}]",
)
@click.option(
    "--shapes",
    "chosen",
    default=",".join(LoadShape),
    callback=_parse_shapes,
    metavar="LIST",
    help=f"How writers share branches and tables. [{','.join(LoadShape)}]",
)
@click.option("--naive/--no-naive", default=True, help="Whether the naive loop is measured too. [it is]")
@click.option("--clean", is_flag=True, help="Only remove what a bench that was killed left behind.")
@pass_call
def bench(
    call: CommandContext,
    url: str | None,
    in_lake: bool,
    seconds: float,
    writers: tuple[int, ...],
    chosen: tuple[LoadShape, ...],
    naive: bool,
    clean: bool,
) -> None:
    """Measure how many commits a second a store accepts from many writers.

    URL is an empty store, which is emptied again at the end. A store with a lake is refused without
    --in-lake; with it, the branches of the benchmark are deleted at the end, and the next sweeps remove their
    objects. Without URL: --lake or PENSTOCK_LAKE, else the current directory.

    Each measurement is a commit of one table after the other by a number of writers, for a time, once
    each of them has been at all its branches:

    \b
    one-branch     all on one branch, each writer its own table
    many-branches  spread over 64 branches, no two writers on the same
    one-table      all on one branch and one table, without a base, so that none is refused

    Beside it the same is done naively: every writer for itself reads the head, builds its commit, stores
    it and swaps, and if somebody was faster waits a growing, random time and begins anew. One commit a
    swap; no queue, no lock, no receipts.
    """
    target = require_place(url) if url else call.lake_target
    if is_remote(target):
        raise click.UsageError(f"{target} is a server; give the URL of the store to measure")
    if clean:
        cleaned = clean_up(target)
        removed = format_count(cleaned.branches, "branch", "branches")
        call.print_answer(
            lambda: Bench(url=cleaned.url, seconds=0.0, measurements=(), removed=cleaned.branches),
            lambda _: [f"removed {removed} of an earlier bench from {cleaned.url}"],
        )
        return
    plan = BenchmarkPlan(shapes=chosen, writers=writers, naive=naive, seconds=seconds)
    line = _BenchProgress(call.json, plan)
    with (open_guest_lake if in_lake else own_lake)(target) as site, line:
        pairs = list(run_benchmark(site, plan, line.announce_measurement))
        place = site.store.url
    call.print_answer(
        lambda: _describe_bench(place, plan, pairs), lambda screen: _format_result(screen, place, plan, pairs)
    )
    if in_lake:
        call.print_note(
            "the branches are deleted; 'penstock sweep' removes their objects when they are old enough"
        )


class _BenchProgress(Progress):
    """Says which measurement is under way, and how long the rest will take."""

    def __init__(self, quiet: bool, plan: BenchmarkPlan) -> None:
        super().__init__(quiet)
        self._plan, self._done = plan, 0

    def announce_measurement(self, shape: LoadShape, writers: int, strategy: CommitStrategy) -> None:
        """The next measurement begins."""
        plan = self._plan
        left_s = plan.takes_s * (1 - self._done / plan.measurements)
        self._done += 1
        if self._silent:
            return
        self._shown = True
        what = f"{shape}, {format_count(writers, 'writer')}, {strategy}"
        self._stream.write(f"\r\x1b[K{self._done} of {plan.measurements}: {what}; {left_s:.0f} s left")
        self._stream.flush()


def _describe_bench(url: str, plan: BenchmarkPlan, pairs: Sequence[BenchmarkComparison]) -> Bench:
    return Bench(
        url=url,
        seconds=plan.seconds,
        measurements=tuple(
            _describe_measurement(pair, way, measured)
            for pair in pairs
            for way, measured in (
                (CommitStrategy.GROUP_COMMIT, pair.group),
                (CommitStrategy.NAIVE, pair.naive),
            )
            if measured is not None
        ),
        removed=0,
    )


def _describe_measurement(
    pair: BenchmarkComparison, strategy: CommitStrategy, measured: LoadMeasurement
) -> Measurement:
    return Measurement(
        shape=pair.shape,
        writers=pair.writers,
        way=strategy,
        commits=measured.commits,
        commits_per_s=measured.commits_per_s,
        p50_ms=measured.latency_ms(0.5),
        p99_ms=measured.latency_ms(0.99),
        swaps=measured.tally.swaps,
        lost_swaps=measured.tally.lost_swaps,
        commits_per_swap=measured.commits_per_swap,
        calls_per_commit=measured.calls_per_commit,
        times_naive=pair.times_naive if strategy is CommitStrategy.GROUP_COMMIT else None,
    )


def _format_result(
    screen: Screen, url: str, plan: BenchmarkPlan, pairs: Sequence[BenchmarkComparison]
) -> Iterator[str]:
    where = screen.style(url, "strong")
    yield f"measured at {where}, for {plan.seconds:g} s each after the writers warmed up"
    for shape in plan.shapes:
        yield ""
        yield f"{screen.style(shape, 'name')}: {shape.description}"
        rows = [list(HEADER)]
        for pair in pairs:
            if pair.shape is shape:
                rows += _format_rows(pair)
        yield from align_columns(
            screen, _align_figures(rows if plan.naive else [row[:-1] for row in rows]), indent="  "
        )


def _format_rows(pair: BenchmarkComparison) -> Iterator[list[str]]:
    times = pair.times_naive
    yield _format_row(
        str(pair.writers),
        CommitStrategy.GROUP_COMMIT,
        pair.group,
        f"{format_figure(times)}x" if times else "",
    )
    if pair.naive is not None:
        yield _format_row("", CommitStrategy.NAIVE, pair.naive, "")


def _format_row(writers: str, strategy: CommitStrategy, measured: LoadMeasurement, times: str) -> list[str]:
    return [
        writers,
        strategy,
        format_figure(measured.commits_per_s),
        format_figure(measured.latency_ms(0.5)),
        format_figure(measured.latency_ms(0.99)),
        f"{measured.tally.swaps:,}",
        format_figure(measured.commits_per_swap),
        format_figure(measured.calls_per_commit),
        f"{measured.tally.lost_swaps:,}",
        times,
    ]


def _align_figures(rows: Sequence[Sequence[str]]) -> list[Row]:
    """Figures end at the same place in all rows, words begin there."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[HEADER.index("way")] = 0
    lines = [[cell and cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return [[StyledText(cell, "dim") for cell in lines[0]], *lines[1:]]


def format_figure(value: float | None) -> str:
    """Three digits that count; a dash where there is nothing to say."""
    if value is None:
        return "-"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
