"""Merges against brute force on plain dicts, with the same contents under many keys."""

from __future__ import annotations

from random import Random

import pytest

from penstock.errors import MergeConflict
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import ConflictKind
from penstock.model.content import Namespace, Unknown
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode, MergeResult
from penstock.model.operations import Put
from penstock.testing import CountingStore
from tests.chance import seeds
from tests.kernel.brute_force import (
    KEYS,
    Ambiguous,
    Expected,
    bring,
    random_content,
    told,
    virtual_base,
    wander,
    without_ids,
)
from tests.kernel.lakes import (
    State,
    branch,
    commit,
    deletes,
    head,
    new_kernel,
    places,
    puts,
    reopened,
    state,
    stored,
    table,
)

META = CommitMeta(message="merge")


def _forked(random: Random) -> Kernel:
    """Two branches that parted, and each went its way."""
    kernel = new_kernel()
    wander(kernel, "main", random, 12)
    branch(kernel, "dev")
    wander(kernel, "main", random, random.randrange(8))
    wander(kernel, "dev", random, random.randrange(1, 8))
    return kernel


def _merged(kernel: Kernel, expected: Expected, options: MergeOptions = MergeOptions()) -> MergeResult | None:
    """Merge ``dev`` into ``main``; the outcome must be the expected one, and a dry run must foretell it."""
    source, before = head(kernel, "dev"), state(kernel)
    untouched = stored(kernel.store)
    preview = kernel.merge(source, "main", META, options, dry_run=True)
    assert stored(kernel.store) == untouched
    assert preview.dry_run
    assert not preview.commits
    if expected.conflicts:
        with pytest.raises(MergeConflict) as refused:
            kernel.merge(source, "main", META, options)
        assert stored(kernel.store) == untouched
        assert told(refused.value.conflicts) == expected.conflicts
        assert len(refused.value.conflicts) == len(expected.conflicts)
        assert told(preview.conflicts) <= expected.conflicts
        assert {one.key for one in preview.conflicts} == {key for _, key in expected.conflicts}
        return None
    assert preview.conflicts == ()
    result = kernel.merge(source, "main", META, options)
    assert bytes.fromhex(result.head) == head(kernel)
    after = state(reopened(kernel))
    given = expected.chosen
    assert without_ids(after, given) == without_ids(expected.held, given)
    for key in given & before.keys():
        if not isinstance(after[key], Unknown) and before[key].id is not None:
            assert (after[key].id == before[key].id) == (type(after[key]) is type(before[key]))
    _check_told(result, preview, before, after, given)
    return result


def _check_told(
    result: MergeResult, preview: MergeResult, before: State, after: State, given: set[Key]
) -> None:
    """The result, and the preview alike, say of every key what it was and what it became."""
    assert {one.key: one.before for one in result.keys} == {
        one.key: before.get(one.key) for one in result.keys
    }
    assert {one.key: one.after for one in result.keys} == {one.key: after.get(one.key) for one in result.keys}
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed <= {one.key for one in result.keys}
    outlines = [
        [(one.key, one.mode, one.before, None if one.key in given else one.after) for one in each.keys]
        for each in (preview, result)
    ]
    assert outlines[0] == outlines[1]


def _base(kernel: Kernel) -> State:
    (base,) = kernel.history.merge_bases(head(kernel), head(kernel, "dev"))
    return state(kernel, base)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_merge_equals_brute_force(seed: int) -> None:
    random = Random(seed)
    clean = refused = 0
    while clean < 10 or refused < 5:
        kernel = _forked(random)
        expected = bring(_base(kernel), state(kernel, "dev"), state(kernel))
        if _merged(kernel, expected) is not None:
            clean += 1
        else:
            refused += 1


def _random_options(random: Random, was: State, wanted: State, now: State) -> MergeOptions:
    """Some way to merge for some of the keys that the source changed."""
    keys: dict[Key, KeyMerge] = {}
    for key in KEYS:
        if was.get(key) == wanted.get(key) or random.random() < 0.4:
            continue
        mode = random.choice(list(MergeMode))
        content = random_content(random) if random.random() < 0.4 else None
        expected = random.choice([None, None, was.get(key), now.get(key), wanted.get(key)])
        absent = expected is None and random.random() < 0.2
        keys[key] = KeyMerge(mode=mode, content=content, expected=expected, expect_absent=absent)
    return MergeOptions(keys, random.choice(list(MergeMode)))


@pytest.mark.parametrize("seed", seeds(10))
def test_a_merge_with_a_way_for_every_key_equals_brute_force(seed: int) -> None:
    random = Random(1000 + seed)
    clean = refused = 0
    while clean < 10 or refused < 5:
        kernel = _forked(random)
        was, wanted, now = _base(kernel), state(kernel, "dev"), state(kernel)
        options = _random_options(random, was, wanted, now)
        expected = bring(was, wanted, now, options.keys, options.default)
        if _merged(kernel, expected, options) is not None:
            clean += 1
        else:
            refused += 1


def _settle(kernel: Kernel, source: ObjectId, into: str, random: Random) -> bool:
    """Merge, with conflicts settled one way or the other; not if namespaces stand against it."""
    default = random.choice([MergeMode.FORCE, MergeMode.DROP])
    for mode in (MergeMode.NORMAL, default):
        try:
            kernel.merge(source, into, META, MergeOptions(default=mode))
        except MergeConflict:
            continue
        return True
    return False


