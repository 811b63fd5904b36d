"""Transplant: commits repeated one by one on another branch, landed by one swap or not at all."""

from __future__ import annotations

from random import Random

import pytest

from penstock.errors import (
    CommitNotFound,
    IdempotencyKeyReused,
    InvalidRequest,
    MergeConflict,
    ReferenceChanged,
)
from penstock.kernel.kernel import Kernel
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import ConflictKind
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.model.operations import Put
from tests.chance import seeds
from tests.kernel.brute_force import Told, bring, forked, line, told
from tests.kernel.lakes import (
    State,
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


def _step_by_step(kernel: Kernel, commits: list[ObjectId], held: State) -> tuple[list[State], Told]:
    """What every commit in turn makes of a state, up to the first that meets conflicts."""
    states: list[State] = []
    for one in commits:
        parent = kernel.history.read_commit(one).parent
        expected = bring(state(kernel, parent), state(kernel, one), held)
        if expected.conflicts:
            return states, expected.conflicts
        if expected.held != held or state(kernel, parent) == state(kernel, one):
            states.append(expected.held)
        held = expected.held
    return states, set()


@pytest.mark.parametrize("seed", seeds(10))
def test_a_transplant_equals_its_commits_applied_step_by_step(seed: int) -> None:
    random = Random(seed)
    landed = refused = 0
    while landed < 10 or refused < 5:
        kernel, own = forked(random)
        if not own:
            continue
        start, stop = sorted(random.choices(range(len(own)), k=2))
        chosen = own[start : stop + 1]
        states, conflicts = _step_by_step(kernel, chosen, state(kernel))
        before, untouched = head(kernel), stored(kernel.store)
        preview = kernel.transplant(chosen, "main", META, dry_run=True)
        assert stored(kernel.store) == untouched
        if conflicts:
            refused += 1
            with pytest.raises(MergeConflict) as error:
                kernel.transplant(chosen, "main", META)
            assert conflicts <= told(error.value.conflicts)
            assert {key for _, key in conflicts} <= {one.key for one in preview.conflicts}
            assert stored(kernel.store) == untouched
            continue
        assert preview.conflicts == ()
        landed += 1
        result = kernel.transplant(chosen, "main", META)
        cold = reopened(kernel)
        made = line(cold, head(cold), before)
        assert [one.hex() for one in made] == list(result.commits)
        assert [state(cold, one) for one in made] == states
        if made:
            (_, entry) = next(cold.references.walk_log("main"))
            assert (entry.kind, entry.before, entry.after) == ("transplant", before, made[-1])


def test_transplanted_commits_keep_what_their_writers_said() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    said = CommitMeta(
        message="load orders",
        authors=("ann", "bob"),
        author_time_us=1234,
        signed_off_by=("carl",),
        properties={"job": ("7",)},
        committer="etl",
    )
    kernel.commit("dev", puts(a=1), said)
    kernel.commit("dev", puts(b=1), CommitMeta(message="second", authors=("dora",)))
    commit(kernel, "main", puts(t=2))
    before = head(kernel)
    result = kernel.transplant(
        line(kernel, head(kernel, "dev"), kernel.resolve_revision("dev~2")[0]), "main", META
    )
    first, second = (kernel.history.read_commit(bytes.fromhex(one)) for one in result.commits)
    assert (first.message, first.authors, first.author_time_us) == ("load orders", ("ann", "bob"), 1234)
    assert (first.signed_off_by, first.properties, first.committer) == (("carl",), {"job": ("7",)}, "ci")
    assert (first.parent, first.further_parents) == (before, ())
    assert (second.message, second.authors) == ("second", ("dora",))
    (_, entry) = next(kernel.references.walk_log("main"))
    assert (entry.kind, entry.before, entry.after) == ("transplant", before, head(kernel))
    assert places(kernel) == {"a": "1", "b": "1", "t": "2"}


def test_a_message_is_for_a_single_commit() -> None:
    kernel = new_kernel()
    branch(kernel, "dev")
    own = [commit(kernel, "dev", puts(a=number)) for number in range(2)]
    with pytest.raises(InvalidRequest):
        kernel.transplant(own, "main", CommitMeta(message="both"))
    kernel.transplant(own[:1], "main", CommitMeta(message="one"))
    assert kernel.history.read_commit(head(kernel)).message == "one"


def test_transplanting_again_is_nothing_to_do() -> None:
    kernel = new_kernel()
    branch(kernel, "dev")
    own = [commit(kernel, "dev", puts(a=number, **{f"b{number}": 1})) for number in range(3)]
    kernel.transplant(own, "main", META)
    before = stored(kernel.store)
    result = kernel.transplant(own[-1:], "main", META)
    assert (result.commits, result.head) == ((), head(kernel).hex())
    assert stored(kernel.store) == before


def test_a_commit_that_changed_nothing_is_repeated_for_what_it_says() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    fork = head(kernel)
    same = state(kernel)[Key("t")]
    commit(kernel, "dev", puts(a=1))
    kernel.commit("dev", [Put(Key("t"), same)], CommitMeta(message="approved", properties={"by": ("ada",)}))
    commit(kernel, "dev", puts(b=1))
    commit(kernel, "main", puts(m=1))
    own = line(kernel, head(kernel, "dev"), fork)

    def messages(name: str) -> list[str]:
        return [one.message for _, one in kernel.walk_commits(head(kernel, name))]

    branch(kernel, "based", head(kernel, "dev"))
    kernel.rebase("based", head(kernel), CommitMeta())
    result = kernel.transplant(own, "main", CommitMeta())
    assert len(result.commits) == 3
    assert messages("main")[1] == messages("based")[1] == "approved"
    assert kernel.history.read_commit(bytes.fromhex(result.commits[1])).properties == {"by": ("ada",)}
    # What the target has already is left out; what was nothing from the start is said again.
    again = kernel.transplant(own, "main", CommitMeta())
    assert [messages("main")[0], len(again.commits)] == ["approved", 1]


def test_a_dry_run_foretells_a_conflict_that_a_later_commit_would_have_met_alike() -> None:
    """The first commit conflicts; the second wants what the target has."""
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    own = [commit(kernel, "dev", puts(t=number)) for number in (2, 3)]
    commit(kernel, "main", puts(t=3))
    preview = kernel.transplant(own, "main", META, dry_run=True)
    with pytest.raises(MergeConflict) as refused:
        kernel.transplant(own, "main", META)
    assert [(one.kind, str(one.key)) for one in refused.value.conflicts] == [
        (ConflictKind.VALUE_DIFFERS, "t")
    ]
    assert preview.conflicts == refused.value.conflicts


def test_a_conflict_in_one_commit_does_not_make_up_others_in_the_next() -> None:
    """Only ``t`` changed on both sides; that ``u`` is not there yet is because the first commit is not."""
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    own = [commit(kernel, "dev", puts(t=2, u=1)), commit(kernel, "dev", puts(u=2))]
    commit(kernel, "main", puts(t=3))
    with pytest.raises(MergeConflict) as refused:
        kernel.transplant(own, "main", META)
    assert [str(one.key) for one in refused.value.conflicts] == ["t"]


def test_the_result_tells_of_a_key_what_it_was_before_the_first_and_is_after_the_last_commit() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    own = [commit(kernel, "dev", puts(t=number)) for number in (2, 3, 4)]
    before = state(kernel)[Key("t")]
    result = kernel.transplant(own, "main", META)
    ((was, now),) = [(one.before, one.after) for one in result.keys]
    assert (was, now) == (before, state(kernel)[Key("t")])


def test_ways_to_merge_keys_hold_for_every_commit_of_a_transplant() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1, u=1))
    branch(kernel, "dev")
    own = [
        commit(kernel, "dev", puts(t=2)),
        commit(kernel, "dev", puts(u=2)),
        commit(kernel, "dev", puts(t=3)),
    ]
    commit(kernel, "main", puts(t=9, u=9))
    keys = {Key("t"): KeyMerge(mode=MergeMode.FORCE), Key("u"): KeyMerge(mode=MergeMode.DROP)}
    result = kernel.transplant(own, "main", META, MergeOptions(keys))
    assert places(kernel) == {"t": "3", "u": "9"}
    assert len(result.commits) == 2
    with pytest.raises(InvalidRequest, match="nowhere"):
        kernel.transplant(own, "main", META, MergeOptions({Key("nowhere"): KeyMerge()}))


