"""The whole kernel against plain dicts: commits with their parents, branches, tags; whatever the order."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import (
    CommitConflict,
    CommitNotFound,
    IdempotencyKeyReused,
    MergeConflict,
    ReferenceExists,
    ReferenceNotFound,
)
from penstock.kernel.chain import FOLD_OPERATIONS
from penstock.kernel.fsck import fsck
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import sweep_objects
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import ConflictKind
from penstock.model.content import Namespace
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.merges import MergeMode
from penstock.model.operations import Delete, Operation, Put, Unchanged
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from tests.kernel.brute_force import (
    KEYS,
    Ambiguous,
    Expected,
    bring,
    carry_out,
    random_operations,
    told,
    undo,
    virtual_base,
    without_ids,
)
from tests.kernel.graphs import Graph
from tests.kernel.lakes import State, Ticking, large_table, new_kernel, reopened, state, table

BRANCHES = ("main", "dev", "fix", "job/1")
TAGS = ("v1", "v2")
NAMES = BRANCHES + TAGS

# One number a step: what is drawn from it depends on the lake, and costs Hypothesis nothing.
randoms = st.integers(0, 2**32 - 1).map(Random)


PLACES = {ConflictKind.NAMESPACE_ABSENT, ConflictKind.NAMESPACE_NOT_EMPTY, ConflictKind.NOT_A_NAMESPACE}


def _only(held: State, keys: set[Key]) -> State:
    return {key: content for key, content in held.items() if key in keys}


class Done(NamedTuple):
    """A commit that was made under an idempotency key, to be asked for again."""

    branch: str
    incarnation: bytes
    operations: list[Operation]
    how: dict[str, Any]
    commit: ObjectId


class LakeMachine(RuleBasedStateMachine):
    """Does everything a kernel can do, in any order, and knows what must come of it."""

    @initialize()
    def open(self) -> None:
        self.clock = Ticking()
        self.kernel = new_kernel(self.new_store(), Settings(grace_s=0, nobody_writes=True), self.clock)
        self.graph = Graph(self.kernel)
        self.held: dict[ObjectId, State] = {NO_COMMIT: {}}
        self.heads: dict[str, ObjectId] = {"main": NO_COMMIT}
        self.tags: dict[str, ObjectId] = {}
        self.done: list[Done] = []
        self.number = 0
        for name in BRANCHES[:3]:
            self.write("main", [Put(Key(name), table(0))])
            if name != "main":
                self.kernel.references.create_reference(name, Kind.BRANCH, self.heads["main"])
                self.heads[name] = self.heads["main"]

    def new_store(self) -> Store:
        return MemoryStore(self.clock)

    # -- what the model knows --------------------------------------------------------------------------

    def reachable(self) -> list[ObjectId]:
        """What branches and tags lead to, in the order it was made."""
        heads = {*self.heads.values(), *self.tags.values()}
        found = {NO_COMMIT}.union(*(self.graph.ancestors(one) for one in heads))
        return [one for one in self.held if one in found]

    def some_commit(self, random: Random) -> ObjectId:
        return random.choice(self.reachable())

    def some_branch(self, random: Random) -> str:
        return random.choice(sorted(self.heads))

    def landed(
        self, branch: str, commits: list[ObjectId], parents: list[ObjectId], held: list[State]
    ) -> None:
        """Note new commits of a branch, one after the other; ``parents`` are those of the first."""
        for one, content in zip(commits, held, strict=True):
            assert one not in self.held
            self.graph.parents[one] = parents
            self.held[one] = content
            parents = [one]
        if commits:
            self.heads[branch] = commits[-1]
        assert self.kernel.references.get_reference(branch).head == self.heads[branch]

    def agrees(self, one: ObjectId, expected: Expected) -> State:
        """What a new commit holds, if that is what it must hold but for new ids."""
        found = state(self.kernel, one)
        assert without_ids(found, expected.chosen) == without_ids(expected.held, expected.chosen)
        return found

    # -- commits ---------------------------------------------------------------------------------------

    def write(self, branch: str, operations: list[Operation], **how: Any) -> None:
        head, base = self.heads[branch], how.get("base")
        if base is not None and base not in self.graph.ancestors(head):
            with pytest.raises(CommitNotFound):
                self.kernel.commit(branch, operations, CommitMeta(), **how)
            return
        read = None if base is None else self.held[base]
        expected = carry_out(operations, self.held[head], read, how.get("create_namespaces", False))
        if expected.conflicts:
            with pytest.raises(CommitConflict) as refused:
                self.kernel.commit(branch, operations, CommitMeta(), **how)
            assert told(refused.value.conflicts) == expected.conflicts
            return
        outcome = self.kernel.commit(branch, operations, CommitMeta(), **how)
        self.landed(branch, list(outcome.commits), [head], [self.agrees(outcome.head, expected)])
        if "key" in how:
            incarnation = self.kernel.references.get_reference(branch).incarnation
            self.done.append(Done(branch, incarnation, operations, how, outcome.head))

    @rule(random=randoms)
    def commit(self, random: Random) -> None:
        """Puts, deletes, renames, re-creations and checks, read at any commit."""
        branch = self.some_branch(random)
        operations: list[Operation] = []
        for _ in range(random.choice([1, 1, 2, 4])):
            some = random_operations(random, self.held[self.heads[branch]])
            if random.random() < 0.2:
                some = [Unchanged(random.choice(KEYS))]
            if random.random() < 0.1:
                some = [Put(some[0].key, large_table(random.randrange(3), random.choice([1500, 400_000])))]
            if not {one.key for one in some} & {one.key for one in operations}:
                operations += some
        how: dict[str, Any] = {"create_namespaces": random.random() < 0.5}
        line = self.graph.line(self.heads[branch])
        how["base"] = random.choice([None, line[0], line[0], random.choice(line), self.some_commit(random)])
        if how["base"] is None and any(isinstance(one, Unchanged) for one in operations):
            how["base"] = line[0]
        if random.random() < 0.5:
            self.number += 1
            how["key"] = f"request {self.number}"
        self.write(branch, operations, **how)

    @rule(random=randoms)
    def commit_some_more(self, random: Random) -> None:
        for _ in range(5):
            self.commit(random)

    @rule(random=randoms)
    def commit_many_keys(self, random: Random) -> None:
        """Enough to fold what is not in the tree yet."""
        branch = self.some_branch(random)
        start, value = random.randrange(100), table(random.randrange(3))
        keys = [Key(f"m{start + number:03}") for number in range(FOLD_OPERATIONS + 1)]
        if random.random() < 0.3:
            keys = [key for key in keys if key in self.held[self.heads[branch]]]
            self.write(branch, [Delete(key) for key in keys] or [Put(Key("m000"), value)])
        else:
            self.write(branch, [Put(key, value) for key in keys])

    @precondition(lambda self: self.done)
    @rule(random=randoms)
    def repeat(self, random: Random) -> None:
        """The same request under the same key has the same answer; another one is refused."""
        done = random.choice(self.done)
        if done.branch not in self.heads or done.commit not in self.reachable():
            return
        if self.kernel.references.get_reference(done.branch).incarnation != done.incarnation:
            return
        outcome = self.kernel.commit(done.branch, done.operations, CommitMeta(), **done.how)
        assert (outcome.commits, outcome.repeated) == ((done.commit,), True)
        with pytest.raises(IdempotencyKeyReused):
            self.kernel.commit(done.branch, [Put(Key("z"), table(1))], CommitMeta(), key=done.how["key"])

    # -- references ------------------------------------------------------------------------------------

    @rule(random=randoms)
    def create(self, random: Random) -> None:
        missing = [name for name in NAMES if name not in self.heads and name not in self.tags]
        name, at = random.choice([*missing, *missing, *NAMES]), self.some_commit(random)
        kind, known = (Kind.BRANCH, self.heads) if name in BRANCHES else (Kind.TAG, self.tags)
        if name in known:
            with pytest.raises(ReferenceExists):
                self.kernel.references.create_reference(name, kind, at)
        else:
            self.kernel.references.create_reference(name, kind, at)
            known[name] = at

    @rule(random=randoms)
    def assign(self, random: Random) -> None:
        name = random.choice([*self.heads, *self.tags, random.choice(NAMES)])
        known = self.heads if name in BRANCHES else self.tags
        to = self.some_commit(random)
        if name in known:
            self.kernel.references.assign_reference(name, to, expected=random.choice([None, known[name]]))
            known[name] = to
        else:
            with pytest.raises(ReferenceNotFound):
                self.kernel.references.assign_reference(name, to)

    @rule(random=randoms)
    def delete(self, random: Random) -> None:
        name = random.choice([*self.heads, *self.tags, random.choice(NAMES)])
        if name == "main":
            return
        known = self.heads if name in BRANCHES else self.tags
        if name in known:
            self.kernel.references.delete_reference(name)
            del known[name]
        else:
            with pytest.raises(ReferenceNotFound):
                self.kernel.references.delete_reference(name)

    # -- merges ----------------------------------------------------------------------------------------

    @rule(random=randoms)
    def merge(self, random: Random) -> None:
        into = self.some_branch(random)
        head = self.heads[into]
        other = random.choice([self.heads[self.some_branch(random)], self.some_commit(random)])
        default = random.choice([MergeMode.NORMAL, *MergeMode])
        options = MergeOptions(default=default)
        if other in self.graph.ancestors(head):
            assert self.kernel.merge(other, into, CommitMeta(), options).commits == ()
            return
        bases = self.graph.merge_bases(head, other)
        assert set(self.kernel.history.merge_bases(head, other)) == bases
        base, ambiguous = self.base_of(bases)
        if base is None:
            self.merge_after_many_crossed(into, other, bases)
            return
        expected = bring(base, self.held[other], self.held[head], default=default, ambiguous=ambiguous)
        if expected.conflicts:
            with pytest.raises(MergeConflict) as refused:
                self.kernel.merge(other, into, CommitMeta(), options)
            keys = {key for _, key in expected.conflicts}
            assert {conflict.key for conflict in refused.value.conflicts} == keys
            return
        result = self.kernel.merge(other, into, CommitMeta(), options)
        if base == self.held[other] and not ambiguous:
            assert (result.commits, result.head) == ((), head.hex())
            return
        commits = [bytes.fromhex(one) for one in result.commits]
        self.landed(into, commits, [head, other], [self.agrees(commits[0], expected)])

    def base_of(self, bases: set[ObjectId]) -> tuple[State | None, Ambiguous]:
        if len(bases) == 1:
            return self.held[next(iter(bases))], {}
        if len(bases) == 2:
            origins = self.graph.merge_bases(*bases)
            if len(origins) == 1:
                one, other = bases
                return virtual_base(self.held[one], self.held[other], self.held[next(iter(origins))])
        return None, {}

    def merge_after_many_crossed(self, into: str, other: ObjectId, bases: set[ObjectId]) -> None:
        """Whatever the base is taken to be: on keys that all bases hold alike, the merge has no choice."""
        head = self.heads[into]
        theirs, ours = self.held[other], self.held[head]
        known = [self.held[one] for one in bases]
        alike = {key for key in KEYS if all(held.get(key) == known[0].get(key) for held in known)}
        sure = bring({k: c for k, c in known[0].items() if k in alike}, _only(theirs, alike), ours)
        clear = {key for kind, key in sure.conflicts if kind not in PLACES}
        preview = self.kernel.merge(other, into, CommitMeta(), dry_run=True)
        told_at = {one.key for one in preview.conflicts if one.kind not in PLACES}
        assert told_at & alike == clear
        if preview.conflicts:
            with pytest.raises(MergeConflict):
                self.kernel.merge(other, into, CommitMeta())
            return
        result = self.kernel.merge(other, into, CommitMeta())
        if not result.commits:  # whatever the base is taken to be, the source took back all that it changed
            assert (result.keys, result.head) == ((), head.hex())
            return
        commits = [bytes.fromhex(one) for one in result.commits]
        found = state(self.kernel, commits[0])
        assert _only(found, alike) == _only(sure.held, alike)
        for key in found.keys() | ours.keys() | theirs.keys():
            choices = (ours.get(key), theirs.get(key))
            assert found.get(key) in choices or all(isinstance(one, Namespace) for one in choices)
        self.landed(into, commits, [head, other], [found])

    def replay(self, commits: list[ObjectId], held: State) -> tuple[list[State], bool]:
        """What commits, oldest first, make of a state, one by one, or that one of them meets a conflict."""
        states = []
        for one in commits:
            parents = self.graph.parents[one]
            expected = bring(self.held[parents[0]], self.held[one], held)
            if expected.conflicts:
                return [], True
            is_nothing = self.held[parents[0]] == self.held[one] and len(parents) == 1
            if expected.held != held or is_nothing:
                states.append(expected.held)
            held = expected.held
        return states, False

    @rule(random=randoms)
    def transplant(self, random: Random) -> None:
        source, onto = self.some_branch(random), self.some_branch(random)
        line = self.graph.line(self.heads[source])[:-1][::-1]
        if not line:
            return
        stop = random.randrange(len(line)) + 1
        chosen = line[max(0, stop - random.randrange(1, 5)) : stop]
        head = self.heads[onto]
        states, conflict = self.replay(chosen, self.held[head])
        if conflict:
            with pytest.raises(MergeConflict):
                self.kernel.transplant(chosen, onto, CommitMeta())
            return
        result = self.kernel.transplant(chosen, onto, CommitMeta())
        self.landed(onto, [bytes.fromhex(one) for one in result.commits], [head], states)

    @rule(random=randoms)
    def rebase(self, random: Random) -> None:
        branch = self.some_branch(random)
        onto = self.some_commit(random)
        if onto in self.graph.line(self.heads[branch]):
            result = self.kernel.rebase(branch, onto, CommitMeta())
            assert (result.commits, result.head) == ((), self.heads[branch].hex())
            return
        theirs = self.graph.ancestors(onto)
        own = []
        for one in self.graph.line(self.heads[branch]):
            if one in theirs:
                break
            own.append(one)
        if any(len(self.graph.parents[one]) > 1 for one in own):
            return  # which of a merge's changes are the branch's own is told by tests of their own
        states, conflict = self.replay(own[::-1], self.held[onto])
        if conflict:
            with pytest.raises(MergeConflict):
                self.kernel.rebase(branch, onto, CommitMeta())
            return
        result = self.kernel.rebase(branch, onto, CommitMeta())
        self.heads[branch] = onto
        self.landed(branch, [bytes.fromhex(one) for one in result.commits], [onto], states)

    @rule(random=randoms)
    def revert(self, random: Random) -> None:
        branch = self.some_branch(random)
        head = self.heads[branch]
        if head == NO_COMMIT:
            return
        history = self.graph.ancestors(head) - {NO_COMMIT}
        chosen = random.choice([one for one in self.held if one in history])
        was, wanted = self.held[chosen], self.held[self.graph.parents[chosen][0]]
        expected = undo(was, wanted, self.held[head])
        if expected.conflicts:
            with pytest.raises(MergeConflict) as refused:
                self.kernel.revert(chosen, branch, CommitMeta())
            assert told(refused.value.conflicts) == expected.conflicts
            return
        result = self.kernel.revert(chosen, branch, CommitMeta())
        commits = [bytes.fromhex(one) for one in result.commits]
        self.landed(branch, commits, [head], [expected.held][: len(commits)])

    # -- care ------------------------------------------------------------------------------------------

    @rule()
    def sweep(self) -> None:
        """What nothing leads to goes at once; nobody may ask for it any more."""
        self.clock.advance(1)
        sweep_objects(self.kernel)
        kept = set(self.reachable())
        self.held = {one: held for one, held in self.held.items() if one in kept}

    @rule()
    def reopen(self) -> None:
        self.kernel = reopened(self.kernel)

    @invariant()
    def references_are_where_they_must_be(self) -> None:
        for kind, known in ((Kind.BRANCH, self.heads), (Kind.TAG, self.tags)):
            found = {one.name: one.head for one in self.kernel.references.list_all_references(kind)}
            assert found == known

    @invariant()
    def a_branch_holds_what_it_must_hold(self) -> None:
        name = sorted(self.heads)[len(self.held) % len(self.heads)]
        assert state(self.kernel, name) == self.held[self.heads[name]]

    def teardown(self) -> None:
        if not hasattr(self, "kernel"):
            return
        cold = reopened(self.kernel)
        for one in self.reachable():
            assert state(cold, one) == self.held[one]
            if one != NO_COMMIT:
                found = cold.history.read_commit(one)
                assert [found.parent, *found.further_parents] == self.graph.parents[one]
        assert fsck(cold).damages == ()
        self.close()

    def close(self) -> None:
        """Let go of the store."""


class SqliteLakeMachine(LakeMachine):
    """The same on SQLite."""

    def new_store(self) -> Store:
        self.folder = TemporaryDirectory()
        return SqliteStore(Path(self.folder.name) / "lake.db", clock=self.clock, synchronous="OFF")

    def close(self) -> None:
        self.kernel.close()
        self.folder.cleanup()
