"""The checks are tested too: every kernel and store that is broken on purpose is noticed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from penstock.kernel.kernel import Kernel
from penstock.stores.memory import MemoryStore
from penstock.testing import BROKEN, StoreContract
from penstock.testing.broken import Broken
from penstock.testing.drill import Drill, Found
from penstock.testing.samples import OpenStore
from penstock.testing.violations import LostCommit
from tests.chance import share

LEAST_REFUSED = 14
"""The drill makes so many requests that must be refused, whatever its threads do."""


def test_nothing_is_wrong_with_a_kernel_and_a_store_that_are_whole() -> None:
    found = Drill().run()
    assert found.kinds == set(), str(found)
    assert found.refused >= LEAST_REFUSED
    assert found.accepted > 60


@pytest.mark.reliability
@pytest.mark.parametrize("attempt", share(range(100), 10))
def test_nothing_is_wrong_with_whole_ones_however_often(attempt: int) -> None:
    found = Drill(seed=attempt).run()
    assert found.kinds == set(), str(found)
    assert found.refused >= LEAST_REFUSED


@pytest.mark.parametrize("what", ["commit", "segment"])
def test_commits_are_noticed_as_lost_that_cannot_be_read_because_of_a_damage(what: str) -> None:
    """A store may be broken in such a way that a sweep removes what is needed: then that is found as well."""
    data = MemoryStore()

    class Damaging(Drill):
        def _check(self) -> Found:
            kernel = Kernel(data)
            commits = [*kernel.walk_commits(kernel.references.get_reference("main").head)][2:]
            older, commit = next((one, commit) for one, commit in commits if commit.recent)
            del data._objects[older if what == "commit" else commit.recent[0][0]]
            return super()._check()

    found = Damaging(open_data=lambda _: data).run()
    assert found.kinds - {"error"} == {"LostCommit", "fsck"}, str(found)
    assert ("error" in found.kinds) == (what == "segment"), "a commit may have expired"
    lost = [one for one in found.violations if isinstance(one, LostCommit)]
    assert 0 < len(lost) <= found.accepted


def test_at_least_ten_are_broken() -> None:
    assert len(BROKEN) >= 10
    assert len({broken.mistake for broken in BROKEN}) == len(BROKEN)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.mistake)
def test_what_is_broken_is_noticed(broken: Broken) -> None:
    by_contract = {"contract"} & broken.noticed_by
    by_drill = broken.noticed_by - by_contract
    assert broken.noticed_by, "a mistake that nothing notices"
    if by_drill:
        found = Drill(broken.wrap).run(broken.tamper)
        assert found.kinds >= by_drill, f"it {broken.mistake}, and {found} was found"
    if by_contract:
        data = MemoryStore()
        assert first_failure(lambda: broken.wrap(data)) is not None, f"it {broken.mistake}"


def test_the_contract_finds_nothing_wrong_with_a_store_that_is_whole() -> None:
    data: list[MemoryStore] = [MemoryStore()]
    assert first_failure(lambda: data[0]) is None


# -- running the contract without pytest -----------------------------------------------------------------


def first_failure(open_store: OpenStore) -> str | None:
    """The first test of the contract that a store fails."""
    for name, test, arguments in contract_tests():
        store, other = open_store(), open_store()
        store.erase()
        try:
            test(**_chosen(test, {"store": store, "other": other, "open_store": open_store} | arguments))
        except Exception as failure:
            return f"{name}: {failure}"
    return None


def contract_tests() -> Iterator[tuple[str, Callable[..., None], dict[str, Any]]]:
    contract = StoreContract()
    for name, test in inspect.getmembers(contract, inspect.ismethod):
        if not name.startswith("test_"):
            continue
        marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
        choices = [[(mark.args[0], value) for value in mark.args[1]] for mark in marks]
        for chosen in product(*choices):
            yield name, test, dict(chosen)


def _chosen(test: Callable[..., None], arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in inspect.signature(test).parameters}


def test_the_runner_runs_the_whole_contract() -> None:
    """It would find nothing wrong if it ran nothing."""
    names = {name for name, _, _ in contract_tests()}
    assert names == {name for name in dir(StoreContract) if name.startswith("test_")}
    assert len(names) > 45
