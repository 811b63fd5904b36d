"""Random histories of many writers, in two processes, held against the same requests one after the other.

Writers start together, again and again: on up to three branches they append to, overwrite, fill and change up
to three tables, and merge the branches into each other. The order of commits is the order in which requests
must have been carried out: each commit's tables are what its own request makes of its parent's. Merges are
worked out anew from the graph of commits, by a look at every path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from random import Random
from uuid import UUID

import pytest

import penstock
from penstock import Lake
from penstock.errors import CommitConflict, KeyNotFound, MergeConflict
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.intents import WriteCondition, WriteIntent
from penstock.formats.files.lake.calls import ListFiles, NewFile, WriteFiles
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.testing.threads import at_once
from tests.chance import RecordCounts, share
from tests.formats.files.lakes import new_store
from tests.formats.files.model import Clashed, Files, asked, carried_out, file, merged, random_write

Tables = dict[str, Files]
KEYS = ("raw.a", "raw.b", "c")
ROUNDS = 4
WRITERS = 4
NOW_US = now_us()


class Writers:
    """Those who write one history, and what each commit was asked to do."""

    def __init__(self, seed: int, processes: tuple[Lake, Lake]) -> None:
        random = Random(seed)
        self.lakes = processes
        self.keys = KEYS[: random.randint(1, 3)]
        self.branches = ("main", "dev", "fix")[: random.randint(1, 3)]
        self.done: dict[str, tuple[str, WriteIntent]] = {}
        """Per commit of a write the table and the write."""
        self.counts: Counter[str] = Counter()
        self._seed = seed

    def run(self) -> None:
        self._write(Random(self._seed), 0, "main", self.keys[0])
        for branch in self.branches[1:]:
            self.lakes[0].branch(branch).create()
        for number in range(ROUNDS):
            at_once(*(partial(self._act, number * WRITERS + writer + 1) for writer in range(WRITERS)))

    def _act(self, attempt: int) -> None:
        random = Random(self._seed * 1000 + attempt)
        branch = random.choice(self.branches)
        if len(self.branches) > 1 and random.random() < 0.3:
            self._merge(random, attempt, branch)
        else:
            self._write(random, attempt, branch, random.choice(self.keys))

    def _merge(self, random: Random, attempt: int, into: str) -> None:
        source = random.choice([one for one in self.branches if one != into])
        try:
            result = self.lakes[attempt % 2].merge(source, into)
        except MergeConflict:
            self.counts["conflict"] += 1
        else:
            self.counts["merge" if result.applied else "nothing to merge"] += 1

    def _write(self, random: Random, attempt: int, branch: str, key: str) -> None:
        lake = self.lakes[attempt % 2]
        write = random_write(random, attempt, _listed(lake, branch, key))
        if random.random() < 0.2:
            new = tuple((f"first-{attempt}-{n}", file(n, attempt)) for n in range(2))
            write = WriteIntent(added=new, when=random.choice((WriteCondition.EMPTY, WriteCondition.IGNORE)))
        try:
            written = lake.do(_call(lake, key, branch, attempt, write))
        except CommitConflict:
            self.counts["refused"] += 1
            return
        self.counts["write" if written.commit is not None else "ignored"] += 1
        if written.commit is not None:
            self.done[written.commit.id] = key, write


def _call(lake: Lake, key: str, branch: str, attempt: int, write: WriteIntent) -> WriteFiles:
    return WriteFiles(
        key=Key.parse(key),
        branch=branch,
        folder=make_folder_name(lake.id, UUID(int=attempt), NOW_US),
        added=tuple(NewFile(path=path, size=one.size) for path, one in write.added),
        put=tuple(NewFile(path=path, size=one.size) for path, one in write.put),
        removed=write.removed,
        replaced=write.replaced,
        when=write.when,
    )


def _listed(lake: Lake, at: str, key: str) -> dict[str, str]:
    """The folder that each file of a table lies in, which tells whose it is."""
    try:
        found = lake.do(ListFiles(key=Key.parse(key), at=at, limit=None))
    except KeyNotFound:
        return {}
    return {one.path: one.address.split("/")[-1 - one.path.count("/") - 1] for one in found}


# -- one after the other -----------------------------------------------------------------------------------


class Serial:
    """The same history by dictionaries: what every commit must have made of its parent."""

    def __init__(self, lake: Lake, writers: Writers) -> None:
        self._lake, self._writers = lake, writers
        self.parents: dict[str, tuple[str, ...]] = {}
        for branch in writers.branches:
            for commit in lake.log(branch, limit=None, all_parents=True):
                self.parents[commit.id] = commit.parents
        self.states: dict[str, Tables] = {}
        self._above: dict[str, frozenset[str]] = {}

    def check(self) -> None:
        """Every commit is as it must be, and every write that was answered is there."""
        for one in self._in_order():
            self._above[one] = frozenset({one}).union(*(self._above[parent] for parent in self.parents[one]))
            self.states[one] = self._expected(one)
            for key in self._writers.keys:
                files = self.states[one].get(key, {})
                whose = {path: each.address.split("/")[1] for path, each in files.items()}
                assert _listed(self._lake, one, key) == whose, f"{key} at {one}"
        assert self._writers.done.keys() <= self.parents.keys()

    def _in_order(self) -> Iterator[str]:
        """Commits, each after its parents."""
        seen: set[str] = set()
        waiting = sorted(self.parents)
        while waiting:
            ready = [one for one in waiting if seen.issuperset(self.parents[one])]
            yield from ready
            seen.update(ready)
            waiting = [one for one in waiting if one not in seen]

    def _expected(self, one: str) -> Tables:
        if one in self._writers.done:
            key, write = self._writers.done[one]
            before = self._state(self.parents[one][:1])
            after = asked(partial(carried_out, before.get(key, {}), write))
            assert isinstance(after, dict), f"{write} cannot have made commit {one}"
            return before | {key: after}
        target, source = self.parents[one]
        found = {key: self._merged(target, source, key) for key in self._writers.keys}
        return {key: files for key, files in found.items() if files is not None}

    def _state(self, commits: tuple[str, ...]) -> Tables:
        return self.states[commits[0]] if commits else {}

    def _merged(self, target: str, source: str, key: str) -> Files | None:
        bases = self._bases(target, source)
        ours, theirs = self.states[target].get(key), self.states[source].get(key)
        origin, is_ambiguous = self._origin(bases, key)
        if is_ambiguous:
            assert ours == theirs, f"{key} was merged into {target}, without a common ancestor"
            return ours
        if theirs is None or (ours is None and theirs == origin):
            return ours if theirs == origin else theirs
        if ours == origin or ours is None:
            return theirs
        writes = [
            (one, write)
            for one in self._above[source] - self._above[target]
            for written, write in [self._writers.done.get(one, ("", WriteIntent()))]
            if written == key
        ]
        if len(writes) == 1 and writes[0][1].when is WriteCondition.IGNORE and ours:
            return ours
        assert (
            all(write.when is WriteCondition.ALWAYS for _, write in writes)
            or not ours
            or self._clears(writes)
        )
        since = [write for one, write in writes if self._above[one].issuperset(bases)]
        found = asked(
            partial(merged, origin or {}, theirs, ours, [each for write in since for each in write.replaced])
        )
        assert not isinstance(found, Clashed), f"{key} was merged into {target} in spite of {found}"
        assert found is not None
        return found

    @staticmethod
    def _clears(writes: list[tuple[str, WriteIntent]]) -> bool:
        return any("" in write.replaced for _, write in writes)

    def _bases(self, one: str, other: str) -> list[str]:
        common = self._above[one] & self._above[other]
        return sorted(
            each for each in common if not any(each in self._above[after] - {after} for after in common)
        )

    def _origin(self, bases: list[str], key: str) -> tuple[Files | None, bool]:
        """A table where two sides parted; and whether the common ancestors do not tell."""
        states = [self.states[one].get(key) for one in bases]
        if not states:
            return None, False
        found, is_ambiguous = states[0], False
        for one, state in zip(bases[1:], states[1:], strict=True):
            if state == states[0]:
                continue
            roots = [self.states[root].get(key) for root in self._bases(bases[0], one)[:1]]
            root = roots[0] if roots else None
            is_ambiguous = is_ambiguous or root not in (found, state)
            found = state if found == root else found
        return found, is_ambiguous


def check_history(seed: int) -> Counter[str]:
    store = new_store()
    with penstock.open(store) as one, penstock.open(store) as other:
        writers = Writers(seed, (one, other))
        writers.run()
        Serial(one, writers).check()
        assert one.fsck().damages == ()
        return writers.counts


def test_every_commit_of_forty_histories_is_what_its_request_makes_of_its_parent() -> None:
    counts = sum((check_history(seed) for seed in range(40)), Counter[str]())
    assert counts["write"] > 300
    assert counts["merge"] > 40
    assert min(counts["refused"], counts["ignored"]) > 0


@pytest.mark.reliability
@pytest.mark.parametrize("tens", share(range(4, 30), 2))
def test_every_commit_of_many_histories_is_what_its_request_makes_of_its_parent(
    tens: int, record_counts: RecordCounts
) -> None:
    for seed in range(tens * 10, tens * 10 + 10):
        counts = check_history(seed)
        record_counts(counts)
        assert counts["write"] > 0
