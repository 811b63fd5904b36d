"""Rules for calls about Lance tables: what changes a table needs the right to change its key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.answers import (
    LanceBranch,
    LanceCommitResult,
    LanceStatus,
    LanceTableInfo,
    LanceTag,
    LanceVersion,
)
from penstock.formats.lance.lake.calls import (
    CommitLance,
    DeclareLance,
    GetLanceStatus,
    GetLanceTable,
    ListLanceBranches,
    ListLanceTags,
    ListLanceVersions,
    PromoteLance,
    RegisterLance,
)
from penstock.formats.lance.lake.requests import run_for_operation
from penstock.lake import calls
from penstock.model.keys import Key
from penstock.model.tokens import Role
from penstock.server.access.format_rules import AccessRule
from penstock.server.access.locations import check_locations
from penstock.server.access.rights import CallerRights

C = TypeVar("C", GetLanceTable, ListLanceVersions, ListLanceBranches, ListLanceTags)


def commit_lance(rights: CallerRights, call: CommitLance) -> LanceCommitResult:
    """A place of its own goes with the key; any other may be somebody else's."""
    _require_keys(rights, call.branch, [operation.key for operation in call.operations])
    new = [
        (number, operation)
        for number, operation in enumerate(call.operations)
        if isinstance(operation, DeclareLance | RegisterLance)
    ]
    if call.create and new:
        _require_namespaces(
            rights, call.branch, (parent for _, operation in new for parent in operation.key.parents)
        )
    for number, operation in new:
        if operation.location is not None:
            run_for_operation(number, _require_place, rights, call.branch, operation.location)
    return rights.do(call)


def get_lance_table(rights: CallerRights, call: GetLanceTable) -> LanceTableInfo:
    """Where it can be written is told to readers too: Lance's clients open a table in one way for both.

    What is put there for that are versions that they may read, as they read in another folder.
    """
    return rights.do(_require_readable(rights, call))


def get_lance_status(rights: CallerRights, call: GetLanceStatus) -> LanceStatus:
    """Storage is looked at for a table only that the caller may see."""
    _, keys = rights.find_readable_keys(None)
    rights.caller.require_key(keys, Role.READ, call.key)
    return rights.do(call)


def list_lance_versions(rights: CallerRights, call: ListLanceVersions) -> tuple[LanceVersion, ...]:
    return rights.do(_require_readable(rights, call))


def list_lance_branches(rights: CallerRights, call: ListLanceBranches) -> tuple[LanceBranch, ...]:
    return rights.do(_require_readable(rights, call))


def list_lance_tags(rights: CallerRights, call: ListLanceTags) -> tuple[LanceTag, ...]:
    return rights.do(_require_readable(rights, call))


def promote_lance(rights: CallerRights, call: PromoteLance) -> LanceTableInfo:
    """Promoting decides nothing, but works for as long as there is something to promote."""
    if not rights.caller.find_keys_granted_everywhere(Role.MAINTAIN).covers_key(call.key):
        _require_keys(rights, call.branch, (call.key,))
    return rights.do(call)


def _require_readable(rights: CallerRights, call: C) -> C:
    at, keys = rights.find_readable_keys(call.at, call.via)
    rights.caller.require_key(keys, Role.READ, call.key)
    return msgspec.structs.replace(call, at=at)


def _require_keys(rights: CallerRights, branch: str | None, changed: Iterable[Key]) -> None:
    """``Denied`` if the caller may not change all of these keys on a branch: it says which is the first."""
    if rights.caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        return
    keys = rights.caller.require_role(Role.WRITE, rights.get_reference_or_default(branch))
    for number, key in enumerate(changed):
        run_for_operation(number, rights.caller.require_key, keys, Role.WRITE, key)


def _require_place(rights: CallerRights, branch: str | None, location: str) -> None:
    """``Denied`` if the caller may not change all keys, ``LocationRefused`` if no table may be there."""
    if not rights.caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        rights.caller.require_all_keys(Role.WRITE, rights.get_reference_or_default(branch))
    if not rights.caller.any_location:
        check_locations([LanceTable(location=location)], rights.do(calls.GetAbout()).roots)


def _require_namespaces(rights: CallerRights, branch: str | None, parents: Iterable[Key]) -> None:
    """``Denied`` if a namespace above a new table is missing that the caller may not create."""
    caller = rights.caller
    if caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        return
    name = rights.get_reference_or_default(branch)
    keys = caller.find_granted_keys(Role.WRITE, name)
    above = {parent for parent in parents if not keys.covers_key(parent)}
    if above:
        entries = rights.do(calls.GetContents(at=name, key=tuple(sorted(above))))
        for missing in sorted(above - {entry.key for entry in entries}):
            raise caller.denied_error(f"create namespace '{missing}' there", key=str(missing))


RULES: Final[dict[type[calls.Call[Any]], AccessRule]] = {
    CommitLance: commit_lance,
    GetLanceTable: get_lance_table,
    GetLanceStatus: get_lance_status,
    ListLanceVersions: list_lance_versions,
    ListLanceBranches: list_lance_branches,
    ListLanceTags: list_lance_tags,
    PromoteLance: promote_lance,
}
"""Every call that the format answers, with its rule."""
