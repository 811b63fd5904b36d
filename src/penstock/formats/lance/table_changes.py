"""Carries out the steps of a request on a Lance table, as the table is at the request's turn: no I/O."""

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
from penstock.formats.lance.branch_chains import OwnedChain, WriteTarget, begin_chain, list_possible_chains
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.intents import (
    AlterStep,
    CreateStep,
    DeclareStep,
    DeleteStep,
    DeregisterStep,
    DropBranchStep,
    DropTagStep,
    EraseStep,
    NumberedStep,
    PutBranchStep,
    PutTagStep,
    RegisterStep,
    ResyncStep,
)
from penstock.formats.lance.names import MAIN, check_ref_name
from penstock.formats.lance.state import (
    Entry,
    LanceState,
    LanceTableVersion,
    LanceVersionReader,
    Mark,
    OwnBranch,
    OwnTag,
    RecentVersion,
    add_next_version,
    apply_changes,
    decode_state,
    encode_branch_key,
    encode_state_into_table,
    encode_tag_key,
    encode_version_key,
    parse_branch_key,
    parse_version_key,
)
from penstock.kernel.format import AppliedChange
from penstock.kernel.objects import Objects, PendingObjects
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId, encode
from penstock.model.keys import Key

_OVERTAKEN: Final = "  Another writer committed first. Open the table again, and write to its newest version."
_UNKNOWN: Final = (
    "  Open the table again, and write to its newest version. If that does not help, its folder has "
    "versions that the lake does not know: 'penstock resync' imports them."
)


class MadeVersion(NamedTuple):
    """A version that a step creates, as it was found in storage when the request was prepared."""

    version: LanceTableVersion
    chain: OwnedChain
    """The chain that its manifest was written for."""
    parent: OwnBranch | None = None
    """Where one of Lance's own branches forks, if the version is the first of one."""
    follows: Mark | None = None
    """The version that it was seen to go on from; ``None`` if that is not for the turn to ask."""


class FoundVersion(NamedTuple):
    """The versions, branches and tags of a table that is to be registered, as they are in storage."""

    entries: Mapping[bytes, Entry]


Prepared = Mapping[int, MadeVersion | FoundVersion]
"""By the number of a step's operation."""


def apply_steps(
    objects: Objects,
    key: Key,
    content: AnyContent | None,
    target: WriteTarget,
    steps: Sequence[NumberedStep],
    prepared: Prepared,
    now_us: int,
) -> AppliedChange:
    """Apply steps to a table. Every error names the operation that it is about."""
    doing = _StepRun(PendingObjects(objects), key, content, target, prepared, now_us)
    for step in steps:
        try:
            doing.run_step(step)
        except PenstockError as problem:
            problem.details.setdefault("operation", step.operation)
            problem.details.setdefault("table", str(key))
            raise
    return AppliedChange(doing.content, doing.blobs)


