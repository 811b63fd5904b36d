"""Operations: one table of all that Lance's API can be asked, from which its routes are made.

Each is a method of the namespace of the same name. A request is put together from path, query and body, and
checked as one of Lance's models; the namespace does the rest.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.formats.lance.rest import query_types
from penstock.formats.lance.rest.codec import ROWS, RequestModel, UnparsedModel

STREAM: Final = "application/vnd.apache.arrow.stream"
FILE: Final = "application/vnd.apache.arrow.file"


class RestOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation."""

    name: str
    """Of the method."""
    path: str
    """Below ``/v1``."""
    summary: str
    request: str
    """The model of its request."""
    answer: str | None = None
    """The model of its answer; an answer without one is something else, or nothing."""
    method: str = "POST"
    query: type[query_types.LanceQuery] = query_types.LanceQuery
    has_body: bool = True
    """Whether the request's body is JSON; other requests have none that is looked at."""
    body_is: str = ""
    """The field of the request that the whole body is."""
    has_rows: bool = False
    """Whether rows come with the request."""
    works_on_rows: bool = False
    """Whether Lance opens the table for it, which is done in a process apart from the server."""
    is_read: bool = False
    takes_key: bool = False
    """Whether it is done once however often it is sent under one key."""

    @property
    def changes_table(self) -> bool:
        return not self.is_read and self.path.startswith("/table/{id}/")

    @property
    def body(self) -> Any:
        if self.has_rows:
            return ROWS
        if not self.has_body:
            return None
        return UnparsedModel(self.request) if self.works_on_rows else RequestModel(self.request)


def _declare_read(
    name: str, path: str, summary: str, request: str, answer: str | None, **more: Any
) -> RestOperation:
    return RestOperation(
        name=name, path=path, summary=summary, request=request, answer=answer, is_read=True, **more
    )


def _declare_write(name: str, path: str, summary: str, request: str, **more: Any) -> RestOperation:
    answer = f"{request.removesuffix('Request')}Response"
    return RestOperation(
        name=name, path=path, summary=summary, request=request, **({"answer": answer} | more)
    )


def _mark_as_row_work(*operations: RestOperation) -> tuple[RestOperation, ...]:
    return tuple(msgspec.structs.replace(operation, works_on_rows=True) for operation in operations)


_VERSIONS: Final = (
    _declare_read(
        *("list_table_versions", "/table/{id}/version/list", "List the versions of a table"),
        *("ListTableVersionsRequest", "ListTableVersionsResponse"),
        query=query_types.VersionsQuery,
        has_body=False,
    ),
    _declare_read(
        *("describe_table", "/table/{id}/describe", "Describe a table"),
        *("DescribeTableRequest", "DescribeTableResponse"),
        query=query_types.DescribeQuery,
    ),
    _declare_read(
        *("describe_table_version", "/table/{id}/version/describe", "Describe a version"),
        *("DescribeTableVersionRequest", "DescribeTableVersionResponse"),
    ),
    _declare_write(
        *("create_table_version", "/table/{id}/version/create", "Create a version"),
        "CreateTableVersionRequest",
        takes_key=True,
    ),
    _declare_write(
        *("batch_delete_table_versions", "/table/{id}/version/delete", "Forget versions"),
        "BatchDeleteTableVersionsRequest",
        takes_key=True,
    ),
    _declare_write(
        *("batch_create_table_versions", "/table/version/batch-create", "Create versions of several tables"),
        "BatchCreateTableVersionsRequest",
        takes_key=True,
    ),
    _declare_write(
        *("batch_commit_tables", "/table/batch-commit", "Change several tables in one commit"),
        "BatchCommitTablesRequest",
        takes_key=True,
    ),
)

