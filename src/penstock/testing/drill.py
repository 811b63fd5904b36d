"""A drill: a few hundred commits that give every promise a chance to be broken, and all checks on the result.

Two kernels that share nothing but the data stand for two processes. What they do is recorded; at the end a
kernel that nobody has tampered with reads the data, and says what is wrong with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from itertools import chain
from threading import Lock
from typing import TypeAlias

import msgspec

from penstock.errors import AdministratorError, PenstockError
from penstock.kernel.description import make_description, write_description
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import sweep_objects
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.chain import read_chain, read_commits
from penstock.testing.client import Client
from penstock.testing.faults import FaultyStore, Point
from penstock.testing.history import HistoryChecker
from penstock.testing.recorder import Answer, Event, Recorder
from penstock.testing.samples import let_time_pass
from penstock.testing.threads import at_once
from penstock.testing.violations import Violation

HOUR_US = 3600 * 1_000_000
TABLES = tuple(f"table{number}" for number in range(12))
# Sweeps run beside writers here, none of whom takes as long as a minute.
PATIENT = Settings(grace_s=60.0, nobody_writes=True)
HASTY = Settings(grace_s=60.0, tries_max=1, nobody_writes=True)
"""Gives up at once, so that a lost answer reaches the caller."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a drill found wrong: nothing, of a kernel and a store that keep their promises."""

    violations: tuple[Violation, ...] = ()
    damages: tuple[str, ...] = ()
    """What fsck says."""
    errors: tuple[str, ...] = ()
    """What was raised that no caller should see."""
    accepted: int = 0
    refused: int = 0

    @property
    def kinds(self) -> set[str]:
        """How it was noticed: the names of the violations, ``fsck``, ``error``."""
        kinds = {type(violation).__name__ for violation in self.violations}
        return kinds | ({"fsck"} if self.damages else set()) | ({"error"} if self.errors else set())

    def __str__(self) -> str:
        return "\n".join([*map(str, self.violations), *self.damages, *self.errors]) or "nothing"


class TickingClock:
    """A clock that moves by a microsecond whenever it is looked at, and by hours when it is told to.

    It starts at the real time: some stores go by a clock of their own.
    """

    def __init__(self) -> None:
        self._now_us = now_us()
        self._lock = Lock()

    def __call__(self) -> int:
        with self._lock:
            self._now_us += 1
            return self._now_us

    def pass_hours(self, hours: float) -> None:
        with self._lock:
            self._now_us += int(hours * HOUR_US)


def new_lake(store: Store) -> None:
    """A lake with an empty branch main."""
    Kernel(store).references.create_reference("main", Kind.BRANCH, NO_COMMIT)
    write_description(store, make_description(0, "main", "", ()))


OpenData: TypeAlias = Callable[[Clock], Store]
"""Opens a handle on the data of a drill, which goes by the drill's clock if it has none of its own."""


