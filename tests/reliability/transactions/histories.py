"""A random history on one lake: pipelines in processes that meet and are killed, while others read."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import NamedTuple

import penstock
from penstock.lake.lake import Lake
from penstock.model.transactions import Isolation, Policy
from tests.reliability.transactions.checker import check
from tests.reliability.transactions.crew import Crew
from tests.reliability.transactions.history import Append, Done, Drop, History, Look, Outcome, Value
from tests.reliability.transactions.journal import Died, Ended, Journal, lines_of, transactions_of
from tests.reliability.transactions.pipeline import settled
from tests.reliability.transactions.points import At
from tests.reliability.transactions.remains import check_remains
from tests.reliability.transactions.tables import LISTS, NAMESPACE, format_of, key_of, kind_of, rows, value_of
from tests.reliability.transactions.worker import SETTINGS, Task


def run_history(crew: Crew, place: Path, seed: int, *, kill_at: At | None = None) -> Counter[str]:
    """Make a history that a seed chooses, and check it; how often what happened.

    One process is killed in it, at a point of chance or at ``kill_at``, and sometimes another.
    """
    chance = random.Random(seed)
    isolation, policy = chance.choice([*Isolation]), chance.choice([*Policy, Policy.REBASE])
    tasks = _tasks(place, chance, isolation, policy, kill_at)
    told = f"seed {seed}: {isolation}, {policy}, {[(one.name, one.kill_at) for one in tasks if one.kill_at]}"
    heirs = Journal(place.with_suffix(".heirs.journal"))
    with penstock.open(place, create=True, settings=SETTINGS) as lake:
        lake.branch().create_namespace(NAMESPACE)
        first = first_lists(lake, [name for name in LISTS if chance.random() < 0.7])
        with Reader(place) as reader:
            crew.run(tasks, lambda task: _inherit(lake, heirs, Path(task.journal)))
    heirs.close()
    done = [first, *_done([Path(one.journal) for one in tasks], place.with_suffix(".heirs.journal"))]
    with penstock.open(place, create=True, settings=SETTINGS) as lake:
        history = History(transactions=tuple(done), looks=tuple(looks_of(lake, reader.seen)))
    anomalies = check(history)
    assert not anomalies, "\n".join([told, *map(str, anomalies)])
    check_remains(place, history, told)
    happened = _happened(history)
    happened.update([f"isolation {isolation}", f"policy {policy}"])
    for task in tasks:
        died = [line.where for line in lines_of(Path(task.journal)) if isinstance(line, Died)]
        happened.update(f"killed {where}" for where in died)
    return happened


def _tasks(
    place: Path, chance: random.Random, isolation: Isolation, policy: Policy, kill_at: At | None
) -> list[Task]:
    workers = chance.randint(2, 4)
    victims = {0: kill_at or chance.choice([*At])}
    if workers > 2 and chance.random() < 0.3:
        victims[1] = chance.choice([*At])
    return [
        Task(
            lake=str(place),
            journal=str(place.with_suffix(f".w{number}.journal")),
            name=f"w{number}",
            seed=chance.getrandbits(32),
            count=4,
            isolation=isolation,
            policy=policy,
            kill_at=victims.get(number),
            kill_in=chance.randrange(4),
        )
        for number in range(workers)
    ]


def first_lists(lake: Lake, names: Sequence[str]) -> Done:
    """Have some lists from the beginning, with an element each."""
    begun_ns = time.monotonic_ns()
    steps = [Append(name, f"<first-{name}>") for name in names]
    with lake.transaction("main", message="first") as tx:
        for step in steps:
            tx.write(rows([step.element]), key_of(step.name), format=format_of(step.name))
    return Done(id="first", steps=tuple(steps), begun_ns=begun_ns, ended_ns=time.monotonic_ns())


_INHERITING = Lock()


def _inherit(lake: Lake, heirs: Journal, journal: Path) -> None:
    """Find out what became of the transaction that a process was at when it died."""
    ended = {line.id for line in lines_of(journal) if isinstance(line, Ended)}
    for one in transactions_of(lines_of(journal)):
        if one.id not in ended:
            outcome = settled(lake, one.id)
            with _INHERITING:
                heirs.ended(one.id, outcome)


def _done(journals: list[Path], heirs: Path) -> list[Done]:
    lines = [line for journal in journals for line in lines_of(journal)]
    return transactions_of([*lines, *lines_of(heirs)])


def looks_of(lake: Lake, seen: Sequence[Seen]) -> list[Look]:
    """What readers saw while it happened, and what is to be seen at every commit that there is now."""
    commits = [one.id for one in lake.log("main", limit=None)][::-1]
    places = {commit: place for place, commit in enumerate(commits)}
    looks = [
        Look(place=places[one.commit], found=one.found, begun_ns=one.begun_ns, ended_ns=one.ended_ns)
        for one in seen
    ]
    return [*looks, *(Look(place=places[one], found=values_at(lake, one)) for one in commits)]


def values_at(lake: Lake, revision: str) -> dict[str, Value]:
    """All lists at one commit."""
    snapshot = lake.at(revision)
    return {name: value_of(snapshot.table(key_of(name))) for name in LISTS}


class Seen(NamedTuple):
    """All lists at the newest commit that there was."""

    commit: str
    found: dict[str, Value]
    begun_ns: int
    ended_ns: int


def look_now(lake: Lake) -> Seen:
    begun_ns = time.monotonic_ns()
    commit = lake.resolve("main")
    return Seen(commit, values_at(lake, commit), begun_ns, time.monotonic_ns())


class Reader:
    """Looks at all lists again and again, from a process of its own as far as the lake knows."""

    def __init__(self, place: Path) -> None:
        self._place, self._ended = place, Event()
        self.seen: list[Seen] = []
        self._problems: list[BaseException] = []
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._problems and error is None:
            raise self._problems[0]

    def _run(self) -> None:
        try:
            with penstock.open(self._place, create=False, settings=SETTINGS) as lake:
                while not self._ended.wait(0.05):
                    self.seen.append(look_now(lake))
                self.seen.append(look_now(lake))
        except BaseException as problem:  # it is raised again where the block ends
            self._problems.append(problem)


def _happened(history: History) -> Counter[str]:
    happened = Counter({"looks": len(history.looks)})
    for one in history.transactions:
        happened[str(one.outcome)] += 1
        if one.outcome is Outcome.COMMITTED:
            happened.update(f"landed in {kind_of(name)}" for name in one.changed)
            happened["dropped"] += any(isinstance(step, Drop) for step in one.steps)
    return happened
