"""What every database is put through: connections that are cut while two commit, and a sweep of leftovers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from functools import partial

from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import sweep_objects
from penstock.model.references import Kind
from penstock.stores.port import Store
from penstock.testing import FaultyStore, HistoryChecker, Point, Recorder
from penstock.testing.chain import read_chain
from penstock.testing.client import Client
from penstock.testing.drill import TickingClock, new_lake
from penstock.testing.recorder import Answer
from tests.reliability.worker import TABLES
from tests.servers.proxy import Direction, Proxy

PATIENT = Settings(write_timeout_s=60, tries_max=100_000)


def commit_over_cuts(
    cut: Store, good: Store, proxy: Proxy, count: int, seed: int, lengths: Mapping[Direction, int]
) -> int:
    """Make so many commits over a store behind the proxy, whose connections are cut at random bytes.

    Every one of them must land, once. Says how many connections were cut.
    """
    new_lake(good)
    chance = random.Random(seed)
    client = Client(Kernel(cut, (), PATIENT), Recorder("over cuts"))
    other = Client(Kernel(good, (), PATIENT), Recorder("beside"))
    for number in range(count):
        direction: Direction = chance.choice(["to_server", "to_client"])
        tables = chance.sample(TABLES, 2)
        proxy.cut_after(direction, chance.randrange(lengths[direction]))
        client.write(dict.fromkeys(tables, f"over cuts {number}"), key=f"key {number}")
        proxy.forget_cut()
        if chance.random() < 0.3:
            other.write({chance.choice(TABLES): f"beside {number}"})
        if chance.random() < 0.3:
            other.read(TABLES)
    checker = HistoryChecker([*client.recorder.events, *other.recorder.events])
    fresh = Kernel(good)
    chain = read_chain(fresh)
    violations = checker.check(chain)
    assert not violations, "\n".join(map(str, violations[:20]))
    assert fsck(fresh).damages == ()
    assert {attempt.answer for attempt in checker.attempts} == {Answer.OK}
    landed = Counter(link.key for link in chain.links)
    assert [landed[f"key {number}"] for number in range(count)] == [1] * count
    return proxy.cuts


def sweep_leftovers(store: Store, clock: TickingClock) -> None:
    """Leave a deleted branch and a lost swap behind, and sweep them away while a commit uses some again."""
    new_lake(store)
    faulty = FaultyStore(store, locking=False)
    kernel = Kernel(faulty, (), Settings(grace_s=60, nobody_writes=True), clock)
    client, scratch = Client(kernel, Recorder("main")), Client(kernel, Recorder("scratch"), "scratch")
    client.write(dict.fromkeys(TABLES, "kept"))
    kernel.references.create_reference("scratch", Kind.BRANCH, kernel.references.get_reference("main").head)
    again = {f"key{number}": "used again" for number in range(120)}
    scratch.write(again)
    scratch.write({f"key{number}": "not used again" for number in range(120)})
    kernel.references.delete_reference("scratch", leave_log=False)
    other = Client(Kernel(store, (), Settings(grace_s=60, nobody_writes=True), clock), Recorder("other"))
    faulty.at(Point.BEFORE_SWAP, partial(other.write, {"between": "1"}))
    client.write({"around": "1"})
    clock.pass_hours(1)
    beside = Client(Kernel(store, (), Settings(grace_s=60, nobody_writes=True), clock), Recorder("beside"))
    faulty.at(Point.DELETE, partial(beside.write, again))
    swept = sweep_objects(kernel)
    assert swept.removed > 0
    fresh = Kernel(store, clock=clock)
    assert fsck(fresh).damages == ()
    assert Client(fresh, Recorder("reader")).read(again) == again
    assert sweep_objects(fresh).removed == 0
