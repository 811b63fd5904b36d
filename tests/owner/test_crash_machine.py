"""Whatever a process did to Delta tables when it died: the tables are whole, and it can be done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from penstock.lake.lake import Lake
from tests.chance import examples
from tests.owner.crashes_handover import (
    Handing,
    adopt,
    catch_up,
    create_at,
    foreign_writer,
    release,
    repeat,
)
from tests.owner.machine import BRANCHES, KEYS, Deed, World

REFUSED = "commit a version that is taken"
DEEDS: dict[str, Callable[[World], Deed]] = {
    "append": lambda world: world.append("main"),
    "append on a branch": lambda world: world.append("dev"),
    "append much": lambda world: world.append("main", large=True),
    "append much on a branch": lambda world: world.append("dev", large=True),
    "append to two tables": lambda world: world.append("main", KEYS),
    "commit a version": lambda world: world.version("main", "t"),
    "commit a version on a branch": lambda world: world.version("dev", "t"),
    REFUSED: lambda world: world.version("main", "t", 0),
    "rewrite": lambda world: world.rewrite("main", "t"),
    "replace": lambda world: world.replace("main", "t"),
    "merge into main": lambda world: world.merge("dev", "main"),
    "merge into a branch": lambda world: world.merge("main", "dev"),
    "set a branch back": lambda world: world.set_back(),
    "publish": lambda world: world.publish("t"),
    "checkpoint": lambda world: world.checkpoint("t"),
    "ask a branch for its commits": lambda world: world.ask("dev", "t"),
}
ALSO_ON_MAIN = {"append on a branch", "append much on a branch", "commit a version on a branch"}
"""The same steps as on ``main`` but for publishing: `make verify` goes through them too."""
STEPS_MIN, STEPS_MAX = 5, 40


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "lake")
    yield world
    world.close()


def unfinished(world: World) -> None:
    """Versions on both branches that are not published, nor written to files."""
    world.act(world.append("main"))
    world.act(world.append("dev", large=True))
    world.act(world.append("main", KEYS))
    world.act(world.append("dev", KEYS))


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.verify if one in ALSO_ON_MAIN else ()) for one in DEEDS]
)
def test_a_process_may_die_at_any_step(world: World, name: str) -> None:
    for steps in count():
        unfinished(world)
        if world.act(DEEDS[name](world), steps):
            break
        assert steps < STEPS_MAX
    assert world.deaths == steps
    assert world.refusals == (1 if name == REFUSED else 0)
    world.check_whole()


@pytest.mark.parametrize(
    "goes_on", [repeat, *(pytest.param(one, marks=pytest.mark.verify) for one in (catch_up, foreign_writer))]
)
@pytest.mark.parametrize("work", [adopt, create_at, release])
def test_a_table_may_come_or_go_in_a_process_that_dies(
    tmp_path: Path,
    work: Callable[[Lake], object],
    goes_on: Callable[[Handing, Callable[[Lake], object]], None],
) -> None:
    for steps in count():
        hand = Handing(tmp_path / f"lake-{steps}")
        if work is not create_at:
            hand.foreign_append()
        if work is release:
            adopt(hand.lake)
            hand.append()
        died = hand.dies(work, steps)
        if died:
            goes_on(hand, work)
        if work is not release and hand.is_owned:
            hand.append()
        hand.check()
        assert hand.has_owner == hand.is_owned
        hand.close()
        if not died:
            break
        assert steps < STEPS_MAX
    assert steps > STEPS_MIN


class CrashMachine(RuleBasedStateMachine):
    """Anything in any order, by processes that live as long as they like or for a few steps."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = TemporaryDirectory()
        self.world = World(Path(self._directory.name) / "lake")

    branches = st.sampled_from(BRANCHES)
    keys = st.sampled_from(KEYS)
    steps = st.none() | st.integers(0, 7)

    @rule(branch=branches, key=keys, steps=steps, large=st.booleans())
    def append(self, branch: str, key: str, steps: int | None, large: bool) -> None:
        self.world.act(self.world.append(branch, (key,), large=large), steps)

    @rule(branch=branches, steps=steps)
    def append_to_both(self, branch: str, steps: int | None) -> None:
        self.world.act(self.world.append(branch, KEYS), steps)

    @rule(branch=branches, key=keys, steps=steps, ahead=st.sampled_from((-1, 0, 1, 1)))
    def commit_a_version(self, branch: str, key: str, steps: int | None, ahead: int) -> None:
        self.world.act(self.world.version(branch, key, ahead), steps)

    @rule(branch=branches, key=keys, steps=steps, behind=st.integers(0, 3))
    def rewrite(self, branch: str, key: str, steps: int | None, behind: int) -> None:
        self.world.act(self.world.rewrite(branch, key, behind), steps)

    @rule(branch=branches, key=keys, steps=steps)
    def replace(self, branch: str, key: str, steps: int | None) -> None:
        self.world.act(self.world.replace(branch, key), steps)

    @rule(to_main=st.booleans(), steps=steps)
    def merge(self, to_main: bool, steps: int | None) -> None:
        source, target = ("dev", "main") if to_main else ("main", "dev")
        self.world.act(self.world.merge(source, target), steps)

    @rule(steps=steps)
    def set_a_branch_back(self, steps: int | None) -> None:
        self.world.act(self.world.set_back(), steps)

    @rule(key=keys, steps=steps)
    def publish(self, key: str, steps: int | None) -> None:
        self.world.act(self.world.publish(key), steps)

    @rule(key=keys, steps=steps)
    def checkpoint(self, key: str, steps: int | None) -> None:
        self.world.act(self.world.checkpoint(key), steps)

    @rule(branch=branches, key=keys, steps=steps)
    def ask_for_commits(self, branch: str, key: str, steps: int | None) -> None:
        self.world.act(self.world.ask(branch, key), steps)

    def teardown(self) -> None:
        try:
            self.world.check_whole()
        finally:
            self.world.close()
            self._directory.cleanup()


TestCrashMachine = CrashMachine.TestCase
TestCrashMachine.settings = settings(max_examples=examples(12), stateful_step_count=12)
