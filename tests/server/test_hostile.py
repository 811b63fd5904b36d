"""Tokens that want more than they are for, at random, through every API: they see and change nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.chance import RecordCounts
from tests.server.hostile import Attack, Victim, attacked
from tests.server.running import Program

Attacked = tuple[Victim, Program]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("hostile")) as found:
        yield found


def check(place: Attacked, requests: int, seed: int) -> Counter[str]:
    victim, server = place
    before = victim.state()
    with closing(Attack(victim, server, seed)) as attack:
        attack.run(requests // 2)
        attack.call(requests // 2)
    assert attack.leaks == []
    assert victim.state() == before
    assert sum(attack.statuses.values()) >= requests * 0.9
    return attack.statuses


@pytest.mark.verify
def test_a_hostile_token_sees_and_changes_nothing_that_is_not_its_own(place: Attacked) -> None:
    check(place, 200, 20261117)


def test_it_would_be_noticed_if_a_token_could(place: Attacked) -> None:
    """The same requests with all rights, of those that read: the canary is in what is answered."""
    with closing(Attack(*place, 5)) as attack:
        attack.run(100, ["boss"], reads_only=True)
    assert attack.leaks


@pytest.mark.reliability
def test_thousands_of_hostile_requests(place: Attacked, seed: int, record_counts: RecordCounts) -> None:
    record_counts(check(place, 20_000, seed))