class _StepRun:
    """A table while steps are applied to it."""

    def __init__(
        self,
        objects: PendingObjects,
        key: Key,
        content: AnyContent | None,
        target: WriteTarget,
        prepared: Prepared,
        now_us: int,
    ) -> None:
        self.content, self.blobs = content, dict[ObjectId, bytes]()
        self._known: tuple[LanceTable, LanceState] | None = None
        """The content whose state was read last, and that."""
        self._objects, self._key, self._standing = objects, key, target
        self._prepared, self._now_us = prepared, now_us

    def run_step(self, placed: NumberedStep) -> None:
        step = placed.step
        match step:
            case DeclareStep():
                self._declare_table(step)
            case RegisterStep():
                self._register_table(step, self._prepared.get(placed.operation))
            case ResyncStep():
                self._resync_versions(step, self._prepared.get(placed.operation))
            case DeregisterStep():
                self._read_table()
                self.content = None
            case CreateStep():
                self._create_version(step, self._prepared.get(placed.operation))
            case DeleteStep():
                self._delete_versions(step)
            case AlterStep():
                content, state = self._read_table()
                properties = {**state.properties, **step.properties}
                remaining_properties = {
                    name: value for name, value in properties.items() if value is not None
                }
                self.content = encode_state_into_table(
                    content, msgspec.structs.replace(state, properties=remaining_properties)
                )
            case PutTagStep():
                self._put_tag(step)
            case DropTagStep():
                self._drop_tag(step)
            case PutBranchStep():
                self._put_branch(step, self._prepared.get(placed.operation))
            case DropBranchStep():
                self._drop_branch(step)
            case EraseStep():
                self._begin_history(step, self._prepared.get(placed.operation))

    # -- tables --------------------------------------------------------------------------------------------

    def _read_table(self) -> tuple[LanceTable, LanceState]:
        if not isinstance(self.content, LanceTable) or not self.content.state:
            raise TableNotFound(f"there is no Lance table '{self._key}'")
        if self._known is None or self._known[0] is not self.content:
            self._known = self.content, decode_state(self.content)
        return self._known

    def _declare_table(self, step: DeclareStep) -> None:
        if self.content is not None:
            raise TableExists(f"'{self._key}' already exists: it is {self.content.type_in_words}")
        state = LanceState(is_private=step.is_private, properties=step.properties)
        table = LanceTable(id=step.id, location=step.location)
        chain = begin_chain(self._standing, table, LanceVersionReader(self._objects, state))
        state = msgspec.structs.replace(state, chain=chain.folder, owner=chain.owner)
        self.content = encode_state_into_table(table, state)

    def _register_table(self, step: RegisterStep, made_version: MadeVersion | FoundVersion | None) -> None:
        if not isinstance(made_version, FoundVersion):
            raise InvalidRequest(
                f"internal error: the table at {step.location} was not read before it is registered"
            )
        if self.content is not None and not step.replaces:
            raise TableExists(f"'{self._key}' already exists: it is {self.content.type_in_words}")
        if self._standing != WriteTarget(b""):
            raise InvalidRequest(
                f"'{self._key}' can be registered on the default branch only, and outside transactions, "
                "because everybody can already read its versions"
            )
        state = LanceState(is_private=step.is_private, is_registered=True, properties=step.properties)
        self.content = encode_state_into_table(LanceTable(id=step.id, location=step.location), state)
        self._apply_changes(made_version.entries)

    def _resync_versions(self, step: ResyncStep, made_version: MadeVersion | FoundVersion | None) -> None:
        if not isinstance(made_version, FoundVersion):
            raise InvalidRequest(
                f"internal error: the table at {step.location} was not read before it is registered"
            )
        if self._standing != WriteTarget(b""):
            raise InvalidRequest(
                f"'{self._key}' can be resynced on the default branch only, and outside transactions"
            )
        known_version, properties = 0, dict[str, str]()
        if self.content is not None:
            content, state = self._read_table()
            known_version, properties = state.newest, state.properties
            if content.id != (step.replaced or step.id):
                raise VersionTaken(f"'{self._key}' is another table now; check it, then resync it")
        if known_version != step.known:
            raise VersionTaken(
                f"'{self._key}' was changed while it was compared with its folder; resync it again",
                version=step.known,
                newest=known_version,
            )
        if self.content is None or step.replaced is not None:
            table = LanceTable(id=step.id, location=step.location)
            self.content = encode_state_into_table(
                table, LanceState(is_registered=True, properties=properties)
            )
            self._apply_changes(made_version.entries)
            return
        versions = self._read_versions()
        self._apply_changes(
            {name: version for name, version in made_version.entries.items() if _is_new_entry(versions, name)}
        )

    # -- versions ------------------------------------------------------------------------------------------

    def _read_versions(self) -> LanceVersionReader:
        return LanceVersionReader(self._objects, self._read_table()[1])

    def _create_version(self, step: CreateStep, made: MadeVersion | FoundVersion | None) -> None:
        content, state = self._read_table()
        if not isinstance(made, MadeVersion):
            raise InvalidManifest(
                f"internal error: version {step.version} of '{self._key}' was not read before it is committed"
            )
        versions = self._read_versions()
        target_version = versions.get_version(step.branch, step.version)
        if target_version is not None and target_version.mark == made.version.mark:
            return  # it is asked once more, because the answer was lost
        self._check_chain(content, state, versions, made)
        newest = versions.find_newest(step.branch)
        if newest is None and step.branch != MAIN:
            self._begin_branch(step, made)
        else:
            next_version = 1 if newest is None else newest[0] + 1
            if step.version != next_version:
                raise VersionTaken(
                    f"version {step.version} of '{self._key}' is not the next version, which is "
                    f"{next_version}\n" + (_OVERTAKEN if step.version < next_version else _UNKNOWN),
                    version=step.version,
                    newest=next_version - 1,
                )
            if newest is not None and made.follows not in (None, newest[1].mark):
                raise VersionTaken(
                    f"version {step.version} of '{self._key}' was made on top of another version "
                    f"{newest[0]} than the branch has\n  The branch was moved. Open the table again, and "
                    "write to its newest version.",
                    version=step.version,
                    newest=newest[0],
                )
        self._switch_chain(made.chain)
        version = msgspec.structs.replace(made.version, time_us=self._now_us)
        self._use_content(
            *add_next_version(
                self._objects, *self._read_table(), RecentVersion(step.branch, step.version, version)
            )
        )

    def _check_chain(
        self, content: LanceTable, state: LanceState, versions: LanceVersionReader, version: MadeVersion
    ) -> None:
        """``VersionTaken`` for a version that goes on from something else than the table as it is."""
        if version.chain not in list_possible_chains(self._standing, content, state, versions):
            raise VersionTaken(
                f"'{self._key}' is no longer written at {version.chain.folder or content.location}\n  It was "
                "merged or moved since it was opened. Open the table again, and write to its newest "
                "version."
            )

    def _switch_chain(self, chain: OwnedChain) -> None:
        content, state = self._read_table()
        if (state.chain, state.owner) != chain:
            state = msgspec.structs.replace(state, chain=chain.folder, owner=chain.owner)
            self.content = encode_state_into_table(content, state)

    def _begin_branch(self, step: CreateStep, version: MadeVersion) -> None:
        """The first version of one of Lance's own branches. It has the number of that which it forks from."""
        if version.parent is None:
            raise OwnRefNotFound(f"'{self._key}' has no branch '{step.branch}'", branch=step.branch)
        self._check_fork(version.parent.parent, version.parent.version)
        if step.version != version.parent.version:
            raise InvalidManifest(
                f"branch '{step.branch}' of '{self._key}' forks at version {version.parent.version}, and "
                "cannot"
                f" begin with {step.version}"
            )
        parent = msgspec.structs.replace(version.parent, created_us=self._now_us)
        self._apply_changes({encode_branch_key(check_ref_name(step.branch, "branch")): parent})

    def _delete_versions(self, step: DeleteStep) -> None:
        versions = self._read_versions()
        newest = versions.find_newest(step.branch)
        if newest is None:
            if step.branch != MAIN and versions.get_branch(step.branch) is None:
                raise OwnRefNotFound(f"'{self._key}' has no branch '{step.branch}'", branch=step.branch)
            return
        needed = self._find_referenced_versions(versions, step.branch) | {newest[0]: "the newest one"}
        changes: dict[bytes, Entry | None] = {}
        for start, end in step.ranges:
            if start < 0 or (0 <= end <= start):
                raise InvalidRequest(
                    f"invalid range of versions: from {start} up to, but not including, {end}"
                )
            last = newest[0] if end < 0 else end - 1
            for version, _ in versions.list_versions(step.branch, last + 1):
                if version < start:
                    break
                if version in needed:
                    raise TableStateRefused(
                        f"version {version} of '{self._key}' cannot be deleted: it is {needed[version]}; "
                        f"let the range end before it, which is up to {version}, or begin after it",
                        version=version,
                    )
                changes[encode_version_key(step.branch, version)] = None
        self._apply_changes(changes)

    def _begin_history(self, step: EraseStep, version: MadeVersion | FoundVersion | None) -> None:
        """Let the history begin with a version: the next one, or one that the table has."""
        if self._standing != WriteTarget(b""):
            raise InvalidRequest(
                f"'{self._key}' can be erased on the default branch only, and outside transactions"
            )
        self._create_version(CreateStep(version=step.version, path=step.path, size=step.size), version)
        versions = self._read_versions()
        first = max(step.version if step.first is None else step.first, self._read_table()[1].first)
        tags = {name: tag for name, tag in versions.list_tags().items() if tag.version < first}
        if versions.list_branches() or (tags and not step.drops_tags):
            raise TableStateRefused(f"'{self._key}' has new branches or tags of Lance, which hold its rows")
        changes: dict[bytes, Entry | None] = {encode_tag_key(name): None for name in tags}
        changes |= {
            encode_version_key(MAIN, number): None for number, _ in versions.list_versions(MAIN, first)
        }
        self._apply_changes(changes)
        content, state = self._read_table()
        self.content = encode_state_into_table(content, msgspec.structs.replace(state, first=first))

    def _find_referenced_versions(self, versions: LanceVersionReader, branch: str) -> dict[int, str]:
        """Versions that one of Lance's own branches or tags points to, each with the reason in words."""
        tags = {
            tag.version: f"tag '{name}'" for name, tag in versions.list_tags().items() if tag.branch == branch
        }
        forks = {
            own_branch.version: f"where branch '{name}' forks"
            for name, own_branch in versions.list_branches().items()
            if own_branch.parent == branch
        }
        return tags | forks

    # -- Lance's own branches and tags ---------------------------------------------------------------------

    def _put_tag(self, step: PutTagStep) -> None:
        versions, name = self._read_versions(), check_ref_name(step.name, "tag")
        known_tag = versions.get_tag(name)
        if step.is_new and known_tag is not None:
            raise OwnRefExists(f"'{self._key}' already has a tag '{name}'", tag=name)
        if not step.is_new and known_tag is None:
            raise OwnRefNotFound(f"'{self._key}' has no tag '{name}'", tag=name)
        self._check_fork(step.branch, step.version)
        created_us = self._now_us if known_tag is None else known_tag.created_us
        tag = OwnTag(
            branch=step.branch,
            version=step.version,
            created_us=created_us,
            updated_us=self._now_us,
            metadata=step.metadata,
        )
        self._apply_changes({encode_tag_key(name): tag})

    def _drop_tag(self, step: DropTagStep) -> None:
        if self._read_versions().get_tag(step.name) is None:
            raise OwnRefNotFound(f"'{self._key}' has no tag '{step.name}'", tag=step.name)
        self._apply_changes({encode_tag_key(step.name): None})

    def _put_branch(self, step: PutBranchStep, version: MadeVersion | FoundVersion | None) -> None:
        versions, name = self._read_versions(), check_ref_name(step.name, "branch")
        if versions.get_branch(name) is not None:
            raise OwnRefExists(f"'{self._key}' already has a branch '{name}'", branch=name)
        if not isinstance(version, MadeVersion) or version.parent is None:
            raise InvalidRequest(
                f"internal error: branch '{name}' of '{self._key}' was not prepared before it is created"
            )
        self._check_fork(version.parent.parent, version.parent.version)
        content, state = self._read_table()
        self._check_chain(content, state, versions, version)
        self._switch_chain(version.chain)
        now_us = self._now_us
        self._apply_changes(
            {
                encode_branch_key(name): msgspec.structs.replace(version.parent, created_us=now_us),
                encode_version_key(name, version.parent.version): msgspec.structs.replace(
                    version.version, time_us=now_us
                ),
            }
        )

    def _drop_branch(self, step: DropBranchStep) -> None:
        versions = self._read_versions()
        if versions.get_branch(step.name) is None:
            raise OwnRefNotFound(f"'{self._key}' has no branch '{step.name}'", branch=step.name)
        if needed := self._find_referenced_versions(versions, step.name):
            why = next(iter(needed.values()))
            raise TableStateRefused(f"branch '{step.name}' of '{self._key}' cannot be deleted: it has {why}")
        changes: dict[bytes, Entry | None] = {
            encode_version_key(step.name, version): None for version, _ in versions.list_versions(step.name)
        }
        self._apply_changes({**changes, encode_branch_key(step.name): None})

    def _check_fork(self, branch: str, version: int) -> None:
        versions = self._read_versions()
        if versions.get_version(branch, version) is None:
            raise no_version_error(self._key, versions, branch, version)

    def _apply_changes(self, changes: Mapping[bytes, Entry | None]) -> None:
        content, state = self._read_table()
        grown, blobs = apply_changes(self._objects, state, changes)
        self._use_content(encode_state_into_table(content, grown), blobs)

    def _use_content(self, content: LanceTable, blobs: Mapping[ObjectId, bytes]) -> None:
        self._objects.fresh.update(blobs)
        self.blobs.update(blobs)
        self.content = content


