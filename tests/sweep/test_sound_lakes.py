"""fsck: it finds nothing wrong where nothing is, at any size, before and after sweeps."""

import random

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from penstock.stores.memory import MemoryStore
from tests.chance import share
from tests.queue.hooks import SetClock, keep_history, new_lake, table
from tests.sweep.oracle import large


def _random_lake(seed: int, size: int) -> Lake:
    """A lake that random hands have worked on."""
    chance, clock = random.Random(seed), SetClock()
    lake = new_lake(MemoryStore(clock), clock, Settings(grace_s=10, nobody_writes=True))
    names = ["main"]
    for step in range(size):
        branch = lake.branch(chance.choice(names))
        what = chance.random()
        try:
            if what < 0.6:
                keys = {f"key{chance.randrange(size * 5)}" for _ in range(chance.choice([1, 1, 1, 5, 600]))}
                make = large if chance.random() < 0.1 else _small
                branch.commit([Put(Key(key), make(step)) for key in sorted(keys)])
            elif what < 0.75:
                present = [key for key, _ in branch.snapshot().entries()]
                branch.commit([Delete(key) for key in chance.sample(present, min(3, len(present)))])
            elif what < 0.85:
                names.append(f"b{step}")
                lake.branch(names[-1]).create(at=branch.name)
            elif what < 0.95:
                lake.merge(chance.choice(names), branch.name, default=chance.choice(["force", "drop"]))
            elif len(names) > 1:
                lake.branch(names.pop()).delete()
            clock.go_on(chance.choice([0, 1, 20]))
        except PenstockError:
            continue
    return lake


def _small(step: int) -> penstock.IcebergTable:
    return table(str(step))


@pytest.mark.parametrize("seed", range(12))
def test_lakes_of_all_sizes_are_found_sound_before_and_after_a_sweep(seed: int) -> None:
    size = [1, 2, 5, 10, 20, 40, 60, 80, 100, 120, 30, 70][seed]
    lake = _random_lake(seed, size)
    assert new_lake(lake.kernel.store).fsck().damages == ()
    lake.sweep()
    assert new_lake(lake.kernel.store).fsck().damages == ()
    keep_history(lake.kernel.store, 2)
    shorter = new_lake(lake.kernel.store, lake.kernel.clock, Settings(grace_s=0, nobody_writes=True))
    shorter.sweep()
    assert new_lake(lake.kernel.store).fsck().damages == ()


@pytest.mark.reliability
@pytest.mark.parametrize("seed", share(range(100, 200), 10))
def test_many_lakes_are_found_sound_before_and_after_a_sweep(seed: int) -> None:
    lake = _random_lake(seed, random.Random(seed).randrange(1, 300))
    assert new_lake(lake.kernel.store).fsck().damages == ()
    lake.sweep()
    assert new_lake(lake.kernel.store).fsck().damages == ()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 23, 24, 25, 26, 100, 255, 256, 257, 258, 1000, 3000])
def test_trees_of_all_sizes_are_found_sound(size: int) -> None:
    lake = new_lake(MemoryStore())
    operations = [Put(Key(f"key{number:05}"), table(str(number))) for number in range(size)]
    if operations:
        lake.branch().commit(operations)
    checked = new_lake(lake.kernel.store).fsck()
    assert checked.damages == ()
    assert checked.commits == (1 if size else 0)
