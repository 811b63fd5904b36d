"""Two Delta tables on two branches, whatever is done to them, and processes that die of it.

The model knows sets of files and nothing else: what each table holds on each branch, and since when the
branches have known each other's. Whoever died may have done what it was about to do, or not; nothing else.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
from deltalake import DeltaTable as ForeignTable

from penstock.errors import ConflictError
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.calls import TableCommit, TablePart, WriterReads
from penstock.formats.delta.protocol.actions import Add, CommitInfo, Remove, parse_commit, write_commit
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.keys import Key
from tests.formats.delta.logs import SCHEMA, add, remove
from tests.owner.crashes import Died, Process

BRANCHES: Final = ("main", "dev")
KEYS: Final = ("t", "u")
LARGE: Final = {"x": "y" * 140_000}
"""Tags of a file whose commit is too large to be held by the kernel."""

Where: TypeAlias = tuple[str, str]
"""A branch and the key of a table."""
Files: TypeAlias = frozenset[str]
State: TypeAlias = Mapping[Where, Files]


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be done to a lake, which may be done again: it is done once, under its own key."""

    do: Callable[[Lake], object]
    after: tuple[State, ...]
    """What there may be when it is done; empty if it must be refused."""
    may_be_refused: bool = False
    attempts: tuple[tuple[str, UUID], ...] = ()
    """What has to be in the log of tables of the default branch, once it is acknowledged."""
    met: tuple[str, ...] = ()
    """The branches all of whose commits the other one knows from then on, too."""


