"""Random lives of branches with a Delta table, against a model that knows nothing but sets of files."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import MergeConflict
from penstock.formats.delta.branch_log.branch_log import BranchLogTip
from penstock.formats.delta.protocol.actions import Action, Add, Remove
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import Owner, add, remove

BRANCHES: Final = ("main", "dev", "test")
KINDS: Final = (
    "append",
    "append",
    "delete",
    "rewrite",
    "compact",
    "overwrite",
    "repeat",
    "merge",
    "merge",
    "revert",
    "publish",
)
STEPS: Final = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(BRANCHES), st.sampled_from(BRANCHES)),
    min_size=3,
    max_size=14,
)


class Life:
    """A table on three branches, and what the model says of them."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        owner.create(actions=[add("zero")])
        owner.put_files("zero")
        for name in BRANCHES[1:]:
            owner.branch(name)
        self.number = 0
        self.live = dict.fromkeys(BRANCHES, frozenset({"zero"}))
        self.at: dict[ObjectId, frozenset[str]] = {}
        """What each commit holds."""
        self.tips: dict[ObjectId, BranchLogTip] = {}
        self.overwrites: set[ObjectId] = set()
        self.only_appends = True
        self.note("main")

    def step(self, kind: str, branch: str, other: str) -> None:
        match kind:
            case "merge":
                if branch != other:
                    self.merge(branch, other)
            case "publish":
                self.owner.publisher.publish_line(self.owner.content())
            case "revert":
                self.revert(branch)
            case _:
                self.write(kind, branch)
        self.check()

    def write(self, kind: str, branch: str) -> None:
        live, new = self.live[branch], f"{branch}-{self.number}"
        self.number += 1
        self.owner.put_files(new)
        if len(live) < (2 if kind == "delete" else 1):
            kind = "append"  # else there would be overwrites that leave no trace
        self.only_appends &= kind in ("append", "repeat")
        if kind == "append":
            self.owner.commit([add(new)], branch=branch)
            live |= {new}
        elif kind == "repeat":
            self.owner.commit([add(min(live))], branch=branch)
        elif kind == "overwrite":
            self.owner.commit([add(new)], branch=branch, replaces=())
            live = frozenset({new})
        else:
            victim, changes = min(live), kind != "compact"
            added = [] if kind == "delete" else [new]
            actions: list[Action] = [add(one, data_change=changes) for one in added]
            self.owner.commit(
                [remove(victim, data_change=changes), *actions],
                branch=branch,
                read_version=self.owner.line(branch=branch).latest,
                reads=DeltaReads(files=frozenset({victim})),
            )
            live = (live - {victim}) | frozenset(added)
        self.live[branch] = live
        self.note(branch)
        if kind == "overwrite":
            self.overwrites.add(self.head(branch))

    def revert(self, branch: str) -> None:
        """Undo the newest commit of a branch, unless it is a merge or the first one."""
        head = self.head(branch)
        commit = self.owner.kernel.history.read_commit(head)
        is_shared = head in self.overwrites and self.shared(head, branch)
        if commit.further_parents or commit.parent not in self.at or is_shared:
            return
        self.only_appends = False
        self.owner.kernel.revert(head, branch, CommitMeta())
        self.live[branch] = self.at[commit.parent]
        self.overwrites.discard(head)
        self.note(branch)

    def shared(self, commit: ObjectId, branch: str) -> bool:
        history = self.owner.kernel.history
        return any(history.is_ancestor(commit, self.head(name)) for name in BRANCHES if name != branch)

    def merge(self, source: str, target: str) -> None:
        bases = self.owner.kernel.history.merge_bases(self.head(target), self.head(source))
        before, expected = self.owner.content(branch=target), self.expected(bases[0], source, target)
        try:
            merged = self.owner.kernel.merge(self.head(source), target, CommitMeta())
        except MergeConflict:
            assert not self.only_appends or len(bases) > 1
            assert self.owner.content(branch=target) == before
            return
        found = frozenset(self.owner.paths(branch=target))
        if merged.commits and len(bases) == 1:
            assert found == expected
        self.live[target] = found
        self.note(target)

    def expected(self, base: ObjectId, source: str, target: str) -> frozenset[str]:
        """The side that stays, with what the other one added and without what it removed since the base."""
        mine, theirs = self.owner.line(branch=target), self.owner.line(branch=source)
        stays, comes, read = target, source, self.owner.read
        is_ahead = theirs.fork_version > mine.fork_version or BranchLogTip.from_line(mine).is_on(theirs, read)
        if target != "main" and is_ahead and self.tips[base].is_on(mine, read):
            stays, comes = source, target
        is_ancestor = self.owner.kernel.history.is_ancestor
        since = [one for one in self.overwrites if not is_ancestor(one, base)]
        # What main has published tells no more what it replaced: it counts as files that came and went.
        if comes != "main" and any(is_ancestor(one, self.head(comes)) for one in since):
            return self.live[comes]
        was, comes_to = self.at[base], self.live[comes]
        return (self.live[stays] | (comes_to - was)) - (was - comes_to)

    def head(self, branch: str) -> ObjectId:
        return self.owner.kernel.references.get_reference(branch).head

    def note(self, branch: str) -> None:
        self.at[self.head(branch)] = self.live[branch]
        self.tips[self.head(branch)] = BranchLogTip.from_line(self.owner.line(branch=branch))

    def check(self) -> None:
        assert self.owner.line().tail is None
        for name in BRANCHES:
            assert self.owner.paths(branch=name) == self.live[name]
            assert self.owner.line(branch=name).fork_version <= self.owner.line().latest

    def check_log(self) -> None:
        """Whoever reads the log alone finds main, and no version removes what is not there."""
        assert {one.path for one in self.owner.published().read_files()} == self.live["main"]
        live: set[str] = set()
        for version in range(self.owner.line().latest + 1):
            actions = self.owner.actions(version)
            removed = {one.path for one in actions if isinstance(one, Remove)}
            assert removed <= live
            live = (live - removed) | {one.path for one in actions if isinstance(one, Add)}
        assert live == self.live["main"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_branches_hold_what_the_model_says_whatever_they_go_through(
    steps: list[tuple[str, str, str]],
) -> None:
    with TemporaryDirectory() as directory:
        store = MemoryStore()
        owner = Owner(store, Path(directory))
        try:
            life = Life(owner)
            for step in steps:
                life.step(*step)
            life.check_log()
        finally:
            owner.close()
            store.close()
