"""Merges of Delta tables at their turn: without table storage, and with all that landed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread, local

import pytest

from penstock.errors import MergeConflict
from penstock.formats.delta.format import DeltaFormat
from penstock.formats.delta.protocol.actions import Add, Remove
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.kernel.format import AppliedChange, LaterCommitLookup, Table
from penstock.kernel.kernel import Kernel
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.storage.places import Place, Places
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import KEY, Owner, add, remove

ALL = DeltaReads(whole_table=True)
FORCE = MergeOptions({Key.parse(KEY): KeyMerge(mode=MergeMode.FORCE)})


class Guarded(Places):
    """Table storage that must not be touched while it is somebody's turn."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = local()

    @contextmanager
    def closed(self) -> Iterator[None]:
        self._turn.now = True
        try:
            yield
        finally:
            self._turn.now = False

    def open_place(self, location: str) -> Place:
        assert not getattr(self._turn, "now", False), "table storage was touched at a turn"
        return super().open_place(location)


class Interrupted(DeltaFormat):
    """The format, with a moment between preparation and turn at which others come first."""

    between: list[Callable[[], object]]
    prepared: int = 0

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,
    ) -> AppliedChange:
        return self._asked(table, lambda: super(Interrupted, self).merge(table, base, source, intents))

    def restore(self, table: Table, wanted: AnyContent | None) -> AppliedChange:
        return self._asked(table, lambda: super(Interrupted, self).restore(table, wanted))

    def revert(
        self, table: Table, was: AnyContent | None, wanted: AnyContent | None, since: LaterCommitLookup
    ) -> AppliedChange | None:
        def ask() -> AppliedChange:
            applied = super(Interrupted, self).revert(table, was, wanted, since)
            assert applied is not None
            return applied

        return self._asked(table, ask)

    def _asked(self, table: Table, ask: Callable[[], AppliedChange]) -> AppliedChange:
        places = self.commits.places
        assert isinstance(places, Guarded)
        if not table.may_read:
            with places.closed():
                return ask()
        self.prepared += 1
        try:
            return ask()
        finally:
            if self.between:
                self.between.pop(0)()


class Racing(Owner):
    """An owner that others can get ahead of."""

    format: Interrupted

    def __init__(self, store: MemoryStore, directory: Path) -> None:
        super().__init__(store, directory)
        self.places.close()
        self.places = self.commits.places = Guarded()
        self.format = Interrupted(self.places, self.identity, self.clock, self.publisher, self.commits)
        self.format.between = []
        self.kernel = Kernel(store, [self.format], self.kernel.settings, self.clock)

    def merge(self, source: str, into: str, options: MergeOptions = MergeOptions()) -> None:
        self.kernel.merge(self.head(source), into, CommitMeta(), options)

    def head(self, branch: str = "main") -> ObjectId:
        return self.kernel.references.get_reference(branch).head


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore()
    yield store
    store.close()


@pytest.fixture
def owner(store: MemoryStore, tmp_path: Path) -> Iterator[Racing]:
    owner = Racing(store, tmp_path)
    owner.create()
    owner.commit([add("base"), add("other")])
    owner.branch("dev")
    yield owner
    owner.close()


@pytest.fixture
def somebody(owner: Racing, store: MemoryStore, tmp_path: Path) -> Iterator[Owner]:
    """Another process of the same lake."""
    somebody = Owner(store, tmp_path)
    yield somebody
    somebody.close()


def rewrite(owner: Owner, branch: str = "dev") -> None:
    reads = DeltaReads(files=frozenset({"base"}))
    owner.commit([remove("base"), add("d1")], branch=branch, read_version=1, reads=reads)


def test_an_append_that_lands_just_before_the_turn_is_counted_in_without_another_round(
    owner: Racing, somebody: Owner
) -> None:
    rewrite(owner)
    owner.format.between.append(lambda: somebody.commit([add("m1")]))
    owner.merge("dev", "main")
    assert owner.format.prepared == 1
    assert owner.line().latest == 3
    assert owner.paths() == {"other", "d1", "m1"}


def test_an_append_that_lands_just_before_an_overwrite_is_replaced_by_it(
    owner: Racing, somebody: Owner
) -> None:
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.format.between.append(lambda: somebody.commit([add("m1")]))
    owner.merge("dev", "main")
    assert owner.format.prepared == 1
    assert owner.paths() == {"d1"}


def test_a_commit_whose_bytes_are_in_storage_alone_sends_the_merge_round_once(
    owner: Racing, somebody: Owner
) -> None:
    rewrite(owner)
    owner.format.between.append(lambda: somebody.commit([add("m1")], version=2, reads=DeltaReads()))
    owner.merge("dev", "main")
    assert owner.format.prepared == 2
    assert owner.paths() == {"other", "d1", "m1"}


def test_a_conflict_that_lands_just_before_the_turn_is_found(owner: Racing, somebody: Owner) -> None:
    rewrite(owner)
    owner.format.between.append(
        lambda: somebody.commit([remove("base"), add("m1")], read_version=1, reads=ALL)
    )
    with pytest.raises(MergeConflict, match="removed base"):
        owner.merge("dev", "main")
    assert owner.paths() == {"other", "m1"}


