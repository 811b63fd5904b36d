"""The judge is judged: a toy suite says of planted mutants what is known beforehand."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from tests.mutants.__main__ import start, table
from tests.mutants.forks import Plan
from tests.mutants.mutation import find_mutations, plant
from tests.mutants.sample import (
    Mutant,
    Results,
    Verdict,
    draw,
    load_results,
    present,
    renew,
    save_results,
    save_sample,
)

SOURCE = '''
"""A gate."""

OPENS = 8


def is_open(hour: int) -> bool:
    return hour > OPENS


def is_night(hour: int) -> bool:
    return hour < 6


def count_down(number: int) -> int:
    while number > 0:
        number = number - 1
    return number


def needs_a_machine() -> int:
    return 40


def is_judged_badly(hour: int) -> bool:
    return hour == 3


def is_lunch(hour: int) -> bool:
    return hour == 12
'''
TESTS = """
import pathlib
import pytest
from toy import gates

seen = []

@pytest.fixture(autouse=True)
def noted(request):
    with open(pathlib.Path(__file__).parent / "ran.txt", "a") as notes:
        print(request.node.name, file=notes)

@pytest.fixture(scope="module")
def machine():
    return 40

@pytest.fixture(scope="module")
def lunch():
    return gates.is_lunch(12)

def test_the_gate_is_open_after_eight():
    assert gates.is_open(9)
    assert not gates.is_open(8)

def test_midnight_is_night():
    assert gates.is_night(0)

def test_counting_ends():
    assert gates.count_down(1) == 0

def test_a_machine(machine):
    assert gates.needs_a_machine() == machine

def test_the_machine_again(machine):
    assert gates.needs_a_machine() == machine

def test_that_always_fails():
    assert gates.is_judged_badly(3) == 'perhaps'

def test_that_leaves_something_behind():
    seen.append(1)

def test_that_fails_alone():
    assert seen and gates.is_judged_badly(3)

def test_that_asks_for_lunch_first(lunch):
    pass

def test_that_has_lunch(lunch):
    assert lunch
"""
CASES = {
    "open": ("is_open", "compare", "hour > OPENS"),
    "night": ("is_night", "compare", "hour < 6"),
    "endless": ("count_down", "plus/minus", "number - 1"),
    "machine": ("needs_a_machine", "add one", "40"),
    "badly": ("is_judged_badly", "compare", "hour == 3"),
    "lunch": ("is_lunch", "compare", "hour == 12"),
    "gone": ("is_shut", "compare", "hour < OPENS"),
}
KNOWN = {
    "open": "killed",
    "night": "survived",
    "endless": "timeout",
    "machine": "uncovered",
    "badly": "survived",
    "lunch": "killed",
    "gone": "gone",
}


def mutant(name: str, function: str, operator: str, source: str) -> Mutant:
    return Mutant(
        id=name,
        group="toy",
        file="toy/gates.py",
        line="",
        function=function,
        operator=operator,
        source=source,
        occurrence=0,
    )


ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Without the plugins that are installed: loading them takes longer than judging."""
SAMPLE = [mutant(name, *case) for name, case in CASES.items()]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A suite that has judged its mutants once."""
    home = tmp_path_factory.mktemp("toy")
    for file, text in {
        "pytest.ini": "[pytest]\naddopts = --import-mode=importlib\n",
        "source/toy/gates.py": SOURCE,
        "toy_tests/test_gates.py": TESTS,
    }.items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text)
    save_sample(home / "sample.json", SAMPLE)
    scratch = home / "scratch"
    scratch.mkdir()
    plan = Plan(
        name="before",
        source=str(home / "source"),
        sample=str(home / "sample.json"),
        results=str(home / "results.json"),
        scratch=str(scratch),
        pytest=["-p", "pytest_timeout", "toy_tests"],
        without=["machine"],
        patience_s=5.0,
    )
    start(plan, home, ALONE)
    return plan


@pytest.mark.verify
def test_every_planted_mutant_gets_the_verdict_that_is_known_beforehand(plan: Plan) -> None:
    results = load_results(Path(plan.results))
    assert {name: verdicts["before"].verdict for name, verdicts in results.verdicts.items()} == KNOWN


@pytest.mark.verify
def test_a_verdict_names_the_test_that_killed(plan: Plan) -> None:
    results = load_results(Path(plan.results)).verdicts
    assert results["open"]["before"].by == "toy_tests/test_gates.py::test_the_gate_is_open_after_eight"
    assert results["lunch"]["before"].by == "toy_tests/test_gates.py::test_that_has_lunch"
    assert results["night"]["before"] == Verdict(
        verdict="survived", ran=1, reaching=1, seconds=results["night"]["before"].seconds
    )


@pytest.mark.verify
def test_a_run_that_was_interrupted_goes_on_and_does_nothing_twice(plan: Plan) -> None:
    home = Path(plan.results).parent
    results = load_results(Path(plan.results))
    kept = Verdict(verdict="killed", by="kept as it was")
    results.verdicts |= {"endless": {"before": kept}, "night": {}}
    save_results(Path(plan.results), results)
    (home / "toy_tests/ran.txt").unlink()
    start(plan, home, ALONE)
    again = load_results(Path(plan.results)).verdicts
    assert again["endless"]["before"] == kept
    assert again["night"]["before"].verdict == "survived"
    assert (home / "toy_tests/ran.txt").read_text() == "test_midnight_is_night\n"


def test_a_mutant_is_found_again_where_lines_have_moved_and_is_gone_where_the_code_changed(
    tmp_path: Path,
) -> None:
    (tmp_path / "toy").mkdir()
    changed = SOURCE.replace("hour < 6", "hour < 7").replace("OPENS = 8", "OPENS = 8\n\n\nCLOSES = 20")
    (tmp_path / "toy/gates.py").write_text(changed)
    assert present(tmp_path, SAMPLE) == {"open", "endless", "machine", "badly", "lunch"}


def test_two_mutations_of_one_expression_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def both(a, b):\n    if a and b:\n        return 1\n    return 2\n"
    conditions = [each for each in find_mutations(ast.parse(source)) if each.source == "a and b"]
    assert [each.operator for each in conditions] == ["negate", "and/or"]
    names: dict[str, object] = {}
    exec(plant(source, dict(enumerate(conditions, 1)), "both.py"), names)
    both = names["both"]
    assert callable(both)
    answers = {}
    for active in (0, 1, 2):
        monkeypatch.setattr("builtins.__mutant__", active.__eq__, raising=False)
        answers[active] = [both(True, True), both(True, False)]
    assert answers == {0: [1, 2], 1: [2, 1], 2: [1, 1]}


def test_what_runs_on_import_what_people_read_and_what_takes_time_is_not_mutated() -> None:
    source = """