class World:
    """A lake, what has to be in it, and the process that is at work in it."""

    def __init__(self, home: Path) -> None:
        self._home, self._count = home, 0
        self.process = Process(home)
        for key in KEYS:
            self.lake.create_table(key, schema=SCHEMA)
        self.lake.branch("dev").create()
        self.live: State = {(branch, key): frozenset() for branch in BRANCHES for key in KEYS}
        self._base: dict[str, Files] = dict.fromkeys(KEYS, frozenset())
        self._replaced: set[Where] = set()
        """Where everything was replaced that the other branch does not know of."""
        self._acknowledged: dict[str, set[UUID]] = {key: set() for key in KEYS}
        self._bytes: dict[tuple[str, int], bytes] = {}
        self._files: dict[Path, int] = {}
        self._latest = dict.fromkeys(KEYS, 0)
        self.deaths = self.refusals = 0

    @property
    def lake(self) -> Lake:
        return self.process.lake

    # -- deeds -----------------------------------------------------------------------------------------

    def act(self, deed: Deed, steps: int | None = None) -> bool:
        """Do something in a process with so many steps left; whether it lived.

        If it died, another process looks at what there is, and does it again.
        """
        before = self.live
        self.process.die_after(steps)
        try:
            self._do(deed, before)
        except Died:
            self.deaths += 1
            self.restart()
            found = self.seen()
            assert found == before or found in deed.after
            self.live = found
            self._check_tables()
            self._do(deed, before)
            return False
        finally:
            self.process.die_after(None)
        return True

    def _do(self, deed: Deed, before: State) -> None:
        """Do it and find it done, or refused with nothing done, now or before."""
        try:
            deed.do(self.lake)
        except ConflictError:
            self.process.die_after(None)
            self.refusals += 1
            assert deed.may_be_refused or not deed.after
            assert self.seen() == self.live == before
            return
        self.process.die_after(None)
        found = self.seen()
        assert found in deed.after
        self.live = found
        for key, attempt in deed.attempts:
            self._acknowledged[key].add(attempt)
        if deed.met:
            self._base = {key: self.live[deed.met[0], key] for key in KEYS}
            self._replaced = {one for one in self._replaced if one[0] not in deed.met}

    def restart(self) -> None:
        """Another process takes over, which knows what is written down and nothing else."""
        self.process.end()
        self.process = Process(self._home)

    def close(self) -> None:
        self.process.end()

    def append(self, branch: str, keys: Sequence[str] = ("t",), *, large: bool = False) -> Deed:
        """Add a file to each of some tables, as the version whose turn it is."""
        changed, commits = {}, []
        for key in keys:
            name = self._new()
            tags = LARGE if large else None
            commits.append(TableCommit(key=Key.parse(key), actions=_text(add(name, tags=tags))))
            changed[branch, key] = self.live[branch, key] | {name}
        return self._commit(branch, commits, changed)

    def version(self, branch: str, key: str, ahead: int = 1) -> Deed:
        """Commit one certain version: the next one if ``ahead`` is 1, and one that is taken if it is less."""
        name = self._new()
        latest = self.versions(branch, key).latest_version
        version = max(1, latest + ahead)
        one = TableCommit(key=Key.parse(key), actions=_text(add(name)), version=version)
        deed = self._commit(branch, [one], {(branch, key): self.live[branch, key] | {name}})
        return deed if version > latest else msgspec.structs.replace(deed, after=())

    def rewrite(self, branch: str, key: str, behind: int = 0) -> Deed:
        """Read a file as it was some versions ago, and put another one in its place."""
        live = self.live[branch, key]
        if not live:
            return self.append(branch, (key,))
        old, name = min(live), self._new()
        latest = self.versions(branch, key).latest_version
        one = TableCommit(
            key=Key.parse(key),
            actions=_text(remove(old), add(name)),
            read_version=max(0, latest - behind),
            reads=WriterReads(files=(old,)),
        )
        deed = self._commit(branch, [one], {(branch, key): live - {old} | {name}})
        return msgspec.structs.replace(deed, may_be_refused=behind > 0)

    def replace(self, branch: str, key: str) -> Deed:
        """Put one file in the place of all."""
        name = self._new()
        everything: tuple[TablePart, ...] = ()
        one = TableCommit(key=Key.parse(key), actions=_text(add(name)), replaces=everything)
        self._replaced.add((branch, key))
        return self._commit(branch, [one], {(branch, key): frozenset({name})})

    def merge(self, source: str, target: str) -> Deed:
        """Bring what one branch has to the other."""
        states: list[dict[Where, Files]] = [dict(self.live)]
        for key in KEYS:
            mine, theirs, base = self.live[target, key], self.live[source, key], self._base[key]
            outcomes = [(mine | (theirs - base)) - (base - theirs)]
            if self._replaced & {(source, key), (target, key)}:
                outcomes += [mine, theirs]
            states = [{**state, (target, key): one} for state in states for one in outcomes]
        once = self._new()

        def do(lake: Lake) -> None:
            lake.merge(source, target, idempotency_key=once)

        return Deed(do=do, after=tuple(states), may_be_refused=True, met=(source,))

    def set_back(self) -> Deed:
        """Let the branch begin anew where the default branch is."""
        once = self._new()

        def do(lake: Lake) -> None:
            lake.branch("dev").assign("main", idempotency_key=once)

        after = {(branch, key): self.live["main", key] for branch, key in self.live}
        return Deed(do=do, after=(after,), met=BRANCHES)

    def publish(self, key: str) -> Deed:
        return self._changing_nothing(lambda lake: lake.delta.publish(key))

    def checkpoint(self, key: str) -> Deed:
        def do(lake: Lake) -> None:
            lake.delta.publish(key)
            lake.delta.checkpoint(key)

        return self._changing_nothing(do)

    def ask(self, branch: str, key: str) -> Deed:
        """Have the files of a line that nobody has written yet."""
        return self._changing_nothing(lambda lake: lake.table(key, branch).get_commits())

    def _changing_nothing(self, do: Callable[[Lake], object]) -> Deed:
        return Deed(do=do, after=(self.live,))

    def _commit(self, branch: str, commits: Sequence[TableCommit], changed: State) -> Deed:
        attempts = [UUID(int=random.Random(f"{self._count} {one.key}").getrandbits(128)) for one in commits]
        named = [
            msgspec.structs.replace(one, attempt=attempt)
            for one, attempt in zip(commits, attempts, strict=True)
        ]
        once = self._new()

        def do(lake: Lake) -> None:
            lake.delta.commit(named, branch=branch, idempotency_key=once)

        wanted = [(str(one.key), attempt) for one, attempt in zip(commits, attempts, strict=True)]
        return Deed(
            do=do, after=({**self.live, **changed},), attempts=tuple(wanted) if branch == "main" else ()
        )

    def _new(self) -> str:
        self._count += 1
        return f"file-{self._count}"

    # -- what there is ---------------------------------------------------------------------------------

    def seen(self) -> State:
        """What a reader who asks the lake finds."""
        return {where: _paths(self._table(where).snapshot().files()) for where in self.live}

    def versions(self, branch: str, key: str) -> TableVersions:
        return self._table((branch, key)).get_commits()

    def _table(self, where: Where) -> Table:
        branch, key = where
        return self.lake.table(key, branch)

    def check(self) -> None:
        """Everything that has to be true of a managed table, whoever died of what."""
        assert self.seen() == self.live
        self._check_tables()

    def _check_tables(self) -> None:
        for key in KEYS:
            got = self.versions("main", key)
            log = Log(got)
            log.check()
            assert log.states[-1] == self.live["main", key]
            assert got.latest_version >= self._latest[key]
            self._latest[key] = got.latest_version
            for version, data in enumerate(log.data):
                assert self._bytes.setdefault((key, version), data) == data
            transactions = Counter(log.attempts)
            assert set(transactions.values()) <= {1}
            assert {str(one) for one in self._acknowledged[key]} <= set(transactions)
            self._check_branch(key, log)
            self._check_files(log.root)

    def check_whole(self) -> None:
        """As ``check``, and whatever takes longer."""
        self.check()
        assert not self.lake.fsck().damages
        for key in KEYS:
            self.lake.delta.publish(key)
            log = Log(self.versions("main", key))
            log.check()
            assert log.published == self._latest[key]
        self.check()

    def _check_branch(self, key: str, log: Log) -> None:
        """A branch is a part of the default branch's line, and a tail of its own."""
        got = self.versions("dev", key)
        assert [one.version for one in got.commits] == list(range(got.published + 1, got.latest_version + 1))
        assert got.published < len(log.data)
        own = [one.name for one in got.commits if one.name.startswith("_penstock/")]
        assert [one.name for one in got.commits][len(got.commits) - len(own) :] == own
        for one in got.commits:
            assert (log.root / one.name).stat().st_size == one.size
            if one.name not in own:
                assert (log.root / one.name).read_bytes() == log.data[one.version]

    def _check_files(self, root: Path) -> None:
        """A file of a commit never changes once it is there."""
        for folder in (root / "_delta_log" / "_commits", root / "_penstock"):
            for path in folder.rglob("*.json"):
                found = hash(path.read_bytes())
                assert self._files.setdefault(path, found) == found


