"""Every call, on a store that fails once: one effect, and the true answer, or an error that says what to do.

What a call comes to is compared with what the same call comes to on a store that does not fail, in the same
world. Whoever is not answered does what the error advises, and is answered then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
from _pytest.mark import ParameterSet

from penstock.errors import OutcomeUnknown, PenstockError, TryAgainError
from penstock.errors import Unavailable as Away
from penstock.lake.call import Call, RetrySafety, WriteCall, find_retry_safety
from penstock.lake.lake import Lake
from penstock.testing import FaultyStore, Point
from tests.calls.answers import commit_names, differences, plain
from tests.calls.examples import READS, WRITES
from tests.calls.world import World, state_of
from tests.disks import disks_are_not_waited_for

__all__ = ["disks_are_not_waited_for"]

AWAY = Away("the store does not answer")
FAULTS: dict[str, Callable[[FaultyStore], None]] = {
    "a lost answer": lambda store: store.lose_answer(),
    "away at a turn": lambda store: store.fail(Point.TURN, AWAY),
    "a lost swap": lambda store: store.lose_swap(),
    "away before the swap": lambda store: store.fail(Point.BEFORE_OBJECTS, AWAY),
    "away when a row is read": lambda store: store.fail(Point.REFERENCE, AWAY),
    "away when objects are read": lambda store: store.fail(Point.FETCH, AWAY),
    "a lost answer after the first": lambda store: store.lose_answer(skip=1),
    "away at the second turn": lambda store: store.fail(Point.TURN, AWAY, skip=1),
}
QUICK_FAULTS = ("a lost answer", "away at a turn")
"""Those that `make test` tries, with every call that changes something."""


class Came(NamedTuple):
    """What came of a call."""

    answer: Any
    error: PenstockError | None
    state: dict[str, Any]


class Bench:
    """A world whose store fails when it is told to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._known: dict[str, Came] = {}

    def without_fault(self, name: str) -> Came:
        """What an example comes to if nothing goes wrong."""
        if name not in self._known:
            with self.opened() as (lake, store):
                self._known[name] = come(lake, store, WRITES[name](self.world))
            assert self._known[name].error is None, name
        return self._known[name]

    @contextmanager
    def opened(self) -> Iterator[tuple[Lake, FaultyStore]]:
        self.world.restore()
        lake, store = self.world.open_faulty()
        with lake:
            state_of(lake)  # what is done on demand, or in the background, is done
            yield lake, store


def come(lake: Lake, store: FaultyStore, call: Call[Any]) -> Came:
    """What comes of a call, once the store is well again."""
    try:
        answer, error = lake.do(call), None
    except PenstockError as problem:
        answer, error = None, problem
    store.heal()
    return Came(plain(answer, commit_names(lake)), error, state_of(lake))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(World(tmp_path_factory.mktemp("calls")))


def cases() -> Iterator[ParameterSet]:
    for name in WRITES:
        for fault in FAULTS:
            yield pytest.param(name, fault, marks=() if fault in QUICK_FAULTS else pytest.mark.verify)


@pytest.mark.parametrize(("name", "fault"), list(cases()))
def test_a_call_has_one_effect_and_its_true_answer_on_a_store_that_fails_once(
    bench: Bench, name: str, fault: str
) -> None:
    expected = bench.without_fault(name)
    call = WRITES[name](bench.world)
    with bench.opened() as (lake, store):
        seen = call.look_up_before(lake.do)
        FAULTS[fault](store)
        came = come(lake, store, call)
        if came.error is not None:
            assert isinstance(came.error, TryAgainError | OutcomeUnknown), repr(came.error)
            came = come(lake, store, _as_advised(call, came.error))
        if came.error is None and _is_unfinished(came.answer):  # the background work met the fault
            came = come(lake, store, call)
        if came.error is not None and find_retry_safety(call) is RetrySafety.SAFE:
            answer = call.answer_if_done_before(lake.do, came.error, seen)
            came = Came(plain(answer, commit_names(lake)), None, state_of(lake))
        if find_retry_safety(call) is not RetrySafety.ONCE:
            assert came.error is None
            assert not differences(expected.answer, came.answer)
        assert came.state == expected.state


@pytest.mark.verify
@pytest.mark.parametrize("fault", FAULTS)
def test_a_read_of_a_store_that_fails_once_is_answered_truly_and_changes_nothing(
    bench: Bench, fault: str
) -> None:
    with bench.opened() as (lake, store):
        before = state_of(lake)
        for name, make in READS.items():
            call = make(bench.world)
            expected = plain(lake.do(call), commit_names(lake))
            FAULTS[fault](store)
            try:
                answer = lake.do(call)
            except TryAgainError:
                answer = lake.do(call)
            store.heal()
            assert not differences(expected, plain(answer, commit_names(lake))), name
        assert state_of(lake) == before


def _is_unfinished(answer: Any) -> bool:
    """Whether an answer for several tables says that the call is to be repeated for one of them."""
    tables = answer.get("tables", ()) if isinstance(answer, dict) else ()
    return any(isinstance(table, dict) and table.get("outcome") == "unfinished" for table in tables)


def _as_advised(call: Call[Any], error: PenstockError) -> Call[Any]:
    """The call once more, under the key that the error names if it may have been carried out."""
    if isinstance(error, OutcomeUnknown) and isinstance(call, WriteCall):
        return msgspec.structs.replace(call, idempotency_key=error.details["key"])
    return call
