"""A suite that is imported and collected once, and forked for every file of tests and for every mutant.

Started as a program of its own in the folder of the suite, with the path of a plan. What a test starts as
another process runs the real source there: mutants are planted in the process of the test only.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from _pytest.fixtures import SubRequest

from tests.mutants.mutation import Mutation, install
from tests.mutants.sample import Mutant, Verdict, load_results, load_sample, present, save_results

STOP_MAX_S = 20
"""How long the servers of a test may take to stop."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Which mutants a suite judges, and how."""

    name: str
    source: str
    """The folder whose packages are mutated."""
    sample: str
    results: str
    scratch: str
    pytest: list[str] = []
    without: list[str] = []
    """Fixtures whose tests are skipped."""
    jobs: int = 2
    patience_s: float = 15.0
    """How much longer than five times its usual time a test may take."""
    budget_s: float = 40.0
    """How long the tests of one mutant take together, by what they took without mutants."""
    is_further: bool = False
    """Whether mutants that survived some of their tests are judged again."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one test."""

    test: str
    outcome: str
    seconds: float
    reached: list[int]


class Covered(msgspec.Struct, frozen=True):
    """What became of the tests of one file without mutants."""

    file: str
    tests: list[Outcome]


class Suite:
    """A plugin of pytest, whose loop forks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sample = load_sample(Path(plan.sample))
        self.present = present(Path(plan.source), self.sample)
        files: dict[str, dict[int, Mutation]] = {}
        for number, mutant in enumerate(self.sample, 1):
            files.setdefault(mutant.file, {})[number] = mutant.mutation
        self.probes = install(Path(plan.source), files)
        self.results = load_results(Path(plan.results))
        self.scratch = Path(plan.scratch)
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.items: dict[str, pytest.Item] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.sound: set[str] = set()
        """Tests that pass alone."""
        self._places: dict[str, int] = {}
        self._state = "passed"
        self._seconds = 0.0
        self._shared: dict[str, set[int]] = {}

    # --- hooks

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Let no failing example be made smaller: that it fails is all there is to know."""
        # Not earlier: pytest wants to see its plugins first.
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.reuse, Phase.generate)
        settings.register_profile("mutants", settings(), phases=phases)
        settings.load_profile("mutants")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: SubRequest
    ) -> Iterator[None]:
        """Note what a fixture reaches that tests share: all of them depend on it, not only the first."""
        if fixturedef.argname in self.plan.without:
            try:
                pytest.skip(f"{fixturedef.argname} is left out")
            except pytest.skip.Exception as left_out:
                # As pytest does itself, so that the next test that asks is skipped too.
                failed = (left_out, left_out.__traceback__)
                fixturedef.cached_result = (None, fixturedef.cache_key(request), failed)
                raise
        reached = set(self.probes.reached)
        self.probes.reached.clear()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._shared.setdefault(fixturedef.argname, set()).update(self.probes.reached)
            self.probes.reached |= reached

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.failed:
            print(report.longreprtext, flush=True)
            crash = getattr(report.longrepr, "reprcrash", None)
            is_late = getattr(crash, "message", "").startswith("Failed: Timeout")
            self._state = "timeout" if is_late else "failed"
        elif report.skipped and self._state == "passed":
            self._state = "skipped"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self._places = {test: place for place, test in enumerate(self.items)}
        # LanceDB warns in every fork that it began anew there; tests have filters of their own.
        warnings.simplefilter("ignore")
        gc.collect()
        gc.freeze()
        self._cover()
        self._judge_all()
        return True

    # --- coverage

    def _cover(self) -> None:
        """Run every file of the suite without mutants, unless that was done."""
        drawn = hashlib.sha256(Path(self.plan.sample).read_bytes()).hexdigest()[:12]
        store = self.scratch / f"{self.plan.name}-{drawn}.jsonl"
        done = msgspec.json.Decoder(Covered).decode_lines(store.read_bytes()) if store.exists() else []
        files: dict[str, list[str]] = {}
        for test in self.items:
            files.setdefault(test.partition("::")[0], []).append(test)
        left = sorted(files.keys() - {each.file for each in done}, key=lambda file: -len(files[file]))
        with store.open("ab") as appended:
            for covered in _spread(self.plan.jobs, self._cover_file, [(file, files[file]) for file in left]):
                done.append(covered)
                appended.write(msgspec.json.encode(covered) + b"\n")
                appended.flush()
                states = [each.outcome for each in covered.tests]
                counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
                self._say(f"{covered.file}: {counts}")
        tests = [test for covered in done for test in covered.tests]
        self.outcomes = {
            test.test: test for test in tests if test.outcome == "passed" and test.test in self.items
        }
        self._say(f"{len(self.outcomes)} tests of {len(self.items)} can judge")

    def _cover_file(self, task: tuple[str, list[str]]) -> Covered:
        file, tests = task
        outcomes: list[Outcome] = []
        while len(outcomes) < len(tests):
            left = tests[len(outcomes) :]
            outcomes += self._fork(left, 0, dict.fromkeys(left, 120.0))
            if len(outcomes) < len(tests):
                died = tests[len(outcomes)]
                outcomes.append(Outcome(test=died, outcome="died", seconds=0.0, reached=[]))
        return Covered(file, outcomes)

    # --- verdicts

    def _judge_all(self) -> None:
        """Judge every mutant that has no verdict of this suite, or one that is to be made surer."""
        name = self.plan.name
        left: list[int] = []
        for number, mutant in enumerate(self.sample, 1):
            earlier = self.results.of(mutant).get(name)
            if earlier is None or (self.plan.is_further and earlier.is_partial):
                left.append(number)
        for done, (number, verdict) in enumerate(_spread(self.plan.jobs, self._judge, left), 1):
            mutant = self.sample[number - 1]
            self.results.of(mutant)[name] = verdict
            save_results(Path(self.plan.results), self.results)
            self._say(f"{done}/{len(left)} {mutant.id} {verdict.verdict} {verdict.seconds}s {verdict.by}")

    def _judge(self, number: int) -> tuple[int, Verdict]:
        mutant = self.sample[number - 1]
        if mutant.id not in self.present:
            return number, Verdict(verdict="gone")
        began = time.monotonic()
        reaching = self._ordered(number, mutant)
        tests = self._chosen(mutant, reaching)
        ran, by, state = 0, "", "survived" if reaching else "uncovered"
        while tests:
            state, ran, by = self._try(number, tests)
            if not by or self._convicts(by, number):
                break
            tests = [test for test in tests if test != by]
            state, by = "survived", ""
        seconds = round(time.monotonic() - began, 1)
        return number, Verdict(verdict=state, by=by, ran=ran, reaching=len(reaching), seconds=seconds)

    def _try(self, number: int, tests: Sequence[str]) -> tuple[str, int, str]:
        """The verdict of some tests, how many were run, and which one failed."""
        limits = {test: self.plan.patience_s + 5 * self.outcomes[test].seconds for test in tests}
        outcomes = self._fork(tests, number, limits)
        if outcomes and outcomes[-1].outcome in ("failed", "timeout"):
            state = "killed" if outcomes[-1].outcome == "failed" else "timeout"
            return state, len(outcomes), outcomes[-1].test
        if len(outcomes) < len(tests):  # It hangs, or took the process with it.
            return "timeout", len(outcomes), tests[len(outcomes)]
        return "survived", len(outcomes), ""

    def _convicts(self, test: str, number: int) -> bool:
        """Whether a test fails alone because of a mutant, and not at random or for what ran before it."""
        if not self._try(number, [test])[2]:
            return False
        if test not in self.sound and not self._try(0, [test])[2]:
            self.sound.add(test)
        return test in self.sound

    def _ordered(self, number: int, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, those first that are near and quick."""
        words = _words(mutant.file)

        def cost(test: str) -> float:
            return (0.02 + self.outcomes[test].seconds) / 4.0 ** len(words & _words(test.partition("::")[0]))

        return sorted((t for t, outcome in self.outcomes.items() if number in outcome.reached), key=cost)

    def _chosen(self, mutant: Mutant, reaching: Sequence[str]) -> list[str]:
        """As many tests as fit the budget: file by file, in the order in which they are known to pass.

        If another suite kills the mutant, all of them, first the one that killed.
        """
        others = self.results.of(mutant).values()
        left_s = float("inf") if any(verdict.is_killed for verdict in others) else self.plan.budget_s
        files: dict[str, list[str]] = {}
        for test in reaching:
            left_s -= self.outcomes[test].seconds
            if left_s < 0 and files:
                break
            files.setdefault(test.partition("::")[0], []).append(test)
        in_order = [test for tests in files.values() for test in sorted(tests, key=self._places.__getitem__)]
        killers = {verdict.by for verdict in others}
        return sorted(in_order, key=lambda test: test not in killers)

    # --- processes

    def _fork(self, tests: Sequence[str], active: int, limits_s: dict[str, float]) -> list[Outcome]:
        """Run tests in a fork, with a mutant until the first that fails, and say what became of them.

        A test has its limit of seconds; where that does not stop it, the fork is killed a little later.
        """
        report = self.scratch / f"{os.getpid()}.outcomes"
        report.unlink(missing_ok=True)
        sys.stdout.flush()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                self._run(parent, [self.items[test] for test in tests], active, report, limits_s)
            finally:
                os._exit(1)
        silence_max_s = max(limits_s.values()) + STOP_MAX_S
        heard, size = time.monotonic(), 0
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if report.exists() and report.stat().st_size != size:
                heard, size = time.monotonic(), report.stat().st_size
            if time.monotonic() > heard + silence_max_s:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(0.01)
        shutil.rmtree(report.with_suffix(".tmp"), ignore_errors=True)
        # A line that was not written to its end belongs to a process that was killed meanwhile.
        lines = report.read_bytes().splitlines(keepends=True) if report.exists() else []
        return [msgspec.json.decode(line, type=Outcome) for line in lines if line.endswith(b"\n")]

    def _run(
        self, parent: int, items: Sequence[pytest.Item], active: int, report: Path, limits_s: dict[str, float]
    ) -> None:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(report.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        session = items[0].session
        session.config._tmp_path_factory._given_basetemp = report.with_suffix(".tmp").absolute()  # type: ignore[attr-defined]
        self.probes.active = active
        with report.open("wb", buffering=0) as lines:
            for item, following in pairwise([*items, None]):
                assert item is not None
                if os.getppid() != parent:  # Nobody waits for the outcome any more.
                    os._exit(1)
                self._state, self._seconds = "passed", 0.0
                self.probes.reached.clear()
                item.add_marker(pytest.mark.timeout(limits_s[item.nodeid], method="signal"), append=False)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                shared = [self._shared.get(name, set()) for name in getattr(item, "fixturenames", [])]
                reached = sorted(self.probes.reached.union(*shared)) if not active else []
                seconds = round(self._seconds, 3)
                outcome = Outcome(test=item.nodeid, outcome=self._state, seconds=seconds, reached=reached)
                lines.write(msgspec.json.encode(outcome) + b"\n")
                if active and self._state in ("failed", "timeout"):
                    break
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(STOP_MAX_S)
        session._setupstate.teardown_exact(None)
        os._exit(0)

    def _say(self, line: str) -> None:
        print(f"{self.plan.name}: {line}", flush=True)


def _words(file: str) -> set[str]:
    return set(file.removesuffix(".py").replace("_", "/").split("/"))


Task = TypeVar("Task")
Answer = TypeVar("Answer")
_work: Callable[[Any], Any]
"""What the processes of a pool do: theirs by being forks, since a suite cannot be sent to them."""


def _spread(jobs: int, work: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
    """Do tasks in several forks, and hand back the answers as they come."""
    global _work  # noqa: PLW0603
    _work = work
    if tasks:
        with multiprocessing.get_context("fork").Pool(jobs, _obey_the_pool) as pool:
            yield from pool.imap_unordered(_do, tasks)
            # Left otherwise, the pool kills its processes, which may not have come to obey it yet.
            pool.close()
            pool.join()


def _obey_the_pool() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _do(task: Any) -> Any:
    return _work(task)


def main(path: str) -> int:
    # As an exception, so that the pool ends with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = msgspec.json.decode(Path(path).read_bytes(), type=Plan)
    # Without capturing: forks would share the file that catches the output of all.
    quietly = ["-q", "-s", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    status = pytest.main([*quietly, *plan.pytest], plugins=[Suite(plan)])
    # Files that cannot be imported cannot judge; pytest has named them.
    return 0 if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
