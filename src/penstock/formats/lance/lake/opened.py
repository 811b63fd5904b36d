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
from penstock.formats.lance.chains import Waiting
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.manifests import Manifest, ManifestOperation, transaction
from penstock.formats.lance.names import MAIN, manifest_name, staged_name
from penstock.formats.lance.pinning import pin
from penstock.formats.lance.reading import is_of
from penstock.formats.lance.rehoming import Immovable, rehome
from penstock.formats.lance.sides import Numbered
from penstock.formats.lance.standing import LanceStanding, chain_for, free_chain
from penstock.formats.lance.state import LanceState, Version, Versions, folder_at, is_managed, state_of
from penstock.formats.lance.wire import Malformed, Message
from penstock.kernel.table_horizons import find_horizon
from penstock.model.encoding import ObjectId, digest, encode
from penstock.model.keys import Key
from penstock.model.names import parse_revision
from penstock.model.references import Kind
from penstock.model.transactions import PREFIX, Transaction, transaction_of

if TYPE_CHECKING:
    from penstock.formats.lance.lake.parts import LanceParts
    from penstock.lake.embedded import Embedded

WRITTEN: Final = (Kind.BRANCH, Kind.TRANSACTION)
"""References that are written to."""
_TIMESTAMP: Final = 7
KNOWN_MAX: Final = 50_000
"""Of how many versions it is remembered that they are where everybody looks."""


class OpenedPlace(NamedTuple):
    """Where a version's manifest is."""

    name: str
    """Below the table's folder."""
    size: int


class Opened(NamedTuple):
    """A table at a revision, and the folder that it is opened in."""

    key: Key
    content: LanceTable
    state: LanceState
    versions: Versions
    chain: str
    branch: str | None
    """The branch, or the transaction, if the revision is one."""
    via: str | None = None
    """The branch, or the transaction, that the revision was found by, if it is known."""

    @property
    def folder(self) -> str:
        return folder_at(self.content.location, self.chain)


