"""``python -m benchmarks [NAME …]``: ask the questions, print the answers, keep them in ``results/``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from benchmarks.lakes import Workshop
from benchmarks.machine import Observation
from benchmarks.page import PAGE, write_choice, write_page
from benchmarks.report import Findings, Report, as_text

HERE = Path(__file__).parent
RESULTS = HERE / "results"
WORK = HERE / ".work"

NAMES = (
    "adoption",
    "backup",
    "browser_pages",
    "commit_cost",
    "committer",
    "compaction",
    "delta",
    "delta_cost",
    "delta_loading",
    "erase",
    "fairness",
    "group_commit",
    "lance",
    "merge_cost",
    "merge_base",
    "references",
    "revert_cost",
    "row_changes",
    "row_merge",
    "row_work",
    "server",
    "soak",
    "spark",
    "spark_sql",
    "start",
    "stores",
    "sweep",
    "sync_cost",
    "table_features",
    "transactions",
)
"""One module each, with a ``QUESTION`` and a function ``ask``."""


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    if chosen.docs:
        write_page(chosen.results or RESULTS)
        write_choice(chosen.results or RESULTS)
        return 0
    results: Path = chosen.results or (chosen.work / "quick" if chosen.quick else RESULTS)
    chosen.work.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="lakes", dir=chosen.work) as place:
        workshop = Workshop(Path(place), chosen.quick, chosen.rows)
        reports = [ask(name, workshop, results) for name in NAMES if name in (chosen.names or NAMES)]
    if results == RESULTS:
        write_page(RESULTS)
        write_choice(RESULTS)
    missed = sum(not goal.met for report in reports for goal in report.goals)
    print(f"{len(reports)} questions asked, {missed} goals not met", file=sys.stderr)
    return 0


def ask(name: str, workshop: Workshop, results: Path) -> Report:
    """Ask one question, print the answer and keep it."""
    module = import_module(f"benchmarks.{name}")
    measure = cast("Callable[[Workshop], Findings]", module.ask)
    observation = Observation(workshop.directory)
    found = measure(workshop)
    took_s = observation.took_s
    report = Report(
        name=name,
        question=module.QUESTION,
        quick=workshop.quick,
        machine=observation.facts(),
        took_s=took_s,
        goals=found.goals,
        tables=found.tables,
    )
    print(as_text(report), flush=True)
    report.write(results)
    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Ask how fast Penstock is. No figure makes this command fail.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", type=_known, help=f"some of: {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="so small that it only shows that the benchmarks work"
    )
    parser.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="how many rows the tables have that row_changes changes (default: 12,000,000)",
    )
    parser.add_argument(
        "--docs", action="store_true", help=f"only write {PAGE.name} from the results that are there"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="where the JSON files go (default: benchmarks/results, if quick: quick/ where lakes are made)",
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        default=WORK,
        help="where lakes are made for a while; on a real disk (default: benchmarks/.work)",
    )
    return parser


def _known(name: str) -> str:
    if name not in NAMES:
        raise argparse.ArgumentTypeError(f"there is no question {name!r}; there are {', '.join(NAMES)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
