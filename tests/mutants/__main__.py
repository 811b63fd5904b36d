"""See which mutants of a sample the tests kill, and whether the tests before they were rearranged did.

    python -m tests.mutants                   go on where the last run stopped, then print the table
    python -m tests.mutants --only before     judge by the tests before: those mutants that they can import
    python -m tests.mutants --afresh after    forget what one suite said, because its tests have changed
    python -m tests.mutants --further --budget 120    judge again, with more tests, what survived some of them
    python -m tests.mutants --seed 7          draw another sample, and forget everything
    python -m tests.mutants --renew 7         draw fresh mutants for those whose code is gone

*After* is the tests of the working tree. *Before* is those of one commit; they judge the same source, of
which many a module has another name by now, so that their verdicts are kept and not made anew unless they are
asked for. Tests that need a JVM are left out. The status is 1 if *before* kills a mutant that *after* does
not.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tests.mutants.forks import Plan
from tests.mutants.sample import (
    Mutant,
    Results,
    draw,
    load_results,
    load_sample,
    present,
    renew,
    save_results,
    save_sample,
)
from tests.servers import postgresql
from tests.servers.process import Missing

BEFORE = "1b709b3"
"""The commit whose tests judge as *before*: the last one whose suite was one tier."""
SUITES = ("before", "after")
ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("sample.json")
RESULTS = Path(__file__).with_name("results.json")
SCRATCH = ROOT / "build" / "mutants"
VERDICTS = ("killed", "timeout", "survived", "uncovered", "gone")
JVM_PATHS = (
    "tests/spark",
    "tests/interop",
    "tests/committer",
    "tests/nessie/oracle",
    "tests/reliability",
    "tests/mutants",
    "tests/bench",
    "tests/cli/test_bench.py",
    "tests/cli/test_demo_spark.py",
    "tests/test_benchmarks.py",
    "tests/documents",
    "tests/test_documents.py",  # where the documents' tests were
    "tests/test_examples.py",
)
"""What needs a JVM, tests no product code of the sample, or would judge itself."""
JVM_FIXTURES = ("dynamodb_server", "mongodb_server_url", "started_spark")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=SUITES, action="append")
    parser.add_argument("--afresh", choices=SUITES, action="append", default=[])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--renew", type=int, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget", type=float, default=40.0, help="seconds of tests for one mutant")
    parser.add_argument("--further", action="store_true", help="judge again what survived some of its tests")
    parser.add_argument("--table", action="store_true", help="only print the table")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        save_sample(SAMPLE, draw(ROOT / "src", chosen.seed))
        chosen.afresh = SUITES
    if chosen.renew is not None:
        save_sample(SAMPLE, renew(ROOT / "src", chosen.renew, load_sample(SAMPLE)))
        drop_others(load_sample(SAMPLE))
    for name in chosen.afresh:
        forget(name)
    if not chosen.table:
        for name in chosen.only or ("after",):
            judge(name, jobs=chosen.jobs, budget_s=chosen.budget, is_further=chosen.further)
    lines, is_whole = table(load_sample(SAMPLE), load_results(RESULTS))
    print("\n".join(lines))
    return 0 if is_whole else 1


def forget(name: str) -> None:
    """Drop a suite's verdicts and what its tests reach."""
    results = load_results(RESULTS)
    results.forget(name)
    save_results(RESULTS, results)
    for reached in SCRATCH.glob(f"{name}-*.jsonl"):
        reached.unlink()


def drop_others(sample: Sequence[Mutant]) -> None:
    """Drop the verdicts on mutants that are not in the sample."""
    results = load_results(RESULTS)
    ids = {mutant.id for mutant in sample}
    results.verdicts = {one: verdicts for one, verdicts in results.verdicts.items() if one in ids}
    save_results(RESULTS, results)


