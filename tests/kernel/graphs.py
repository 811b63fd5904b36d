"""Histories to test on: real commits, and the graph that they must form, kept apart."""

from __future__ import annotations

from itertools import count
from random import Random
from uuid import uuid4

from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import Objects
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.stores.port import Store
from tests.kernel.lakes import branch, head, new_kernel, table


class Graph:
    """A kernel, and the graph of what was committed and merged through it."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        self.kernel = kernel or new_kernel()
        self.parents: dict[ObjectId, list[ObjectId]] = {NO_COMMIT: []}
        """All parents of every commit, the branch's own first."""

    def commit(self, name: str) -> ObjectId:
        """A commit that changes a key of its own."""
        before = head(self.kernel, name)
        put = Put(Key(f"t{len(self.parents)}"), table(len(self.parents)))
        made = self.kernel.commit(name, [put], CommitMeta(message=f"commit {len(self.parents)}")).head
        self.parents[made] = [before]
        return made

    def merge(self, source: ObjectId, into: str) -> ObjectId | None:
        before = head(self.kernel, into)
        result = self.kernel.merge(source, into, CommitMeta(message="merge"), MergeOptions())
        if not result.commits:
            # Every commit changes a key of its own: only merges of what the target has bring nothing.
            new = self.ancestors(source) - self.ancestors(before)
            assert all(len(self.parents[one]) > 1 for one in new)
            return None
        made = bytes.fromhex(result.commits[0])
        self.parents[made] = [before, source]
        return made

    def branch(self, name: str, at: ObjectId) -> str:
        return branch(self.kernel, name, at)

    @property
    def commits(self) -> list[ObjectId]:
        """All commits, oldest first."""
        return list(self.parents)[1:]

    # -- what must be true, by brute force -------------------------------------------------------------

    def ancestors(self, one: ObjectId) -> set[ObjectId]:
        """A commit and all that led to it; the empty lake led to all."""
        found = {NO_COMMIT}
        waiting = [one]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self.parents[each]
        return found

    def merge_bases(self, left: ObjectId, right: ObjectId) -> set[ObjectId]:
        common = self.ancestors(left) & self.ancestors(right)
        older = {each for one in common for each in self.ancestors(one) - {one}}
        return common - older

    def line(self, one: ObjectId) -> list[ObjectId]:
        """A commit and its first parents, down to the empty lake."""
        found = [one]
        while found[-1] != NO_COMMIT:
            found.append(self.parents[found[-1]][0])
        return found


def random_graph(seed: int, steps: int, names: int = 4) -> Graph:
    """Commits on several branches, merges of heads and of older commits, new branches anywhere."""
    random = Random(seed)
    graph = Graph()
    graph.commit("main")
    live = ["main", graph.branch("orphan", NO_COMMIT)]
    graph.commit("orphan")
    numbers = count()
    while len(graph.parents) < steps:
        name = random.choice(live)
        chance = random.random()
        if chance < 0.45:
            graph.commit(name)
        elif chance < 0.75:
            graph.merge(head(graph.kernel, random.choice(live)), name)
        elif chance < 0.85:
            graph.merge(random.choice(graph.commits), name)
        else:
            made = graph.branch(f"b{next(numbers)}", random.choice(graph.commits))
            live = [*live, made][-names:]
    return graph


def long_line(store: Store, length: int, start: ObjectId = NO_COMMIT) -> list[ObjectId]:
    """Commits one after the other, in batches, without a branch; returns them, oldest first."""
    chain = CommitChain(Objects(store), start)
    made: list[ObjectId] = []
    own = uuid4().hex  # without it, two lines from one start would be the same commits
    while len(made) < length:
        for _ in range(min(1000, length - len(made))):
            chain.add_draft(CommitDraft({}, CommitMeta(message=own)))
        made += [one for one, _ in chain.build_commits(1_000_000)]
        store.store(chain.objects.fresh)
        chain.note_stored()
    return made


def merged(store: Store, tip: ObjectId, source: ObjectId) -> ObjectId:
    """A merge of a commit into the line that ends with another."""
    chain = CommitChain(Objects(store), tip)
    chain.add_draft(CommitDraft({}, CommitMeta(), further_parents=(source,)))
    ((made, _),) = chain.build_commits(1_000_000)
    store.store(chain.objects.fresh)
    return made
