"""Handlers about references: listing, creating, assigning and deleting branches and tags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final, Literal

import msgspec

from penstock.errors import (
    CommitNotFound,
    Damaged,
    Denied,
    HistoryExpired,
    InvalidRequest,
    ReferenceChanged,
    ReferenceNotFound,
)
from penstock.lake import calls
from penstock.lake.catalogue import Catalogue
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.model.references import Event, Kind, Reference
from penstock.server.nessie import json_types
from penstock.server.nessie.cel_bindings import ReferencePosition, bind_reference
from penstock.server.nessie.commits import make_nessie_meta
from penstock.server.nessie.pages import (
    Keep,
    find_page_deadline_s,
    list_in_batches,
    make_filter,
    parse_page_size,
    parse_page_token,
    take_page,
)
from penstock.server.nessie.revisions import (
    NAME_RULE,
    NessieRevision,
    check_name,
    find_reference,
    make_nessie_reference,
    parse_body,
    parse_path,
    require_commit,
    resolve_revision,
)
from penstock.server.nessie.violations import (
    find_bad_name,
    find_bad_path,
    find_bad_type,
    find_null,
    raise_violations,
)
from penstock.server.routes import RouteRequest

RECENT_MAX: Final = 20
RECENT_MAX_S: Final = 300
SCANNED_COMMITS_MAX: Final = 1_000

_FOLDERS: Final = {Kind.BRANCH: "refs/heads/", Kind.TAG: "refs/tags/"}
_TYPE_NAMES: Final = {Kind.BRANCH: "BRANCH", Kind.TAG: "TAG"}
_TYPES: Final = {"BRANCH": Kind.BRANCH, "branch": Kind.BRANCH, "TAG": Kind.TAG, "tag": Kind.TAG}
_JAVA_NAMES: Final = {Kind.BRANCH: "BranchName", Kind.TAG: "TagName"}

Fetch = Literal["MINIMAL", "ALL"]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Which references to list."""

    fetch: Fetch = "MINIMAL"
    """``ALL`` also tells how each compares with the default branch, and its newest commit."""
    filter: str = ""
    """A CEL expression over ``ref``, ``refType`` and, with ``ALL``, ``refMeta`` and ``commit``."""
    max_records: int | None = None
    page_token: str = ""


class CreateQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The name and type of a new reference."""

    name: str | None = None
    type: str | None = None
    """``BRANCH`` or ``TAG``."""


class GetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How much to tell of a reference."""

    fetch: Fetch = "MINIMAL"


class TypeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What the reference is expected to be."""

    type: str | None = None
    """``BRANCH`` or ``TAG``; either if it is not given."""


class RecentQuery(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """How far to check the history."""

    scan_commits: int | None = None


def list_references(ask: RouteRequest) -> json_types.ReferencesResponse:
    query: ListQuery = ask.query
    heads = _ReferenceHeads(ask.catalogue) if query.fetch == "ALL" else None

    def find_head(reference: Reference) -> ReferencePosition | None:
        return heads.find_position(reference) if heads is not None else None

    keep: Keep[Reference] = make_filter(
        "references",
        query.filter,
        lambda reference: bind_reference(
            _TYPE_NAMES[reference.kind], reference.name, reference.id, find_head(reference)
        ),
    )
    size = parse_page_size(ask.limits, query.max_records)
    references = _list_references_after(ask.catalogue, query.page_token, size)
    page_references, token = take_page(
        references, size, _make_page_token, keep, find_page_deadline_s(ask.deadline_s)
    )
    shown = tuple(
        _make_reference_with_metadata(reference, find_head(reference)) for reference in page_references
    )
    return json_types.ReferencesResponse(has_more=token is not None, token=token, references=shown)


def create_reference(ask: RouteRequest) -> json_types.SingleReferenceResponse:
    query: CreateQuery = ask.query
    raise_violations(
        find_null(query.name, "createReference.name"),
        find_bad_name(query.name if query.name != "-" else None, "createReference.name"),
        find_null(query.type, "createReference.type"),
        find_bad_type(query.type, "createReference.type"),
    )
    assert query.name is not None
    assert query.type is not None
    kind = _TYPES[query.type]
    check_name(query.name)
    place = resolve_revision(ask.catalogue, _parse_source(ask.body), "Target hash", needs_commit=True)
    reference = ask.catalogue.do(calls.CreateReference(name=query.name, kind=kind, at=place.revision))
    return json_types.SingleReferenceResponse(reference=make_nessie_reference(reference, reference.id))


def get_reference(ask: RouteRequest) -> json_types.SingleReferenceResponse:
    query: GetQuery = ask.query
    name = _require_name_only(ask, "getReferenceByName.params.ref", "fetching a reference by name")
    reference = find_reference(ask.catalogue, name)
    head = _ReferenceHeads(ask.catalogue).find_position(reference) if query.fetch == "ALL" else None
    return json_types.SingleReferenceResponse(reference=_make_reference_with_metadata(reference, head))


def assign_reference(ask: RouteRequest) -> json_types.SingleReferenceResponse:
    raise_violations(
        find_null(ask.body, "assignReference.assignTo"),
        find_bad_path(ask.path["ref"], "assignReference.reference"),
        find_bad_type(ask.query.type, "assignReference.type"),
    )
    expected = parse_path(ask.path["ref"], ask.catalogue, "assignReference.reference")
    kind = _TYPES[ask.query.type] if ask.query.type is not None else None
    if expected.name is None:
        raise InvalidRequest("Assignment target must be a branch or a tag.")
    reference = find_reference(ask.catalogue, expected.name)
    require_commit(expected, "Expected hash")
    target = resolve_revision(ask.catalogue, _parse_source(ask.body), "Target hash", needs_commit=True)
    _check_kind(reference, kind)
    moved = ask.catalogue.do(
        calls.AssignReference(
            name=reference.name,
            to=target.revision,
            kind=reference.kind,
            expected=_check_expected_head(ask.catalogue, reference, expected),
        )
    )
    return json_types.SingleReferenceResponse(reference=make_nessie_reference(moved, moved.id))


def delete_reference(ask: RouteRequest) -> json_types.SingleReferenceResponse:
    raise_violations(
        find_bad_path(ask.path["ref"], "deleteReference.reference"),
        find_bad_type(ask.query.type, "deleteReference.type"),
    )
    expected = parse_path(ask.path["ref"], ask.catalogue, "deleteReference.reference")
    kind = _TYPES[ask.query.type] if ask.query.type is not None else None
    reference = find_reference(ask.catalogue, expected.name)
    _check_kind(reference, kind)
    if reference.name == ask.catalogue.do(calls.GetAbout()).default_branch:
        raise InvalidRequest(f"Default branch '{reference.name}' cannot be deleted.")
    require_commit(expected, "Expected hash")
    deleted = ask.catalogue.do(
        calls.DeleteReference(
            name=reference.name,
            kind=reference.kind,
            expected=_check_expected_head(ask.catalogue, reference, expected),
        )
    )
    return json_types.SingleReferenceResponse(reference=make_nessie_reference(reference, deleted.id))


def list_recent_changes(ask: RouteRequest) -> json_types.ReferenceHistoryResponse:
    query: RecentQuery = ask.query
    name = _require_name_only(ask, "getReferenceHistory.params.ref", "fetching a reference history")
    reference = find_reference(ask.catalogue, name)
    oldest = datetime.now(UTC) - timedelta(seconds=RECENT_MAX_S)
    lines = ask.catalogue.do(calls.GetReferenceLog(name=reference.name, limit=RECENT_MAX))
    moves = takewhile(lambda line: line.event != Event.CREATE and line.time >= oldest, lines)
    befores = [line.before for line in moves if line.before != line.after]
    states = [_find_reference_state(ask.catalogue, reference.name, commit) for commit in befores]
    return json_types.ReferenceHistoryResponse(
        reference=make_nessie_reference(reference, reference.id),
        current=_find_reference_state(ask.catalogue, reference.name, reference.id)
        or _make_unreadable_state(reference.id),
        previous=tuple(state for state in states if state is not None),
        commit_log_consistency=_check_commits(ask.catalogue, reference, query.scan_commits or 0),
    )


# -- the parts ---------------------------------------------------------------------------------------------


class _ReferenceHeads:
    """What is known of references beyond their names, compared with the default branch as it is now."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._name = catalogue.do(calls.GetAbout()).default_branch
        self._default: Reference | None = None
        with suppress(ReferenceNotFound, Denied):
            self._default = catalogue.do(calls.GetReference(name=self._name))
        self._default_depth = (
            self._read_commit(self._default).depth if self._has_commits(self._default) else 0
        )
        self._known: dict[str, ReferencePosition | None] = {}

    def find_position(self, reference: Reference) -> ReferencePosition | None:
        """What is known of a reference; nothing if it is empty."""
        if reference.name not in self._known:
            self._known[reference.name] = self._read_head(reference) if self._has_commits(reference) else None
        return self._known[reference.name]

    def _read_head(self, reference: Reference) -> ReferencePosition:
        commit = self._read_commit(reference)
        if reference.kind is Kind.TAG or reference.name == self._name:
            return ReferencePosition(commit=commit, total=commit.depth)
        depth, ancestor = self._find_fork_point(reference, commit)
        return ReferencePosition(
            commit=commit,
            ahead=commit.depth - depth,
            behind=self._default_depth - depth,
            ancestor=ancestor,
            total=commit.depth,
        )

    def _has_commits(self, reference: Reference | None) -> bool:
        return reference is not None and reference.id != EMPTY_COMMIT_ID

    def _read_commit(self, reference: Reference | None) -> Commit:
        assert reference is not None
        return self._catalogue.do(calls.GetCommit(revision=reference.id, via=reference.name))

    def _find_fork_point(self, reference: Reference, commit: Commit) -> tuple[int, str]:
        """Where a branch and the default branch part, by first parents: its depth and its id.

        Up to there both have the same commit at every depth, and none afterwards, so that it is found by
        halving.
        """
        if self._default is None:
            return 0, EMPTY_COMMIT_ID
        same, differs = 0, min(commit.depth, self._default_depth) + 1
        ancestor = EMPTY_COMMIT_ID
        while differs - same > 1:
            middle = (same + differs) // 2
            mine = self._find_commit_at_depth(reference, commit.depth, middle)
            if mine == self._find_commit_at_depth(self._default, self._default_depth, middle):
                same, ancestor = middle, mine
            else:
                differs = middle
        return same, ancestor

    def _find_commit_at_depth(self, reference: Reference, depth: int, wanted: int) -> str:
        revision = f"{reference.name}@{reference.id}"
        if depth > wanted:
            revision += f"~{depth - wanted}"
        return self._catalogue.do(calls.Resolve(revision=revision)).commit