def judge(name: str, *, jobs: int, budget_s: float, is_further: bool) -> None:
    """Let a suite judge the mutants that it has not judged yet, in a process of its own."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    suite = tests_of(BEFORE) if name == "before" else ROOT
    results = load_results(RESULTS)
    results.suites[name] = BEFORE if name == "before" else _commit_here()
    save_results(RESULTS, results)
    plan = Plan(
        name=name,
        source=str(ROOT / "src"),
        sample=str(SAMPLE),
        results=str(RESULTS),
        scratch=str(SCRATCH),
        pytest=["-m", "not verify and not reliability", *(f"--ignore={path}" for path in JVM_PATHS), "tests"],
        without=list(JVM_FIXTURES),
        jobs=jobs,
        budget_s=budget_s,
        is_further=is_further,
    )
    with ExitStack() as stack:
        environment = {}
        try:
            server = stack.enter_context(postgresql.started())
            environment["PENSTOCK_TEST_POSTGRES"] = server.url
        except Missing as missing:
            print(f"tests with PostgreSQL are skipped: {missing}")
        start(plan, suite, environment)


def start(plan: Plan, suite: Path, environment: dict[str, str]) -> None:
    """Run a plan to its end in the folder of a suite, whose tests go before those of this working tree."""
    file = Path(plan.scratch) / f"{plan.name}.plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    paths = os.pathsep.join(map(str, (suite, plan.source, ROOT)))
    subprocess.run(
        [sys.executable, "-m", "tests.mutants.forks", file],
        cwd=suite,
        env={**os.environ, **environment, "PYTHONPATH": paths, "PYTEST_ADDOPTS": ""},
        check=True,
    )


def tests_of(commit: str) -> Path:
    """A folder with the files of a commit."""
    folder = SCRATCH / commit
    if not folder.exists():
        packed = subprocess.check_output(["git", "archive", commit], cwd=ROOT)
        partly = folder.with_suffix(".partly")
        shutil.rmtree(partly, ignore_errors=True)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(partly, filter="data")
        partly.rename(folder)
    return folder


def _commit_here() -> str:
    """The commit of the working tree, and whether anything but the sample was changed since."""
    commit = subprocess.check_output(["git", "log", "-1", "--format=%h"], cwd=ROOT, text=True).strip()
    paths = ["--", "src", "tests", ":!tests/mutants"]
    changed = subprocess.check_output(["git", "status", "--porcelain", *paths], cwd=ROOT)
    return f"{commit} and changes" if changed else commit


def table(sample: Sequence[Mutant], results: Results) -> tuple[list[str], bool]:
    """Counts by group, the mutants that only *before* kills, and whether there are none of those."""
    groups = list(dict.fromkeys(mutant.group for mutant in sample))
    lines = [f"{'':18}" + "".join(f"{verdict:>10}" for verdict in VERDICTS)]
    for name in SUITES:
        for group in [*groups, "all"]:
            its = [mutant for mutant in sample if group in (mutant.group, "all")]
            counts = Counter(results.of(m)[name].verdict for m in its if name in results.of(m))
            lines.append(f"{name:8}{group:10}" + "".join(f"{counts[verdict]:10}" for verdict in VERDICTS))
    if gone := len(sample) - len(present(ROOT / "src", sample)):
        lines += [f"{gone} mutants whose code is gone: --renew SEED draws others for them"]
    lost = list(lost_mutants(sample, results))
    lines += [f"{len(lost)} mutants that only the tests before kill"]
    lines += [f"  {m.id} {m.file} {m.function}: {m.operator} of {m.source}" for m in lost]
    return lines, not lost


def lost_mutants(sample: Iterable[Mutant], results: Results) -> Iterable[Mutant]:
    """The mutants that *before* kills, and that *after* reached or not, but does not kill."""
    for mutant in sample:
        verdicts = results.of(mutant)
        if "before" in verdicts and verdicts["before"].is_killed and "after" in verdicts:
            after = verdicts["after"]
            if not after.is_killed and after.verdict != "gone":
                yield mutant


if __name__ == "__main__":
    sys.exit(main())
