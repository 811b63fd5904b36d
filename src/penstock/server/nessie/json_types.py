"""Shapes: the JSON of Nessie's API, version 2, field by field.

Nessie's Java client refuses fields that it does not know, so that answers have exactly these: ``None`` is a
field that is ``null``, ``UNSET`` one that is left out. Requests may have more, which are ignored.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

Int: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Long: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Instant: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
MergeBehavior: TypeAlias = Literal["NORMAL", "FORCE", "DROP"]
Consistency: TypeAlias = Literal[
    "NOT_CHECKED", "COMMIT_CONSISTENT", "COMMIT_CONTENT_INCONSISTENT", "COMMIT_INCONSISTENT"
]


def format_instant(moment: datetime) -> Instant:
    """A time as Java writes it: in UTC, with as many groups of three digits after the point as it needs."""
    text = moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
    seconds, _, fraction = text.partition(".")
    fraction = fraction.removesuffix("000").removesuffix("000")
    return f"{seconds}.{fraction}Z" if fraction else f"{seconds}Z"


class NessieShape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all shapes share: names in camel case."""


class ContentKey(NessieShape, frozen=True, kw_only=True):
    """Where something is."""

    elements: tuple[str, ...]


# -- contents ----------------------------------------------------------------------------------------------


class NessieContent(NessieShape, tag_field="type", frozen=True, kw_only=True):
    """What all contents share."""

    id: str | None = None
    """Given by the server when a content is first stored; it stays when the content is renamed."""


class NessieNamespace(NessieContent, tag="NAMESPACE", frozen=True, kw_only=True):
    """A place for tables and further namespaces. Its elements are those of its key."""

    elements: tuple[str, ...] = ()
    properties: dict[str, str] | UnsetType | None = UNSET


class NessieIcebergTable(NessieContent, tag="ICEBERG_TABLE", frozen=True, kw_only=True):
    """An Iceberg table."""

    metadata_location: str
    snapshot_id: Long
    schema_id: Int
    spec_id: Int
    sort_order_id: Int


class NessieIcebergView(NessieContent, tag="ICEBERG_VIEW", frozen=True, kw_only=True):
    """An Iceberg view."""

    metadata_location: str
    version_id: Long
    schema_id: Int
    sql_text: str | UnsetType | None = UNSET
    dialect: str | UnsetType | None = UNSET


class DeltaLakeTable(NessieContent, tag="DELTA_LAKE_TABLE", frozen=True, kw_only=True):
    """A Delta table; also what Nessie has no type for, then without history."""

    metadata_location_history: tuple[str, ...] = ()
    checkpoint_location_history: tuple[str, ...] = ()
    last_checkpoint: str | None = None


class NessieUdf(NessieContent, tag="UDF", frozen=True, kw_only=True):
    """A user-defined function."""

    sql_text: str | UnsetType | None = UNSET
    dialect: str | UnsetType | None = UNSET
    version_id: str | UnsetType | None = UNSET
    signature_id: str | UnsetType | None = UNSET
    metadata_location: str | UnsetType | None = UNSET


AnyContent: TypeAlias = NessieNamespace | NessieIcebergTable | NessieIcebergView | DeltaLakeTable | NessieUdf


# -- commits -----------------------------------------------------------------------------------------------


class NessieCommitMeta(NessieShape, frozen=True, kw_only=True):
    """What a commit says of itself."""

    hash: str
    committer: str
    authors: tuple[str, ...]
    all_signed_off_by: tuple[str, ...]
    message: str
    commit_time: Instant
    author_time: Instant
    all_properties: dict[str, tuple[str, ...]] | UnsetType = UNSET
    parent_commit_hashes: tuple[str, ...] | UnsetType = UNSET


