"""Merges and transplants: what Nessie's clients ask for, and what came of each key.

Both act on the branch as it is. The expected hash only has to be one of its commits.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from penstock.errors import CommitConflict, CommitNotFound, InvalidRequest, MergeConflict, ReferenceNotFound
from penstock.lake import calls
from penstock.lake.catalogue import Catalogue
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergedKey, MergeMode, MergeResult
from penstock.server.nessie import json_types, v1_json_types
from penstock.server.nessie.codec import require_body
from penstock.server.nessie.commits import list_parents, make_commit_description
from penstock.server.nessie.contents import parse_nessie_content
from penstock.server.nessie.errors import NessieRefusal, make_nessie_conflict, select_namespace_conflicts
from penstock.server.nessie.keys import quote_key
from penstock.server.nessie.revisions import (
    DETACHED,
    ResolvedRevision,
    parse_body,
    parse_path,
    resolve_revision,
    resolve_target,
)
from penstock.server.nessie.violations import (
    find_bad_name,
    find_bad_path,
    find_empty,
    find_null,
    raise_violations,
)
from penstock.server.routes import RouteRequest

TRIES_MAX: Final = 5
"""How often a merge is tried whose conflicts are gone when they are looked at."""

_MODES: Final = {"NORMAL": MergeMode.NORMAL, "FORCE": MergeMode.FORCE, "DROP": MergeMode.DROP}
_BEHAVIORS: Final[dict[MergeMode, json_types.MergeBehavior]] = {
    MergeMode.NORMAL: "NORMAL",
    MergeMode.FORCE: "FORCE",
    MergeMode.DROP: "DROP",
}

MergeOrTransplant: TypeAlias = calls.Merge | calls.Transplant


def handle_merge(ask: RouteRequest) -> json_types.MergeResponse:
    raise_violations(
        find_null(ask.body, "mergeRefIntoBranch.merge"),
        find_bad_path(ask.path["branch"], "mergeRefIntoBranch.branch"),
    )
    body: json_types.NessieMerge = ask.body
    revision = parse_path(ask.path["branch"], ask.catalogue, "mergeRefIntoBranch.branch")
    make_commit_description(body.commit_meta, ask.headers)
    from_ = parse_body(body.from_ref_name, body.from_hash)
    source = resolve_revision(ask.catalogue, from_, "Source hash", needs_commit=True)
    target = resolve_target(ask.catalogue, revision, "Reference to merge into")
    _require_common_commit(ask.catalogue, source, target)
    message = f"Merged {source.name or DETACHED} at {source.commit} into {target.name} at {target.commit}"
    call = calls.Merge(
        source=source.revision,
        into=target.name,
        keys=_parse_key_merges(ask.catalogue, target, body),
        default=_MODES[body.default_key_merge_mode or "NORMAL"],
        said=make_commit_description(body.commit_meta, ask.headers, body.message or message),
        dry_run=_is_trial(body),
        idempotency_key=_make_idempotency_key(ask, body),
    )
    return answer_merge(ask.catalogue, call, target, _returns_conflicts(body))


def handle_transplant(ask: RouteRequest) -> json_types.MergeResponse:
    path = find_bad_path(ask.path["branch"], "transplantCommitsIntoBranch.branch")
    raise_violations(*find_transplant_violations(ask.body), path)
    body: json_types.NessieTransplant = require_body(ask.body, "transplantCommitsIntoBranch.transplant")
    revision = parse_path(ask.path["branch"], ask.catalogue, "transplantCommitsIntoBranch.branch")
    hashes = body.hashes_to_transplant or ()
    if len(hashes) > ask.limits.operations_max:
        raise InvalidRequest(f"at most {ask.limits.operations_max} commits can be transplanted at once")
    sources = [
        resolve_revision(
            ask.catalogue, parse_body(body.from_ref_name, text), "Hash to transplant", needs_commit=True
        )
        for text in hashes
    ]
    target = resolve_target(ask.catalogue, revision, "Reference to transplant into")
    _require_contiguous(ask.catalogue, sources)
    about = (
        make_commit_description(None, ask.headers, body.message or "")
        if len(sources) == 1
        else calls.CommitDescription(message="")
    )
    call = calls.Transplant(
        commits=tuple(source.revision for source in sources),
        onto=target.name,
        keys=_parse_key_merges(ask.catalogue, target, body),
        default=_MODES[body.default_key_merge_mode or "NORMAL"],
        said=about,
        dry_run=_is_trial(body),
        idempotency_key=_make_idempotency_key(ask, body),
    )
    return answer_merge(ask.catalogue, call, target, _returns_conflicts(body))


def find_transplant_violations(
    body: json_types.NessieTransplant | v1_json_types.V1TransplantRequest | None,
) -> tuple[str | None, ...]:
    """What is wrong with the body of a transplant, if there is one."""
    if body is None:
        return ()
    parameter = "transplantCommitsIntoBranch.transplant"
    return (
        find_bad_name(body.from_ref_name, f"{parameter}.fromRefName"),
        find_empty(body.hashes_to_transplant, f"{parameter}.hashesToTransplant"),
    )


def answer_merge(
    catalogue: Catalogue, call: MergeOrTransplant, target: ResolvedRevision, conflicts_are_answer: bool
) -> json_types.MergeResponse:
    """Carry out a merge or transplant, and say what came of it; conflicts are an answer or an error."""
    result, idle = _carry_out(catalogue, call)
    about_namespaces = select_namespace_conflicts(result.conflicts)
    if about_namespaces:
        raise CommitConflict(about_namespaces)
    keys = [key for key in (*result.keys, *idle) if _is_listed(key)]
    keys.sort(key=lambda merged_key: merged_key.key.encode())
    if result.conflicts and not conflicts_are_answer:
        raise _refuse_merge(keys)
    return json_types.MergeResponse(
        was_applied=result.applied,
        was_successful=not result.conflicts,
        resultant_target_hash=_find_resulting_head(result),
        common_ancestor=result.base if isinstance(call, calls.Merge) else None,
        target_branch=target.name or "",
        effective_target_hash=_find_target_head(catalogue, target, result),
        expected_hash=target.commit,
        details=tuple(_make_key_details(key) for key in keys),
    )


# -- before ------------------------------------------------------------------------------------------------


def _require_common_commit(catalogue: Catalogue, source: ResolvedRevision, target: ResolvedRevision) -> None:
    """Refuse to merge branches that have nothing in common but the empty lake, as Nessie does."""
    assert target.reference is not None
    head = ResolvedRevision(reference=target.reference, commit=target.reference.id)
    if head.commit != EMPTY_COMMIT_ID:
        if source.commit == EMPTY_COMMIT_ID or _find_first_commit(catalogue, source) == _find_first_commit(
            catalogue, head
        ):
            return
        related = catalogue.do(calls.Compare(one=head.revision, other=source.revision))
        if related.base != EMPTY_COMMIT_ID:
            return
    raise ReferenceNotFound(f"No common ancestor in parents of {head.commit} and {source.commit}")


def _find_first_commit(catalogue: Catalogue, resolved: ResolvedRevision) -> str:
    depth = catalogue.do(calls.GetCommit(revision=resolved.commit, via=resolved.name)).depth
    if depth <= 1:
        return resolved.commit
    return catalogue.do(calls.Resolve(revision=f"{resolved.revision}~{depth - 1}")).commit


def _require_contiguous(catalogue: Catalogue, sources: list[ResolvedRevision]) -> None:
    before: str | None = None
    for source in sources:
        if source.commit == EMPTY_COMMIT_ID:
            raise CommitNotFound(f"there is no commit {source.commit}", commit=source.commit)
        commit = catalogue.do(calls.GetCommit(revision=source.commit, via=source.name))
        if before is not None and list_parents(commit)[0] != before:
            raise InvalidRequest("Sequence of hashes is not contiguous.")
        before = source.commit


def _parse_key_merges(
    catalogue: Catalogue, target: ResolvedRevision, body: json_types.NessieMergeFields
) -> dict[str, KeyMerge]:
    """How single keys are to be merged. What the client expects or gives is compared with the branch."""
    behaviors: dict[Key, json_types.MergeKeyBehavior] = {}
    for behavior in body.key_merge_modes or ():
        key = Key(*behavior.key.elements)
        if key in behaviors:
            raise InvalidRequest(f"Duplicate key {quote_key(key)}")
        _check_behavior(key, behavior)
        behaviors[key] = behavior
    expecting = [key for key, behavior in behaviors.items() if behavior.expected_target_content is not None]
    assert target.reference is not None
    read = calls.GetContents(at=target.reference.id, via=target.name, key=tuple(expecting))
    held = {entry.key: entry.content for entry in catalogue.do(read)} if expecting else {}
    return {
        str(key): KeyMerge(
            mode=_MODES[behavior.merge_behavior],
            expected=parse_nessie_content(key, behavior.expected_target_content, held.get(key))
            if behavior.expected_target_content is not None
            else None,
            content=parse_nessie_content(key, behavior.resolved_content, held.get(key))
            if behavior.resolved_content is not None
            else None,
        )
        for key, behavior in behaviors.items()
    }


def _check_behavior(key: Key, behavior: json_types.MergeKeyBehavior) -> None:
    if behavior.resolved_content is None:
        return
    if behavior.merge_behavior != "NORMAL":
        raise InvalidRequest(
            f"MergeKeyBehavior.resolvedContent must be null for MergeBehavior.{behavior.merge_behavior} "
            f"for {quote_key(key)}"
        )
    if behavior.expected_target_content is None:
        raise InvalidRequest(
            "MergeKeyBehavior.resolvedContent requires setting MergeKeyBehavior.expectedTarget as well "
            f"for key {quote_key(key)}"
        )


def _is_trial(body: json_types.NessieMergeFields) -> bool:
    return bool(body.is_dry_run or body.dry_run)


def _returns_conflicts(body: json_types.NessieMergeFields) -> bool:
    return bool(body.is_return_conflict_as_result or body.return_conflict_as_result)


def _make_idempotency_key(ask: RouteRequest, body: json_types.NessieMergeFields) -> str | None:
    return None if _is_trial(body) else ask.headers.get("idempotency-key")


# -- after -------------------------------------------------------------------------------------------------


def _carry_out(catalogue: Catalogue, call: MergeOrTransplant) -> tuple[MergeResult, list[MergedKey]]:
    """What came of it, and the keys that are dropped though nobody brings them.

    If there are conflicts nothing was done, and the result has them all.
    """
    tries, idle = 0, list[MergedKey]()
    while True:
        tries += 1
        try:
            return catalogue.do(call), idle
        except MergeConflict:
            tried = catalogue.do(msgspec.structs.replace(call, dry_run=True, idempotency_key=None))
            if tried.conflicts:
                return tried, idle
            if tries == TRIES_MAX:
                raise
        except InvalidRequest:
            if not call.keys or tries == TRIES_MAX:
                raise
            tried = catalogue.do(msgspec.structs.replace(call, dry_run=True, idempotency_key=None, keys={}))
            used = {str(key.key) for key in tried.keys}
            unused = [key for key in call.keys if key not in used]
            if not unused:
                raise
            if isinstance(call, calls.Merge):
                idle += _list_droppable_keys(catalogue, call, tried, unused)
            keys = {key: how for key, how in call.keys.items() if key not in unused}
            call = msgspec.structs.replace(call, keys=keys)


def _list_droppable_keys(
    catalogue: Catalogue, call: calls.Merge, tried: MergeResult, unused: list[str]
) -> list[MergedKey]:
    """Of keys that something is said about but that are not part of a merge, those that may be dropped.

    The lake refuses all of them, so that a name that is spelt wrong is noticed. Nessie lets one be dropped
    that the source or the common ancestor has, such as one that was changed and changed back. For the others
    it refuses a merge too, but not a transplant.
    """
    dropped = tuple(Key.parse(key) for key in unused if call.keys[key].mode is MergeMode.DROP)
    places = ((call.source, None), (tried.base, call.into))
    changed_keys = {
        entry.key
        for at, via in places
        if dropped and at is not None
        for entry in catalogue.do(calls.GetContents(at=at, via=via, key=dropped))
    }
    strange = [key for key in map(Key.parse, unused) if key not in changed_keys]
    if strange:
        names = ", ".join(quote_key(key) for key in strange)
        raise InvalidRequest(
            "Not all merge key behaviors specified in the request have been used. "
            f"The following keys were not used: [{names}]"
        )
    return [MergedKey(key=key, mode=MergeMode.DROP) for key in dropped]


def _is_listed(key: MergedKey) -> bool:
    """Nessie does not mention what the target has already."""
    return key.mode is not MergeMode.NORMAL or bool(key.conflicts) or key.before != key.after


def _make_key_details(key: MergedKey) -> json_types.ContentKeyDetails:
    return json_types.ContentKeyDetails(
        key=json_types.ContentKey(elements=tuple(key.key)),
        merge_behavior=_BEHAVIORS[key.mode],
        conflict=make_nessie_conflict(key.conflicts[0]) if key.conflicts else msgspec.UNSET,
    )


def _refuse_merge(keys: list[MergedKey]) -> NessieRefusal:
    """Nessie also names keys that are not in conflict, without saying why."""
    names = ", ".join(f"'{quote_key(key.key)}'" for key in keys if key.conflicts)
    conflicts = [
        make_nessie_conflict(key.conflicts[0])
        if key.conflicts
        else json_types.NessieConflict(
            conflict_type="KEY_CONFLICT",
            key=json_types.ContentKey(elements=tuple(key.key)),
            message="UNKNOWN",
        )
        for key in keys
    ]
    message = f"The following keys have been changed in conflict: {names}"
    return NessieRefusal("REFERENCE_CONFLICT", message, conflicts)


def _find_resulting_head(result: MergeResult) -> str | None:
    """The branch's head afterwards; nothing if it was only tried and there was something to do."""
    has_nothing_to_do = result.source is not None and result.source == result.base
    if result.conflicts or (result.dry_run and not has_nothing_to_do):
        return None
    return result.head


def _find_target_head(catalogue: Catalogue, target: ResolvedRevision, result: MergeResult) -> str:
    """The head that the result was put on."""
    if not result.commits:
        return result.head
    first = catalogue.do(calls.GetCommit(revision=result.commits[0], via=target.name))
    return list_parents(first)[0]
