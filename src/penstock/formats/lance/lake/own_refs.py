"""Operations on Lance's own branches and tags: they are a table's, and no branches and tags of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from lance_namespace import (
    CreateTableBranchRequest,
    CreateTableBranchResponse,
    CreateTableTagRequest,
    CreateTableTagResponse,
    DeleteTableBranchRequest,
    DeleteTableBranchResponse,
    DeleteTableTagRequest,
    DeleteTableTagResponse,
    GetTableTagVersionRequest,
    GetTableTagVersionResponse,
    ListTableBranchesRequest,
    ListTableBranchesResponse,
    ListTableTagsRequest,
    ListTableTagsResponse,
    UpdateTableTagRequest,
    UpdateTableTagResponse,
)
from lance_namespace_urllib3_client.models.branch_contents import BranchContents
from lance_namespace_urllib3_client.models.tag_contents import TagContents

from penstock.formats.lance.lake.answers import LanceBranch, LanceTag
from penstock.formats.lance.lake.calls import (
    DropLanceBranch,
    DropLanceTag,
    ListLanceBranches,
    ListLanceTags,
    PutLanceBranch,
    PutLanceTag,
)
from penstock.formats.lance.lake.errors import declare_operation
from penstock.formats.lance.lake.paths import parse_page_size, parse_table_key, require_token
from penstock.formats.lance.lake.versions import VersionOperations
from penstock.formats.lance.names import lance_branch_name
from penstock.lake.call import Call

T = TypeVar("T", LanceBranch, LanceTag)


class OwnRefOperations(VersionOperations):
    """Branches and tags of a table."""

    # -- branches ------------------------------------------------------------------------------------------

    @declare_operation(CreateTableBranchRequest)
    def create_table_branch(self, request: CreateTableBranchRequest) -> CreateTableBranchResponse:
        self.change_tables(
            [
                PutLanceBranch(
                    key=parse_table_key(request.id),
                    branch=request.name,
                    parent=lance_branch_name(request.from_branch),
                    version=request.from_version,
                )
            ],
            request.context,
        )
        return CreateTableBranchResponse()

    @declare_operation(ListTableBranchesRequest)
    def list_table_branches(self, request: ListTableBranchesRequest) -> ListTableBranchesResponse:
        key = parse_table_key(request.id)
        self.note_read(key)
        call = ListLanceBranches(key=key, **self.at)
        branches, token = self._list_page(call, request)
        return ListTableBranchesResponse(
            branches={branch.name: make_branch_contents(branch) for branch in branches}, page_token=token
        )

    @declare_operation(DeleteTableBranchRequest)
    def delete_table_branch(self, request: DeleteTableBranchRequest) -> DeleteTableBranchResponse:
        self.change_tables(
            [DropLanceBranch(key=parse_table_key(request.id), branch=request.name)], request.context
        )
        return DeleteTableBranchResponse()

    # -- tags ----------------------------------------------------------------------------------------------

    @declare_operation(CreateTableTagRequest)
    def create_table_tag(self, request: CreateTableTagRequest) -> CreateTableTagResponse:
        self.change_tables([_make_put_tag(request, is_new=True)], request.context)
        return CreateTableTagResponse()

    @declare_operation(UpdateTableTagRequest)
    def update_table_tag(self, request: UpdateTableTagRequest) -> UpdateTableTagResponse:
        self.change_tables([_make_put_tag(request, is_new=False)], request.context)
        return UpdateTableTagResponse()

    @declare_operation(DeleteTableTagRequest)
    def delete_table_tag(self, request: DeleteTableTagRequest) -> DeleteTableTagResponse:
        self.change_tables(
            [DropLanceTag(key=parse_table_key(request.id), tag_name=request.tag)], request.context
        )
        return DeleteTableTagResponse()

    @declare_operation(GetTableTagVersionRequest)
    def get_table_tag_version(self, request: GetTableTagVersionRequest) -> GetTableTagVersionResponse:
        key = parse_table_key(request.id)
        self.note_read(key)
        branch, version = self.find_tag(key, request.tag)
        return GetTableTagVersionResponse(version=version, branch=branch or None)

    @declare_operation(ListTableTagsRequest)
    def list_table_tags(self, request: ListTableTagsRequest) -> ListTableTagsResponse:
        key = parse_table_key(request.id)
        self.note_read(key)
        tags, token = self._list_page(ListLanceTags(key=key, **self.at), request)
        return ListTableTagsResponse(
            tags={tag.name: make_tag_contents(tag) for tag in tags}, page_token=token
        )

    def _list_page(self, call: Call[tuple[T, ...]], request: Any) -> tuple[Sequence[T], str | None]:
        """One page of a list, and the token of the next page if there are more."""
        limit, after = parse_page_size(request.limit), require_token(request.page_token) or ""
        call = msgspec.structs.replace(call, after=after)
        most = None if limit is None else limit + 1
        pages = self.lake.pages(call, most, _make_next_page)
        if limit is None or len(pages) <= limit:
            return pages, None
        return pages[:limit], pages[limit - 1].name if limit else None


def _make_next_page(last: LanceBranch | LanceTag) -> dict[str, Any]:
    return {"after": last.name}


def _make_put_tag(request: CreateTableTagRequest | UpdateTableTagRequest, *, is_new: bool) -> PutLanceTag:
    return PutLanceTag(
        key=parse_table_key(request.id),
        tag_name=request.tag,
        branch=lance_branch_name(request.branch),
        version=request.version,
        is_new=is_new,
    )


def make_branch_contents(branch: LanceBranch) -> BranchContents:
    return BranchContents(
        parentBranch=branch.parent or None,
        parentVersion=branch.version,
        createAt=0 if branch.created is None else int(branch.created.timestamp()),
        manifestSize=branch.manifest_size,
        metadata=dict(branch.metadata) or None,
    )


def make_tag_contents(tag: LanceTag) -> TagContents:
    return TagContents(branch=tag.branch or None, version=tag.version, manifestSize=tag.manifest_size)
