"""What steps make of a Lance table: from values to values, as it is at their turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.errors import (
    InvalidManifest,
    InvalidRequest,
    OwnRefExists,
    OwnRefNotFound,
    PenstockError,
    TableExists,
    TableNotFound,
    TableStateRefused,
    VersionNotFound,
    VersionTaken,
)
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.intents import (
    Alter,
    Create,
    Declare,
    Delete,
    Deregister,
    DropBranch,
    DropTag,
    Erase,
    Placed,
    PutBranch,
    PutTag,
    Register,
    Resync,
)
from penstock.formats.lance.names import MAIN, check_ref_name
from penstock.formats.lance.standing import LanceStanding, StandingChain, chains, new_line
from penstock.formats.lance.state import (
    Entry,
    LanceState,
    Mark,
    OwnBranch,
    OwnTag,
    Recent,
    Version,
    Versions,
    branch_key,
    branch_of,
    changed,
    state_of,
    tag_key,
    version_key,
    version_of,
    with_next,
    with_state,
)
from penstock.kernel.format import Applied
from penstock.kernel.objects import Objects, Pending
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId, encode
from penstock.model.keys import Key

_OVERTAKEN: Final = "  Somebody else was faster. Open the table again, and write on top of that."
_UNKNOWN: Final = (
    "  Open the table again, and write on top of that. If that does not help, its folder has versions that "
    "the lake does not know: 'penstock resync' takes them over."
)


class MadeVersion(NamedTuple):
    """What was found out about a step before its turn: the version that it asks for, as it is in storage."""

    version: Version
    chain: StandingChain
    """The chain that its manifest was written for."""
    parent: OwnBranch | None = None
    """Where one of Lance's own branches forks, if the version is the first of one."""
    follows: Mark | None = None
    """The version that it was seen to go on from; ``None`` if that is not for the turn to ask."""


class FoundVersion(NamedTuple):
    """What was found out about a place that is to be registered."""

    entries: Mapping[bytes, Entry]


Prepared = Mapping[int, MadeVersion | FoundVersion]
"""By the number of a step's operation."""


def carry_out(
    objects: Objects,
    key: Key,
    content: AnyContent | None,
    standing: LanceStanding,
    steps: Sequence[Placed],
    prepared: Prepared,
    now_us: int,
) -> Applied:
    """The table after the steps. Every error names the operation that it is about."""
    doing = _Doing(Pending(objects), key, content, standing, prepared, now_us)
    for one in steps:
        try:
            doing.do(one)
        except PenstockError as problem:
            problem.details.setdefault("operation", one.operation)
            problem.details.setdefault("table", str(key))
            raise
    return Applied(doing.content, doing.blobs)


