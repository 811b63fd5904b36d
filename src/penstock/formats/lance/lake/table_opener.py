"""Where a Lance table is opened: in which folder, and where the manifests of its versions are then.

A version is read in a folder, which its files are named from. So a branch that goes on in a line of its own
has all versions there, also those from before it began: they are put there as they read there, when somebody
asks for one. Whoever puts it puts the same bytes.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from penstock.errors import (
    InvalidRequest,
    KeyNotFound,
    NotManaged,
    OutcomeUnknown,
    ReferenceNotFound,
    TransactionNotFound,
    TransactionOver,
    UnsupportedFeature,
)
from penstock.formats.lance.branch_chains import WriteTarget, find_chain, find_free_chain
from penstock.formats.lance.chains import WaitingVersion
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.manifest_reader import is_manifest_of
from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.merge_sides import NumberedVersion
from penstock.formats.lance.names import MAIN, make_manifest_path, make_staged_path
from penstock.formats.lance.protobuf import MalformedMessage, ProtobufMessage
from penstock.formats.lance.relocation import UnknownPlacement, move_to_folder
from penstock.formats.lance.state import (
    LanceState,
    LanceTableVersion,
    LanceVersionReader,
    decode_state,
    is_managed,
    make_folder_url,
)
from penstock.formats.lance.version_pins import write_pin
from penstock.kernel.table_horizons import find_horizon
from penstock.model.encoding import ObjectId, encode, hash_parts
from penstock.model.keys import Key
from penstock.model.names import parse_revision
from penstock.model.references import Kind
from penstock.model.transactions import PREFIX, StoredTransaction, read_transaction

if TYPE_CHECKING:
    from penstock.formats.lance.lake.services import LanceServices
    from penstock.lake.embedded import Embedded

WRITTEN: Final = (Kind.BRANCH, Kind.TRANSACTION)
"""References that are written to."""
_TIMESTAMP: Final = 7
KNOWN_MAX: Final = 50_000
"""Of how many versions it is remembered that they are where everybody looks."""


class OpenedPlace(NamedTuple):
    """Describe a version."""

    name: str
    """Below the table's folder."""
    size: int


class OpenedTable(NamedTuple):
    """A table at a revision, and the folder that it is opened in."""

    key: Key
    content: LanceTable
    state: LanceState
    versions: LanceVersionReader
    chain: str
    branch: str | None
    """The branch, or the transaction, if the revision is one."""
    via: str | None = None
    """The branch, or the transaction, that the revision was found by, if it is known."""

    @property
    def folder(self) -> str:
        return make_folder_url(self.content.location, self.chain)


