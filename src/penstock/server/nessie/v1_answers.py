"""Views: answers of version 2 as version 1 shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import UNSET, UnsetType

from penstock.server.nessie import json_types, v1_json_types
from penstock.server.nessie.pynessie import make_content_view

Headers: TypeAlias = Mapping[str, str]
"""Those of the request, which tell which client reads the answer."""


def make_v1_reference(reference: json_types.AnyReference) -> v1_json_types.AnyReference:
    """A branch or tag."""
    assert not isinstance(reference, json_types.DetachedReference)
    shape = v1_json_types.V1Branch if isinstance(reference, json_types.NessieBranch) else v1_json_types.V1Tag
    return shape(name=reference.name, hash=reference.hash, metadata=_make_v1_metadata(reference.metadata))


def make_v1_log(answer: json_types.LogResponse, headers: Headers) -> v1_json_types.V1LogResponse:
    """A page of commits."""
    return v1_json_types.V1LogResponse(
        has_more=answer.has_more,
        token=answer.token,
        log_entries=tuple(_make_v1_log_entry(entry, headers) for entry in answer.log_entries),
    )


def make_v1_contents(
    answer: json_types.GetMultipleContentsResponse, headers: Headers
) -> v1_json_types.V1GetMultipleContentsResponse:
    """What several keys hold."""
    return v1_json_types.V1GetMultipleContentsResponse(
        contents=tuple(
            json_types.ContentWithKey(key=content.key, content=make_content_view(content.content, headers))
            for content in answer.contents
        )
    )


def make_v1_difference(entry: json_types.DiffEntry, headers: Headers) -> json_types.DiffEntry:
    """A key that differs."""
    before, after = (
        None if side is None else make_content_view(side, headers) for side in (entry.from_, entry.to)
    )
    return json_types.DiffEntry(key=entry.key, from_=before, to=after)


def make_v1_merge(answer: json_types.MergeResponse) -> v1_json_types.V1MergeResponse:
    """What came of a merge or transplant."""
    return v1_json_types.V1MergeResponse(
        was_applied=answer.was_applied,
        was_successful=answer.was_successful,
        resultant_target_hash=answer.resultant_target_hash,
        common_ancestor=answer.common_ancestor,
        target_branch=answer.target_branch,
        effective_target_hash=answer.effective_target_hash,
        expected_hash=answer.expected_hash,
        details=tuple(
            v1_json_types.V1ContentKeyDetails(
                key=detail.key,
                merge_behavior=detail.merge_behavior,
                conflict_type="NONE" if detail.conflict is UNSET else "UNRESOLVABLE",
            )
            for detail in answer.details
        ),
    )


def _make_v1_metadata(
    metadata: json_types.ReferenceMetadata | UnsetType,
) -> v1_json_types.V1ReferenceMetadata | UnsetType:
    if isinstance(metadata, UnsetType):
        return UNSET
    head = metadata.commit_meta_of_head
    return v1_json_types.V1ReferenceMetadata(
        num_commits_ahead=metadata.num_commits_ahead,
        num_commits_behind=metadata.num_commits_behind,
        commit_meta_of_head=_make_v1_commit_meta(head) if head is not None else None,
        common_ancestor_hash=metadata.common_ancestor_hash,
        num_total_commits=metadata.num_total_commits,
    )


def _make_v1_commit_meta(meta: json_types.NessieCommitMeta) -> v1_json_types.V1CommitMeta:
    properties = meta.all_properties or {}
    return v1_json_types.V1CommitMeta(
        hash=meta.hash,
        committer=meta.committer,
        author=next(iter(meta.authors), None),
        signed_off_by=next(iter(meta.all_signed_off_by), None),
        message=meta.message,
        commit_time=meta.commit_time,
        author_time=meta.author_time,
        properties={name: values[0] for name, values in properties.items() if values},
    )


def _make_v1_log_entry(entry: json_types.NessieLogEntry, headers: Headers) -> v1_json_types.V1LogEntry:
    operations = entry.operations
    return v1_json_types.V1LogEntry(
        commit_meta=_make_v1_commit_meta(entry.commit_meta),
        parent_commit_hash=entry.parent_commit_hash,
        operations=None
        if operations is None
        else tuple(_make_v1_operation(operation, headers) for operation in operations),
    )


def _make_v1_operation(
    operation: json_types.PutOperation | json_types.DeleteOperation, headers: Headers
) -> v1_json_types.LoggedPut | json_types.DeleteOperation:
    if isinstance(operation, json_types.DeleteOperation):
        return operation
    return v1_json_types.LoggedPut(key=operation.key, content=make_content_view(operation.content, headers))
