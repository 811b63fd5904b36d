"""Answering calls about Lance tables from a kernel in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from penstock.errors import (
    CommitConflict,
    ConflictError,
    InvalidRequest,
    KeyNotFound,
    NotManaged,
    OwnRefNotFound,
    PenstockError,
    RequestError,
    TableExists,
    TableNotFound,
    VersionTaken,
)
from penstock.formats.lance.manifests import Operation
from penstock.formats.lance.names import MANIFEST, STAGING, own_branch_name
from penstock.formats.lance.state import Version, Versions, is_managed, state_of
from penstock.kernel.batch import Outcome
from penstock.kernel.ledger import LEDGER, find_table, is_entangled, whereabouts
from penstock.kernel.state import prefix_end
from penstock.lake.asked import asked
from penstock.lake.call import Call
from penstock.lake.calls import GetAbout
from penstock.lake.embedded import Embedded, commit_meta, first
from penstock.lake.lance import calls
from penstock.lake.lance.answers import LanceAbout, LanceBranch, LanceCommitted, LanceTag, LanceVersion
from penstock.lake.lance.calls import LanceOperation
from penstock.lake.lance.done import Doings, committed, repeated
from penstock.lake.lance.notes import note_stays
from penstock.lake.lance.opened import Opened, Opening
from penstock.lake.lance.requests import changes_of, message_of
from penstock.model.clock import utc
from penstock.model.content import AnyContent, LanceTable, ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX
from penstock.storage.locations import own_place

if TYPE_CHECKING:
    from penstock.lake.lance.parts import LanceParts

logger = logging.getLogger("penstock")

TRIES_MAX: Final = 8
"""How often a table may come and go between a look and its turn."""


class LanceAnswers:
    """Answers every call of ``calls``."""

    def __init__(self, lake: Embedded, parts: LanceParts) -> None:
        self._lake, self._kernel, self._parts = lake, lake.kernel, parts
        self._opening = Opening(lake, parts)
        self.ways: dict[type[Call[Any]], Callable[[Any], Any]] = {
            calls.CommitLance: self._commit,
            calls.GetLanceTable: self._about,
            calls.ListLanceVersions: self._versions,
            calls.ListLanceBranches: self._branches,
            calls.ListLanceTags: self._tags,
            calls.PromoteLance: self._promote,
        }

    def repeated(self, call: calls.CommitLance, found: Outcome) -> LanceCommitted:
        """What a commit came to before."""
        return repeated(self._doings(call), found)

    # -- reading -------------------------------------------------------------------------------------------

    def _about(self, call: calls.GetLanceTable) -> LanceAbout:
        return _about(self._opening.table(call.at, call.key, call.via, to_write=call.to_write))

    def _versions(self, call: calls.ListLanceVersions) -> tuple[LanceVersion, ...]:
        opened = self._opening.table(call.at, call.key, call.via, to_write=call.to_write)
        branch = self._own_branch(opened, call.branch)
        if call.version is not None:
            found = opened.versions.get(branch, call.version)
            return () if found is None else (self._version(opened, branch, call.version, found),)
        listed = first(opened.versions.all(branch, call.below), call.limit)
        return tuple(self._version(opened, branch, number, one) for number, one in listed)

    def _version(self, opened: Opened, branch: str, number: int, version: Version) -> LanceVersion:
        placed = self._opening.place(opened, branch, number, version)
        return LanceVersion(
            version=number,
            manifest=f"{opened.content.location}/{placed.name}",
            size=placed.size,
            created=utc(version.time_us) if version.time_us else None,
            operation=_made_by(version),
            metadata=version.metadata,
        )

    def _own_branch(self, opened: Opened, name: str) -> str:
        branch = own_branch_name(name)
        if branch and opened.versions.branch(branch) is None:
            raise OwnRefNotFound(f"'{opened.key}' has no branch '{branch}'", branch=branch)
        return branch

    def _branches(self, call: calls.ListLanceBranches) -> tuple[LanceBranch, ...]:
        opened = self._opening.table(call.at, call.key, call.via)
        return tuple(first(_own_branches(opened, call.after), call.limit))

    def _tags(self, call: calls.ListLanceTags) -> tuple[LanceTag, ...]:
        opened = self._opening.table(call.at, call.key, call.via)
        return tuple(first(_own_tags(opened, call.after), call.limit))

    def _promote(self, call: calls.PromoteLance) -> LanceAbout:
        opened = self._opening.table(self._lake.or_default(call.branch), call.key)
        if opened.branch is None or opened.branch.startswith(PREFIX):
            raise InvalidRequest(f"'{call.branch}' is no branch, so that nothing is promoted there")
        if opened.state.is_private:
            raise InvalidRequest(f"'{call.key}' is private: its versions are only told of by the lake")
        self._opening.promote(opened.branch, call.key)
        return _about(opened)

    # -- writing -------------------------------------------------------------------------------------------

    def _commit(self, call: calls.CommitLance) -> LanceCommitted:
        if not call.operations:
            raise InvalidRequest("a commit to Lance tables needs at least one operation")
        for _ in range(TRIES_MAX):
            asked_for = [
                (number, one) for number, one in enumerate(call.operations) if self._is_to_do(call, one)
            ]
            if not asked_for:
                return self._nothing_to_do(call)
            try:
                return self._try(call, asked_for)
            except TableExists as problem:
                one = call.operations[int(problem.details.get("operation", 0))]
                if not isinstance(one, calls.DeclareLance) or not one.exist_ok or self._is_to_do(call, one):
                    raise
        raise CommitConflict([], "a table came and went while it was to be declared; try again")

    def _is_to_do(self, call: calls.CommitLance, one: LanceOperation) -> bool:
        """Whether there is anything to do: not for a table that may be there, and is."""
        if not isinstance(one, calls.DeclareLance) or not one.exist_ok:
            return True
        return not is_managed(self._head_content(call.branch, one.key))

    def _nothing_to_do(self, call: calls.CommitLance) -> LanceCommitted:
        doings = self._doings(call)
        return committed(doings, None, self._lake.commit_of(call.branch))

    def _try(self, call: calls.CommitLance, asked_for: list[tuple[int, LanceOperation]]) -> LanceCommitted:
        branch, taken = self._lake.or_default(call.branch), list[LanceTable]()
        location_of = partial(self._location_of, branch, self._lake.commit_of(branch))
        try:
            changes = changes_of(asked_for, partial(self._new_place, branch, taken), location_of)
            self._note_deregistered(branch, asked_for)
            outcome = self._kernel.commit(
                branch,
                changes,
                commit_meta(call.said, call.who, message_of(call.operations)),
                create_namespaces=call.create,
                key=call.idempotency_key,
                asked=partial(asked, call),
            )
        except (RequestError, ConflictError) as refused:
            for table in taken:
                self._parts.ownership.release(table)
            if isinstance(refused, VersionTaken):
                self._show_winners(branch, {one.key for _, one in asked_for})
            elif isinstance(refused, CommitConflict):
                _tell_operation(refused, asked_for)
            raise
        return self._landed(call, branch, outcome)

    def _landed(self, call: calls.CommitLance, branch: str, outcome: Outcome) -> LanceCommitted:
        """Give the promoter a moment, so that whoever looks into a folder next sees what was committed."""
        if outcome.commits:
            commit, wait_s = outcome.commits[-1], self._kernel.settings.promote_wait_s
            contents = {one.key: self._lake.content_at(commit, one.key) for one in call.operations}
            self._remove_staged(call, contents)
            if wait_s > 0 and not branch.startswith(PREFIX):
                tables = (one for one in contents.values() if isinstance(one, LanceTable))
                self._parts.promoter.wait({one.id for one in tables if one.id is not None}, wait_s)
        return repeated(self._doings(call), outcome)

    def _remove_staged(self, call: calls.CommitLance, contents: Mapping[Key, AnyContent | None]) -> None:
        """Remove what clients staged of versions that the lake keeps under another name, as it does in
        transactions. The promoter removes the others. What is left is swept."""
        found: dict[str, list[str]] = {}
        for one in call.operations:
            content = contents[one.key]
            if not isinstance(one, calls.CreateLanceVersion) or not isinstance(content, LanceTable):
                continue
            versions = Versions(self._kernel.objects, state_of(content).root)
            version = versions.get(own_branch_name(one.branch), one.version)
            name = one.manifest.removeprefix(f"{content.location}/")
            if version is not None and STAGING in version.staged and f"{MANIFEST}-" in name:
                found.setdefault(content.location, []).append(name)
        for location, names in found.items():
            try:
                self._parts.places.at(location).delete(names)
            except PenstockError as problem:
                logger.info("what was staged at %s is left for the sweep: %s", location, problem)

    def _doings(self, call: calls.CommitLance) -> Doings:
        return Doings(self._lake, self._opening, call)

    def _show_winners(self, branch: str, keys: set[Key]) -> None:
        """Lance's clients look into the folder for what was faster than they, before they try again."""
        if branch.startswith(PREFIX):
            return
        for key in keys:
            self._opening.promote(branch, key)

    def _head_content(self, branch: str | None, key: Key) -> AnyContent | None:
        return self._lake.content_at(self._lake.commit_of(branch), key)

    # -- places --------------------------------------------------------------------------------------------

    def _location_of(self, branch: str, head: ObjectId, key: Key) -> str:
        try:
            return self._opening.content(head, key, branch).location
        except (KeyNotFound, NotManaged):
            raise TableNotFound(f"there is no Lance table '{key}' at '{branch}'", table=str(key)) from None

    def _new_place(
        self,
        branch: str,
        taken: list[LanceTable],
        identity: UUID,
        one: calls.DeclareLance | calls.RegisterLance,
    ) -> str:
        """Where a new table is to be. One that was there already and nobody's is ``taken`` for the lake."""
        if isinstance(one, calls.DeclareLance) and one.id is not None:
            self._check_unknown(branch, one.key, one.id)
        if one.location is None:
            where = own_place(self._lake.warehouse, identity)
            # Noted before anything is written there, so that a sweep knows whose it is if this never lands.
            self._parts.ownership.claim(LanceTable(id=identity, location=where))
            return where
        if branch != self._lake.or_default(None):
            raise InvalidRequest(
                f"'{one.key}' can be given a location on the default branch only: the lake makes others"
            )
        from penstock.lake.delta_places import check_apart, check_new_place

        where = self._lake.checked_location(one.location)
        if isinstance(one, calls.DeclareLance):
            check_new_place(where, self._lake.warehouse, self._lake.do(GetAbout()).roots)
        others = self._places_of_tables(self._lake.commit_of(branch))
        check_apart(where, one.key, others, self._lake.warehouse, self._is_entangled)
        table = LanceTable(id=identity, location=where)
        if self._parts.ownership.check(table):
            taken.append(table)
        return where

    def _note_deregistered(self, branch: str, asked_for: list[tuple[int, LanceOperation]]) -> None:
        """Note that the files of tables which are about to be forgotten stay: no sweep takes them."""
        for _, one in asked_for:
            if isinstance(one, calls.DeregisterLance):
                with suppress(TableNotFound):  # its turn tells
                    where = self._location_of(branch, self._lake.commit_of(branch), one.key)
                    note_stays(self._parts.places.at(where))

    def _check_unknown(self, branch: str, key: Key, identity: UUID) -> None:
        """``InvalidRequest`` for an id that a table has, or had."""
        commits = {self._lake.commit_of(branch), self._lake.commit_of(None)} - {NO_COMMIT}
        if any(whereabouts(partial(_look, self._lake, one), identity) is not None for one in commits):
            raise InvalidRequest(f"'{key}' cannot have the id {identity}: another table has it, or had")

    def _places_of_tables(self, commit: ObjectId) -> Iterator[tuple[Key, str]]:
        """Where every table is that a format of this lake manages."""
        if commit == NO_COMMIT:
            return
        look = partial(_look, self._lake, commit)
        for stored, _ in self._kernel.state(commit).scan(LEDGER, prefix_end(LEDGER)):
            key = find_table(look, UUID(hex=stored.removeprefix(LEDGER).decode()))
            content = None if key is None else look(key.encode())
            if key is not None and isinstance(content, ManagedTable) and content.location:
                yield key, content.location

    def _is_entangled(self, location: str) -> bool:
        """Whether any branch or tag has a table above a place or below it."""
        heads = {head for _, head in self._kernel.references.heads()} - {NO_COMMIT}
        return any(is_entangled(partial(_look, self._lake, head), location) for head in heads)