LIMIT = 1 + 2
class Gate:
    width: int = 3
    def __str__(self): return str(1)
    def open(self, by: int = 1, *, wide=True) -> None:
        "Open it."
        assert by > 0
        log.info("opening %s", 1)
        wait(timeout_s=5)
        raise ValueError(f"{by + 1} is too wide", 7)
"""
    assert [each.operator for each in find_mutations(ast.parse(source))] == ["drop call", "drop raise"]


def test_a_sample_is_the_same_for_the_same_seed_and_no_line_has_two_mutants(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/gates.py").write_text(SOURCE)
    groups = {"toy": ["toy/*.py"]}
    drawn = draw(tmp_path, 1, groups)
    assert drawn == draw(tmp_path, 1, groups) != draw(tmp_path, 2, groups)
    assert len({each.line for each in drawn}) == len(drawn) > 5


def test_mutants_whose_code_is_gone_are_renewed_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/gates.py").write_text(SOURCE)
    groups = {"toy": ["toy/*.py"]}
    few = [one for one in SAMPLE if one.id in ("open", "night", "gone")]
    old = [msgspec.structs.replace(one, id=f"toy-{at:02}") for at, one in enumerate(few, 1)]
    assert renew(tmp_path, 1, old[:2], groups) == old[:2]
    *kept, fresh = renew(tmp_path, 1, old, groups)
    assert kept == old[:2]
    assert fresh.id == "toy-04"
    assert present(tmp_path, [fresh]) == {"toy-04"}
    assert fresh.line not in ("return hour > OPENS", "return hour < 6"), "no line has two mutants"
    assert renew(tmp_path, 1, old, groups)[-1] == fresh


@pytest.mark.parametrize(
    ("after", "is_lost"),
    [("killed", False), ("timeout", False), ("gone", False), ("survived", True), ("uncovered", True)],
)
def test_a_mutant_that_only_the_tests_before_kill_is_named(after: str, is_lost: bool) -> None:
    sample = [mutant("open", *CASES["open"])]
    verdicts = {"before": Verdict(verdict="killed"), "after": Verdict(verdict=after)}
    lines, is_whole = table(sample, Results(verdicts={"open": verdicts}))
    assert is_whole is not is_lost
    assert any("open toy/gates.py is_open" in line for line in lines) is is_lost
