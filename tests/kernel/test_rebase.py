"""Rebase: a branch's own commits repeated on a new base, to which the branch moves by one swap."""

from __future__ import annotations

from random import Random

import pytest

from penstock.errors import (
    InvalidRequest,
    MergeConflict,
    ReferenceChanged,
)
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.references import Kind
from tests.chance import seeds
from tests.kernel.brute_force import Told, forked, line, told
from tests.kernel.lakes import (
    branch,
    commit,
    head,
    new_kernel,
    places,
    puts,
    reopened,
    state,
    stored,
)

META = CommitMeta(committer="ci")


@pytest.mark.parametrize("seed", seeds(8))
def test_a_rebase_equals_a_transplant_onto_the_new_base_that_moves_the_branch(seed: int) -> None:
    random = Random(100 + seed)
    landed = refused = 0
    while landed < 8 or refused < 3:
        kernel, own = forked(random, 4)
        onto, before = head(kernel), head(kernel, "dev")
        if kernel.history.is_ancestor(onto, before):
            continue
        branch(kernel, "copy", onto)
        untouched = stored(kernel.store)
        preview = kernel.rebase("dev", onto, META, dry_run=True)
        assert stored(kernel.store) == untouched
        conflicts = _copied(kernel, own)
        if conflicts:
            refused += 1
            with pytest.raises(MergeConflict) as error:
                kernel.rebase("dev", onto, META)
            assert told(error.value.conflicts) == conflicts
            assert {one.key for one in preview.conflicts} == {key for _, key in conflicts}
            assert head(kernel, "dev") == before
            continue
        landed += 1
        result = kernel.rebase("dev", onto, META)
        cold = reopened(kernel)
        made = line(cold, head(cold, "dev"), onto)
        copied = line(cold, head(cold, "copy"), onto)
        assert [one.hex() for one in made] == list(result.commits)
        assert [state(cold, one) for one in made] == [state(cold, one) for one in copied]
        messages = [[cold.history.read_commit(one).message for one in each] for each in (made, copied)]
        assert messages[0] == messages[1]
        if head(cold, "dev") != before:
            (_, entry) = next(cold.references.walk_log("dev"))
            assert (entry.kind, entry.before, entry.after) == ("transplant", before, head(cold, "dev"))
        assert fsck(cold).damages == ()


def _copied(kernel: Kernel, own: list[ObjectId]) -> Told:
    """Transplant commits onto ``copy``, or tell the conflicts that they meet."""
    try:
        if own:
            kernel.transplant(own, "copy", META)
    except MergeConflict as refused:
        return told(refused.conflicts)
    return set()


def test_a_rebase_leaves_out_what_the_new_base_has() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    commit(kernel, "dev", puts(a=1))
    kernel.merge(head(kernel, "dev"), "main", META)
    commit(kernel, "dev", puts(b=1))
    commit(kernel, "main", puts(c=1))
    result = kernel.rebase("dev", head(kernel), META)
    assert len(result.commits) == 1
    assert places(kernel, "dev") == {"a": "1", "b": "1", "c": "1", "t": "1"}
    assert kernel.history.read_commit(head(kernel, "dev")).parent == head(kernel)


def test_a_rebase_of_a_branch_that_merged_its_base_repeats_only_its_own_changes() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    commit(kernel, "dev", puts(a=1))
    commit(kernel, "main", puts(m=1))
    kernel.merge(head(kernel), "dev", META)
    commit(kernel, "dev", puts(b=1))
    commit(kernel, "main", puts(m=2))
    result = kernel.rebase("dev", head(kernel), META)
    assert places(kernel, "dev") == {"a": "1", "b": "1", "m": "2", "t": "1"}
    assert len(result.commits) == 2


def test_a_rebase_of_a_branch_without_commits_of_its_own_moves_it_to_the_new_base() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    commit(kernel, "main", puts(t=2))
    result = kernel.rebase("dev", head(kernel), META)
    assert head(kernel, "dev") == head(kernel)
    assert (result.commits, result.head) == ((), head(kernel).hex())


def test_a_branch_that_stands_on_the_new_base_already_stays_as_it_is() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    commit(kernel, "dev", puts(a=1))
    commit(kernel, "dev", puts(a=2))
    before = stored(kernel.store)
    for onto in (head(kernel), head(kernel, "dev"), NO_COMMIT):
        result = kernel.rebase("dev", onto, META)
        assert (result.commits, result.head) == ((), head(kernel, "dev").hex())
    assert stored(kernel.store) == before


def test_a_rebase_with_an_if_head_refuses_a_branch_that_moved() -> None:
    kernel = new_kernel()
    branch(kernel, "dev")
    seen = commit(kernel, "dev", puts(a=1))
    commit(kernel, "dev", puts(a=2))
    commit(kernel, "main", puts(b=1))
    before = stored(kernel.store)
    for dry_run in (True, False):
        with pytest.raises(ReferenceChanged):
            kernel.rebase("dev", head(kernel), META, if_head=seen, dry_run=dry_run)
    assert stored(kernel.store) == before


def test_a_repeated_rebase_is_answered_by_what_the_first_one_did() -> None:
    kernel = new_kernel()
    branch(kernel, "dev")
    commit(kernel, "dev", puts(a=1))
    commit(kernel, "main", puts(b=1))
    onto = head(kernel)
    first = kernel.rebase("dev", onto, META, key="once")
    commit(kernel, "dev", puts(c=1))
    after = head(kernel, "dev")
    again = reopened(kernel).rebase("dev", onto, META, key="once")
    assert head(kernel, "dev") == after
    assert (again.commits, again.head) == (first.commits, first.head)


def test_tags_and_unknown_branches_are_not_rebased() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    kernel.references.create_reference("v1", Kind.TAG, NO_COMMIT)
    for dry_run in (True, False):
        with pytest.raises(InvalidRequest, match="tag"):
            kernel.rebase("v1", head(kernel), META, dry_run=dry_run)


def test_a_branch_that_began_with_a_merge_can_be_rebased() -> None:
    kernel = new_kernel()
    branch(kernel, "dev")
    branch(kernel, "base")
    commit(kernel, "main", puts(a=1))
    kernel.merge(head(kernel), "dev", META)
    commit(kernel, "dev", puts(b=1))
    commit(kernel, "base", puts(c=1))
    kernel.rebase("dev", head(kernel, "base"), META)
    assert places(kernel, "dev") == {"a": "1", "b": "1", "c": "1"}
