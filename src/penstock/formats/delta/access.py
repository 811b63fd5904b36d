"""Rules for calls about Delta tables: what changes a table needs the right to change its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from penstock.errors import KeyNotFound, NotManaged
from penstock.formats.delta.lake.answers import (
    BulkOwnershipResult,
    OwnershipResult,
    PublishedTable,
    RecoveredTable,
    ReservedColumnIds,
    ReservedIdentities,
    TablePlace,
    TableStatus,
    TableVersions,
    WrittenFile,
)
from penstock.formats.delta.lake.calls import (
    AdoptTable,
    AdoptTables,
    CheckpointTable,
    CleanLog,
    CloneTable,
    CommitTables,
    CompactLog,
    CreateTable,
    FindTable,
    GetTableStatus,
    GetTableVersions,
    PublishTable,
    RecoverTable,
    ReleaseTable,
    ReleaseTables,
    ReserveColumnIds,
    ReserveIdentities,
)
from penstock.lake import calls
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import take_first
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.tokens import Role
from penstock.server.access import write_rules
from penstock.server.access.caller import GrantedKeys
from penstock.server.access.format_rules import AccessRule
from penstock.server.access.locations import check_locations
from penstock.server.access.rights import CallerRights
from penstock.server.access.write_rules import sign_call

L = TypeVar("L", CheckpointTable, CompactLog)


def commit_tables(rights: CallerRights, call: CommitTables) -> TableCommitResult:
    _require_keys(rights, call.branch, (table.key for table in call.tables))
    return rights.do(call)


def get_table_versions(rights: CallerRights, call: GetTableVersions) -> TableVersions:
    at, keys = rights.find_readable_keys(call.at, call.via)
    rights.caller.require_key(keys, Role.READ, call.key)
    return rights.do(msgspec.structs.replace(call, at=at))


def publish_table(rights: CallerRights, call: PublishTable) -> PublishedTable:
    """Publishing decides nothing, but works for as long as there is something to publish."""
    _require_upkeep(rights, call.branch, call.key)
    return rights.do(call)


def reserve_identities(rights: CallerRights, call: ReserveIdentities) -> ReservedIdentities:
    """For those who may write rows that have the numbers."""
    _require_keys(rights, call.branch, (call.key,))
    return rights.do(call)


def reserve_column_ids(rights: CallerRights, call: ReserveColumnIds) -> ReservedColumnIds:
    """For those who may add the columns."""
    _require_keys(rights, call.branch, (call.key,))
    return rights.do(call)


def write_log(rights: CallerRights, call: L) -> WrittenFile:
    _require_upkeep(rights, None, call.key)
    return rights.do(call)


def create_table(rights: CallerRights, call: CreateTable) -> OwnershipResult:
    """A place of its own goes with the key; any other may be somebody else's, as with ``adopt_table``."""
    _require_keys(rights, call.branch, (call.key,))
    _require_namespaces(rights, call)
    if call.location is not None:
        _require_place(rights, call.branch, call.location)
    return rights.do(call)


def clone_table(rights: CallerRights, call: CloneTable) -> OwnershipResult:
    """It lets everybody read the source's rows who may read the clone, as a copy would."""
    at, keys = rights.find_readable_keys(call.at)
    rights.caller.require_key(keys, Role.READ, call.source)
    _require_keys(rights, call.branch, (call.key,))
    _require_namespaces(rights, call)
    return rights.do(msgspec.structs.replace(call, at=at))


def adopt_table(rights: CallerRights, call: AdoptTable) -> OwnershipResult:
    """Whose table it is, its place does not tell. So it is for those who may change all of them."""
    _require_place(rights, call.branch, call.location)
    return rights.do(call)


def adopt_tables(rights: CallerRights, call: AdoptTables) -> BulkOwnershipResult:
    """As ``adopt_table``, also where it is only looked what could be adopted: logs are read for that."""
    _require_place(rights, None, call.location)
    return rights.do(sign_call(rights, call))


def release_tables(rights: CallerRights, call: ReleaseTables) -> BulkOwnershipResult:
    rights.caller.require_admin()
    return rights.do(sign_call(rights, call))


def recover_table(rights: CallerRights, call: RecoverTable) -> RecoveredTable:
    rights.caller.require_admin()
    return rights.do(sign_call(rights, call))


