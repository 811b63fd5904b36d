"""Many writers of every kind, in two processes, on one table: everybody's answer is the truth."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import CommitConflict, InvalidContent
from penstock.formats.delta.protocol.actions import Action, Add, Remove, Txn
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.stores.port import Store
from penstock.testing.threads import at_once
from tests.formats.delta.managed import Owner, add, days, remove

WRITERS, ROUNDS = 8, 6


def act(owner: Owner, random_: random.Random, name: str) -> bool:
    """Try one commit that adds a file of this name; whether it was acknowledged."""
    day = random_.choice("xy")
    new: list[Action] = [add(name, day)]
    latest = owner.line().latest
    there = sorted(owner.snapshot().read_files(), key=lambda one: one.path)
    try:
        match random_.randrange(5):
            case 0:
                owner.commit(new)
            case 1:
                owner.commit(new, version=latest + 1)
            case 2:
                owner.commit(new, replaces=(days(day),))
            case 3:
                owner.commit([*new, Txn(app_id=name, version=1)])
                owner.commit([add(f"{name}-again", day), Txn(app_id=name, version=1)])
            case _:
                old = random_.choice(there) if there else None
                gone = [] if old is None else [remove(old.path, old.partition_values["day"])]
                owner.commit(
                    [*gone, *new], read_version=latest, reads=DeltaReads(partitions=(days("x", "y"),))
                )
    except CommitConflict:
        return False
    except InvalidContent as error:
        # The file was there when it was looked for, and went before it could be removed.
        assert "is not in the table" in str(error)  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_is_in_the_log_once_and_nothing_else_is(
    store: Store, tmp_path: Path, seed: int
) -> None:
    owners = [Owner(store, tmp_path, background=True) for _ in range(2)]
    owners[0].create(partition_by=["day"])
    acknowledged: set[str] = set()

    def work(number: int) -> None:
        random_ = random.Random(f"{seed} {number}")
        for turn in range(ROUNDS):
            name = f"{number}-{turn}"
            if act(owners[number % 2], random_, name):
                acknowledged.add(name)

    at_once(*(partial(work, number) for number in range(WRITERS)))
    owner = owners[0]
    latest = owner.line().latest
    log = [
        owner.commits.read_actions(owner.table(), owner.content().location, version, None)
        for version in range(owner.published().version + 1)
    ]
    assert len(log) == latest + 1
    added = Counter(one.path for actions in log for one in actions if isinstance(one, Add))
    assert set(added) == acknowledged
    assert set(added.values()) <= {1}
    live: set[str] = set()
    for actions in log:
        gone = {one.path for one in actions if isinstance(one, Remove)}
        assert gone <= live
        live = live - gone | {one.path for one in actions if isinstance(one, Add)}
    for each in owners:
        assert each.paths() == live
    times = [owner.info(version).in_commit_timestamp or 0 for version in range(latest + 1)]
    assert times == sorted(set(times))
    for each in owners:
        each.close()


def test_a_repeated_attempt_of_many_is_one_version(store: Store, tmp_path: Path) -> None:
    owners = [Owner(store, tmp_path) for _ in range(2)]
    owners[0].create()
    uuid = uuid4()
    at_once(*(partial(owners[n % 2].commit, [add("a")], uuid=uuid, version=1) for n in range(8)))
    assert owners[0].line().latest == 1
    assert [one.path for one in owners[1].published().read_files()] == ["a"]
    for each in owners:
        each.close()