class Opening:
    """Opens tables."""

    def __init__(self, lake: Embedded, parts: LanceParts) -> None:
        self._lake, self._kernel, self._parts = lake, lake.kernel, parts
        self._moved = parts.places.moved
        self._known: dict[tuple[str, ObjectId], None] = {}
        self._at_home: dict[ObjectId, None] = {}
        """Versions whose manifests name no places that files were moved away from."""
        self._lock = Lock()

    # -- tables --------------------------------------------------------------------------------------------

    def table(self, at: str | None, key: Key, via: str | None = None, *, to_write: bool = False) -> Opened:
        """A table at a revision; ``to_write`` in the folder that the branch goes on in, which is begun then.

        ``KeyNotFound`` if there is nothing at the key, ``NotManaged`` if it is something else.
        """
        opened = self._as_it_is(at, key, via, to_write=to_write)
        return opened if opened.branch is None or not to_write else self._to_write(opened, opened.branch)

    def content(self, commit: ObjectId, key: Key, where: str) -> LanceTable:
        """The table at a key of a commit."""
        content = self._lake.content_at(commit, key)
        if content is None:
            raise KeyNotFound(
                f"there is no '{key}' at '{where}'\n"
                f"  Tables that are there: list_tables, or penstock lance list --ref {where}.",
                key=str(key),
                ref=where,
            )
        if not isinstance(content, LanceTable) or not is_managed(content):
            raise NotManaged(
                f"'{key}' is no Lance table whose versions the lake decides, but a {content.type}",
                table=str(key),
            )
        return content

    def standing(self, branch: str) -> LanceStanding:
        """For whom a branch, or a transaction, writes."""
        if branch.startswith(PREFIX):
            found = self._transaction(branch)
            is_default = found.target == self._lake.or_default(None)
            return LanceStanding(b"" if is_default else found.incarnation, found.id)
        if branch == self._lake.or_default(None):
            return LanceStanding(b"")
        return LanceStanding(self._kernel.branch(branch).incarnation)

    def _transaction(self, branch: str) -> Transaction:
        found = transaction_of(self._kernel.references.get(branch))
        if found is None:
            raise TransactionNotFound(f"there is no transaction '{branch}', or not any more", name=branch)
        return found

    def _as_it_is(
        self, at: str | None, key: Key, via: str | None = None, *, to_write: bool = False
    ) -> Opened:
        """A table at a revision, in the folder that it is in. ``InvalidRequest`` if it is ``to_write`` where
        nothing can be written."""
        name = self._lake.or_default(at)
        revision = parse_revision(name)
        commit, reference = self._kernel.resolve(revision)
        is_plain = reference is not None and revision.commit is None and not revision.steps
        branch = name if is_plain and reference is not None and reference.kind in WRITTEN else None
        if to_write and branch is None:
            raise InvalidRequest(f"'{at}' is no branch, so that nothing can be written there")
        content = self.content(commit, key, name if via is None else via)
        if name != self._lake.or_default(None):
            content = self._retained(content)
        state = state_of(content)
        versions = Versions(self._kernel.objects, state)
        return Opened(key, content, state, versions, state.chain, branch, via or revision.name)

    def _retained(self, content: LanceTable) -> LanceTable:
        """A table without what was erased of it. ``HistoryExpired`` if it is as it was before that."""
        assert content.id is not None
        horizon = find_horizon(self._kernel.store, content.id)
        if horizon is None:
            return content
        retained = horizon.retained(self._parts.format, content)
        if retained is None:
            raise horizon.expired()
        assert isinstance(retained, LanceTable)
        return retained

    def require_version(self, opened: Opened, number: int) -> None:
        """``HistoryExpired`` if a version that is not there was erased."""
        if number < opened.state.first:
            assert opened.content.id is not None
            if (horizon := find_horizon(self._kernel.store, opened.content.id)) is not None:
                raise horizon.expired()

    def _to_write(self, opened: Opened, branch: str) -> Opened:
        standing = self.standing(branch)
        content, state, versions = opened.content, opened.state, opened.versions
        chain = free_chain(self._parts.places.at(content.location), standing, content, state, versions)
        newest = versions.newest(MAIN)
        if chain != chain_for(standing, content, state, versions):
            # The branch was reset, and its folder was not; or somebody has just gone on there.
            again = self._as_it_is(branch, opened.key)
            if again.state != state:
                return self._to_write(again, branch)
        found = opened._replace(chain=chain.folder)
        if newest is not None and newest[1].chain != chain.folder:
            self._materialised(found, MAIN, *newest)
        return found

    # -- versions ------------------------------------------------------------------------------------------

    def place(self, opened: Opened, branch: str, number: int, version: Version) -> OpenedPlace:
        """Where a version's manifest is, for who opened the table.

        It is put where everybody looks first, if it may be and is not yet. Where that cannot be done now, it
        is under a name of its own, which no client takes for one that it has to put in its place.
        """
        if version.chain != opened.chain:
            return self._materialised(opened, branch, number, version)
        if self._moved and (followed := self._followed(opened, branch, number, version)) is not None:
            return followed
        canonical = version.place(branch, number)
        if not version.staged:
            return OpenedPlace(canonical, version.size)
        if opened.state.is_private:
            return OpenedPlace(version.staged, version.size)
        if self._is_there(opened.content, canonical, number, version):
            return OpenedPlace(canonical, version.size)
        self._promote_current(opened, branch, number, version)
        if self._is_there(opened.content, canonical, number, version):
            return OpenedPlace(canonical, version.size)
        waiting = Waiting(branch, number, version)
        self._parts.promoter.pin_before(opened.content, opened.versions, waiting)
        return self._apart(opened, waiting)

    def landed(self, opened: Opened, branch: str, number: int, version: Version) -> OpenedPlace:
        """The same for a version that was just committed.

        The promoter has been told of it, and was given what time there is: no more is done for that here.
        """
        canonical, waiting = version.place(branch, number), Waiting(branch, number, version)
        promoter = self._parts.promoter
        if promoter.is_promoted(opened.content, waiting):
            return OpenedPlace(canonical, version.size)
        promoter.pin_before(opened.content, opened.versions, waiting)
        if not version.staged:
            return OpenedPlace(canonical, version.size)
        is_awaited = self._kernel.settings.promote_wait_s > 0
        if not is_awaited and (linked := promoter.linked(opened.content, waiting)) is not None:
            return OpenedPlace(linked, version.size)  # nothing is there as a rule, and a look costs as much
        if not opened.state.is_private and self._is_there(opened.content, canonical, number, version):
            return OpenedPlace(canonical, version.size)
        return self._apart(opened, waiting)

    def _apart(self, opened: Opened, one: Waiting) -> OpenedPlace:
        """A version under a name of its own."""
        name = opened.branch or ""
        transaction = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        return OpenedPlace(self._parts.promoter.apart(opened.content, one, transaction), one.version.size)

    def promote(self, branch: str, key: Key) -> bool:
        """Put the versions of a table where everybody looks, as far as that can be done soon.

        Only what a branch has now is put, and only into its own chain: what a commit has may be that of a
        transaction, or of a branch that was moved back, and a branch may have begun with such a commit.
        """
        content = self._lake.content_at(self._lake.commit_of(branch), key)
        if not isinstance(content, LanceTable) or not is_managed(content):
            return False
        if self.standing(branch) != LanceStanding(state_of(content).owner):
            return False
        until_s = monotonic() + max(self._kernel.settings.promote_wait_s, 1.0)
        return self._parts.promoter.promote(content, until_s)

    def _promote_current(self, opened: Opened, branch: str, number: int, version: Version) -> None:
        """Have a version put in its place if the branch whose chain it is in has it now."""
        with suppress(ReferenceNotFound, TransactionNotFound, TransactionOver):
            owner = self._owner(opened)
            if owner is None:
                return
            there = self._lake.content_at(self._lake.commit_of(owner), opened.key)
            if isinstance(there, LanceTable) and is_managed(there) and there.id == opened.content.id:
                known = Versions(self._kernel.objects, state_of(there)).get(branch, number)
                if known is not None and known.id(number) == version.id(number):
                    self.promote(owner, opened.key)

    def _owner(self, opened: Opened) -> str | None:
        """The branch that a table's chain may be of: for a transaction that which it is to land on."""
        if not opened.chain:
            return self._lake.or_default(None)
        name = opened.via
        if name is not None and name.startswith(PREFIX):
            return self._transaction(name).target
        return name if name is not None and self._kernel.references.get(name).kind is Kind.BRANCH else None

    def _is_there(self, content: LanceTable, canonical: str, number: int, version: Version) -> bool:
        """Whether a version is where everybody looks: it, and not another one's."""
        known = (content.location, version.id(number))
        with self._lock:
            if known in self._known:
                return True
        (data,) = self._parts.places.at(content.location).read([canonical])
        if data is None or not is_of(version, data):
            return False
        self._parts.manifests.keep(version, data)
        self._remember(known)
        return True

    def _remember(self, known: tuple[str, ObjectId]) -> None:
        with self._lock:
            self._known[known] = None
            while len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def _materialised(self, opened: Opened, branch: str, number: int, version: Version) -> OpenedPlace:
        """A version of another chain, as it reads in the folder that the table is opened in.

        Where another one of its number is already, because the branch was moved, it has a name of its own.
        """
        location, name = opened.content.location, manifest_name(opened.chain, branch, number)
        place, known = self._parts.places.at(location), (f"{location}/{name}", version.id(number))
        uuid = self._copy_id(number, version)
        with self._lock:
            is_known = known in self._known
        if is_known and (size := place.size(name)) is not None:
            return OpenedPlace(name, size)
        (there,) = place.read([name])
        if there is None:
            data = self._copy(opened, branch, number, version, uuid)
            is_new = False
            with suppress(OutcomeUnknown):  # what is there tells
                is_new = place.create(name, data)
            there = data if is_new else next(iter(place.read([name])))
        if there is None:
            raise OutcomeUnknown(f"it is not known whether {place.url}/{name} was written; try again")
        if _is_copy(there, uuid):
            self._remember(known)
            return OpenedPlace(name, len(there))
        apart = staged_name(opened.chain, branch, f"apart-{uuid}", number)
        if (size := place.size(apart)) is not None:
            return OpenedPlace(apart, size)
        data = self._copy(opened, branch, number, version, uuid)
        try:
            place.create(apart, data)  # if somebody else did, it is the same
        except OutcomeUnknown:
            if place.size(apart) is None:
                raise
        return OpenedPlace(apart, len(data))

    def _copy(self, opened: Opened, branch: str, number: int, version: Version, uuid: str) -> bytes:
        """The manifest of a version of another chain for the folder that the table is opened in.

        It names files of the other chain, so that the version is pinned there. What a transaction reads need
        not last.
        """
        content = opened.content
        manifest = self._parts.manifests.manifest(content.location, branch, number, version)
        was, becomes = (folder_at(content.location, one, branch) for one in (version.chain, opened.chain))
        try:
            moved = rehome(manifest, was, becomes)
        except Immovable as problem:
            raise UnsupportedFeature(
                f"version {number} of '{opened.key}' {problem}, so that no other branch can go on from it"
            ) from None
        if not (opened.via or "").startswith(PREFIX):
            place = self._parts.places.at(content.location)
            pin(place, Numbered(number, version), branch, self._kernel.clock())
        where = self._moved.to_storage(content.location)
        said = transaction(
            ManifestOperation.CLONE, number, uuid, Message.of((1, 1), (3, number), (4, where)), {}
        )
        time_us = version.time_us or _time_us(manifest)
        return moved.as_version(number, manifest.branch, said, time_us).pack(self._moved)

    # -- versions from before files were moved -------------------------------------------------------------

    def _copy_id(self, number: int, version: Version) -> str:
        """What a copy of a version is known by: another one as soon as its files are elsewhere."""
        known = version.id(number)
        if self._moved:
            known = digest("lance copy", known, encode(self._moved.all))
        return str(UUID(bytes=known[:16], version=5))

    def _followed(self, opened: Opened, branch: str, number: int, version: Version) -> OpenedPlace | None:
        """A copy of a version's manifest that names the places where its files are now; ``None`` if its own
        manifest does."""
        content, known = opened.content, version.id(number)
        if known in self._at_home:
            return None
        name = staged_name(opened.chain, branch, f"apart-{self._copy_id(number, version)}", number)
        place = self._parts.places.at(content.location)
        if (size := place.size(name)) is not None:
            return OpenedPlace(name, size)
        manifests = self._parts.manifests
        try:
            data = manifests.readable(content.location, branch, number, version)
        except Immovable as problem:
            raise UnsupportedFeature(
                f"version {number} of '{opened.key}' {problem}, so that it cannot be read where its files "
                "are now"
            ) from None
        if data == manifests.read(content.location, branch, number, version):
            with self._lock:
                self._at_home[known] = None
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
        found = Manifest.read(data)
        said = found.transaction
        return said is not None and said.text(2) == uuid and found.is_told_alike
    except Malformed:
        return False


def _time_us(manifest: Manifest) -> int:
    """When a version was made, as its manifest tells."""
    said = manifest.body.message(_TIMESTAMP)
    return 0 if said is None else (said.number(1) or 0) * 1_000_000 + (said.number(2) or 0) // 1000