_NAMESPACES: Final = (
    _declare_write(
        *("create_namespace", "/namespace/{id}/create", "Create a namespace", "CreateNamespaceRequest"),
        takes_key=True,
    ),
    _declare_read(
        *("list_namespaces", "/namespace/{id}/list", "List the namespaces in a namespace"),
        *("ListNamespacesRequest", "ListNamespacesResponse"),
        method="GET",
        query=query_types.PageQuery,
        has_body=False,
    ),
    _declare_read(
        *("describe_namespace", "/namespace/{id}/describe", "Describe a namespace"),
        *("DescribeNamespaceRequest", "DescribeNamespaceResponse"),
    ),
    _declare_write(
        *("drop_namespace", "/namespace/{id}/drop", "Drop a namespace", "DropNamespaceRequest"),
        takes_key=True,
    ),
    _declare_read(
        *("namespace_exists", "/namespace/{id}/exists", "Check whether a namespace exists"),
        *("NamespaceExistsRequest", "NamespaceExistsResponse"),
    ),
    _declare_read(
        *("list_tables", "/namespace/{id}/table/list", "List the tables in a namespace"),
        *("ListTablesRequest", "ListTablesResponse"),
        method="GET",
        query=query_types.TablesQuery,
        has_body=False,
    ),
    _declare_read(
        *("list_all_tables", "/table", "List all tables", "ListTablesRequest", "ListTablesResponse"),
        method="GET",
        query=query_types.TablesQuery,
        has_body=False,
    ),
)

_TABLES: Final = (
    _declare_write(
        "declare_table", "/table/{id}/declare", "Declare a table without a version", "DeclareTableRequest"
    ),
    _declare_write(
        "register_table", "/table/{id}/register", "Register an existing table", "RegisterTableRequest"
    ),
    _declare_read(
        *("table_exists", "/table/{id}/exists", "Check whether a table exists"),
        *("TableExistsRequest", "TableExistsResponse"),
    ),
    _declare_write(
        "drop_table", "/table/{id}/drop", "Drop a table", "DropTableRequest", has_body=False, takes_key=True
    ),
    _declare_write(
        "deregister_table", "/table/{id}/deregister", "Deregister a table", "DeregisterTableRequest"
    ),
    _declare_write("rename_table", "/table/{id}/rename", "Rename a table", "RenameTableRequest"),
    *_mark_as_row_work(
        _declare_write(
            "restore_table", "/table/{id}/restore", "Restore a version as a new one", "RestoreTableRequest"
        ),
        _declare_read(
            *("get_table_stats", "/table/{id}/stats", "Get statistics of a table"),
            *("GetTableStatsRequest", "GetTableStatsResponse"),
        ),
    ),
)

_ROWS: Final = _mark_as_row_work(
    _declare_write(
        *("create_table", "/table/{id}/create", "Create a table with rows", "CreateTableRequest"),
        query=query_types.LanceCreateQuery,
        has_rows=True,
    ),
    _declare_write(
        *("insert_into_table", "/table/{id}/insert", "Insert rows", "InsertIntoTableRequest"),
        query=query_types.InsertQuery,
        has_rows=True,
    ),
    _declare_write(
        *("merge_insert_into_table", "/table/{id}/merge_insert", "Merge rows", "MergeInsertIntoTableRequest"),
        query=query_types.MergeQuery,
        has_rows=True,
    ),
    _declare_write("update_table", "/table/{id}/update", "Update rows", "UpdateTableRequest"),
    _declare_write("delete_from_table", "/table/{id}/delete", "Delete rows", "DeleteFromTableRequest"),
    _declare_read("query_table", "/table/{id}/query", "Query rows", "QueryTableRequest", None),
    _declare_read("count_table_rows", "/table/{id}/count_rows", "Count rows", "CountTableRowsRequest", None),
    _declare_read(
        *("explain_table_query_plan", "/table/{id}/explain_plan", "Explain the plan of a query"),
        *("ExplainTableQueryPlanRequest", None),
    ),
    _declare_read(
        *("analyze_table_query_plan", "/table/{id}/analyze_plan", "Analyze the plan of a query"),
        *("AnalyzeTableQueryPlanRequest", None),
    ),
)

