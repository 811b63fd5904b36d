"""References are created only at commits that the sweep is not about to remove (K9)."""

from collections.abc import Callable
from functools import partial

import pytest

from penstock.errors import CommitNotFound
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.encoding import encode, hash_object
from penstock.model.objects import EMPTY_ROOT, CommitObject
from tests.queue.hooks import HookedStore, SetClock, everything, new_lake, table

GRACE_S = 1000.0


@pytest.fixture
def lake(store: HookedStore, clock: SetClock) -> Lake:
    return new_lake(store, clock, Settings(grace_s=GRACE_S, nobody_writes=True))


def _deleted_branch(lake: Lake) -> list[str]:
    """The commits of a branch that is gone, oldest first."""
    lake.branch().put("base", table())
    lake.branch("dev").create()
    commits = [lake.branch("dev").put(f"d{number}", table()).id for number in range(3)]
    lake.branch("dev").delete()
    return commits


def _assigned_branch(lake: Lake) -> list[str]:
    lake.branch().put("base", table())
    lake.branch("dev").create()
    commits = [lake.branch("dev").put(f"d{number}", table()).id for number in range(3)]
    lake.branch("dev").assign("main")
    return commits


def _rebased_branch(lake: Lake) -> list[str]:
    lake.branch("dev").create()
    commits = [lake.branch("dev").put(f"d{number}", table()).id for number in range(3)]
    lake.branch().put("base", table())
    lake.rebase("dev", "main")
    return commits


LEAVING = [_deleted_branch, _assigned_branch, _rebased_branch]


@pytest.mark.parametrize("leave", LEAVING)
def test_a_commit_in_a_recent_log_can_be_brought_back(
    lake: Lake, clock: SetClock, leave: Callable[[Lake], list[str]]
) -> None:
    commits = leave(lake)
    clock.go_on(GRACE_S / 2 - 10)
    for number, commit in enumerate(commits):
        assert lake.branch(f"back{number}").create(at=commit).head == commit
    lake.tag("saved").create(at=commits[0])
    assert lake.branch("dev2").create(at=commits[2]).head == commits[2]


@pytest.mark.parametrize("leave", LEAVING)
def test_a_commit_that_left_more_than_half_the_grace_ago_is_refused(
    lake: Lake, store: HookedStore, clock: SetClock, leave: Callable[[Lake], list[str]]
) -> None:
    commits = leave(lake)
    lake.branch("other").create()
    clock.go_on(GRACE_S / 2 + 1)
    before = everything(store)
    for commit in commits:
        for do in (
            partial(lake.branch("back").create, at=commit),
            partial(lake.tag("back").create, at=commit),
            partial(lake.branch("other").assign, commit),
            partial(lake.merge, commit, "main"),
            partial(lake.transplant, commit, "main"),
            partial(lake.rebase, "other", commit),
        ):
            with pytest.raises(CommitNotFound, match="not on any branch or tag") as caught:
                do()
            assert caught.value.details["commit"] == commit
    assert everything(store) == before


def test_a_commit_that_left_can_still_be_read_until_it_is_swept(lake: Lake, clock: SetClock) -> None:
    commits = _deleted_branch(lake)
    clock.go_on(GRACE_S / 2 + 1)
    assert lake.at(commits[1]).get("d1") == lake.at(commits[2]).get("d1")
    assert lake.show(commits[0]).id == commits[0]


def test_what_any_branch_or_tag_still_has_is_reachable_for_ever(lake: Lake, clock: SetClock) -> None:
    commits = _deleted_branch(lake)
    lake.tag("kept").create(at=commits[2])
    clock.go_on(GRACE_S * 100)
    assert lake.branch("back").create(at=commits[0]).head == commits[0]


def test_what_was_merged_is_reachable_for_ever(lake: Lake, clock: SetClock) -> None:
    lake.branch("dev").create()
    merged = lake.branch("dev").put("d", table()).id
    lake.branch().put("m", table())
    lake.merge("dev", "main")
    lake.branch("dev").delete()
    clock.go_on(GRACE_S * 100)
    assert lake.branch("back").create(at=merged).head == merged


def test_a_commit_that_lost_its_swap_is_not_reachable(lake: Lake, store: HookedStore) -> None:
    """It is in the store, but was never anywhere."""
    lake.branch().put("a", table())
    stray = encode(CommitObject(root=EMPTY_ROOT, depth=1, generation=1, time_us=1))
    store.store({hash_object(stray): stray})
    with pytest.raises(CommitNotFound):
        lake.branch("back").create(at=hash_object(stray).hex())