def test_a_commit_on_the_branch_that_takes_main_in_is_kept_if_it_comes_just_before(
    owner: Racing, somebody: Owner
) -> None:
    rewrite(owner)
    owner.commit([add("m1")])
    owner.format.between.append(lambda: somebody.commit([add("d2")], branch="dev"))
    owner.merge("main", "dev")
    assert owner.paths(branch="dev") == {"other", "d1", "d2", "m1"}
    assert (owner.line(branch="dev").fork_version, owner.line(branch="dev").latest) == (2, 3)


def test_a_forced_merge_also_undoes_what_lands_just_before_its_turn(owner: Racing, somebody: Owner) -> None:
    rewrite(owner)
    owner.format.between.append(lambda: somebody.commit([add("m1")]))
    owner.merge("dev", "main", FORCE)
    assert owner.format.prepared == 1
    assert owner.paths() == {"other", "d1"}


def test_a_forced_merge_goes_round_if_a_file_that_it_keeps_is_removed(owner: Racing, somebody: Owner) -> None:
    rewrite(owner)
    owner.format.between.append(lambda: somebody.commit([remove("other")], read_version=1, reads=ALL))
    owner.merge("dev", "main", FORCE)
    assert owner.format.prepared == 2
    assert owner.paths() == {"other", "d1"}


def test_a_table_created_on_a_branch_arrives_without_table_storage_at_its_turn(owner: Racing) -> None:
    owner.create("new", branch="dev", actions=[add("n0")])
    owner.commit([remove("n0"), add("n1")], key="new", branch="dev", read_version=0)
    owner.merge("dev", "main")
    assert owner.paths("new") == {"n1"}


def test_commits_transplanted_together_see_each_other_at_their_turn(owner: Racing, somebody: Owner) -> None:
    commits = []
    rewrite(owner)
    commits.append(owner.head("dev"))
    owner.commit(
        [remove("d1"), add("d2")], branch="dev", read_version=2, reads=DeltaReads(files=frozenset({"d1"}))
    )
    commits.append(owner.head("dev"))
    owner.format.between.append(lambda: somebody.commit([add("m1")]))
    owner.kernel.transplant(commits, "main", CommitMeta())
    assert owner.line().latest == 4
    assert owner.paths() == {"other", "d2", "m1"}


def test_a_net_change_too_large_for_the_kernel_lies_in_a_file_before_the_turn(
    owner: Racing, somebody: Owner
) -> None:
    names = [f"{number:04}-{'x' * 80}" for number in range(1000)]
    for start in range(0, len(names), 500):
        owner.commit([add(name) for name in names[start : start + 500]], branch="dev")
    owner.format.between.append(lambda: somebody.commit([add("m1")]))
    owner.merge("dev", "main")
    entry = owner.line().find_entry(3, owner.read)
    assert entry is not None
    assert entry.body
    assert owner.format.prepared == 1
    assert {one.path for one in somebody.published().read_files()} == {"base", "other", "m1", *names}


def test_a_branch_merged_twice_at_once_lands_once(owner: Racing, somebody: Owner) -> None:
    rewrite(owner)
    source, barrier = owner.head("dev"), Barrier(2)

    def merge(one: Owner) -> None:
        barrier.wait()
        one.kernel.merge(source, "main", CommitMeta())

    threads = [Thread(target=merge, args=(one,)) for one in (owner, somebody)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    added = [
        action.path
        for version in range(owner.line().latest + 1)
        for action in owner.actions(version)
        if isinstance(action, Add)
    ]
    assert sorted(added) == ["base", "d1", "other"]


# --- reverts ------------------------------------------------------------------------------------------------


def test_a_revert_leaves_an_append_that_lands_just_before_its_turn(owner: Racing, somebody: Owner) -> None:
    owner.commit([add("m1")])
    undone = owner.head()
    owner.format.between = [lambda: somebody.commit([add("m2")])]
    owner.kernel.revert(undone, "main", CommitMeta())
    assert owner.paths() == {"base", "other", "m2"}


def test_a_revert_brings_nothing_back_that_is_replaced_just_before_its_turn(
    owner: Racing, somebody: Owner
) -> None:
    owner.commit([remove("base")], read_version=owner.line().latest)
    undone = owner.head()
    owner.format.between = [lambda: somebody.commit([add("m2")], replaces=())]
    owner.kernel.revert(undone, "main", CommitMeta())
    assert owner.paths() == {"m2"}


def test_a_revert_is_refused_if_its_file_is_rewritten_just_before_its_turn(
    owner: Racing, somebody: Owner
) -> None:
    owner.commit([add("m1")])
    undone = owner.head()

    def compact() -> None:
        version = somebody.line().latest
        actions: list[Add | Remove] = [remove("m1", data_change=False), add("m2", data_change=False)]
        somebody.commit(actions, read_version=version, reads=DeltaReads(files=frozenset({"m1"})))

    owner.format.between = [compact]
    with pytest.raises(MergeConflict, match="wrote rows of m1 into m2"):
        owner.kernel.revert(undone, "main", CommitMeta())
    assert owner.paths() == {"base", "other", "m2"}


def test_a_commit_that_two_revert_at_once_is_undone_once(owner: Racing, somebody: Owner) -> None:
    owner.commit([add("m1")])
    undone = owner.head()
    owner.format.between = [lambda: somebody.kernel.revert(undone, "main", CommitMeta())]
    version = owner.line().latest
    assert not owner.kernel.revert(undone, "main", CommitMeta()).commits
    assert owner.line().latest == version + 1
    assert owner.paths() == {"base", "other"}
