"""Shapes of version 1, where they differ from those of version 2.

A commit has one author, one signer and one value for each property; an operation names the content that it
expected, which is not looked at any more; answers do not say which commit they were read at. Pynessie
refuses fields that it does not know and misses those that it does, so that answers have exactly these.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from penstock.server.nessie import json_types
from penstock.server.nessie.json_types import (
    AnyContent,
    ContentKey,
    ContentWithKey,
    DeleteOperation,
    DiffEntry,
    Instant,
    MergeBehavior,
    NessieNamespace,
    NessieOperation,
    NessieShape,
    Page,
)


class V1NessieConfiguration(NessieShape, frozen=True, kw_only=True):
    """What a client must know first."""

    default_branch: str
    max_supported_api_version: int = 2


# -- commits -----------------------------------------------------------------------------------------------


class V1CommitMeta(NessieShape, frozen=True, kw_only=True):
    """What a commit says of itself: the first author, the first signer, the first value of each property."""

    hash: str
    committer: str
    author: str | None
    signed_off_by: str | None
    message: str
    commit_time: Instant
    author_time: Instant
    properties: dict[str, str]


class LoggedPut(NessieOperation, tag="PUT", frozen=True, kw_only=True):
    """A key was made to hold a content."""

    content: AnyContent
    expected_content: None = None
    """Not kept."""


class V1LogEntry(NessieShape, frozen=True, kw_only=True):
    """A commit of a history, and what it changed if that was asked for."""

    commit_meta: V1CommitMeta
    parent_commit_hash: str
    operations: tuple[LoggedPut | DeleteOperation, ...] | None = None


class V1LogResponse(Page, frozen=True, kw_only=True):
    """Commits, newest first."""

    log_entries: tuple[V1LogEntry, ...]


# -- references --------------------------------------------------------------------------------------------


class V1ReferenceMetadata(NessieShape, frozen=True, kw_only=True):
    """How a reference compares with the default branch, and its newest commit."""

    num_commits_ahead: int | None = None
    num_commits_behind: int | None = None
    commit_meta_of_head: V1CommitMeta | None = msgspec.field(default=None, name="commitMetaOfHEAD")
    common_ancestor_hash: str | None = None
    num_total_commits: int | None = None


class V1Branch(NessieShape, tag_field="type", tag="BRANCH", frozen=True, kw_only=True):
    """A branch at a commit."""

    name: str
    hash: str | None = None
    metadata: V1ReferenceMetadata | UnsetType = UNSET


class V1Tag(NessieShape, tag_field="type", tag="TAG", frozen=True, kw_only=True):
    """A tag at a commit."""

    name: str
    hash: str | None = None
    metadata: V1ReferenceMetadata | UnsetType = UNSET


AnyReference: TypeAlias = V1Branch | V1Tag


class V1ReferencesResponse(Page, frozen=True, kw_only=True):
    """Branches by name, then tags."""

    references: tuple[AnyReference, ...]


# -- reading -----------------------------------------------------------------------------------------------


class V1Entry(NessieShape, frozen=True, kw_only=True):
    """A key and the type of what it holds."""

    name: ContentKey
    type: str


class V1EntriesResponse(Page, frozen=True, kw_only=True):
    """Keys in order."""

    entries: tuple[V1Entry, ...]


class V1DiffResponse(Page, frozen=True, kw_only=True):
    """Keys that differ, in order."""

    diffs: tuple[DiffEntry, ...]


class V1GetMultipleContentsResponse(NessieShape, frozen=True, kw_only=True):
    """The contents of keys; keys without a content are left out."""

    contents: tuple[ContentWithKey, ...]


# -- writing -----------------------------------------------------------------------------------------------


class V1MergeRequest(json_types.NessieMergeFields, frozen=True, kw_only=True):
    """What to merge, and how."""

    from_hash: str
    keep_individual_commits: bool | None = None
    """Only ``false`` is possible: a merge is one commit."""


class V1TransplantRequest(json_types.NessieMergeFields, frozen=True, kw_only=True):
    """Commits to repeat, oldest first, and how."""

    hashes_to_transplant: tuple[str, ...]
    keep_individual_commits: bool | None = None
    """Only ``true`` is possible: each commit is repeated as one."""


class V1ContentKeyDetails(NessieShape, frozen=True, kw_only=True):
    """What came of a key."""

    key: ContentKey
    merge_behavior: MergeBehavior
    conflict_type: Literal["NONE", "UNRESOLVABLE"]
    source_commits: tuple[str, ...] = ()
    target_commits: tuple[str, ...] = ()


class V1MergeResponse(NessieShape, frozen=True, kw_only=True):
    """What a merge or transplant did, or would do. Commits are not listed any more."""

    was_applied: bool
    was_successful: bool
    resultant_target_hash: str | None
    common_ancestor: str | None
    target_branch: str
    effective_target_hash: str
    expected_hash: str | None
    source_commits: tuple[Any, ...] = ()
    target_commits: None = None
    details: tuple[V1ContentKeyDetails, ...]


# -- namespaces --------------------------------------------------------------------------------------------


class NamespaceUpdate(NessieShape, frozen=True, kw_only=True):
    """Properties to set and to remove."""

    property_updates: dict[str, str] | None = None
    property_removals: tuple[str, ...] | None = None


class GetNamespacesResponse(NessieShape, frozen=True, kw_only=True):
    """Namespaces by name."""

    namespaces: tuple[NessieNamespace, ...]