class Log:
    """The versions of a table of the default branch: published ones, and then those that the lake names."""

    def __init__(self, got: TableVersions) -> None:
        self.root, self._got = Path(got.location), got
        names = {one.version: one.name for one in got.commits}
        there = sorted(int(path.stem) for path in (self.root / "_delta_log").glob("*.json"))
        assert there == list(range(len(there)))
        self.published = len(there) - 1
        self.data = [
            self._read(version) if version <= self.published else (self.root / names[version]).read_bytes()
            for version in range(got.latest_version + 1)
        ]
        self.states = list(self._replayed())

    def _read(self, version: int) -> bytes:
        return (self.root / "_delta_log" / f"{version:020}.json").read_bytes()

    @property
    def attempts(self) -> Iterator[str]:
        for data in self.data:
            for line in parse_commit(data):
                if isinstance(line.action, CommitInfo):
                    yield line.action.fields["txnId"]

    def _replayed(self) -> Iterator[Files]:
        """What each version holds. No version removes what is not there, nor adds what is."""
        live: Files = frozenset()
        for data in self.data:
            actions = [line.action for line in parse_commit(data)]
            gone = frozenset(one.path for one in actions if isinstance(one, Remove))
            new = frozenset(one.path for one in actions if isinstance(one, Add))
            assert gone <= live
            assert not new & live
            live = (live - gone) | new
            yield live

    def check(self) -> None:
        """Against what the lake says of it, and against a reader who does not ask the lake."""
        got = self._got
        assert [one.version for one in got.commits] == list(range(got.published + 1, got.latest_version + 1))
        assert got.published <= self.published <= got.latest_version
        for one in got.commits:
            assert (self.root / one.name).read_bytes() == self.data[one.version]
            assert one.size == len(self.data[one.version])
        if self.published >= 0:
            foreign = ForeignTable(str(self.root))
            assert foreign.version() == self.published
            found = {Path(one).name for one in foreign.file_uris()}
            assert found == self.states[self.published]


class Chance:
    """Chooses what is done next, and how long who does it lives."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def deed(self, world: World) -> Deed:
        chance = self._chance
        branch, key = chance.choice(BRANCHES), chance.choice(KEYS)
        ways: list[Callable[[], Deed]] = [
            partial(world.append, branch, (key,)),
            partial(world.append, branch, KEYS),
            partial(world.append, branch, (key,), large=True),
            partial(world.version, branch, key),
            partial(world.version, branch, key, chance.choice((0, -1))),
            partial(world.rewrite, branch, key),
            partial(world.rewrite, branch, key, chance.randrange(1, 4)),
            partial(world.replace, branch, key),
            partial(world.merge, "dev", "main"),
            partial(world.merge, "main", "dev"),
            partial(world.publish, key),
            partial(world.checkpoint, key),
            partial(world.ask, branch, key),
            world.set_back,
        ]
        return chance.choice(ways)()

    def steps(self) -> int | None:
        return self._chance.randrange(8) if self._chance.random() < 0.5 else None


def _text(*actions: Add | Remove) -> str:
    return write_commit(actions).decode()


def _paths(files: Iterator[Add]) -> Files:
    return frozenset(one.path for one in files)
