"""Answering calls about Lance tables from a kernel in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import (
    AdministratorError,
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
    Unavailable,
    VersionTaken,
)
from penstock.formats.lance.chains import WaitingVersion
from penstock.formats.lance.lake import calls
from penstock.formats.lance.lake.answers import (
    LanceBranch,
    LanceCommitResult,
    LanceStatus,
    LanceTableInfo,
    LanceTag,
    LanceVersion,
)
from penstock.formats.lance.lake.calls import LanceOperation
from penstock.formats.lance.lake.operation_results import (
    CommittedRequest,
    TableAtCommit,
    find_table_at,
    make_result_of_commit,
    make_result_of_outcome,
)
from penstock.formats.lance.lake.requests import make_changes, write_commit_message
from penstock.formats.lance.lake.table_opener import OpenedTable, TableOpener
from penstock.formats.lance.lake.table_placement import TablePlacement
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.names import MANIFEST, STAGING, lance_branch_name
from penstock.formats.lance.state import LanceTableVersion, is_managed
from penstock.kernel.batch import RequestOutcome
from penstock.lake.call import Call, commit_meta, request_digest, take_first
from penstock.model.clock import to_utc_datetime
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX

if TYPE_CHECKING:
    from penstock.formats.lance.lake.services import LanceServices
    from penstock.lake.embedded import Embedded

logger = logging.getLogger("penstock")

TRIES_MAX: Final = 8
"""How often a table may come and go between a look and its turn."""


class LanceHandlers:
    """Answers every call of ``calls``."""

    def __init__(self, lake: Embedded, parts: LanceServices) -> None:
        self._lake, self._kernel, self._parts = lake, lake.kernel, parts
        self._opening = TableOpener(lake, parts)
        self.ways: dict[type[Call[Any]], Callable[[Any], Any]] = {
            calls.CommitLance: self._commit_operations,
            calls.GetLanceTable: self._describe_table,
            calls.GetLanceStatus: self._get_status,
            calls.ListLanceVersions: self._list_versions,
            calls.ListLanceBranches: self._list_branches,
            calls.ListLanceTags: self._list_tags,
            calls.PromoteLance: self._promote_table,
        }

    # -- reading -------------------------------------------------------------------------------------------

    def _describe_table(self, call: calls.GetLanceTable) -> LanceTableInfo:
        return _make_about(self._opening.open_table(call.at, call.key, call.via, to_write=call.to_write))

    def _get_status(self, call: calls.GetLanceStatus) -> LanceStatus:
        opened = self._opening.open_table(self._lake.get_branch_or_default(None), call.key)
        newest, alarm = opened.versions.find_newest(), ""
        unpromoted: tuple[WaitingVersion, ...] = ()
        try:
            alarm = self._parts.check_folder(opened.key, opened.content)
            unpromoted = self._parts.promoter.find_unpromoted(opened.content)
        except PenstockError as problem:
            alarm = alarm or problem.message
        behind = (
            self._parts.promoter.find_unpromoted_status(opened.content) if unpromoted and not alarm else None
        )
        if behind is not None and behind.problem is not None:
            alarm = behind.problem.message
        oldest_us = min((waiting.version.time_us for waiting in unpromoted), default=None)
        return LanceStatus(
            key=opened.key,
            location=opened.content.location,
            version=None if newest is None else newest[0],
            backlog=len(unpromoted),
            oldest_s=None if oldest_us is None else max(0.0, (self._kernel.clock() - oldest_us) / 1e6),
            alarm=alarm,
        )

    def _list_versions(self, call: calls.ListLanceVersions) -> tuple[LanceVersion, ...]:
        opened = self._opening.open_table(call.at, call.key, call.via, to_write=call.to_write)
        branch = self._get_own_branch(opened, call.branch)
        if call.version is not None:
            version = opened.versions.get_version(branch, call.version)
            if version is None:
                self._opening.require_version(opened, call.version)
            return () if version is None else (self._describe_version(opened, branch, call.version, version),)
        listed = take_first(opened.versions.list_versions(branch, call.below), call.limit)
        return tuple(self._describe_version(opened, branch, number, version) for number, version in listed)

    def _describe_version(
        self, opened: OpenedTable, branch: str, number: int, version: LanceTableVersion
    ) -> LanceVersion:
        placed = self._opening.place_version(opened, branch, number, version)
        return LanceVersion(
            version=number,
            manifest=f"{opened.content.location}/{placed.name}",
            size=placed.size,
            created=to_utc_datetime(version.time_us) if version.time_us else None,
            operation=_get_operation_name(version),
            metadata=version.metadata,
        )

    def _get_own_branch(self, opened: OpenedTable, name: str) -> str:
        branch = lance_branch_name(name)
        if branch and opened.versions.get_branch(branch) is None:
            raise OwnRefNotFound(f"'{opened.key}' has no branch '{branch}'", branch=branch)
        return branch

    def _list_branches(self, call: calls.ListLanceBranches) -> tuple[LanceBranch, ...]:
        opened = self._opening.open_table(call.at, call.key, call.via)
        return tuple(take_first(_list_own_branches(opened, call.after), call.limit))

    def _list_tags(self, call: calls.ListLanceTags) -> tuple[LanceTag, ...]:
        opened = self._opening.open_table(call.at, call.key, call.via)
        return tuple(take_first(_list_own_tags(opened, call.after), call.limit))

    def _promote_table(self, call: calls.PromoteLance) -> LanceTableInfo:
        opened = self._opening.open_table(self._lake.get_branch_or_default(call.branch), call.key)
        if opened.branch is None or opened.branch.startswith(PREFIX):
            raise InvalidRequest(f"'{call.branch}' is not a branch, so nothing can be promoted there")
        if opened.state.is_private:
            raise InvalidRequest(
                f"'{call.key}' is private: its versions exist in the lake only, and are never promoted"
            )
        self._opening.promote_versions(opened.branch, call.key)
        self._check_promoted(opened)
        return _make_about(opened)

    def _check_promoted(self, opened: OpenedTable) -> None:
        """``Unavailable`` if not all of a table's versions are where every reader of Lance looks, or whatever
        else an administrator has to mend first."""
        unpromoted = self._parts.promoter.find_unpromoted(opened.content)
        if not unpromoted:
            return
        behind = self._parts.promoter.find_unpromoted_status(opened.content)
        problem = None if behind is None else behind.problem
        if isinstance(problem, AdministratorError):
            raise problem
        why = "try again" if problem is None else problem.message
        raise Unavailable(
            f"version {unpromoted[0].number} of '{opened.key}' could not be copied to the table's folder, "
            f"where Lance's readers look: {why}"
        )

    # -- writing -------------------------------------------------------------------------------------------

    def _commit_operations(self, call: calls.CommitLance) -> LanceCommitResult:
        if not call.operations:
            raise InvalidRequest("a commit to Lance tables needs at least one operation")
        for _ in range(TRIES_MAX):
            asked_for = [
                (number, operation)
                for number, operation in enumerate(call.operations)
                if self._is_work_left(call, operation)
            ]
            if not asked_for:
                return self._answer_empty_commit(call)
            try:
                return self._try_commit(call, asked_for)
            except TableExists as problem:
                operation = call.operations[int(problem.details.get("operation", 0))]
                if (
                    not isinstance(operation, calls.DeclareLance)
                    or not operation.exist_ok
                    or self._is_work_left(call, operation)
                ):
                    raise
        raise CommitConflict(
            [], "another program created and dropped the table while it was being declared; try again"
        )

    def _is_work_left(self, call: calls.CommitLance, operation: LanceOperation) -> bool:
        """Whether there is anything to do: not for a table that may be there, and is."""
        if not isinstance(operation, calls.DeclareLance) or not operation.exist_ok:
            return True
        return not is_managed(self._read_head_content(call.branch, operation.key))

    def _answer_empty_commit(self, call: calls.CommitLance) -> LanceCommitResult:
        doings = self._find_committed_request(call)
        return make_result_of_commit(doings, None, self._lake.resolve_commit(call.branch))

    def _try_commit(
        self, call: calls.CommitLance, asked_for: list[tuple[int, LanceOperation]]
    ) -> LanceCommitResult:
        with ExitStack() as reserved:
            return self._try_reserved(call, asked_for, reserved)

    def _try_reserved(
        self, call: calls.CommitLance, asked_for: list[tuple[int, LanceOperation]], reserved: ExitStack
    ) -> LanceCommitResult:
        branch = self._lake.get_branch_or_default(call.branch)
        location_of = partial(self._find_location, branch, self._lake.resolve_commit(branch))
        reserve, key = reserved.enter_context, call.idempotency_key
        placing = TablePlacement(self._lake, self._parts, branch, location_of, reserve, key)
        try:
            changes = make_changes(asked_for, placing.choose_place, location_of)
            placing.note_deregistered(asked_for)
            placing.note_request_sent()
            outcome = self._kernel.commit(
                branch,
                changes,
                commit_meta(call.said, call.who, write_commit_message(call.operations)),
                create_namespaces=call.create,
                key=call.idempotency_key,
                fingerprint=partial(request_digest, call),
            )
        except (RequestError, ConflictError) as refused:
            placing.withdraw_places()
            if isinstance(refused, VersionTaken):
                self._show_winners(branch, {operation.key for _, operation in asked_for})
            elif isinstance(refused, CommitConflict):
                _note_operation(refused, asked_for)
            raise
        placing.keep_owned()
        return self._answer_after_promotion(call, branch, outcome)

    def _answer_after_promotion(
        self, call: calls.CommitLance, branch: str, outcome: RequestOutcome
    ) -> LanceCommitResult:
        """The answer to a commit, after a short wait for the promoter, so that readers of the folder see the
        version."""
        if outcome.commits:
            commit, wait_s = outcome.commits[-1], self._kernel.settings.promote_wait_s
            tables = {
                operation.key: find_table_at(self._lake, commit, operation.key)
                for operation in call.operations
            }
            self._remove_staged(call, tables)
            if wait_s > 0 and not branch.startswith(PREFIX):
                ids = (table.content.id for table in tables.values() if table is not None)
                self._parts.promoter.wait({identity for identity in ids if identity is not None}, wait_s)
            return make_result_of_outcome(self._find_committed_request(call)._replace(tables=tables), outcome)
        return make_result_of_outcome(self._find_committed_request(call), outcome)

    def _remove_staged(self, call: calls.CommitLance, tables: Mapping[Key, TableAtCommit | None]) -> None:
        """Remove what clients staged of versions that the lake keeps under another name, as it does in
        transactions. The promoter removes the others. What is left is swept."""
        staged_files: dict[str, list[str]] = {}
        for operation in call.operations:
            table = tables[operation.key]
            if not isinstance(operation, calls.CreateLanceVersion) or table is None:
                continue
            version, location = (
                table.versions.get_version(lance_branch_name(operation.branch), operation.version),
                table.content.location,
            )
            name = operation.manifest.removeprefix(f"{location}/")
            if version is not None and STAGING in version.staged and f"{MANIFEST}-" in name:
                staged_files.setdefault(location, []).append(name)
        for location, names in staged_files.items():
            try:
                self._parts.places.open_place(location).delete(names)
            except PenstockError as problem:
                logger.info("the staged files at %s are left for the sweep: %s", location, problem)

    def _find_committed_request(self, call: calls.CommitLance) -> CommittedRequest:
        return CommittedRequest(self._lake, self._opening, call)

    def _show_winners(self, branch: str, keys: set[Key]) -> None:
        """Lance's clients look into the folder for what was faster than they, before they try again."""
        if branch.startswith(PREFIX):
            return
        for key in keys:
            self._opening.promote_versions(branch, key)

    def _read_head_content(self, branch: str | None, key: Key) -> AnyContent | None:
        return self._lake.read_content_at(self._lake.resolve_commit(branch), key)

    def _find_location(self, branch: str, head: ObjectId, key: Key) -> str:
        try:
            return self._opening.read_content(head, key, branch).location
        except (KeyNotFound, NotManaged):
            raise TableNotFound(f"there is no Lance table '{key}' at '{branch}'", table=str(key)) from None


