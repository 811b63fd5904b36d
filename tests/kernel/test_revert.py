"""Revert: what one commit did, undone by a new one, unless something came after."""

from __future__ import annotations

from random import Random

import pytest

from penstock.errors import (
    CommitNotFound,
    InvalidRequest,
    MergeConflict,
)
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.model.operations import Delete, Put
from penstock.testing import CountingStore
from tests.chance import seeds
from tests.kernel.brute_force import forked, told, undo
from tests.kernel.lakes import (
    branch,
    commit,
    deletes,
    head,
    large_table,
    new_kernel,
    places,
    puts,
    reopened,
    state,
    stored,
)

META = CommitMeta(committer="ci")


@pytest.mark.parametrize("seed", seeds(8))
def test_a_revert_equals_brute_force_and_its_own_revert_restores(seed: int) -> None:
    random = Random(200 + seed)
    undone = refused = 0
    while undone < 10 or refused < 2:
        kernel, own = forked(random)
        if not own:
            continue
        chosen = random.choice(own)
        parent = kernel.history.read_commit(chosen).parent
        before = state(kernel, "dev")
        expected = undo(state(kernel, chosen), state(kernel, parent), before)
        untouched = stored(kernel.store)
        preview = kernel.revert(chosen, "dev", META, dry_run=True)
        assert stored(kernel.store) == untouched
        if expected.conflicts:
            refused += 1
            with pytest.raises(MergeConflict) as error:
                kernel.revert(chosen, "dev", META)
            assert told(error.value.conflicts) == expected.conflicts
            assert {one.key for one in preview.conflicts} == {key for _, key in expected.conflicts}
            assert stored(kernel.store) == untouched
            continue
        undone += 1
        result = kernel.revert(chosen, "dev", META)
        assert state(reopened(kernel), "dev") == expected.held
        if result.commits:
            again = kernel.revert(bytes.fromhex(result.commits[0]), "dev", META)
            assert again.commits
            assert state(reopened(kernel), "dev") == before


def test_a_revert_brings_a_dropped_table_back_under_its_old_id_however_large() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [Put(Key("t"), large_table(1, 700_000)), *puts(u=1)])
    before = state(kernel)
    dropped = commit(kernel, "main", deletes("t"))
    commit(kernel, "main", puts(u=2))
    kernel.revert(dropped, "main", META)
    assert state(reopened(kernel))[Key("t")] == before[Key("t")]
    assert places(kernel)["u"] == "2"


def test_a_revert_of_a_merge_takes_back_what_it_brought() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    commit(kernel, "dev", puts(t=2, d=1))
    commit(kernel, "main", puts(m=1))
    before = state(kernel)
    merge = kernel.merge(head(kernel, "dev"), "main", META)
    commit(kernel, "main", puts(after=1))
    kernel.revert(bytes.fromhex(merge.commits[0]), "main", META)
    assert state(kernel) == before | {Key("after"): state(kernel)[Key("after")]}


def test_only_commits_of_the_branch_are_reverted_on_it() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    strange = commit(kernel, "dev", puts(t=2))
    for dry_run in (True, False):
        with pytest.raises(InvalidRequest, match="not in the history"):
            kernel.revert(strange, "main", META, dry_run=dry_run)
        with pytest.raises(CommitNotFound):
            kernel.revert(b"x" * 32, "main", META, dry_run=dry_run)


def test_a_revert_leaves_a_namespace_that_was_filled_since_k6() -> None:
    kernel = new_kernel()
    made = commit(kernel, "main", [Put(Key("ns"), Namespace()), Put(Key("ns", "t"), large_table(1))])
    commit(kernel, "main", [Put(Key("ns", "u"), large_table(2))])
    result = kernel.revert(made, "main", META)
    assert {one.key: one.after is None for one in result.keys} == {Key("ns"): False, Key("ns", "t"): True}
    assert state(kernel).keys() == {Key("ns"), Key("ns", "u")}


def test_a_revert_that_cannot_be_says_so_in_its_own_words() -> None:
    kernel = new_kernel()
    made = commit(kernel, "main", puts(t=1))
    commit(kernel, "main", puts(t=2))
    with pytest.raises(MergeConflict) as refused:
        kernel.revert(made, "main", META)
    first, second, *more = str(refused.value).splitlines()
    assert (first, second.partition(" (")[0]) == (
        "cannot revert: 1 conflict",
        "  't' was changed since that commit",
    )
    assert [("'force'" in one, "'drop'" in one) for one in more] == [(True, False), (False, True)]
    options = MergeOptions(keys={Key("t"): KeyMerge(mode=MergeMode.DROP)})
    assert not kernel.revert(made, "main", META, options=options).applied, "the last way out leads out"
    options = MergeOptions(keys={Key("t"): KeyMerge(mode=MergeMode.FORCE)})
    kernel.revert(made, "main", META, options=options)
    assert state(kernel) == {}


def test_a_transplant_and_a_rebase_that_cannot_be_say_so_in_their_own_words() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    made = commit(kernel, "dev", puts(t=2))
    commit(kernel, "main", puts(t=3))
    with pytest.raises(MergeConflict, match=r"^cannot transplant: 1 conflict"):
        kernel.transplant([made], "main", META)
    with pytest.raises(MergeConflict, match=r"^cannot rebase: 1 conflict"):
        kernel.rebase("dev", head(kernel), META)


def test_reverts_and_rebases_that_are_dry_write_nothing() -> None:
    counting = CountingStore(new_kernel().store)
    kernel = new_kernel(counting)
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    made = commit(kernel, "dev", puts(t=2))
    commit(kernel, "main", [Delete(Key("t")), *puts(u=1)])
    counting.reset()
    assert kernel.revert(made, "dev", META, dry_run=True).keys
    assert kernel.rebase("dev", head(kernel), META, dry_run=True).conflicts
    assert kernel.transplant([made], "main", META, dry_run=True).conflicts
    assert (counting.counts.objects_written, counting.counts.swaps + counting.counts.swaps_lost) == (0, 0)
