"""Rules for calls that write, and for those that only administrators may make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from penstock.errors import LocationRefused
from penstock.lake import calls
from penstock.lake.answers import About
from penstock.lake.audits.calls import AddExpectation, RemoveExpectation
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.expectations import Expectation
from penstock.model.keys import Key
from penstock.model.merges import MergeResult
from penstock.model.operations import Change, Put, Unchanged
from penstock.model.references import Reference
from penstock.model.tokens import EVERYTHING, Role
from penstock.server.access.caller import Caller, GrantedKeys
from penstock.server.access.locations import check_locations
from penstock.server.access.rights import CallerRights

R = TypeVar("R")
C = TypeVar("C", bound=calls.Call[Any])
B = TypeVar("B", bound=calls.MergeCall)
E = TypeVar("E", AddExpectation, RemoveExpectation)


def allow_anybody(rights: CallerRights, call: calls.Call[R]) -> R:
    """For calls that every authenticated caller may make."""
    return rights.do(call)


def show_about(rights: CallerRights, call: calls.GetAbout) -> About:
    """Where the lake is stored concerns only who administers it; where tables may be, those who may write one
    or read all of them."""
    about_lake = rights.do(call)
    if rights.caller.is_admin:
        return about_lake
    knows_roots = any(
        grant.role.includes_role(Role.WRITE) or grant.keys == EVERYTHING for grant in rights.caller.grants
    )
    roots = about_lake.roots if knows_roots else tuple(filter(None, (about_lake.warehouse,)))
    return msgspec.structs.replace(about_lake, url="", roots=roots)


def make_rule_for_role(role: Role) -> Callable[[CallerRights, Any], Any]:
    """The rule of a call about the whole lake, for who has a role for all of it.

    What the call leaves in the lake says who made it, if it has a field ``who``.
    """

    def apply_rule(rights: CallerRights, call: Any) -> Any:
        rights.caller.require_lake(role)
        return rights.do(sign_call(rights, call))

    return apply_rule


def make_table_rule_for_role(role: Role) -> Callable[[CallerRights, Any], Any]:
    """The same for a call about one table, its field ``key``; about all of them if it has none there."""

    def apply_rule(rights: CallerRights, call: Any) -> Any:
        if call.key is None:
            rights.caller.require_lake(role)
        else:
            rights.caller.require_table(role, call.key)
        return rights.do(sign_call(rights, call))

    return apply_rule


for_administrators = make_rule_for_role(Role.ADMIN)


def sign_call(rights: CallerRights, call: C) -> C:
    """A call that says who makes it, where it can: the name of the caller's token, if there is one."""
    if not rights.caller.name or not hasattr(call, "who"):
        return call
    return msgspec.structs.replace(call, who=rights.caller.name)


def change_expectations(rights: CallerRights, call: E) -> tuple[Expectation, ...]:
    """What a branch expects stops everybody who writes there, and shows them rows of what it asks about."""
    rights.caller.require_admin()
    return rights.do(sign_call(rights, call))


# -- references --------------------------------------------------------------------------------------------


def create_reference(rights: CallerRights, call: calls.CreateReference) -> Reference:
    """Whoever makes a branch may read there what they may read where it comes from, and no more."""
    caller = rights.caller
    caller.require_role(Role.WRITE, call.name)
    at, source = rights.find_readable_keys(call.at)
    if not source.contain_all(caller.find_granted_keys(Role.READ, call.name)):
        raise caller.denied_error(
            f"create '{call.name}' from there: they could read keys on it that they may not read there",
            name=call.name,
        )
    return rights.do(msgspec.structs.replace(call, at=at))


def assign_reference(rights: CallerRights, call: calls.AssignReference) -> Reference:
    rights.caller.require_all_keys(Role.WRITE, call.name)
    to, expected = rights.read_whole(call.to, via=call.name), rights.check_compared(call.expected, call.name)
    return rights.do(msgspec.structs.replace(call, to=to, expected=expected))


def delete_reference(rights: CallerRights, call: calls.DeleteReference) -> Reference:
    rights.caller.require_all_keys(Role.WRITE, call.name)
    return rights.do(msgspec.structs.replace(call, expected=rights.check_compared(call.expected, call.name)))


# -- commits -----------------------------------------------------------------------------------------------


def commit_operations(rights: CallerRights, call: calls.CommitOperations) -> Commit:
    caller, branch = rights.caller, call.branch
    keys = caller.find_keys_granted_everywhere(Role.WRITE)
    if not keys.are_all:
        branch = rights.get_reference_or_default(call.branch)
        keys = caller.require_role(Role.WRITE, branch)
        _check_keys(rights, call, branch, keys)
        call = msgspec.structs.replace(
            call,
            base=rights.check_compared(call.base, branch),
            if_head=rights.check_compared(call.if_head, branch),
        )
    try:
        _check_places(
            rights, (operation.content for operation in call.operations if isinstance(operation, Put))
        )
    except LocationRefused:
        if (earlier := _find_earlier_commit(rights, call)) is None:
            raise
        return earlier
    return rights.do(call)


