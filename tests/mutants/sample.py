"""The sample of mutants: drawn once, kept in `sample.json`, and what became of each in `results.json`."""

from __future__ import annotations

import ast
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tests.mutants.mutation import Mutation, find_mutations

PER_GROUP = 60
"""How many mutants each group gives; those in `sample.json` were drawn with the seed 20261116, and for those
whose code is gone with the seed 20261118."""
GROUPS: Mapping[str, Sequence[str]] = {
    "kernel": ["penstock/kernel/*.py"],
    "delta": [
        f"penstock/formats/delta/{part}/*.py"
        for part in ("log", "branch_log", "protocol", "publishing", "ownership")
    ],
    "lance": ["penstock/formats/lance/*.py"],
    "sweep": [
        "penstock/kernel/sweep.py",
        "penstock/kernel/reachable.py",
        "penstock/lake/*sweep*.py",
        "penstock/lake/retained*.py",
        "penstock/formats/*/lake/*sweep*.py",
        "penstock/formats/*/lake/retained*.py",
        "penstock/server/background_sweep.py",
    ],
    "remote": ["penstock/lake/remote*.py", "penstock/wire/*.py"],
    "access": ["penstock/server/access/*.py", "penstock/formats/*/access.py"],
}
"""Where mutants are drawn from, below the folder of sources. A file is of the last group that names it."""


class Mutant(Mutation, frozen=True, kw_only=True):
    """One mutation of the sample."""

    id: str
    group: str
    file: str
    line: str
    """The line as it was when the sample was drawn, for people."""

    @property
    def mutation(self) -> Mutation:
        return Mutation(
            function=self.function, operator=self.operator, source=self.source, occurrence=self.occurrence
        )


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a suite says of a mutant.

    killed      a test fails that passes without the mutant
    timeout     a test does not end in time that does without the mutant; it counts as killed
    survived    the tests pass: ``ran`` of them, of all the ``reaching`` ones
    uncovered   no test reaches the mutated code in its own process
    gone        the code that the mutant changes is no longer there
    """

    verdict: str
    by: str = ""
    ran: int = 0
    reaching: int = 0
    seconds: float = 0.0

    @property
    def is_killed(self) -> bool:
        return self.verdict in ("killed", "timeout")

    @property
    def is_partial(self) -> bool:
        return self.verdict == "survived" and self.ran < self.reaching


class Results(msgspec.Struct, kw_only=True):
    """What suites say of the mutants."""

    suites: dict[str, str] = {}
    """Which commit a suite's tests are of, by its name."""
    verdicts: dict[str, dict[str, Verdict]] = {}
    """By the mutant's id and the suite's name."""

    def of(self, mutant: Mutant) -> dict[str, Verdict]:
        return self.verdicts.setdefault(mutant.id, {})

    def forget(self, name: str) -> None:
        self.suites.pop(name, None)
        for verdicts in self.verdicts.values():
            verdicts.pop(name, None)


def draw(root: Path, seed: int, groups: Mapping[str, Sequence[str]] = GROUPS) -> list[Mutant]:
    """A sample in which every operator has its share, and no line two mutants."""
    chance = random.Random(seed)
    sample: list[Mutant] = []
    for group in groups:
        drawn = _drawn(chance, _candidates(root, group, groups), PER_GROUP, ())
        sample += [msgspec.structs.replace(each, id=f"{group}-{at:02}") for at, each in enumerate(drawn, 1)]
    return sample