_COLUMNS: Final = _mark_as_row_work(
    _declare_write(
        *("alter_table_add_columns", "/table/{id}/add_columns", "Add columns"),
        "AlterTableAddColumnsRequest",
    ),
    _declare_write(
        *("alter_table_alter_columns", "/table/{id}/alter_columns", "Alter columns"),
        "AlterTableAlterColumnsRequest",
    ),
    _declare_write(
        *("alter_table_drop_columns", "/table/{id}/drop_columns", "Drop columns"),
        "AlterTableDropColumnsRequest",
    ),
    _declare_write(
        *("update_table_schema_metadata", "/table/{id}/schema_metadata/update", "Set metadata of a schema"),
        "UpdateTableSchemaMetadataRequest",
        query=query_types.BranchQuery,
        body_is="metadata",
        answer=None,
    ),
    _declare_write(
        *("update_field_metadata", "/table/{id}/update_field_metadata", "Set metadata of columns"),
        "UpdateFieldMetadataRequest",
    ),
    _declare_write(
        *("alter_table_backfill_columns", "/table/{id}/backfill_column", "Not supported"),
        "AlterTableBackfillColumnsRequest",
    ),
)

_INDEXES: Final = _mark_as_row_work(
    _declare_write(
        "create_table_index", "/table/{id}/create_index", "Create an index", "CreateTableIndexRequest"
    ),
    _declare_write(
        *("create_table_scalar_index", "/table/{id}/create_scalar_index", "Create a scalar index"),
        "CreateTableIndexRequest",
        answer="CreateTableScalarIndexResponse",
    ),
    _declare_read(
        *("list_table_indices", "/table/{id}/index/list", "List indexes"),
        *("ListTableIndicesRequest", "ListTableIndicesResponse"),
    ),
    _declare_read(
        *("describe_table_index_stats", "/table/{id}/index/{index_name}/stats", "Get statistics of an index"),
        *("DescribeTableIndexStatsRequest", "DescribeTableIndexStatsResponse"),
    ),
    _declare_write(
        *(
            "drop_table_index",
            "/table/{id}/index/{index_name}/drop",
            "Drop an index",
            "DropTableIndexRequest",
        ),
        query=query_types.BranchQuery,
        has_body=False,
    ),
)

_REFERENCES: Final = (
    _declare_read(
        *("list_table_tags", "/table/{id}/tags/list", "List the tags of the table"),
        *("ListTableTagsRequest", "ListTableTagsResponse"),
        query=query_types.PageQuery,
        has_body=False,
    ),
    _declare_read(
        *("get_table_tag_version", "/table/{id}/tags/version", "Get the version of a tag of the table"),
        *("GetTableTagVersionRequest", "GetTableTagVersionResponse"),
    ),
    _declare_write(
        "create_table_tag", "/table/{id}/tags/create", "Create a tag of the table", "CreateTableTagRequest"
    ),
    _declare_write("update_table_tag", "/table/{id}/tags/update", "Move a tag", "UpdateTableTagRequest"),
    _declare_write("delete_table_tag", "/table/{id}/tags/delete", "Delete a tag", "DeleteTableTagRequest"),
    _declare_read(
        *("list_table_branches", "/table/{id}/branches/list", "List the branches of the table"),
        *("ListTableBranchesRequest", "ListTableBranchesResponse"),
        query=query_types.PageQuery,
        has_body=False,
    ),
    _declare_write(
        *("create_table_branch", "/table/{id}/branches/create", "Create a branch of the table"),
        "CreateTableBranchRequest",
    ),
    _declare_write(
        "delete_table_branch", "/table/{id}/branches/delete", "Delete a branch", "DeleteTableBranchRequest"
    ),
)

_OTHERS: Final = (
    _declare_read(
        *("describe_transaction", "/transaction/{id}/describe", "Describe a transaction"),
        *("DescribeTransactionRequest", "DescribeTransactionResponse"),
    ),
    _declare_write(
        *("alter_transaction", "/transaction/{id}/alter", "Commit a transaction, or abort it"),
        "AlterTransactionRequest",
    ),
    _declare_write(
        *("create_materialized_view", "/materialized_view/{id}/create", "Not supported"),
        "CreateMaterializedViewRequest",
    ),
    _declare_write(
        *("refresh_materialized_view", "/materialized_view/{id}/refresh", "Not supported"),
        "RefreshMaterializedViewRequest",
    ),
)

OPERATIONS: Final = (
    *_VERSIONS, *_NAMESPACES, *_TABLES, *_ROWS, *_COLUMNS, *_INDEXES, *_REFERENCES, *_OTHERS
)  # fmt: skip
"""All of them; what clients ask most often comes first."""

BY_NAME: Final = {rest_operation.name: rest_operation for rest_operation in OPERATIONS}
