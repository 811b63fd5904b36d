"""The whole kernel against plain dicts: lives of lakes, step by step, short and long."""

from __future__ import annotations

from random import Random, randrange

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.chance import examples, seeds
from tests.kernel.machine import LakeMachine, SqliteLakeMachine

LIFE = (
    *[LakeMachine.commit] * 8,
    LakeMachine.commit_some_more,
    LakeMachine.commit_many_keys,
    LakeMachine.repeat,
    *[LakeMachine.create] * 2,
    LakeMachine.assign,
    LakeMachine.delete,
    *[LakeMachine.merge] * 5,
    *[LakeMachine.transplant] * 2,
    LakeMachine.rebase,
    *[LakeMachine.revert] * 2,
)


def live(machine: LakeMachine, seed: int, steps: int) -> None:
    """A life in which every step is likely to do something; Hypothesis likes short ones better."""
    random = Random(seed)
    machine.open()
    for _ in range(steps):
        chance = random.random()
        if chance < 0.03:
            machine.sweep()
        elif chance < 0.08:
            machine.reopen()
        else:
            step = random.choice(LIFE)
            if step is not LakeMachine.repeat or machine.done:
                step(machine, random)
        machine.references_are_where_they_must_be()
        machine.a_branch_holds_what_it_must_hold()
    machine.teardown()


@pytest.mark.parametrize("seed", seeds(8))
def test_a_long_life_of_a_lake_equals_the_model(seed: int) -> None:
    live(LakeMachine(), seed, 150)


@pytest.mark.verify
def test_namespaces_of_crossed_merges_do_not_depend_on_the_order_of_their_ancestors() -> None:
    live(LakeMachine(), 3251507923, 600)


@pytest.mark.reliability
@pytest.mark.parametrize("machine", [LakeMachine, SqliteLakeMachine])
@pytest.mark.parametrize("turn", range(4))
def test_many_long_lives_equal_the_model(machine: type[LakeMachine], turn: int) -> None:
    start = randrange(2**32)
    for seed in range(start, start + 10):
        print(f"{machine.__name__} seed {seed}")
        live(machine(), seed, 600)


quick = settings(
    derandomize=True,
    deadline=None,
    max_examples=examples(60),
    stateful_step_count=40,
    phases=(Phase.generate,),  # making a failure small takes minutes; the long runs do
    suppress_health_check=list(HealthCheck),
)
long = settings(
    deadline=None,
    max_examples=400,
    stateful_step_count=100,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

TestTheKernelInMemory = LakeMachine.TestCase
TestTheKernelInMemory.settings = quick

TestTheKernelOnSqlite = pytest.mark.reliability(SqliteLakeMachine.TestCase)
TestTheKernelOnSqlite.settings = long
