"""Every call, with every fault that there is between a client and a server: one effect, and the true answer.

What a call comes to with a fault is compared with what the same call comes to without, in the same world.
Whoever is not answered is told so, by an error that says what to do; then that is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from _pytest.mark import ParameterSet

import penstock
from penstock.errors import OutcomeUnknown, PenstockError
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance, DeleteLanceVersions
from penstock.lake.call import Call, RetrySafety, WriteCall, find_retry_safety
from penstock.lake.calls import CALLS, GetOutcome
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.lake.remote_connection import PREFIX
from penstock.model.keys import Key
from penstock.wire.requests import make_wire_request
from tests.calls import gateway as faults
from tests.calls.answers import commit_names, differences, plain
from tests.calls.examples import EXAMPLES, READS, WRITES
from tests.calls.gateway import Fault, Gateway
from tests.calls.world import VECTORS, World, state_of
from tests.disks import disks_are_not_waited_for
from tests.remote.conftest import QUICK, Switch
from tests.remote.serving import serving

__all__ = ["disks_are_not_waited_for"]

FAULTS: dict[str, tuple[Fault, int | None]] = {
    "lost": (faults.lost, 1),
    "a page": (faults.page, 1),
    "its own fault": (faults.own_fault, 1),
    "lost before it arrived": (faults.lost_before_it_arrived, 1),
    "cut off": (faults.cut_off, 1),
    "half of it": (faults.half, 1),
    "a bad gateway": (faults.bad_gateway, 1),
    "a page instead": (faults.page_instead, 1),
    "always a page": (faults.page, None),
    "always its own fault": (faults.own_fault, None),
}
QUICK_FAULTS = ("lost", "always a page")
"""Those that `make test` tries with every call that changes something; reads are tried with the first one."""
ALIKE = (
    ("a page", "its own fault", "cut off", "half of it", "a bad gateway"),
    ("lost before it arrived", "a page instead"),
    ("always its own fault",),
)
"""Of each of these, which leave alike what was done, `make verify` tries one with a call that changes
something, the next one with the next call; `make reliability` tries all with all."""


class Came(NamedTuple):
    """What came of a call."""

    answer: Any
    error: PenstockError | None
    state: dict[str, Any]


class Bench:
    """A world, its lake behind a server, and a bad network in between."""

    def __init__(self, world: World, switch: Switch, network: Gateway) -> None:
        self.world, self.network = world, network
        self._switch = switch
        self._known: dict[str, Came] = {}
        with world.open() as lake:
            self.before = state_of(lake)

    def without_fault(self, name: str) -> Came:
        """What an example comes to if nothing goes wrong."""
        if name not in self._known:
            with self.far() as lake:
                self._known[name] = self.come(lake, EXAMPLES[name](self.world))
            assert self._known[name].error is None, name
        return self._known[name]

    @contextmanager
    def far(self) -> Iterator[Lake]:
        """The lake of a world that is as it was at first, through the network."""
        self.world.restore()
        with self.world.open() as self.lake:
            self._switch.lake = self.lake
            remote = RemoteCatalogue(f"http://127.0.0.1:{self.network.port}", patience=QUICK)
            with Lake(remote, author="tester") as lake:
                yield lake

    def come(self, lake: Lake, call: Call[Any]) -> Came:
        answer = self.answer(lake, call)
        error = answer if isinstance(answer, PenstockError) else None
        return Came(None if error is not None else answer, error, state_of(self.lake))

    def answer(self, lake: Lake, call: Call[Any]) -> Any:
        try:
            answer = lake.do(call)
        except PenstockError as problem:
            return problem
        return plain(answer, commit_names(self.lake))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    switch = Switch()
    with serving(switch) as server, Gateway(server.port) as network:
        yield Bench(World(tmp_path_factory.mktemp("calls")), switch, network)


def cases() -> Iterator[ParameterSet]:
    for number, name in enumerate(WRITES):
        verified = {faults[number % len(faults)] for faults in ALIKE}
        for fault in FAULTS:
            mark = pytest.mark.verify if fault in verified else pytest.mark.reliability
            yield pytest.param(name, fault, marks=() if fault in QUICK_FAULTS else mark)


def test_every_call_has_an_example(bench: Bench) -> None:
    assert {type(make(bench.world)) for make in EXAMPLES.values()} == set(CALLS)
    changing = {
        name
        for name, make in EXAMPLES.items()
        if find_retry_safety(make(bench.world)) is not RetrySafety.READ
    }
    assert changing == set(WRITES)


@pytest.mark.parametrize(("name", "fault"), list(cases()))
def test_a_call_has_one_effect_and_its_true_answer(bench: Bench, name: str, fault: str) -> None:
    expected = bench.without_fault(name)
    act, times = FAULTS[fault]
    call = EXAMPLES[name](bench.world)
    with bench.far() as lake:
        request = make_wire_request(call)
        with bench.network.spoiling(request.method, PREFIX + request.target, act, times):
            came = bench.come(lake, call)
        assert bench.network.spoilt > 0
        if came.error is None:
            assert not differences(expected.answer, came.answer)
            assert came.state == expected.state
        else:
            _is_told_what_to_do(bench, lake, call, came, expected)


@pytest.mark.parametrize(
    "fault",
    [one if one in QUICK_FAULTS[:1] else pytest.param(one, marks=pytest.mark.verify) for one in FAULTS],
)
def test_a_read_is_answered_truly_or_not_at_all_and_changes_nothing(bench: Bench, fault: str) -> None:
    act, times = FAULTS[fault]
    with bench.far() as lake:
        for name, make in READS.items():
            call = make(bench.world)
            expected = bench.answer(lake, call)
            assert not isinstance(expected, PenstockError), name
            request = make_wire_request(call)
            with bench.network.spoiling(request.method, PREFIX + request.target, act, times):
                found = bench.answer(lake, call)
            assert bench.network.spoilt > 0, name
            assert isinstance(found, PenstockError) or not differences(expected, found), name
        assert state_of(bench.lake) == bench.before


def _is_told_what_to_do(bench: Bench, lake: Lake, call: Call[Any], came: Came, expected: Came) -> None:
    """The error says that it is not known, and under which key it is; what it advises comes to the truth."""
    assert isinstance(came.error, OutcomeUnknown)
    assert len(set(bench.network.keys)) == 1
    [key] = set(bench.network.keys)
    assert came.error.details["key"] == (key or "")
    if isinstance(call, WriteCall):
        again = bench.come(lake, msgspec.structs.replace(call, idempotency_key=key))
        assert again.error is None
        assert not differences(expected.answer, again.answer)
    else:
        assert "repeating it is safe" in came.error.message
        again = bench.come(lake, call)
    assert again.state == expected.state


def test_the_first_commit_of_a_lake_is_answered_too(tmp_path: Path) -> None:
    call = CommitLance(operations=(DeclareLance(key=Key("first")),), idempotency_key="k")
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        answer = lake.do(call)
        landing = lake.do(GetOutcome(key="k"))
        assert landing is not None
        assert call.recover(lake.do, landing) == answer


def test_a_version_that_two_operations_delete_is_counted_once(bench: Bench) -> None:
    operation = DeleteLanceVersions(key=VECTORS, ranges=((2, 3),))
    call = CommitLance(operations=(operation, operation), idempotency_key="k")
    with bench.far():
        answer = bench.lake.do(call)
        landing = bench.lake.do(GetOutcome(key="k"))
        assert landing is not None
        assert call.recover(bench.lake.do, landing) == answer