def _find_earlier_commit(rights: CallerRights, call: calls.CommitOperations) -> Commit | None:
    """What a repeated request came to when its places were still below a root."""
    if call.idempotency_key is None:
        return None
    landing = rights.do(calls.GetOutcome(key=call.idempotency_key, branch=call.branch, asked=call.asked))
    return landing.commit if landing is not None else None


def _check_keys(rights: CallerRights, call: calls.CommitOperations, branch: str, keys: GrantedKeys) -> None:
    """Every key that is changed may be changed, and every key that is looked at may be read."""
    caller, readable = rights.caller, rights.caller.find_granted_keys(Role.READ, branch)
    above: set[Key] = set()
    for operation in call.operations:
        is_look = isinstance(operation, Unchanged)
        role, scope = (Role.READ, readable) if is_look else (Role.WRITE, keys)
        caller.require_key(scope, role, operation.key)
        if call.create_namespaces and isinstance(operation, Put | Change):
            above.update(parent for parent in operation.key.parents if not keys.covers_key(parent))
    if above:
        entries = rights.do(calls.GetContents(at=branch, key=tuple(sorted(above))))
        for missing in sorted(above - {entry.key for entry in entries}):
            raise caller.denied_error(f"create namespace '{missing}' there", key=str(missing))


def _check_places(rights: CallerRights, contents: Iterable[AnyContent | None]) -> None:
    located = [content for content in contents if content is not None and content.locations]
    if located and not rights.caller.any_location:
        check_locations(located, rights.do(calls.GetAbout()).roots)


# -- bringing changes from elsewhere: all keys of both sides are concerned, and shown where they conflict --


def merge(rights: CallerRights, call: calls.Merge) -> MergeResult:
    call = _check_branch_change(rights, call, call.into)
    return rights.do(msgspec.structs.replace(call, source=rights.read_whole(call.source)))


def transplant(rights: CallerRights, call: calls.Transplant) -> MergeResult:
    call = _check_branch_change(rights, call, call.onto)
    for revision in call.commits:
        for end in revision.split(".."):
            rights.read_whole(end)
    return rights.do(call)


def revert(rights: CallerRights, call: calls.Revert) -> MergeResult:
    call = _check_branch_change(rights, call, call.on)
    commit = rights.read_whole(call.commit, via=_find_target_branch(rights, call.on))
    return rights.do(msgspec.structs.replace(call, commit=commit))


def restore(rights: CallerRights, call: calls.Restore) -> MergeResult:
    """It takes the role for every key that it may change; and since it shows what these held, and lets the
    branch hold what they were elsewhere, the right to read them here and there."""
    caller, name = rights.caller, rights.get_reference_or_default(call.branch)
    keys = caller.require_role(Role.RESTORE, name)
    _check_scope(caller, keys, Role.RESTORE, call)
    _check_scope(caller, caller.require_role(Role.READ, name), Role.READ, call)
    if call.to is not None:
        to, readable = rights.find_readable_keys(call.to, via=_find_target_branch(rights, call.branch))
        _check_scope(caller, readable, Role.READ, call)
        call = msgspec.structs.replace(call, to=to)
    _check_namespaces_above(rights, call, name, keys)
    return rights.do(msgspec.structs.replace(call, if_head=rights.check_compared(call.if_head, name)))


def _check_scope(caller: Caller, keys: GrantedKeys, role: Role, call: calls.Restore) -> None:
    """``Denied`` if a restore is about keys that the caller has not a role for."""
    for key in call.keys:
        caller.require_key(keys, role, key)
    if call.namespace is not None and not keys.cover_everything_below(call.namespace):
        raise caller.denied_error(f"{role.value} all of '{call.namespace}' there", key=str(call.namespace))
    if not call.keys and call.namespace is None and not keys.are_all:
        raise caller.denied_error(f"{role.value} everything there: that needs a grant for all keys")


def _check_namespaces_above(
    rights: CallerRights, call: calls.Restore, branch: str, keys: GrantedKeys
) -> None:
    """``Denied`` if namespaces above would come back for which the caller has no grant."""
    named = (*call.keys, *((call.namespace,) if call.namespace is not None else ()))
    above = {parent for key in named for parent in key.parents if not keys.covers_key(parent)}
    if above:
        entries = rights.do(calls.GetContents(at=branch, key=tuple(sorted(above))))
        for missing in sorted(above - {entry.key for entry in entries}):
            raise rights.caller.denied_error(f"restore namespace '{missing}' there", key=str(missing))


def rebase(rights: CallerRights, call: calls.Rebase) -> MergeResult:
    call = _check_branch_change(rights, call, call.branch)
    return rights.do(msgspec.structs.replace(call, onto=rights.read_whole(call.onto)))


def _find_target_branch(rights: CallerRights, branch: str | None) -> str | None:
    return (
        None
        if rights.caller.find_keys_granted_everywhere(Role.READ).are_all
        else rights.get_reference_or_default(branch)
    )


def _check_branch_change(rights: CallerRights, call: B, branch: str | None) -> B:
    """What all of these need of the branch that they change."""
    _check_places(rights, (how.content for how in call.keys.values()))
    if rights.caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        return call
    name = rights.get_reference_or_default(branch)
    rights.caller.require_all_keys(Role.WRITE, name)
    return msgspec.structs.replace(call, if_head=rights.check_compared(call.if_head, name))