def test_commits_to_transplant_follow_one_another() -> None:
    kernel = new_kernel()
    branch(kernel, "dev")
    own = [commit(kernel, "dev", puts(a=number)) for number in range(3)]
    before = stored(kernel.store)
    for wrong in ([own[1], own[0]], [own[0], own[2]], [own[0], own[0]], []):
        with pytest.raises(InvalidRequest):
            kernel.transplant(wrong, "main", META)
    with pytest.raises(CommitNotFound):
        kernel.transplant([b"x" * 32], "main", META)
    assert stored(kernel.store) == before


def test_a_transplant_with_an_if_head_refuses_a_target_that_moved() -> None:
    kernel = new_kernel()
    branch(kernel, "dev")
    own = [commit(kernel, "dev", puts(a=1))]
    commit(kernel, "main", puts(b=1))
    for dry_run in (True, False):
        with pytest.raises(ReferenceChanged):
            kernel.transplant(own, "main", META, if_head=NO_COMMIT, dry_run=dry_run)
    assert kernel.transplant(own, "main", META, if_head=head(kernel)).commits


def test_a_repeated_transplant_is_answered_by_what_the_first_one_did() -> None:
    kernel = new_kernel()
    branch(kernel, "dev")
    own = [commit(kernel, "dev", puts(a=number)) for number in range(3)]
    first = kernel.transplant(own, "main", META, key="once")
    commit(kernel, "main", puts(a=9))
    assert reopened(kernel).transplant(own, "main", META, key="once").commits == first.commits
    with pytest.raises(IdempotencyKeyReused):
        kernel.transplant(own[:1], "main", META, key="once")