def _make_about(opened: OpenedTable) -> LanceTableInfo:
    newest = opened.versions.find_newest()
    assert opened.content.id is not None
    return LanceTableInfo(
        key=opened.key,
        id=opened.content.id,
        location=opened.content.location,
        folder=opened.folder,
        version=None if newest is None else newest[0],
        is_private=opened.state.is_private,
        properties=opened.state.properties,
    )


def _list_own_branches(opened: OpenedTable, after: str) -> Iterator[LanceBranch]:
    for name, branch in opened.versions.list_branches().items():
        if name > after:
            begun = opened.versions.get_version(name, branch.version)
            yield LanceBranch(
                name=name,
                parent=branch.parent,
                version=branch.version,
                created=to_utc_datetime(branch.created_us) if branch.created_us else None,
                manifest_size=0 if begun is None else begun.size,
                metadata=branch.metadata,
            )


def _get_operation_name(version: LanceTableVersion) -> str:
    """The operation that made a version; empty for versions from before the table was registered."""
    is_imported = not version.staged and version.operation is ManifestOperation.OTHER
    return "imported" if is_imported else version.operation.value


def _list_own_tags(opened: OpenedTable, after: str) -> Iterator[LanceTag]:
    for name, tag in opened.versions.list_tags().items():
        if name > after:
            tagged = opened.versions.get_version(tag.branch, tag.version)
            yield LanceTag(
                name=name,
                branch=tag.branch,
                version=tag.version,
                manifest_size=0 if tagged is None else tagged.size,
                created=to_utc_datetime(tag.created_us) if tag.created_us else None,
                updated=to_utc_datetime(tag.updated_us) if tag.updated_us else None,
                metadata=tag.metadata,
            )


def _note_operation(conflict: CommitConflict, asked_for: list[tuple[int, LanceOperation]]) -> None:
    """Name the operation that a conflict is about: the first one at its key, or below it."""
    for key_conflict in conflict.conflicts:
        for number, operation in asked_for:
            if operation.key[: len(key_conflict.key)] == key_conflict.key:
                conflict.details.setdefault("operation", number)
                return