def _make_page_token(reference: Reference) -> str:
    return f"{_FOLDERS[reference.kind]}{reference.name}".encode().hex()


def _list_references_after(catalogue: Catalogue, token: str, size: int) -> Iterator[Reference]:
    """Branches, then tags, from where a token says."""
    start = parse_page_token(token) if token else ""
    kinds = [kind for kind in _FOLDERS if start.startswith(_FOLDERS[kind]) or not start]
    if not kinds:
        raise InvalidRequest("Invalid token string representation")
    is_cut_at = start.removeprefix(_FOLDERS[kinds[0]])
    if start.startswith(_FOLDERS[Kind.BRANCH]):
        kinds.append(Kind.TAG)
    for kind in kinds:
        if is_cut_at:
            with suppress(ReferenceNotFound, Denied):
                first = find_reference(catalogue, is_cut_at)
                if first.kind is kind:
                    yield first
        yield from _list_references(catalogue, kind, is_cut_at, size)
        is_cut_at = ""


def _list_references(catalogue: Catalogue, kind: Kind, after: str, size: int) -> Iterator[Reference]:
    def read_page(last: Reference | None, limit: int) -> tuple[Reference, ...]:
        name = last.name if last is not None else after
        return catalogue.do(calls.ListReferences(kind=kind, after=name, limit=limit))

    return list_in_batches(read_page, size)