class _Doing:
    """A table while steps are carried out on it."""

    def __init__(
        self,
        objects: Pending,
        key: Key,
        content: AnyContent | None,
        standing: LanceStanding,
        prepared: Prepared,
        now_us: int,
    ) -> None:
        self.content, self.blobs = content, dict[ObjectId, bytes]()
        self._known: tuple[LanceTable, LanceState] | None = None
        """The content whose state was read last, and that."""
        self._objects, self._key, self._standing = objects, key, standing
        self._prepared, self._now_us = prepared, now_us

    def do(self, placed: Placed) -> None:
        step = placed.step
        match step:
            case Declare():
                self._declare(step)
            case Register():
                self._register(step, self._prepared.get(placed.operation))
            case Resync():
                self._resync(step, self._prepared.get(placed.operation))
            case Deregister():
                self._table()
                self.content = None
            case Create():
                self._create(step, self._prepared.get(placed.operation))
            case Delete():
                self._delete(step)
            case Alter():
                content, state = self._table()
                properties = {**state.properties, **step.properties}
                kept = {name: value for name, value in properties.items() if value is not None}
                self.content = with_state(content, msgspec.structs.replace(state, properties=kept))
            case PutTag():
                self._put_tag(step)
            case DropTag():
                self._drop_tag(step)
            case PutBranch():
                self._put_branch(step, self._prepared.get(placed.operation))
            case DropBranch():
                self._drop_branch(step)
            case Erase():
                self._erase(step, self._prepared.get(placed.operation))

    # -- tables --------------------------------------------------------------------------------------------

    def _table(self) -> tuple[LanceTable, LanceState]:
        if not isinstance(self.content, LanceTable) or not self.content.state:
            raise TableNotFound(f"there is no Lance table '{self._key}'")
        if self._known is None or self._known[0] is not self.content:
            self._known = self.content, state_of(self.content)
        return self._known

    def _declare(self, step: Declare) -> None:
        if self.content is not None:
            raise TableExists(f"there is a {self.content.type} at '{self._key}' already")
        state = LanceState(is_private=step.is_private, properties=step.properties)
        table = LanceTable(id=step.id, location=step.location)
        chain = new_line(self._standing, table, Versions(self._objects, state))
        state = msgspec.structs.replace(state, chain=chain.folder, owner=chain.owner)
        self.content = with_state(table, state)

    def _register(self, step: Register, found: MadeVersion | FoundVersion | None) -> None:
        if not isinstance(found, FoundVersion):
            raise InvalidRequest(f"what is at {step.location} was not looked at")
        if self.content is not None and not step.replaces:
            raise TableExists(f"there is a {self.content.type} at '{self._key}' already")
        if self._standing != LanceStanding(b""):
            raise InvalidRequest(
                f"'{self._key}' can be registered on the default branch only, and outside of transactions:"
                " its versions are there for everybody already"
            )
        state = LanceState(is_private=step.is_private, is_registered=True, properties=step.properties)
        self.content = with_state(LanceTable(id=step.id, location=step.location), state)
        self._change(found.entries)

    def _resync(self, step: Resync, found: MadeVersion | FoundVersion | None) -> None:
        if not isinstance(found, FoundVersion):
            raise InvalidRequest(f"what is at {step.location} was not looked at")
        if self._standing != LanceStanding(b""):
            raise InvalidRequest(
                f"'{self._key}' can be resynced on the default branch only, and outside of transactions"
            )
        known, properties = 0, dict[str, str]()
        if self.content is not None:
            content, state = self._table()
            known, properties = state.newest, state.properties
            if content.id != (step.replaced or step.id):
                raise VersionTaken(f"'{self._key}' is another table now; look at it again, and resync that")
        if known != step.known:
            raise VersionTaken(
                f"'{self._key}' was changed while it was compared with its folder; resync it again",
                version=step.known,
                newest=known,
            )
        if self.content is None or step.replaced is not None:
            table = LanceTable(id=step.id, location=step.location)
            self.content = with_state(table, LanceState(is_registered=True, properties=properties))
            self._change(found.entries)
            return
        versions = self._versions()
        self._change({name: one for name, one in found.entries.items() if _is_news(versions, name)})

    # -- versions ------------------------------------------------------------------------------------------

    def _versions(self) -> Versions:
        return Versions(self._objects, self._table()[1])

    def _create(self, step: Create, made: MadeVersion | FoundVersion | None) -> None:
        content, state = self._table()
        if not isinstance(made, MadeVersion):
            raise InvalidManifest(f"version {step.version} of '{self._key}' was not looked at")
        versions = self._versions()
        there = versions.get(step.branch, step.version)
        if there is not None and there.mark == made.version.mark:
            return  # it is asked once more, because the answer was lost
        self._check_chain(content, state, versions, made)
        newest = versions.newest(step.branch)
        if newest is None and step.branch != MAIN:
            self._begin_branch(step, made)
        else:
            wanted = 1 if newest is None else newest[0] + 1
            if step.version != wanted:
                raise VersionTaken(
                    f"version {step.version} of '{self._key}' is not the next one: that is {wanted}\n"
                    + (_OVERTAKEN if step.version < wanted else _UNKNOWN),
                    version=step.version,
                    newest=wanted - 1,
                )
            if newest is not None and made.follows not in (None, newest[1].mark):
                raise VersionTaken(
                    f"version {step.version} of '{self._key}' goes on from another version {newest[0]}\n"
                    "  The branch was moved. Open the table again, and write on top of that.",
                    version=step.version,
                    newest=newest[0],
                )
        self._go_on_in(made.chain)
        version = msgspec.structs.replace(made.version, time_us=self._now_us)
        self._keep(*with_next(self._objects, *self._table(), Recent(step.branch, step.version, version)))

    def _check_chain(
        self, content: LanceTable, state: LanceState, versions: Versions, made: MadeVersion
    ) -> None:
        """``VersionTaken`` for a version that goes on from something else than the table as it is."""
        if made.chain not in chains(self._standing, content, state, versions):
            raise VersionTaken(
                f"'{self._key}' does not go on at {made.chain.folder or content.location} any more\n"
                "  It was merged or moved since it was opened. Open it again, and write on top of that."
            )

    def _go_on_in(self, chain: StandingChain) -> None:
        content, state = self._table()
        if (state.chain, state.owner) != chain:
            state = msgspec.structs.replace(state, chain=chain.folder, owner=chain.owner)
            self.content = with_state(content, state)

    def _begin_branch(self, step: Create, made: MadeVersion) -> None:
        """The first version of one of Lance's own branches. It has the number of that which it forks from."""
        if made.parent is None:
            raise OwnRefNotFound(f"'{self._key}' has no branch '{step.branch}'", branch=step.branch)
        self._check_fork(made.parent.parent, made.parent.version)
        if step.version != made.parent.version:
            raise InvalidManifest(
                f"branch '{step.branch}' of '{self._key}' forks at version {made.parent.version}, and cannot"
                f" begin with {step.version}"
            )
        parent = msgspec.structs.replace(made.parent, created_us=self._now_us)
        self._change({branch_key(check_ref_name(step.branch, "branch")): parent})

    def _delete(self, step: Delete) -> None:
        versions = self._versions()
        newest = versions.newest(step.branch)
        if newest is None:
            if step.branch != MAIN and versions.branch(step.branch) is None:
                raise OwnRefNotFound(f"'{self._key}' has no branch '{step.branch}'", branch=step.branch)
            return
        needed = self._needed(versions, step.branch) | {newest[0]: "the newest one"}
        changes: dict[bytes, Entry | None] = {}
        for start, end in step.ranges:
            if start < 0 or (0 <= end <= start):
                raise InvalidRequest(f"there are no versions from {start} up to, but without, {end}")
            last = newest[0] if end < 0 else end - 1
            for version, _ in versions.all(step.branch, last + 1):
                if version < start:
                    break
                if version in needed:
                    raise TableStateRefused(
                        f"version {version} of '{self._key}' cannot be deleted: it is {needed[version]}; "
                        f"let the range end before it, which is up to {version}, or begin after it",
                        version=version,
                    )
                changes[version_key(step.branch, version)] = None
        self._change(changes)

    def _erase(self, step: Erase, made: MadeVersion | FoundVersion | None) -> None:
        """Let the history begin with a version: the next one, or one that the table has."""
        if self._standing != LanceStanding(b""):
            raise InvalidRequest(
                f"'{self._key}' can be erased on the default branch only, and outside of transactions"
            )
        self._create(Create(version=step.version, path=step.path, size=step.size), made)
        versions = self._versions()
        first = max(step.version if step.first is None else step.first, self._table()[1].first)
        tags = {name: one for name, one in versions.tags().items() if one.version < first}
        if versions.branches() or (tags and not step.drops_tags):
            raise TableStateRefused(
                f"'{self._key}' has got branches or tags of Lance's own meanwhile, which hold its rows"
            )
        changes: dict[bytes, Entry | None] = {tag_key(name): None for name in tags}
        changes |= {version_key(MAIN, number): None for number, _ in versions.all(MAIN, first)}
        self._change(changes)
        content, state = self._table()
        self.content = with_state(content, msgspec.structs.replace(state, first=first))

    def _needed(self, versions: Versions, branch: str) -> dict[int, str]:
        """Versions that one of Lance's own branches or tags leads to."""
        tags = {one.version: f"tag '{name}'" for name, one in versions.tags().items() if one.branch == branch}
        forks = {
            one.version: f"where branch '{name}' forks"
            for name, one in versions.branches().items()
            if one.parent == branch
        }
        return tags | forks

    # -- Lance's own branches and tags ---------------------------------------------------------------------

    def _put_tag(self, step: PutTag) -> None:
        versions, name = self._versions(), check_ref_name(step.name, "tag")
        known = versions.tag(name)
        if step.is_new and known is not None:
            raise OwnRefExists(f"'{self._key}' has a tag '{name}' already", tag=name)
        if not step.is_new and known is None:
            raise OwnRefNotFound(f"'{self._key}' has no tag '{name}'", tag=name)
        self._check_fork(step.branch, step.version)
        created_us = self._now_us if known is None else known.created_us
        tag = OwnTag(
            branch=step.branch,
            version=step.version,
            created_us=created_us,
            updated_us=self._now_us,
            metadata=step.metadata,
        )
        self._change({tag_key(name): tag})

    def _drop_tag(self, step: DropTag) -> None:
        if self._versions().tag(step.name) is None:
            raise OwnRefNotFound(f"'{self._key}' has no tag '{step.name}'", tag=step.name)
        self._change({tag_key(step.name): None})

    def _put_branch(self, step: PutBranch, made: MadeVersion | FoundVersion | None) -> None:
        versions, name = self._versions(), check_ref_name(step.name, "branch")
        if versions.branch(name) is not None:
            raise OwnRefExists(f"'{self._key}' has a branch '{name}' already", branch=name)
        if not isinstance(made, MadeVersion) or made.parent is None:
            raise InvalidRequest(f"branch '{name}' of '{self._key}' was not prepared")
        self._check_fork(made.parent.parent, made.parent.version)
        content, state = self._table()
        self._check_chain(content, state, versions, made)
        self._go_on_in(made.chain)
        now_us = self._now_us
        self._change(
            {
                branch_key(name): msgspec.structs.replace(made.parent, created_us=now_us),
                version_key(name, made.parent.version): msgspec.structs.replace(made.version, time_us=now_us),
            }
        )

    def _drop_branch(self, step: DropBranch) -> None:
        versions = self._versions()
        if versions.branch(step.name) is None:
            raise OwnRefNotFound(f"'{self._key}' has no branch '{step.name}'", branch=step.name)
        if needed := self._needed(versions, step.name):
            why = next(iter(needed.values()))
            raise TableStateRefused(f"branch '{step.name}' of '{self._key}' cannot go: it has {why}")
        changes: dict[bytes, Entry | None] = {
            version_key(step.name, version): None for version, _ in versions.all(step.name)
        }
        self._change({**changes, branch_key(step.name): None})

    def _check_fork(self, branch: str, version: int) -> None:
        versions = self._versions()
        if versions.get(branch, version) is None:
            raise no_version(self._key, versions, branch, version)

    def _change(self, changes: Mapping[bytes, Entry | None]) -> None:
        content, state = self._table()
        grown, blobs = changed(self._objects, state, changes)
        self._keep(with_state(content, grown), blobs)

    def _keep(self, content: LanceTable, blobs: Mapping[ObjectId, bytes]) -> None:
        self._objects.fresh.update(blobs)
        self.blobs.update(blobs)
        self.content = content


def _is_news(versions: Versions, name: bytes) -> bool:
    """Whether a table has nothing by the name of an entry of its tree, and nothing that came later."""
    if (found := version_of(name)) is not None:
        newest = versions.newest(found[0])
        return newest is None or newest[0] < found[1]
    branch = branch_of(name)
    return versions.branch(branch) is None if branch is not None else versions.tag(name[1:].decode()) is None


def shortened(steps: Sequence[Placed]) -> bytes:
    """What is kept of steps with a commit: nothing of what the table itself says."""
    return encode([type(one.step).__name__.lower() for one in steps])


def no_version(key: Key, versions: Versions, branch: str, version: int) -> PenstockError:
    """Why one of Lance's own branches has no such version."""
    if branch != MAIN and versions.branch(branch) is None:
        return OwnRefNotFound(f"'{key}' has no branch '{branch}'", branch=branch)
    newest = versions.newest(branch)
    if newest is None:
        return VersionNotFound(
            f"'{key}' is only declared, and has no version yet: its first rows make one", version=version
        )
    return VersionNotFound(
        f"'{key}' has no version {version}: the newest one is {newest[0]}", version=version
    )