class TableOpener:
    """Opens tables."""

    def __init__(self, lake: Embedded, parts: LanceServices) -> None:
        self._lake, self._kernel, self._parts = lake, lake.kernel, parts
        self._moved = parts.places.moved
        self._known: dict[tuple[str, ObjectId], None] = {}
        self._at_home: dict[ObjectId, None] = {}
        """Versions whose manifests name no places that files were moved away from."""
        self._lock = Lock()

    # -- tables --------------------------------------------------------------------------------------------

    def open_table(
        self, at: str | None, key: Key, via: str | None = None, *, to_write: bool = False
    ) -> OpenedTable:
        """A table at a revision; ``to_write`` in the folder that the branch goes on in, which is begun then.

        ``KeyNotFound`` if there is nothing at the key, ``NotManaged`` if it is something else.
        """
        opened = self._open_as_it_is(at, key, via, to_write=to_write)
        return opened if opened.branch is None or not to_write else self._open_to_write(opened, opened.branch)

    def read_content(self, commit: ObjectId, key: Key, where: str) -> LanceTable:
        """The table at a key of a commit."""
        content = self._lake.read_content_at(commit, key)
        if content is None:
            raise KeyNotFound(
                f"there is no '{key}' at '{where}'\n"
                f"  Tables that are there: list_tables, or penstock lance list --ref {where}.",
                key=str(key),
                ref=where,
            )
        if not isinstance(content, LanceTable) or not is_managed(content):
            raise NotManaged(
                f"'{key}' is {content.type_in_words}, not a Lance table of the lake",
                table=str(key),
            )
        return content

    def find_write_target(self, branch: str) -> WriteTarget:
        """The write target of a branch or transaction."""
        if branch.startswith(PREFIX):
            transaction = self._read_transaction(branch)
            is_default = transaction.target == self._lake.get_branch_or_default(None)
            return WriteTarget(b"" if is_default else transaction.incarnation, transaction.id)
        if branch == self._lake.get_branch_or_default(None):
            return WriteTarget(b"")
        return WriteTarget(self._kernel.branch(branch).incarnation)

    def _read_transaction(self, branch: str) -> StoredTransaction:
        transaction = read_transaction(self._kernel.references.get_reference(branch))
        if transaction is None:
            raise TransactionNotFound(
                f"there is no transaction '{branch}', or it no longer exists", name=branch
            )
        return transaction

    def _open_as_it_is(
        self, at: str | None, key: Key, via: str | None = None, *, to_write: bool = False
    ) -> OpenedTable:
        """A table at a revision, in the folder that it is in. ``InvalidRequest`` if it is ``to_write`` where
        nothing can be written."""
        name = self._lake.get_branch_or_default(at)
        revision = parse_revision(name)
        commit, reference = self._kernel.resolve_revision(revision)
        is_plain = reference is not None and revision.commit is None and not revision.steps
        branch = name if is_plain and reference is not None and reference.kind in WRITTEN else None
        if to_write and branch is None:
            raise InvalidRequest(f"'{at}' is not a branch, so it cannot be written to")
        content = self.read_content(commit, key, name if via is None else via)
        if name != self._lake.get_branch_or_default(None):
            content = self._drop_erased(content)
        state = decode_state(content)
        versions = LanceVersionReader(self._kernel.objects, state)
        return OpenedTable(key, content, state, versions, state.chain, branch, via or revision.name)

    def _drop_erased(self, content: LanceTable) -> LanceTable:
        """The table without erased history. ``HistoryExpired`` if it is a state from before the erase."""
        assert content.id is not None
        horizon = find_horizon(self._kernel.store, content.id)
        if horizon is None:
            return content
        retained = horizon.drop_erased(self._parts.format, content)
        if retained is None:
            raise horizon.expired_error()
        assert isinstance(retained, LanceTable)
        return retained

    def require_version(self, opened: OpenedTable, number: int) -> None:
        """``HistoryExpired`` if a version that is not there was erased."""
        if number < opened.state.first:
            assert opened.content.id is not None
            if (horizon := find_horizon(self._kernel.store, opened.content.id)) is not None:
                raise horizon.expired_error()

    def _open_to_write(self, opened: OpenedTable, branch: str) -> OpenedTable:
        standing = self.find_write_target(branch)
        content, state, versions = opened.content, opened.state, opened.versions
        chain = find_free_chain(
            self._parts.places.open_place(content.location), standing, content, state, versions
        )
        newest = versions.find_newest(MAIN)
        if chain != find_chain(standing, content, state, versions):
            # The branch was reset, and its folder was not; or somebody has just gone on there.
            again = self._open_as_it_is(branch, opened.key)
            if again.state != state:
                return self._open_to_write(again, branch)
        to_write = opened._replace(chain=chain.folder)
        if newest is not None and newest[1].chain != chain.folder:
            self._write_copy(to_write, MAIN, *newest)
        return to_write

    # -- versions ------------------------------------------------------------------------------------------

    def place_version(
        self, opened: OpenedTable, branch: str, number: int, version: LanceTableVersion
    ) -> OpenedPlace:
        """Describe a version, for who opened the table.

        It is put where everybody looks first, if it may be and is not yet. Where that cannot be done now, it
        is under a name of its own, which no client takes for one that it has to put in its place.
        """
        if version.chain != opened.chain:
            return self._write_copy(opened, branch, number, version)
        if (
            self._moved
            and (followed := self._copy_with_moved_files(opened, branch, number, version)) is not None
        ):
            return followed
        canonical = version.promoted_path(branch, number)
        if not version.staged:
            return OpenedPlace(canonical, version.size)
        if opened.state.is_private:
            return OpenedPlace(version.staged, version.size)
        if self._is_there(opened.content, canonical, number, version):
            return OpenedPlace(canonical, version.size)
        self._promote_current(opened, branch, number, version)
        if self._is_there(opened.content, canonical, number, version):
            return OpenedPlace(canonical, version.size)
        waiting = WaitingVersion(branch, number, version)
        self._parts.promoter.pin_before(opened.content, opened.versions, waiting)
        return self._place_for_staged_version(opened, waiting)

    def place_after_commit(
        self, opened: OpenedTable, branch: str, number: int, version: LanceTableVersion
    ) -> OpenedPlace:
        """Where the manifest of a version is that was just committed.

        The promoter has been told of it, and was given what time there is: no more is done for that here.
        """
        canonical, waiting = version.promoted_path(branch, number), WaitingVersion(branch, number, version)
        promoter = self._parts.promoter
        if promoter.is_promoted(opened.content, waiting):
            return OpenedPlace(canonical, version.size)
        promoter.pin_before(opened.content, opened.versions, waiting)
        if not version.staged:
            return OpenedPlace(canonical, version.size)
        is_awaited = self._kernel.settings.promote_wait_s > 0
        if not is_awaited and (linked := promoter.link_privately(opened.content, waiting)) is not None:
            return OpenedPlace(linked, version.size)  # nothing is there as a rule, and a look costs as much
        if not opened.state.is_private and self._is_there(opened.content, canonical, number, version):
            return OpenedPlace(canonical, version.size)
        return self._place_for_staged_version(opened, waiting)

    def _place_for_staged_version(self, opened: OpenedTable, waiting: WaitingVersion) -> OpenedPlace:
        """A version under a name of its own."""
        name = opened.branch or ""
        transaction = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        return OpenedPlace(
            self._parts.promoter.find_private_path(opened.content, waiting, transaction), waiting.version.size
        )

    def promote_versions(self, branch: str, key: Key) -> bool:
        """Put the versions of a table where everybody looks, as far as that can be done soon.

        Only what a branch has now is put, and only into its own chain: what a commit has may be that of a
        transaction, or of a branch that was moved back, and a branch may have begun with such a commit.
        """
        content = self._lake.read_content_at(self._lake.resolve_commit(branch), key)
        if not isinstance(content, LanceTable) or not is_managed(content):
            return False
        if self.find_write_target(branch) != WriteTarget(decode_state(content).owner):
            return False
        until_s = monotonic() + max(self._kernel.settings.promote_wait_s, 1.0)
        return self._parts.promoter.promote_table(content, until_s)

    def _promote_current(
        self, opened: OpenedTable, branch: str, number: int, version: LanceTableVersion
    ) -> None:
        """Have a version put in its place if the branch whose chain it is in has it now."""
        with suppress(ReferenceNotFound, TransactionNotFound, TransactionOver):
            owner = self._find_chain_branch(opened)
            if owner is None:
                return
            content = self._lake.read_content_at(self._lake.resolve_commit(owner), opened.key)
            if isinstance(content, LanceTable) and is_managed(content) and content.id == opened.content.id:
                known_version = LanceVersionReader(self._kernel.objects, decode_state(content)).get_version(
                    branch, number
                )
                if known_version is not None and known_version.make_id(number) == version.make_id(number):
                    self.promote_versions(owner, opened.key)

    def _find_chain_branch(self, opened: OpenedTable) -> str | None:
        """The branch that a table's chain may be of: for a transaction that which it is to land on."""
        if not opened.chain:
            return self._lake.get_branch_or_default(None)
        name = opened.via
        if name is not None and name.startswith(PREFIX):
            return self._read_transaction(name).target
        return (
            name
            if name is not None and self._kernel.references.get_reference(name).kind is Kind.BRANCH
            else None
        )

    def _is_there(self, content: LanceTable, canonical: str, number: int, version: LanceTableVersion) -> bool:
        """Whether a version is where everybody looks: it, and not another one's."""
        cache_key = (content.location, version.make_id(number))
        with self._lock:
            if cache_key in self._known:
                return True
        (data,) = self._parts.places.open_place(content.location).read([canonical])
        if data is None or not is_manifest_of(version, data):
            return False
        self._parts.manifests.cache_manifest(version, data)
        self._remember_place(cache_key)
        return True

    def _remember_place(self, cache_key: tuple[str, ObjectId]) -> None:
        with self._lock:
            self._known[cache_key] = None
            while len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def _write_copy(
        self, opened: OpenedTable, branch: str, number: int, version: LanceTableVersion
    ) -> OpenedPlace:
        """Write a manifest of another chain into the folder in which the table is opened.

        Where another one of its number is already, because the branch was moved, it has a name of its own.
        """
        location, name = opened.content.location, make_manifest_path(opened.chain, branch, number)
        place, cache_key = (
            self._parts.places.open_place(location),
            (f"{location}/{name}", version.make_id(number)),
        )
        uuid = self._make_copy_id(number, version)
        with self._lock:
            is_known = cache_key in self._known
        if is_known and (size := place.size(name)) is not None:
            return OpenedPlace(name, size)
        (existing,) = place.read([name])
        if existing is None:
            data = self._copy_manifest(opened, branch, number, version, uuid)
            is_new = False
            with suppress(OutcomeUnknown):  # what is there tells
                is_new = place.create(name, data)
            existing = data if is_new else next(iter(place.read([name])))
        if existing is None:
            raise OutcomeUnknown(f"it is not known whether {place.url}/{name} was written; try again")
        if _is_copy(existing, uuid):
            self._remember_place(cache_key)
            return OpenedPlace(name, len(existing))
        apart = make_staged_path(opened.chain, branch, f"apart-{uuid}", number)
        if (size := place.size(apart)) is not None:
            return OpenedPlace(apart, size)
        data = self._copy_manifest(opened, branch, number, version, uuid)
        try:
            place.create(apart, data)  # if somebody else did, it is the same
        except OutcomeUnknown:
            if place.size(apart) is None:
                raise
        return OpenedPlace(apart, len(data))

    def _copy_manifest(
        self, opened: OpenedTable, branch: str, number: int, version: LanceTableVersion, uuid: str
    ) -> bytes:
        """The manifest of a version of another chain for the folder that the table is opened in.

        It names files of the other chain, so that the version is pinned there. What a transaction reads need
        not last.
        """
        content = opened.content
        manifest = self._parts.manifests.read_manifest(content.location, branch, number, version)
        old_folder, becomes = (
            make_folder_url(content.location, chain, branch) for chain in (version.chain, opened.chain)
        )
        try:
            moved = move_to_folder(manifest, old_folder, becomes)
        except UnknownPlacement as problem:
            raise UnsupportedFeature(
                f"version {number} of '{opened.key}' {problem}, so it cannot be continued on another branch"
            ) from None
        if not (opened.via or "").startswith(PREFIX):
            place = self._parts.places.open_place(content.location)
            write_pin(place, NumberedVersion(number, version), branch, self._kernel.clock())
        where = self._moved.map_to_storage(content.location)
        message = make_transaction(
            ManifestOperation.CLONE,
            number,
            uuid,
            ProtobufMessage.from_fields((1, 1), (3, number), (4, where)),
            {},
        )
        time_us = version.time_us or _time_us(manifest)
        return moved.make_version(number, manifest.branch, message, time_us).encode(self._moved)

    # -- versions from before files were moved -------------------------------------------------------------

    def _make_copy_id(self, number: int, version: LanceTableVersion) -> str:
        """What a copy of a version is known by: another one as soon as its files are elsewhere."""
        data = version.make_id(number)
        if self._moved:
            data = hash_parts("lance copy", data, encode(self._moved.all))
        return str(UUID(bytes=data[:16], version=5))

    def _copy_with_moved_files(
        self, opened: OpenedTable, branch: str, number: int, version: LanceTableVersion
    ) -> OpenedPlace | None:
        """A copy of a version's manifest that names the places where its files are now; ``None`` if its own
        manifest does."""
        content, version_id = opened.content, version.make_id(number)
        if version_id in self._at_home:
            return None
        name = make_staged_path(opened.chain, branch, f"apart-{self._make_copy_id(number, version)}", number)
        place = self._parts.places.open_place(content.location)
        if (size := place.size(name)) is not None:
            return OpenedPlace(name, size)
        manifests = self._parts.manifests
        try:
            data = manifests.read_readable_bytes(content.location, branch, number, version)
        except UnknownPlacement as problem:
            raise UnsupportedFeature(
                f"version {number} of '{opened.key}' cannot be read since the table was moved: it {problem}"
            ) from None
        if data == manifests.read_bytes(content.location, branch, number, version):
            with self._lock:
                self._at_home[version_id] = None
                while len(self._at_home) > KNOWN_MAX:
                    del self._at_home[next(iter(self._at_home))]
            return None
        try:
            place.create(name, data)  # if somebody else did, it is the same
        except OutcomeUnknown:
            if place.size(name) is None:
                raise
        return OpenedPlace(name, len(data))


def _is_copy(data: bytes, uuid: str) -> bool:
    """Whether a manifest is the copy of a version that was made under an id, and every Lance can open it."""
    try:
        manifest = Manifest.decode(data)
        transaction = manifest.transaction
        return transaction is not None and transaction.get_text(2) == uuid and manifest.names_one_transaction
    except MalformedMessage:
        return False


def _time_us(manifest: Manifest) -> int:
    """When a version was made, as its manifest tells."""
    message = manifest.body.get_message(_TIMESTAMP)
    return (
        0
        if message is None
        else (message.get_number(1) or 0) * 1_000_000 + (message.get_number(2) or 0) // 1000
    )