@pytest.mark.parametrize("seed", seeds(6))
def test_merging_again_brings_only_what_is_new(seed: int) -> None:
    random = Random(2000 + seed)
    merges = 0
    while merges < 15:
        kernel = _forked(random)
        for _ in range(6):
            base = kernel.history.merge_bases(head(kernel), head(kernel, "dev"))
            if len(base) > 1:
                break
            expected = bring(_base(kernel), state(kernel, "dev"), state(kernel))
            if _merged(kernel, expected) is not None:
                merges += 1
                again = kernel.merge(head(kernel, "dev"), "main", META)
                assert (again.commits, again.keys, again.applied) == ((), (), False)
            elif not _settle(kernel, head(kernel, "dev"), "main", random):
                break
            wander(kernel, "dev", random, random.randrange(1, 4))
            wander(kernel, "main", random, random.randrange(3))
            if random.random() < 0.3:
                _settle(kernel, head(kernel), "dev", random)
                wander(kernel, "dev", random, 1)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_merge_after_merges_crossed_equals_brute_force_on_the_virtual_base(seed: int) -> None:
    random = Random(3000 + seed)
    tried = unclear = 0
    while tried < 12 or unclear < 2:
        kernel = _forked(random)
        one, other = head(kernel), head(kernel, "dev")
        if not (_settle(kernel, other, "main", random) and _settle(kernel, one, "dev", random)):
            continue
        wander(kernel, "main", random, random.randrange(4))
        wander(kernel, "dev", random, random.randrange(1, 4))
        bases = kernel.history.merge_bases(head(kernel), head(kernel, "dev"))
        if len(bases) != 2:
            continue
        tried += 1
        (origin,) = kernel.history.merge_bases(*bases)
        first, second = state(kernel, bases[0]), state(kernel, bases[1])
        base, ambiguous = virtual_base(first, second, state(kernel, origin))
        unclear += bool(ambiguous)
        expected = bring(base, state(kernel, "dev"), state(kernel), ambiguous=ambiguous)
        _merge_crossed(kernel, expected, ambiguous)


def _merge_crossed(kernel: Kernel, expected: Expected, ambiguous: Ambiguous) -> None:
    """As ``_merged``, but where the bases disagree the kind of a conflict depends on which is asked."""
    preview = kernel.merge(head(kernel, "dev"), "main", META, dry_run=True)
    assert {one.key for one in preview.conflicts} == {key for _, key in expected.conflicts}
    if not expected.conflicts:
        kernel.merge(head(kernel, "dev"), "main", META)
        assert state(reopened(kernel)) == expected.held
        return
    with pytest.raises(MergeConflict) as refused:
        kernel.merge(head(kernel, "dev"), "main", META)
    keys = {key for _, key in expected.conflicts}
    assert {conflict.key for conflict in refused.value.conflicts} == keys
    sure = {(kind, key) for kind, key in expected.conflicts if key not in ambiguous}
    assert {one for one in told(refused.value.conflicts) if one[1] not in ambiguous} == sure


def test_a_dry_run_tells_every_conflict_of_a_key_as_the_merge_does() -> None:
    """The source's table needs a namespace that both sides changed: two conflicts at one key."""
    kernel = new_kernel()
    commit(kernel, "main", [Put(Key("ns"), Namespace())])
    branch(kernel, "dev")
    commit(kernel, "main", deletes("ns"))
    commit(kernel, "dev", [Put(Key("ns"), Namespace(properties={"p": "1"})), Put(Key("ns", "t"), table(1))])
    preview = kernel.merge(head(kernel, "dev"), "main", META, dry_run=True)
    with pytest.raises(MergeConflict) as refused:
        kernel.merge(head(kernel, "dev"), "main", META)
    assert told(refused.value.conflicts) == {
        (ConflictKind.KEY_DOES_NOT_EXIST, Key("ns")),
        (ConflictKind.NAMESPACE_ABSENT, Key("ns")),
    }
    assert told(preview.conflicts) == told(refused.value.conflicts)


def test_crossed_merges_do_not_bring_back_what_one_side_took_away() -> None:
    """Each side took over the other's change; against either base alone, one of them would seem undone."""
    kernel = new_kernel()
    commit(kernel, "main", puts(x=1, y=1))
    branch(kernel, "dev")
    commit(kernel, "main", deletes("x"))
    commit(kernel, "dev", deletes("y"))
    one, other = head(kernel), head(kernel, "dev")
    kernel.merge(other, "main", META)
    kernel.merge(one, "dev", META)
    commit(kernel, "main", puts(x=2))
    commit(kernel, "dev", puts(z=1))
    kernel.merge(head(kernel, "dev"), "main", META)
    held = places(kernel)
    assert (held.get("x"), held.get("y"), held.get("z")) == ("2", None, "1")


@pytest.mark.parametrize("seed", seeds(3))
def test_lakes_that_were_merged_at_random_are_whole(seed: int) -> None:
    random = Random(4000 + seed)
    kernel = _forked(random)
    branch(kernel, "third", "dev")
    names = ("main", "dev", "third")
    for _ in range(40):
        _settle(kernel, head(kernel, random.choice(names)), random.choice(names), random)
        wander(kernel, random.choice(names), random, 2)
    assert fsck(reopened(kernel)).damages == ()


def test_a_dry_run_writes_nothing_and_swaps_nothing() -> None:
    random = Random(5)
    for _ in range(10):
        counting = CountingStore(_forked(random).store)
        kernel = new_kernel(counting)
        counting.reset()
        kernel.merge(head(kernel, "dev"), "main", META, dry_run=True)
        counts = counting.counts
        assert (counts.objects_written, counts.swaps, counts.swaps_lost, counts.objects_deleted) == (
            0,
            0,
            0,
            0,
        )