def renew(
    root: Path, seed: int, sample: Sequence[Mutant], groups: Mapping[str, Sequence[str]] = GROUPS
) -> list[Mutant]:
    """A sample with fresh mutants of the same group for those whose code is gone, under ids of their own."""
    chance = random.Random(seed)
    there = present(root, sample)
    renewed: list[Mutant] = []
    for group in groups:
        its = [mutant for mutant in sample if mutant.group == group]
        kept = [mutant for mutant in its if mutant.id in there]
        candidates = _candidates(root, group, groups)
        lines = {
            (file, mutant.mutation): line for alike in candidates.values() for file, line, mutant in alike
        }
        places = {(mutant.file, lines.get((mutant.file, mutant.mutation), 0)) for mutant in kept}
        fresh = _drawn(chance, candidates, len(its) - len(kept), places)
        last = max((int(mutant.id.rpartition("-")[2]) for mutant in its), default=0)
        numbered = [
            msgspec.structs.replace(each, id=f"{group}-{at:02}") for at, each in enumerate(fresh, last + 1)
        ]
        renewed += [*kept, *numbered]
    return renewed


Candidates = dict[str, list[tuple[str, int, Mutant]]]
"""All mutants of a group with their file and line, by operator."""


def _candidates(root: Path, group: str, groups: Mapping[str, Sequence[str]]) -> Candidates:
    group_of = {file: name for name, globs in groups.items() for file in _files(root, globs)}
    candidates: Candidates = {}
    for file in sorted(file for file, its_group in group_of.items() if its_group == group):
        for line, mutant in _mutants(root, file, group):
            candidates.setdefault(mutant.operator, []).append((file, line, mutant))
    return candidates


def _drawn(
    chance: random.Random, candidates: Candidates, count: int, taken: Collection[tuple[str, int]]
) -> list[Mutant]:
    """So many mutants on lines that are not taken, in the order of their files and lines."""
    for alike in candidates.values():
        chance.shuffle(alike)
    drawn: dict[tuple[str, int], Mutant] = {}
    while len(drawn) < count and candidates:
        operator = chance.choice(sorted(candidates))
        file, line, mutant = candidates[operator].pop()
        if not candidates[operator]:
            del candidates[operator]
        if (file, line) not in taken:
            drawn.setdefault((file, line), mutant)
    return [drawn[place] for place in sorted(drawn)]


def _files(root: Path, globs: Sequence[str]) -> Iterator[str]:
    for glob in globs:
        for path in root.glob(glob):
            if path.name != "__init__.py":
                yield path.relative_to(root).as_posix()


def _mutants(root: Path, file: str, group: str) -> Iterator[tuple[int, Mutant]]:
    source = (root / file).read_text()
    lines = source.splitlines()
    for mutation, node in find_mutations(ast.parse(source)).items():
        assert isinstance(node, ast.expr | ast.stmt)
        line = lines[node.lineno - 1].strip()
        yield (
            node.lineno,
            Mutant(id="", group=group, file=file, line=line, **msgspec.structs.asdict(mutation)),
        )


def present(root: Path, sample: Sequence[Mutant]) -> set[str]:
    """The ids of the mutants whose code is still there."""
    found: set[str] = set()
    for file in {mutant.file for mutant in sample}:
        if (root / file).exists():
            places = find_mutations(ast.parse((root / file).read_text()))
            found |= {mutant.id for mutant in sample if mutant.file == file and mutant.mutation in places}
    return found


def load_sample(path: Path) -> list[Mutant]:
    return msgspec.json.decode(path.read_bytes(), type=list[Mutant])


def save_sample(path: Path, sample: Sequence[Mutant]) -> None:
    _replace(path, "[\n" + ",\n".join(msgspec.json.encode(mutant).decode() for mutant in sample) + "\n]\n")


def load_results(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def save_results(path: Path, results: Results) -> None:
    """Write one line for each mutant; at once, so that an interrupted run leaves the last whole file."""
    suites = msgspec.json.encode(results.suites).decode()
    judged = sorted((one, verdicts) for one, verdicts in results.verdicts.items() if verdicts)
    lines = ",\n".join(f'"{one}": {msgspec.json.encode(verdicts).decode()}' for one, verdicts in judged)
    _replace(path, f'{{"suites": {suites},\n"verdicts": {{\n{lines}\n}}}}\n')


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
