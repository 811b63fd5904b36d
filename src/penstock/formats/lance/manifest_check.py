"""Checks whether a manifest is what its writer says, before it can become a version.

A wrong number inside a manifest would make a table unreadable for good, so nothing is taken on trust: the
file is there, has the size that was said, is a manifest, and is of the version and of Lance's own branch that
are asked for. It lies in the chain that it is meant for.

What a transaction writes, and what is written to a private table, is put apart here, where Lance's readers do
not look, under a name that ends as that of a manifest that needs nothing more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

import msgspec

from penstock.errors import (
    InvalidManifest,
    InvalidRequest,
    LocationRefused,
    OutcomeUnknown,
    OwnRefNotFound,
    PenstockError,
    TableNotFound,
    TableStateRefused,
    UnsupportedFeature,
    VersionTaken,
)
from penstock.formats.lance.branch_chains import (
    OwnedChain,
    WriteTarget,
    begin_chain,
    find_chain,
    list_possible_chains,
)
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.continuity import ANEW, find_gap
from penstock.formats.lance.intents import (
    CreateStep,
    DeclareStep,
    EraseStep,
    NumberedStep,
    PutBranchStep,
    RegisterStep,
    ResyncStep,
)
from penstock.formats.lance.manifest_reader import ManifestReader, is_manifest_of
from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.names import (
    LINES,
    MAIN,
    MANIFEST,
    STAGING,
    TRANSACTIONS,
    VERSION_MAX,
    VERSIONS,
    check_ref_name,
    make_branch_folder,
    make_manifest_path,
    make_staged_path,
)
from penstock.formats.lance.protobuf import MalformedMessage, ProtobufMessage
from penstock.formats.lance.registration import read_registered_version
from penstock.formats.lance.relocation import (
    BASE_OF_INDEX,
    INDEX_NAME,
    INDEX_UUID,
    INDEX_VERSION,
    UnknownPlacement,
    make_index_id,
    move_to_folder,
)
from penstock.formats.lance.state import (
    LanceState,
    LanceTableVersion,
    LanceVersionReader,
    OwnBranch,
    decode_state,
    encode_state_into_table,
    make_folder_url,
    parse_version_key,
)
from penstock.formats.lance.table_changes import FoundVersion, MadeVersion, no_version_error
from penstock.kernel.format import Table
from penstock.kernel.objects import Objects
from penstock.model.keys import Key
from penstock.storage.locations import is_under
from penstock.storage.places import Places

RESTORED: Final = 106
"""In a transaction: what it restored."""
MANIFEST_MAX_BYTES: Final = 512 * 1024 * 1024


class ManifestCheck:
    """Checks in storage what the steps of a request name, before the request's turn."""

    def __init__(self, places: Places, manifests: ManifestReader) -> None:
        self._places, self._manifests = places, manifests

    def check_steps(
        self, table: Table, objects: Objects, steps: Sequence[NumberedStep], now_us: int
    ) -> dict[int, MadeVersion | FoundVersion]:
        """Check the steps of a request. Returns what storage has, by the number of the operation.

        Every error names the operation that it is about."""
        looking = _RequestCheck(self._places, self._manifests, table, objects, now_us)
        for step in steps:
            try:
                looking.check_step(step)
            except PenstockError as problem:
                problem.details.setdefault("operation", step.operation)
                problem.details.setdefault("table", str(table.key))
                raise
        return looking.found