class Drill:
    """One drill. ``open_data`` gives each process its handle on the data, ``wrap`` what it makes of it.

    On a store that ``locks``, nobody can commit between another's look at a branch and its swap.
    """

    def __init__(
        self,
        wrap: Callable[[Store], Store] = lambda store: store,
        seed: int = 1,
        open_data: OpenData | None = None,
        locks: bool = False,
    ) -> None:
        self._wrap, self._chance, self._locks = wrap, random.Random(seed), locks
        self._clock = TickingClock()
        if open_data is None:
            memory = MemoryStore(self._clock)
            open_data = lambda _: memory  # noqa: E731
        self._open_data = partial(open_data, self._clock)
        self._recorders: list[Recorder] = []
        self._errors: list[str] = []
        self._opened: list[FaultyStore] = []

    def run(self, tampering: Callable[[], AbstractContextManager[object]] = nullcontext) -> Found:
        """Carry it out within ``tampering``, and check the result outside of it."""
        with closing(self._open_data()) as data:
            new_lake(data)
        with tampering():
            for phase in (
                self._drill_writes,
                self._drill_races,
                self._drill_repetitions,
                self._lost_answers,
                self._drill_crowd,
                self._many_keys,
                self._drill_sweeps,
                self._restart,
            ):
                with self._note_errors():
                    phase()
            self._close_all()
        return self._check()

    def _open(self, name: str, settings: Settings = PATIENT) -> tuple[Client, FaultyStore]:
        """Another process."""
        store = FaultyStore(self._wrap(self._open_data()))
        recorder = Recorder(f"{name} {len(self._recorders)}")
        self._recorders.append(recorder)
        self._opened.append(store)
        return Client(Kernel(store, (), settings, self._clock), recorder), store

    def _close_all(self) -> None:
        for store in self._opened:
            store.close()
        self._opened = []

    @contextmanager
    def _note_errors(self) -> Iterator[None]:
        """Errors that a caller may meet are in the record already; others are noted."""
        try:
            yield
        except AdministratorError as error:
            self._errors.append(f"{type(error).__name__}: {error}")
        except PenstockError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever a broken kernel raises is what was looked for
            self._errors.append(f"{type(error).__name__}: {error}")

    def _drill_writes(self) -> None:
        """One after the other, by two processes; each is read by the other at once."""
        (client, _), (other, _) = self._open("one"), self._open("other")
        for number in range(6):
            for writer, reader in ((client, other), (other, client)):
                tables = self._chance.sample(TABLES, 3)
                with self._note_errors():
                    writer.write(dict.fromkeys(tables, f"{writer.recorder.client} {number}"))
                with self._note_errors():
                    reader.read(TABLES)
                    writer.read(tables)
        with self._note_errors():
            client.write({TABLES[0]: None, TABLES[1]: "instead"})

    def _drill_races(self) -> None:
        """Read, modify, write by two processes: the second to come must see that the first was there."""
        (client, store), (other, _) = self._open("first"), self._open("second")
        for number in range(4):
            tables = self._chance.sample(TABLES, 2)
            (base, seen), (same, also_seen) = client.look(tables), other.look(tables)
            with self._note_errors():
                client.write(dict.fromkeys(tables, f"one {number}"), base=base, reads=seen)
            with self._note_errors():
                other.write(dict.fromkeys(tables, f"other {number}"), base=same, reads=also_seen)
            with self._note_errors():
                other.write({f"new{number}": "checked"}, base=same, reads=also_seen)
        for number in range(3 if not self._locks else 0):
            # The other process commits between this one's look at the branch and its swap.
            store.at(Point.BEFORE_OBJECTS, partial(other.write, {TABLES[2]: f"between {number}"}))
            with self._note_errors():
                client.write({TABLES[3]: f"around {number}"})
            store.at(Point.BEFORE_OBJECTS, partial(other.update, [TABLES[4]], f"between {number}"))
            with self._note_errors():
                client.update([TABLES[4]], f"around {number}")

    def _drill_repetitions(self) -> None:
        """The same request again: at once, elsewhere, and under a key that was used for another."""
        (first, _), (other, _) = self._open("one"), self._open("other")
        for number in range(3):
            key, values = f"again {number}", {TABLES[5]: f"once {number}"}
            for client in (first, first, other):
                with self._note_errors():
                    client.write(values, key=key)
            with self._note_errors():
                other.write({TABLES[6]: "something else"}, key=key)
            with self._note_errors():
                first.write({TABLES[5]: f"more {number}"})
            with self._note_errors():
                other.write(values, key=key)

    def _lost_answers(self) -> None:
        """Swaps whose answer is lost: the kernel finds out by itself, or whoever repeats the request does."""
        (client, store), (hasty, hasty_store) = self._open("patient"), self._open("hasty", HASTY)
        other, _ = self._open("other")
        for number in range(4):
            store.lose_answer()
            with self._note_errors():
                client.write({TABLES[7]: f"lost {number}"})
            hasty_store.lose_answer()
            key, values = f"lost {number}", {TABLES[8]: f"hasty {number}"}
            with self._note_errors():
                hasty.write(values, key=key)
            with self._note_errors():
                (other if number % 2 else hasty).write(values, key=key)
            hasty_store.lose_swap()
            with self._note_errors():
                hasty.write({TABLES[8]: f"never {number}"}, key=f"swap lost {number}")
            with self._note_errors():
                other.write({TABLES[8]: f"never {number}"}, key=f"swap lost {number}")

    def _drill_crowd(self) -> None:
        """Many threads in two processes, on the same tables."""
        clients = [self._open("crowd")[0] for _ in range(2)]

        def work(number: int) -> None:
            recorder = Recorder(f"thread {number} {len(self._recorders)}")
            self._recorders.append(recorder)
            client = Client(clients[number % 2].kernel, recorder)
            chance = random.Random(number)
            for turn in range(8):
                tables = chance.sample(TABLES, 2)
                with self._note_errors():
                    if chance.random() < 0.5:
                        client.update(tables, f"{number}-{turn}")
                    else:
                        client.write(dict.fromkeys(tables, f"{number}-{turn}"))
                with self._note_errors():
                    client.read(TABLES[:4])

        at_once(*(partial(work, number) for number in range(4)))

    def _many_keys(self) -> None:
        """Enough keys that trees have several levels."""
        client, _ = self._open("many")
        for start in range(0, 900, 300):
            with self._note_errors():
                client.write({f"k{number:04}": f"many {number}" for number in range(start, start + 300)})
        with self._note_errors():
            client.write({f"k{number:04}": None for number in range(0, 900, 7)})

    def _drill_sweeps(self) -> None:
        """A sweep whose garbage is used again by a commit just before it is deleted."""
        (client, _), (keeper, store) = self._open("one"), self._open("keeper")
        values = {f"s{number:03}": "swept" for number in range(300)}
        with self._note_errors():
            client.kernel.references.create_reference(
                "scratch", Kind.BRANCH, client.kernel.references.get_reference("main").head
            )
            scratch = Client(client.kernel, Recorder("scratch"), "scratch")
            scratch.write(values)
            client.kernel.references.delete_reference("scratch", leave_log=False)
        self._clock.pass_hours(1)
        let_time_pass(store)  # for a store with its own clock: what is stored again is later there, too
        client, _ = self._open("again")
        store.at(Point.DELETE, partial(client.write, values))
        with self._note_errors():
            sweep_objects(keeper.kernel)
        with self._note_errors():
            client.read([*values][:20])

    def _restart(self) -> None:
        """Everything closes; a new process reads, repeats an old request and goes on. Twice."""
        for number in range(2):
            self._close_all()
            client, _ = self._open("restarted")
            with self._note_errors():
                client.read(TABLES)
            with self._note_errors():
                client.write({TABLES[5]: "once 0"}, key="again 0")
            with self._note_errors():
                client.write({TABLES[9]: f"restarted {number}"})

    def _check(self) -> Found:
        with closing(self._open_data()) as data:
            return self._check_data(Kernel(data, clock=self._clock))

    def _check_data(self, kernel: Kernel) -> Found:
        events: list[Event] = [event for recorder in self._recorders for event in recorder.events]
        checker = HistoryChecker(events)
        checked: list[list[Violation]] = []
        damages: list[str] = []
        with self._note_errors():
            checked.append(checker.check(read_chain(kernel)))
        if not checked:
            with self._note_errors():  # what was accepted and cannot be read any more is lost
                checked.append(list(checker.check_presence(read_commits(kernel))))
        with self._note_errors():
            damages = [str(damage) for damage in fsck(kernel).damages]
        answers = [attempt.answer for attempt in checker.attempts]
        return Found(
            violations=tuple(chain.from_iterable(checked)),
            damages=tuple(damages),
            errors=tuple(self._errors),
            accepted=answers.count(Answer.OK),
            refused=answers.count(Answer.REFUSED),
        )