class CommitMetaInput(NessieShape, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a writer says of a commit; ``author``, ``signedOffBy`` and ``properties`` are older names.

    The hash, committer, time and parents are the server's to set, and refused.
    """

    message: str
    hash: str | None = None
    committer: str | None = None
    author: str | None = None
    authors: tuple[str | None, ...] | None = None
    signed_off_by: str | None = None
    all_signed_off_by: tuple[str, ...] | None = None
    commit_time: datetime | None = None
    author_time: datetime | None = None
    properties: dict[str, str] | None = None
    all_properties: dict[str, tuple[str, ...]] | None = None
    parent_commit_hashes: tuple[str, ...] | None = None


class NessieOperation(NessieShape, tag_field="type", frozen=True, kw_only=True):
    """What all operations share."""

    key: ContentKey


class PutOperation(NessieOperation, tag="PUT", frozen=True, kw_only=True):
    """Let a key hold a content. What is said in ``documentation`` and ``metadata`` is not kept."""

    content: AnyContent
    documentation: Any = None
    metadata: Any = UNSET


class DeleteOperation(NessieOperation, tag="DELETE", frozen=True, kw_only=True):
    """Let a key hold nothing."""


class UnchangedOperation(NessieOperation, tag="UNCHANGED", frozen=True, kw_only=True):
    """Refuse the commit if a key changed since the expected hash."""


AnyOperation: TypeAlias = PutOperation | DeleteOperation | UnchangedOperation


class Operations(NessieShape, frozen=True, kw_only=True):
    """A commit to be made."""

    commit_meta: CommitMetaInput
    operations: tuple[AnyOperation, ...] | None = ()


class AddedContent(NessieShape, frozen=True, kw_only=True):
    """A content that was new, and the id it was given."""

    key: ContentKey
    content_id: str


# -- references --------------------------------------------------------------------------------------------


class ReferenceMetadata(NessieShape, frozen=True, kw_only=True):
    """How a reference compares with the default branch, and its newest commit."""

    num_commits_ahead: int | None = None
    num_commits_behind: int | None = None
    commit_meta_of_head: NessieCommitMeta | None = msgspec.field(default=None, name="commitMetaOfHEAD")
    common_ancestor_hash: str | None = None
    num_total_commits: int | None = None


class NessieBranch(NessieShape, tag_field="type", tag="BRANCH", frozen=True, kw_only=True):
    """A branch at a commit."""

    name: str
    hash: str | None = None
    metadata: ReferenceMetadata | UnsetType = UNSET


class NessieTag(NessieShape, tag_field="type", tag="TAG", frozen=True, kw_only=True):
    """A tag at a commit."""

    name: str
    hash: str | None = None
    metadata: ReferenceMetadata | UnsetType = UNSET


class DetachedReference(NessieShape, tag_field="type", tag="DETACHED", frozen=True, kw_only=True):
    """A commit that no name is given for."""

    hash: str


AnyReference: TypeAlias = NessieBranch | NessieTag | DetachedReference


class BranchInput(NessieShape, tag_field="type", tag="BRANCH", frozen=True, kw_only=True):
    """A branch at a commit, as clients name it: the hash may be followed by ``~1`` and the like."""

    name: str
    hash: str | None = None


class TagInput(NessieShape, tag_field="type", tag="TAG", frozen=True, kw_only=True):
    """A tag at a commit, as clients name it."""

    name: str
    hash: str | None = None


class DetachedInput(NessieShape, tag_field="type", tag="DETACHED", frozen=True, kw_only=True):
    """A commit without a name."""

    hash: str


AnyReferenceInput: TypeAlias = BranchInput | TagInput | DetachedInput


class ReferenceHistoryState(NessieShape, frozen=True, kw_only=True):
    """A commit that a reference was at."""

    commit_hash: str
    commit_consistency: Consistency
    meta: NessieCommitMeta | None = None


# -- answers -----------------------------------------------------------------------------------------------


class SingleReferenceResponse(NessieShape, frozen=True, kw_only=True):
    """A reference."""

    reference: AnyReference


class Page(NessieShape, frozen=True, kw_only=True):
    """What all answers share that come page by page."""

    has_more: bool = False
    token: str | None = None
    """To be sent as ``page-token`` for the next page."""


class ReferencesResponse(Page, frozen=True, kw_only=True):
    """References by name, first branches, then tags."""

    references: tuple[AnyReference, ...]


class ReferenceHistoryResponse(NessieShape, frozen=True, kw_only=True):
    """Where a reference is and lately was."""

    reference: AnyReference
    current: ReferenceHistoryState
    previous: tuple[ReferenceHistoryState, ...]
    commit_log_consistency: Consistency


class NessieEntry(NessieShape, frozen=True, kw_only=True):
    """A key and what it holds."""

    name: ContentKey
    type: str
    content_id: str | None = None
    content: AnyContent | None = None


class EntriesResponse(Page, frozen=True, kw_only=True):
    """Keys in order."""

    effective_reference: AnyReference
    entries: tuple[NessieEntry, ...]


class NessieLogEntry(NessieShape, frozen=True, kw_only=True):
    """A commit of a history, and what it changed if that was asked for."""

    commit_meta: NessieCommitMeta
    parent_commit_hash: str
    operations: tuple[PutOperation | DeleteOperation, ...] | None = None


class LogResponse(Page, frozen=True, kw_only=True):
    """Commits, newest first."""

    log_entries: tuple[NessieLogEntry, ...]


class DiffEntry(NessieShape, frozen=True, kw_only=True):
    """A key that differs."""

    key: ContentKey
    from_: AnyContent | None = msgspec.field(name="from")
    to: AnyContent | None


class DiffResponse(Page, frozen=True, kw_only=True):
    """Keys that differ, in order."""

    effective_from_reference: AnyReference
    effective_to_reference: AnyReference
    diffs: tuple[DiffEntry, ...]


class ContentResponse(NessieShape, frozen=True, kw_only=True):
    """What a key holds."""

    content: AnyContent
    effective_reference: AnyReference


class GetMultipleContentsRequest(NessieShape, frozen=True, kw_only=True):
    """Keys to be read."""

    requested_keys: tuple[ContentKey, ...] | None = ()


class ContentWithKey(NessieShape, frozen=True, kw_only=True):
    """A key and what it holds."""

    key: ContentKey
    content: AnyContent


class GetMultipleContentsResponse(NessieShape, frozen=True, kw_only=True):
    """The contents of keys; keys without a content are left out."""

    contents: tuple[ContentWithKey, ...]
    effective_reference: AnyReference


class CommitResponse(NessieShape, frozen=True, kw_only=True):
    """The branch after a commit, and the ids of contents that were new."""

    target_branch: NessieBranch
    added_contents: tuple[AddedContent, ...] | None


# -- merges ------------------------------------------------------------------------------------------------


class MergeKeyBehavior(NessieShape, frozen=True, kw_only=True):
    """How to merge one key."""

    key: ContentKey
    merge_behavior: MergeBehavior
    expected_target_content: AnyContent | None = None
    resolved_content: AnyContent | None = None


class NessieMergeFields(NessieShape, frozen=True, kw_only=True):
    """What merges and transplants are told alike."""

    from_ref_name: str
    message: str | None = None
    key_merge_modes: tuple[MergeKeyBehavior, ...] | None = None
    default_key_merge_mode: MergeBehavior | None = None
    is_dry_run: bool | None = None
    is_fetch_additional_info: bool | None = None
    is_return_conflict_as_result: bool | None = None
    dry_run: bool | None = None
    """As Nessie's description calls it; its clients send ``isDryRun``. The same goes for the next one."""
    return_conflict_as_result: bool | None = None


class NessieMerge(NessieMergeFields, frozen=True, kw_only=True):
    """What to merge, and how."""

    from_hash: str | None = None
    commit_meta: CommitMetaInput | None = None


class NessieTransplant(NessieMergeFields, frozen=True, kw_only=True):
    """Commits to repeat, oldest first, and how."""

    hashes_to_transplant: tuple[str, ...] | None = ()


class NessieConflict(NessieShape, frozen=True, kw_only=True):
    """Why a key cannot be as it was wanted."""

    conflict_type: str
    key: ContentKey | None
    message: str


class ContentKeyDetails(NessieShape, frozen=True, kw_only=True):
    """What came of a key."""

    key: ContentKey
    merge_behavior: MergeBehavior
    conflict: NessieConflict | UnsetType = UNSET


class MergeResponse(NessieShape, frozen=True, kw_only=True):
    """What a merge or transplant did, or would do."""

    was_applied: bool
    was_successful: bool
    resultant_target_hash: str | None
    common_ancestor: str | None
    target_branch: str
    effective_target_hash: str
    expected_hash: str | None
    details: tuple[ContentKeyDetails, ...]


# -- errors ------------------------------------------------------------------------------------------------


class ReferenceConflicts(NessieShape, tag_field="type", tag="REFERENCE_CONFLICTS", frozen=True, kw_only=True):
    """Everything that is in the way."""

    conflicts: tuple[NessieConflict, ...]


class ContentKeyErrorDetails(NessieShape, tag_field="type", tag="CONTENT_KEY", frozen=True, kw_only=True):
    """The key that an error is about."""

    content_key: ContentKey


class NessieError(NessieShape, frozen=True, kw_only=True):
    """What went wrong. Details are only sent to clients of version 2."""

    status: int
    reason: str
    message: str
    error_code: str
    error_details: ReferenceConflicts | ContentKeyErrorDetails | UnsetType = UNSET
    server_stack_trace: None = None