class _RequestCheck:
    """The check of one request, step by step."""

    def __init__(
        self, places: Places, manifests: ManifestReader, table: Table, objects: Objects, now_us: int
    ) -> None:
        self._places, self._manifests, self._objects, self._now_us = places, manifests, objects, now_us
        self._key: Key = table.key
        self._standing = WriteTarget.from_table(table)
        self._content = table.content if isinstance(table.content, LanceTable) else None
        self.found: dict[int, MadeVersion | FoundVersion] = {}
        self._coming: dict[tuple[str, int], LanceTableVersion] = {}
        """Versions of the same request, by Lance's branch and their number."""

    def check_step(self, placed: NumberedStep) -> None:
        match placed.step:
            case DeclareStep() as step:
                self._check_declare(step)
            case RegisterStep() as step:
                self.found[placed.operation] = read_registered_version(
                    self._places.open_place(step.location), self._key
                )
            case ResyncStep() as step:
                self.found[placed.operation] = self._find_version_at_place(step)
            case CreateStep() as step:
                self.found[placed.operation] = self._check_new_version(step)
            case PutBranchStep() as step:
                self.found[placed.operation] = self._check_new_branch(step)
            case EraseStep() as step:
                made = CreateStep(version=step.version, path=step.path, size=step.size)
                self.found[placed.operation] = self._check_new_version(made)

    def _find_version_at_place(self, step: ResyncStep) -> FoundVersion:
        """What is at a table's place. The manifests of versions that the lake does not know are read: merges
        ask what made them."""
        place = self._places.open_place(step.location)
        entries = dict(read_registered_version(place, self._key).entries)
        for name, entry in entries.items():
            if (
                not isinstance(entry, LanceTableVersion)
                or (named := parse_version_key(name)) is None
                or named[1] <= step.known
            ):
                continue
            path = entry.promoted_path(*named)
            (data,) = place.read([path])
            if data is None:
                continue  # cleaned up just now
            again = CreateStep(branch=named[0], version=named[1], path=path)
            content = LanceTable(id=step.id, location=step.location)
            manifest = self._add_transaction(
                content, again, OwnedChain("", b""), self._parse_manifest(again, data)
            )
            entries[name] = msgspec.structs.replace(
                entry, size=len(data), sha256=hashlib.sha256(data).digest(), operation=manifest.operation
            )
        return FoundVersion(entries)

    def _check_declare(self, step: DeclareStep) -> None:
        """A table that a later step of the same request may write to."""
        content = LanceTable(id=step.id, location=step.location)
        chain = begin_chain(self._standing, content, LanceVersionReader(self._objects, LanceState()))
        state = LanceState(chain=chain.folder, owner=chain.owner, is_private=step.is_private)
        self._content = encode_state_into_table(content, state)

    def _require_table_state(self) -> tuple[LanceTable, LanceState, LanceVersionReader]:
        content = self._content
        if content is None or not content.state:
            raise TableNotFound(f"there is no Lance table '{self._key}'")
        state = decode_state(content)
        return content, state, LanceVersionReader(self._objects, state)

    # -- versions ------------------------------------------------------------------------------------------

    def _check_new_version(self, step: CreateStep) -> MadeVersion:
        content, state, versions = self._require_table_state()
        if not 1 <= step.version <= VERSION_MAX:
            raise InvalidRequest(f"{step.version} is not a valid version of '{self._key}'")
        target_version = versions.get_version(step.branch, step.version)
        is_new_branch = bool(step.branch) and versions.get_branch(step.branch) is None
        try:
            chain = self._find_chain(step, content, state, versions)
        except InvalidManifest as problem:
            if is_new_branch:
                raise self._check_missing_branch(step) from problem
            raise
        if is_new_branch:
            self._check_unused(content, chain, step.branch)
        data = self._read_manifest_bytes(content, step)
        if data is None:
            if target_version is not None and target_version.staged == step.path:
                return MadeVersion(
                    target_version, chain
                )  # it is asked once more, and was put in its place by now
            if target_version is not None:
                raise VersionTaken(
                    f"'{self._key}' already has a version {step.version}", version=step.version
                )
            if is_new_branch:
                raise self._check_missing_branch(step)
            raise InvalidManifest(f"there is no manifest {step.path} of '{self._key}'")
        manifest = self._add_transaction(content, step, chain, self._parse_manifest(step, data))
        before = self._find_previous_version(versions, step)
        if step.is_v1 and before is not None and not (before[1].is_v1 and before[1].chain == chain.folder):
            raise InvalidManifest(
                f"versions of '{self._key}' use the naming scheme V2, but version {step.version} uses V1: "
                "readers would see two tables"
            )
        try:
            self._check_bases(content, versions, step, manifest)
            self._check_continues(content, before, step, chain, manifest)
            self._check_retained(content, state, before, step, manifest)
            mended = self._add_found_indexes(content, versions, step, chain, manifest)
        except UnknownPlacement as problem:
            raise InvalidManifest(f"version {step.version} of '{self._key}' {problem}") from None
        except MalformedMessage as problem:
            raise InvalidManifest(f"{step.path} of '{self._key}' is not a manifest: {problem}") from None
        if mended is not manifest:
            data = mended.encode(self._places.moved)
        staged = step.path
        if self._standing.transaction or state.is_private or mended is not manifest:
            staged = self._put_staged_manifest(content, chain, step.branch, step.version, data)
        elif staged == make_manifest_path(chain.folder, step.branch, step.version, is_v1=step.is_v1):
            staged = ""  # it is where it belongs already, and nobody may remove it there
        version = LanceTableVersion(
            chain=chain.folder,
            staged=staged,
            size=len(data),
            sha256=hashlib.sha256(data).digest(),
            operation=manifest.operation,
            is_v1=step.is_v1,
            e_tag=step.e_tag,
            metadata=step.metadata,
        )
        self._manifests.cache_manifest(version, data, manifest if mended is manifest else None)
        self._coming[step.branch, step.version] = version
        follows = None if before is None else before[1].mark
        return MadeVersion(
            version, chain, _find_fork_in_transaction(manifest) if step.branch else None, follows
        )

    def _check_missing_branch(self, step: CreateStep) -> OwnRefNotFound:
        """For a branch that is not there, and does not begin with this version."""
        return OwnRefNotFound(f"'{self._key}' has no branch '{step.branch}'", branch=step.branch)

    def _find_chain(
        self, step: CreateStep, content: LanceTable, state: LanceState, versions: LanceVersionReader
    ) -> OwnedChain:
        """The chain that a manifest was written for, by where it lies."""
        for chain in list_possible_chains(self._standing, content, state, versions):
            folder = make_branch_folder(chain.folder, step.branch)
            name = step.path.removeprefix(folder)
            if step.path.startswith(folder) and name.startswith((VERSIONS, STAGING)):
                self._check_name(step, chain, name)
                return chain
        if step.path.startswith(LINES):
            raise VersionTaken(
                f"'{self._key}' is no longer written in {step.path.partition(VERSIONS)[0]}\n  It was merged "
                "or moved since it was opened. Open the table again, and write to its newest version."
            )
        where = find_chain(self._standing, content, state, versions).folder
        raise InvalidManifest(
            f"{step.path} is not where versions of '{self._key}' are written on this branch:"
            f" that is {make_branch_folder(where, step.branch)}{VERSIONS}"
        )

    def _check_name(self, step: CreateStep, chain: OwnedChain, name: str) -> None:
        """A manifest may lie under any name but that of another version: whatever is staged is removed."""
        last = name.rpartition("/")[2]
        own = make_manifest_path(chain.folder, step.branch, step.version, is_v1=step.is_v1)
        is_final = name.startswith(VERSIONS) and last.endswith(MANIFEST)
        if ".." in name or MANIFEST not in last or (is_final and step.path != own):
            raise InvalidManifest(f"{step.path} is not a name of a manifest of '{self._key}'")

    def _read_manifest_bytes(self, content: LanceTable, step: CreateStep) -> bytes | None:
        place = self._places.open_place(content.location)
        if step.size is not None and not 0 < step.size <= MANIFEST_MAX_BYTES:
            raise InvalidManifest(
                f"the size of a manifest must be 1 to {MANIFEST_MAX_BYTES} bytes, got {step.size}"
            )
        (data,) = place.read([step.path])
        if data is not None and step.size is not None and len(data) != step.size:
            raise InvalidManifest(
                f"the manifest {step.path} of '{self._key}' has {len(data)} bytes, not {step.size}"
            )
        return data

    def _parse_manifest(self, step: CreateStep, data: bytes) -> Manifest:
        try:
            manifest = Manifest.decode(data, self._places.moved)
            version, branch = manifest.version, manifest.branch or MAIN
        except MalformedMessage as problem:
            raise InvalidManifest(f"{step.path} of '{self._key}' is not a manifest: {problem}") from None
        if version != step.version:
            raise InvalidManifest(
                f"{step.path} of '{self._key}' is the manifest of version {version}, not of {step.version}"
            )
        if branch != step.branch:
            raise InvalidManifest(
                f"{step.path} of '{self._key}' belongs to branch '{branch or 'main'}', not to "
                f"'{step.branch or 'main'}'"
            )
        return manifest

    def _add_transaction(
        self, content: LanceTable, step: CreateStep, chain: OwnedChain, manifest: Manifest
    ) -> Manifest:
        """A manifest with the transaction that made it, also where that is a file of its own."""
        name = manifest.transaction_file
        if manifest.transaction is not None or not name or "/" in name:
            return manifest
        path = f"{make_branch_folder(chain.folder, step.branch)}{TRANSACTIONS}{name}"
        (data,) = self._places.open_place(content.location).read([path])
        if data is None:
            return manifest
        try:
            return manifest._replace(transaction=ProtobufMessage.decode(data))
        except MalformedMessage as problem:
            raise InvalidManifest(f"{path} of '{self._key}' is not a transaction: {problem}") from None

    def _find_previous_version(
        self, versions: LanceVersionReader, step: CreateStep
    ) -> tuple[int, LanceTableVersion] | None:
        """The version that a new one comes after, if that is the next one."""
        number = step.version - 1
        if (coming := self._coming.get((step.branch, number))) is not None:
            return number, coming
        newest = versions.find_newest(step.branch)
        return newest if newest is not None and newest[0] == number else None

    def _check_continues(
        self,
        content: LanceTable,
        before: tuple[int, LanceTableVersion] | None,
        step: CreateStep,
        chain: OwnedChain,
        manifest: Manifest,
    ) -> None:
        """``VersionTaken`` if a manifest goes on from something else than the lake's version before it."""
        if before is None or manifest.operation in ANEW:
            return
        number, version = before
        old_manifest = self._manifests.read_manifest(content.location, step.branch, number, version)
        if version.chain != chain.folder:
            folders = (
                make_folder_url(content.location, chain_folder, step.branch)
                for chain_folder in (version.chain, chain.folder)
            )
            old_manifest = move_to_folder(old_manifest, *folders)
        try:
            gap = find_gap(old_manifest, manifest)
        except MalformedMessage as problem:
            raise InvalidManifest(f"{step.path} of '{self._key}' is not a manifest: {problem}") from None
        if gap is None and not self._was_overtaken(version, manifest, number):
            return
        is_sure = gap is not None and gap.is_sure
        if not is_sure and not self._is_other_there(content, version, step.branch, number, chain):
            return
        why = "was written on top of another version" if gap is None else gap.why
        raise VersionTaken(
            f"version {step.version} of '{self._key}' does not continue version {number}: it {why}\n  "
            "Another writer committed first. Open the table again, and write to its newest version.",
            version=step.version,
            newest=number,
        )

    def _check_bases(
        self, content: LanceTable, versions: LanceVersionReader, step: CreateStep, manifest: Manifest
    ) -> None:
        """``InvalidManifest`` if a version has files at a place that is not the table's, and was none before.

        They may be another table's, and a server would read them for whoever may read this one.
        """
        foreign = [base.path for base in manifest.bases if not _is_within(base.path, content.location)]
        if not foreign:
            return
        checked: set[str] = set()
        restored = manifest.transaction.get_message(RESTORED) if manifest.transaction is not None else None
        for branch in {step.branch, MAIN}:
            newest = versions.find_newest(branch)
            numbers = {newest[0]} if newest is not None else set[int]()
            if branch == step.branch and restored is not None:
                numbers.add(restored.get_number(1) or 0)
            for number in numbers:
                version = self._coming.get((branch, number)) or versions.get_version(branch, number)
                if version is not None:
                    old_manifest = self._manifests.read_manifest(content.location, branch, number, version)
                    checked.update(base.path for base in old_manifest.bases)
        for path in foreign:
            if path not in checked:
                raise InvalidManifest(
                    f"version {step.version} of '{self._key}' has files at {path}, outside the table's "
                    f"folder {content.location}: only a registered table may share files with others"
                )

    def _check_retained(
        self,
        content: LanceTable,
        state: LanceState,
        before: tuple[int, LanceTableVersion] | None,
        step: CreateStep,
        manifest: Manifest,
    ) -> None:
        """``TableStateRefused`` if a version brings something back of a table from before it was erased: an
        earlier version of it, or an index that was made of one, which has the values that are to be gone."""
        if not state.first:
            return
        restored = manifest.transaction.get_message(RESTORED) if manifest.transaction is not None else None
        number = state.first if restored is None else restored.get_number(1) or 0
        if number < state.first:
            raise TableStateRefused(
                f"version {number} of '{self._key}' cannot be restored: the table was erased, and its "
                f"history begins with version {state.first}",
                version=number,
            )
        old_manifest = None
        if before is not None:
            old_manifest = self._manifests.read_manifest(content.location, step.branch, *before)
        # One that is renewed says of what it was made, and has no more of it than the one before.
        retained = (
            set()
            if old_manifest is None
            else {
                (index.get_text(INDEX_NAME), index.get_number(INDEX_VERSION))
                for index in old_manifest.indexes
            }
        )
        for index in manifest.indexes:
            name, made_of = index.get_text(INDEX_NAME) or "", index.get_number(INDEX_VERSION) or 0
            if made_of < state.first and (name, made_of) not in retained:
                raise TableStateRefused(
                    f"the index '{name}' of '{self._key}' was built from a version before the table was "
                    "erased, and may contain erased values\n  Open the table again, and create the index on "
                    "the version that it has now.",
                    index=name,
                )

    def _was_overtaken(self, before: LanceTableVersion, manifest: Manifest, number: int) -> bool:
        """Whether a statement of a transaction may have gone on from a version of somebody else: one that it
        did not read is looked for in the folder, where the transaction's own versions are not."""
        transaction = manifest.transaction
        if not self._standing.transaction or STAGING not in before.staged or transaction is None:
            return False
        return (transaction.get_number(1) or 0) < number

    def _is_other_there(
        self, content: LanceTable, version: LanceTableVersion, branch: str, number: int, chain: OwnedChain
    ) -> bool:
        """Whether something else than a version is where Lance looks for it."""
        if not version.staged or version.chain != chain.folder:
            return False
        (data,) = self._places.open_place(content.location).read([version.promoted_path(branch, number)])
        return data is not None and not is_manifest_of(version, data)

    def _add_found_indexes(
        self,
        content: LanceTable,
        versions: LanceVersionReader,
        step: CreateStep,
        chain: OwnedChain,
        manifest: Manifest,
    ) -> Manifest:
        """The manifest, corrected where it names the wrong place of an index. ``InvalidManifest`` if an index
        is missing.

        Compaction renews an index that a branch has from another place, writes it to the branch's own folder,
        and still says that it lies at the other place: every filtered read would look for it there.
        """
        borrowed = [index for index in manifest.indexes if index.get_number(BASE_OF_INDEX) is not None]
        if not borrowed or manifest.operation in (ManifestOperation.CLONE, ManifestOperation.RESTORE):
            return manifest  # those of a copy are where they were
        before = versions.find_newest(step.branch)
        is_own: dict[bytes, bool] = {}  # whether those that were there already are in the chain's own folder
        if before is not None:
            is_ours = before[1].chain == chain.folder
            messages = self._manifests.read_manifest(content.location, step.branch, *before).indexes
            is_own = {
                message.get_values(INDEX_UUID)[-1]: is_ours and message.get_number(BASE_OF_INDEX) is None
                for message in messages
            }
        home = {uuid for uuid, is_home in is_own.items() if is_home}
        for index in borrowed:
            if (uuid := index.get_values(INDEX_UUID)[-1]) in is_own:
                continue
            folder = f"{make_branch_folder(chain.folder, step.branch)}_indices/{make_index_id(index)}"
            if not self._places.open_place(content.location).list(folder):
                name = index.get_text(INDEX_NAME) or ""
                raise InvalidManifest(
                    f"version {step.version} of '{self._key}' has an index '{name}' whose files do not "
                    "exist\n  Drop the index on this branch, and create it again.",
                    index=name,
                )
            home.add(uuid)
        indexes = [
            index.replace_field(BASE_OF_INDEX) if index.get_values(INDEX_UUID)[-1] in home else index
            for index in manifest.indexes
        ]
        return manifest if indexes == list(manifest.indexes) else manifest.replace_parts(indexes=indexes)

    def _put_staged_manifest(
        self, content: LanceTable, chain: OwnedChain, branch: str, number: int, data: bytes
    ) -> str:
        """Put a manifest where only those find it who are told; the same bytes always to the same name."""
        attempt = f"{self._standing.transaction or 'mended'}-{hashlib.sha256(data).hexdigest()[:16]}"
        name = make_staged_path(chain.folder, branch, attempt, number)
        place = self._places.open_place(content.location)
        try:
            place.create(name, data)
        except OutcomeUnknown:
            if next(iter(place.read([name]))) != data:
                raise
        return name

    # -- Lance's own branches ------------------------------------------------------------------------------

    def _check_unused(self, content: LanceTable, chain: OwnedChain, branch: str) -> None:
        """``TableStateRefused`` for a branch where an earlier one of its name has left its versions.

        Commits that are kept may have them, so that they stay; and Lance knows a branch's folder by its name
        alone, so that the new one's versions would have to be where they are.
        """
        folder = make_branch_folder(chain.folder, check_ref_name(branch, "branch")) + VERSIONS
        if any(
            entry.key.endswith(MANIFEST) for entry in self._places.open_place(content.location).list(folder)
        ):
            raise TableStateRefused(
                f"'{self._key}' had a branch '{branch}' before, whose versions are still in {folder}\n  "
                "Choose another name. This one is free once no retained commit has them and a sweep has "
                "run.",
                branch=branch,
            )

    def _check_new_branch(self, step: PutBranchStep) -> MadeVersion:
        """The first version of one of Lance's own branches: its parent's, at another folder."""
        content, state, versions = self._require_table_state()
        chain = find_chain(self._standing, content, state, versions)
        newest = versions.find_newest(step.parent)
        number = step.version if step.version is not None else newest[0] if newest is not None else 0
        parent = versions.get_version(step.parent, number)
        if parent is None:
            raise no_version_error(self._key, versions, step.parent, number)
        if versions.get_branch(step.name) is None:
            self._check_unused(content, chain, step.name)
        manifest = self._manifests.read_manifest(content.location, step.parent, number, parent)
        transaction = _clone_transaction(self._places.moved.map_to_storage(content.location), step, number)
        try:
            moved = move_to_folder(
                manifest,
                make_folder_url(content.location, parent.chain, step.parent),
                make_folder_url(content.location, chain.folder, step.name),
            )
        except UnknownPlacement as problem:
            raise UnsupportedFeature(f"'{self._key}' {problem}, so it cannot be branched") from None
        data = moved.make_version(number, step.name, transaction, self._now_us).encode(self._places.moved)
        staged = self._put_staged_manifest(content, chain, step.name, number, data)
        version = LanceTableVersion(
            chain=chain.folder,
            staged=staged,
            size=len(data),
            sha256=hashlib.sha256(data).digest(),
            operation=ManifestOperation.CLONE,
        )
        own = OwnBranch(parent=step.parent, version=number, metadata=step.metadata)
        return MadeVersion(version, chain, own)


def _is_within(path: str, location: str) -> bool:
    try:
        return is_under(path, location)
    except (InvalidRequest, LocationRefused, ValueError):
        return False  # no place that is known here


def _clone_transaction(location: str, step: PutBranchStep, number: int) -> ProtobufMessage:
    """The Lance transaction that creates a branch: a clone."""
    parent = ((2, step.parent),) if step.parent else ()
    what = ProtobufMessage.from_fields((1, 1), *parent, (3, number), (4, location), (5, step.name))
    return make_transaction(ManifestOperation.CLONE, number, str(uuid4()), what, {})


def _find_fork_in_transaction(manifest: Manifest) -> OwnBranch | None:
    """Where a branch forks, as the transaction of its first version tells."""
    message = manifest.transaction.get_message(113) if manifest.transaction is not None else None
    if message is None:
        return None
    name = message.get_text(2)
    return OwnBranch(
        parent=MAIN if name in (None, "", "main") else str(name), version=message.get_number(3) or 0
    )