def _look(lake: Embedded, commit: ObjectId, stored: bytes) -> AnyContent | None:
    from penstock.kernel.conflict import content_of

    return content_of(lake.kernel.objects, lake.kernel.state(commit).get(stored))


def _about(opened: Opened) -> LanceAbout:
    newest = opened.versions.newest()
    assert opened.content.id is not None
    return LanceAbout(
        key=opened.key,
        id=opened.content.id,
        location=opened.content.location,
        folder=opened.folder,
        version=None if newest is None else newest[0],
        is_private=opened.state.is_private,
        properties=opened.state.properties,
    )


def _own_branches(opened: Opened, after: str) -> Iterator[LanceBranch]:
    for name, one in opened.versions.branches().items():
        if name > after:
            begun = opened.versions.get(name, one.version)
            yield LanceBranch(
                name=name,
                parent=one.parent,
                version=one.version,
                created=utc(one.created_us) if one.created_us else None,
                manifest_size=0 if begun is None else begun.size,
                metadata=one.metadata,
            )


def _made_by(version: Version) -> str:
    """What made a version. Nobody has looked into those that were there before the lake."""
    is_imported = not version.staged and version.operation is Operation.OTHER
    return "imported" if is_imported else version.operation.value


def _own_tags(opened: Opened, after: str) -> Iterator[LanceTag]:
    for name, one in opened.versions.tags().items():
        if name > after:
            tagged = opened.versions.get(one.branch, one.version)
            yield LanceTag(
                name=name,
                branch=one.branch,
                version=one.version,
                manifest_size=0 if tagged is None else tagged.size,
                created=utc(one.created_us) if one.created_us else None,
                updated=utc(one.updated_us) if one.updated_us else None,
                metadata=one.metadata,
            )


def _tell_operation(conflict: CommitConflict, asked_for: list[tuple[int, LanceOperation]]) -> None:
    """Name the operation that a conflict is about: the first one at its key, or below it."""
    for one in conflict.conflicts:
        for number, operation in asked_for:
            if operation.key[: len(one.key)] == one.key:
                conflict.details.setdefault("operation", number)
                return