def _is_new_entry(versions: LanceVersionReader, name: bytes) -> bool:
    """Whether a table has nothing by the name of an entry of its tree, and nothing that came later."""
    if (version := parse_version_key(name)) is not None:
        newest = versions.find_newest(version[0])
        return newest is None or newest[0] < version[1]
    branch = parse_branch_key(name)
    return (
        versions.get_branch(branch) is None
        if branch is not None
        else versions.get_tag(name[1:].decode()) is None
    )


def list_step_names(steps: Sequence[NumberedStep]) -> bytes:
    """The intent that is stored with a commit: only the kinds of its steps."""
    return encode([type(step.step).__name__.removesuffix("Step").lower() for step in steps])


def no_version_error(key: Key, versions: LanceVersionReader, branch: str, version: int) -> PenstockError:
    """Why one of Lance's own branches has no such version."""
    if branch != MAIN and versions.get_branch(branch) is None:
        return OwnRefNotFound(f"'{key}' has no branch '{branch}'", branch=branch)
    newest = versions.find_newest(branch)
    if newest is None:
        return VersionNotFound(
            f"'{key}' is declared, but has no version yet: the first write creates one", version=version
        )
    return VersionNotFound(
        f"'{key}' has no version {version}: the newest one is {newest[0]}", version=version
    )