def _make_reference_with_metadata(
    reference: Reference, head: ReferencePosition | None
) -> json_types.AnyReference:
    shown = make_nessie_reference(reference, reference.id)
    if head is None:
        return shown
    metadata = json_types.ReferenceMetadata(
        num_commits_ahead=head.ahead,
        num_commits_behind=head.behind,
        commit_meta_of_head=make_nessie_meta(head.commit) if head.commit is not None else None,
        common_ancestor_hash=head.ancestor,
        num_total_commits=head.total,
    )
    return msgspec.structs.replace(shown, metadata=metadata)


def _parse_source(body: json_types.AnyReferenceInput | None) -> NessieRevision:
    if body is None:
        return NessieRevision(name=None)
    return parse_body(None if isinstance(body, json_types.DetachedInput) else body.name, body.hash)


def _require_name_only(ask: RouteRequest, parameter: str, doing: str) -> str | None:
    revision = parse_path(ask.path["ref"], ask.catalogue, parameter, NAME_RULE)
    if not revision.is_name_only:
        raise InvalidRequest(f"Hashes are not allowed when {doing}")
    return revision.name


def _check_kind(reference: Reference, kind: Kind | None) -> None:
    if kind is not None and reference.kind is not kind:
        raise InvalidRequest(
            f"Expected reference type {kind.name} does not match existing reference "
            f"{_JAVA_NAMES[reference.kind]}{{name={reference.name}}}"
        )


def _check_expected_head(catalogue: Catalogue, reference: Reference, expected: NessieRevision) -> str:
    """The head that the caller expects, which must be the reference's; whether it exists does not matter."""
    commit = expected.commit or ""
    if expected.steps:
        try:
            commit = resolve_revision(catalogue, expected, "Expected hash").commit
        except CommitNotFound as missing:
            if missing.details.get("name") is None:
                raise
            commit = missing.details["commit"]  # what it comes to, on some other branch
    if commit != reference.id:
        raise ReferenceChanged(
            f"'{reference.name}' is at {reference.id}, not at {commit}",
            name=reference.name,
            expected=commit,
            found=reference.id,
        )
    return commit


def _find_reference_state(
    catalogue: Catalogue, name: str, commit: str
) -> json_types.ReferenceHistoryState | None:
    """A commit that a reference was at; nothing if the caller may not read it."""
    if commit == EMPTY_COMMIT_ID:
        return json_types.ReferenceHistoryState(commit_hash=commit, commit_consistency="COMMIT_CONSISTENT")
    try:
        commit_info = catalogue.do(calls.GetCommit(revision=commit, via=name))
    except Denied:
        return None
    except (CommitNotFound, HistoryExpired, Damaged):
        return _make_unreadable_state(commit)
    return json_types.ReferenceHistoryState(
        commit_hash=commit, commit_consistency="COMMIT_CONSISTENT", meta=make_nessie_meta(commit_info)
    )


def _make_unreadable_state(commit: str) -> json_types.ReferenceHistoryState:
    return json_types.ReferenceHistoryState(commit_hash=commit, commit_consistency="COMMIT_INCONSISTENT")


def _check_commits(catalogue: Catalogue, reference: Reference, count: int) -> json_types.Consistency:
    """Whether so many commits can be read; what is read is checked against its hash."""
    if count <= 0:
        return "NOT_CHECKED"
    limit = min(count, SCANNED_COMMITS_MAX)
    try:
        catalogue.do(calls.ListCommits(ref=reference.id, via=reference.name, limit=limit))
    except (CommitNotFound, Damaged):
        return "COMMIT_INCONSISTENT"
    return "COMMIT_CONSISTENT"