def get_table_status(rights: CallerRights, call: GetTableStatus) -> tuple[TableStatus, ...]:
    """Storage is looked at for tables only that the caller may see."""
    at, keys = rights.find_readable_keys(None)
    if call.key is not None:
        rights.caller.require_key(keys, Role.READ, call.key)
    if call.key is not None or keys.are_all:
        return rights.do(call)
    return tuple(
        take_first(_read_statuses(rights, _select_managed_tables(rights, at, keys, call.after)), call.limit)
    )


def _read_statuses(rights: CallerRights, keys: Iterable[Key]) -> Iterator[TableStatus]:
    for key in keys:
        with suppress(KeyNotFound, NotManaged):  # it left the lake just now
            yield from rights.do(GetTableStatus(key=key))


def _select_managed_tables(
    rights: CallerRights, at: str | None, keys: GrantedKeys, after: Key | None
) -> Iterator[Key]:
    """The managed Delta tables among some keys, in order."""
    call = calls.ListEntries(at=at, prefix=keys.namespace, after=after, limit=calls.PAGE_MAX)
    while page := rights.do(call):
        for entry in page:
            if isinstance(entry.content, DeltaTable) and entry.content.state and keys.covers_key(entry.key):
                yield entry.key
        call = msgspec.structs.replace(call, after=page[-1].key)


def find_table(rights: CallerRights, call: FindTable) -> TablePlace | None:
    at, keys = rights.find_readable_keys(call.at, call.via)
    table_place = rights.do(msgspec.structs.replace(call, at=at))
    return table_place if table_place is not None and keys.covers_key(table_place.key) else None


def _require_place(rights: CallerRights, branch: str | None, location: str) -> None:
    """``Denied`` if the caller may not change all keys, ``LocationRefused`` if no table may be there."""
    if not rights.caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        rights.caller.require_all_keys(Role.WRITE, rights.get_reference_or_default(branch))
    if not rights.caller.any_location:
        check_locations((DeltaTable(location=location),), rights.do(calls.GetAbout()).roots)


def _require_keys(rights: CallerRights, branch: str | None, changed: Iterable[Key]) -> None:
    """``Denied`` if the caller may not change all of these keys on a branch."""
    if rights.caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        return
    keys = rights.caller.require_role(Role.WRITE, rights.get_reference_or_default(branch))
    for key in changed:
        rights.caller.require_key(keys, Role.WRITE, key)


def _require_upkeep(rights: CallerRights, branch: str | None, key: Key) -> None:
    """``Denied`` if the caller may neither maintain a table nor change it."""
    if not rights.caller.find_keys_granted_everywhere(Role.MAINTAIN).covers_key(key):
        _require_keys(rights, branch, (key,))


def _require_namespaces(rights: CallerRights, call: CreateTable | CloneTable) -> None:
    """``Denied`` if a namespace above a table is missing that the caller may not create."""
    caller = rights.caller
    if caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        return
    branch = rights.get_reference_or_default(call.branch)
    keys = caller.find_granted_keys(Role.WRITE, branch)
    above = [parent for parent in call.key.parents if not keys.covers_key(parent)]
    existing = (
        {entry.key for entry in rights.do(calls.GetContents(at=branch, key=tuple(above)))} if above else ()
    )
    for missing in (parent for parent in above if parent not in existing):
        raise caller.denied_error(f"create namespace '{missing}' there", key=str(missing))


RULES: Final[dict[type[calls.Call[Any]], AccessRule]] = {
    CommitTables: commit_tables,
    GetTableVersions: get_table_versions,
    PublishTable: publish_table,
    ReserveIdentities: reserve_identities,
    ReserveColumnIds: reserve_column_ids,
    CreateTable: create_table,
    CloneTable: clone_table,
    AdoptTable: adopt_table,
    ReleaseTable: write_rules.for_administrators,
    AdoptTables: adopt_tables,
    ReleaseTables: release_tables,
    RecoverTable: recover_table,
    GetTableStatus: get_table_status,
    FindTable: find_table,
    CheckpointTable: write_log,
    CompactLog: write_log,
    CleanLog: write_rules.make_table_rule_for_role(Role.MAINTAIN),
}
"""Every call that the format answers, with its rule."""
