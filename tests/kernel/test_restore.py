"""Restore: keys, a namespace or everything as they were at an earlier commit, by a new one."""

from __future__ import annotations

from random import Random

import pytest

from penstock.errors import InvalidRequest, KeyNotFound, MergeConflict, ReferenceChanged
from penstock.kernel.restore import RestoreScope
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import ConflictKind
from penstock.model.content import Namespace
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from tests.chance import seeds
from tests.kernel.brute_force import forked, misplaced
from tests.kernel.lakes import (
    State,
    branch,
    commit,
    deletes,
    head,
    new_kernel,
    puts,
    reopened,
    state,
    stored,
    table,
)

META = CommitMeta(committer="ci")
ALL = RestoreScope()


def restored(now: State, then: State, scope: RestoreScope) -> State:
    """What a restore must come to, worked out on plain dicts."""

    def is_in(key: Key) -> bool:
        if any(_is_below(key, one) for one in scope.leave):
            return False
        if scope.keys:
            return key in scope.keys
        return scope.namespace is None or _is_below(key, scope.namespace)

    held = {key: content for key, content in now.items() if not is_in(key)}
    held |= {key: content for key, content in then.items() if is_in(key)}
    for key in list(held):  # the namespaces above come back, too
        for parent in key.parents:
            if parent not in held and parent in then and parent not in scope.leave:
                held[parent] = then[parent]
    return held


def _is_below(key: Key, namespace: Key) -> bool:
    return key == namespace or namespace in key.parents


@pytest.mark.parametrize("seed", seeds(9))
def test_a_restore_equals_brute_force_and_changes_nothing_in_a_dry_run(seed: int) -> None:
    random = Random(300 + seed)
    done = refused = 0
    while done < 25:
        kernel, _ = forked(random)
        commits = [one for one, _ in kernel.walk_commits(head(kernel, "dev"))]
        to = random.choice(commits)
        now, then = state(kernel, "dev"), state(kernel, to)
        keys = [key for key in then if not isinstance(then[key], Namespace)]
        keys = [key for key in keys if not isinstance(now.get(key), Namespace)]
        namespaces = [key for key in then if isinstance(then[key], Namespace)]
        scopes = [ALL, RestoreScope(leave=tuple(random.sample(sorted(now), min(1, len(now)))))]
        scopes += [RestoreScope(keys=tuple(random.sample(sorted(keys), 1)))] if keys else []
        scopes += [RestoreScope(namespace=random.choice(namespaces))] if namespaces else []
        scope = random.choice(scopes)
        expected = restored(now, then, scope)
        untouched = stored(kernel.store)
        preview = kernel.restore(to, "dev", scope, META, dry_run=True)
        assert stored(kernel.store) == untouched
        if conflicts := misplaced(now, expected):
            refused += 1
            assert {one.key for one in preview.conflicts} == {key for _, key in conflicts}
            with pytest.raises(MergeConflict):
                kernel.restore(to, "dev", scope, META)
            assert stored(kernel.store) == untouched
            continue
        done += 1
        result = kernel.restore(to, "dev", scope, META)
        assert state(reopened(kernel), "dev") == expected
        assert [one.action for one in result.keys] == [one.action for one in preview.keys]
        assert len(result.commits) == (expected != now)
        assert not kernel.restore(to, "dev", scope, META).applied


def test_a_restore_of_everything_to_the_empty_lake_drops_all() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [Put(Key("n"), Namespace()), Put(Key("n", "t"), table(1)), *puts(u=1)])
    kernel.restore(NO_COMMIT, "main", ALL, META)
    assert state(kernel) == {}


def test_what_was_not_there_is_not_restored_by_its_name() -> None:
    kernel = new_kernel()
    first = commit(kernel, "main", puts(a=1))
    commit(kernel, "main", [Put(Key("n"), Namespace()), *puts(b=1)])
    with pytest.raises(KeyNotFound, match=r"there was no 'b' at [0-9a-f]{8}; to remove it, drop it"):
        kernel.restore(first, "main", RestoreScope((Key("b"),)), META)
    with pytest.raises(KeyNotFound, match="there was no 'c'"):
        kernel.restore(first, "main", RestoreScope((Key("c"),)), META)
    with pytest.raises(KeyNotFound, match="no namespace 'n'"):
        kernel.restore(first, "main", RestoreScope(namespace=Key("n")), META)
    with pytest.raises(
        InvalidRequest, match="'n' is a namespace; to restore everything in it: --namespace n"
    ):
        kernel.restore(first, "main", RestoreScope((Key("n"),)), META)
    with pytest.raises(InvalidRequest, match="a version belongs to one table"):
        kernel.restore(1, "main", ALL, META)
    with pytest.raises(InvalidRequest, match="the lake keeps no versions of 'a'"):
        kernel.restore(1, "main", RestoreScope((Key("a"),)), META)


def test_a_namespace_stays_that_has_something_left_as_it_is() -> None:
    kernel = new_kernel()
    first = commit(kernel, "main", puts(a=1))
    commit(kernel, "main", [Put(Key("n"), Namespace()), Put(Key("n", "t"), table(1)), *puts(a=2)])
    with pytest.raises(MergeConflict) as refused:
        kernel.restore(first, "main", RestoreScope(leave=(Key("n", "t"),)), META)
    assert [one.kind for one in refused.value.conflicts] == [ConflictKind.NAMESPACE_NOT_EMPTY]
    kernel.restore(first, "main", RestoreScope(leave=(Key("n"),)), META)
    assert sorted(map(str, state(kernel))) == ["a", "n", "n.t"]
    assert state(kernel)[Key("a")] == state(kernel, first)[Key("a")]


def test_a_restore_wins_over_what_is_there_unless_the_head_is_named() -> None:
    kernel = new_kernel()
    first = commit(kernel, "main", puts(a=1))
    second = commit(kernel, "main", puts(a=2))
    commit(kernel, "main", puts(a=3))
    with pytest.raises(ReferenceChanged):
        kernel.restore(first, "main", ALL, META, if_head=second)
    kernel.restore(first, "main", ALL, META)
    assert state(kernel) == state(kernel, first)


def test_a_restore_takes_the_state_of_another_branch_and_of_a_tag() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(a=1))
    branch(kernel, "dev")
    there = commit(kernel, "dev", puts(a=7, b=1))
    commit(kernel, "main", [*puts(c=1), *deletes("a")])
    kernel.restore(there, "main", ALL, META)
    assert state(kernel) == state(kernel, "dev")


def test_the_same_restore_under_a_key_is_done_once() -> None:
    kernel = new_kernel()
    first = commit(kernel, "main", puts(a=1))
    commit(kernel, "main", [Delete(Key("a")), *puts(b=1)])
    done = kernel.restore(first, "main", ALL, META, key="k")
    commit(kernel, "main", puts(a=5))
    again = kernel.restore(first, "main", ALL, META, key="k")
    assert again.commits == done.commits
    assert state(kernel) != state(kernel, first)
