"""Columns of a table: added, altered and dropped, and what is noted about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsRequest,
    AlterTableAlterColumnsResponse,
    AlterTableDropColumnsRequest,
    AlterTableDropColumnsResponse,
    DescribeTableRequest,
    InvalidInputError,
    UnsupportedOperationError,
    UpdateFieldMetadataRequest,
    UpdateFieldMetadataResponse,
    UpdateTableSchemaMetadataRequest,
    UpdateTableSchemaMetadataResponse,
)

from penstock.formats.lance.lake.data_requests import read_request
from penstock.formats.lance.lake.data_types import arrow_type, json_schema
from penstock.formats.lance.lake.data_work import Work

if TYPE_CHECKING:
    from lance import LanceDataset


class ColumnOperations(Work):
    """What changes columns, and tells which there are."""

    def looked_into(self, table: list[str], branch: str, version: int | None) -> dict[str, Any]:
        """The schema of a table, and how it is stored, as a description has them."""
        with self.opened(DescribeTableRequest(id=table), branch, version) as dataset:
            counted = dataset.stats.dataset_stats()
            return {
                "schema": json_schema(dataset.schema),
                "stats": {name: counted[name] for name in ("num_deleted_rows", "num_fragments")},
            }

    def alter_table_add_columns(self, request: Any) -> AlterTableAddColumnsResponse:
        asked = read_request(AlterTableAddColumnsRequest, request)
        columns: dict[str, str] = {}
        for one in asked.new_columns:
            if one.virtual_column is not None or one.computed is not None:
                raise UnsupportedOperationError(f"'{one.name}': only columns of an expression are supported")
            if not one.expression:
                raise InvalidInputError(f"'{one.name}' needs an expression")
            if columns.setdefault(one.name, one.expression) is not one.expression:
                raise InvalidInputError(f"'{one.name}' is added twice")
        if not columns:
            raise InvalidInputError("'new_columns' is empty")
        with self.changed(asked, asked.branch) as dataset:
            dataset.add_columns(columns)
            return AlterTableAddColumnsResponse(version=dataset.version)

    def alter_table_alter_columns(self, request: Any) -> AlterTableAlterColumnsResponse:
        asked = read_request(AlterTableAlterColumnsRequest, request)
        changes: list[Any] = []
        for one in asked.alterations:
            if one.virtual_column is not None:
                raise UnsupportedOperationError(f"'{one.path}': virtual columns are not supported")
            change: dict[str, Any] = {"path": one.path}
            if one.rename is not None:
                change["name"] = one.rename
            if one.nullable is not None:
                change["nullable"] = one.nullable
            if one.data_type is not None:
                change["data_type"] = arrow_type(one.data_type)
            if len(change) == 1:
                raise InvalidInputError(f"nothing is said of how '{one.path}' is altered")
            changes.append(change)
        if not changes:
            raise InvalidInputError("'alterations' is empty")
        with self.changed(asked, asked.branch) as dataset:
            dataset.alter_columns(*changes)
            return AlterTableAlterColumnsResponse(version=dataset.version)

    def alter_table_drop_columns(self, request: Any) -> AlterTableDropColumnsResponse:
        asked = read_request(AlterTableDropColumnsRequest, request)
        if not asked.columns:
            raise InvalidInputError("'columns' is empty")
        with self.changed(asked, asked.branch) as dataset:
            dataset.drop_columns(asked.columns)
            return AlterTableDropColumnsResponse(version=dataset.version)

    def update_table_schema_metadata(self, request: Any) -> UpdateTableSchemaMetadataResponse:
        """All of it afterwards. What is not named stays as it is."""
        asked = read_request(UpdateTableSchemaMetadataRequest, request)
        values: dict[str, str | None] = {**(asked.metadata or {})}
        with self.changed(asked, asked.branch) as dataset:
            return UpdateTableSchemaMetadataResponse(metadata=dataset.update_schema_metadata(values))

    def update_field_metadata(self, request: Any) -> UpdateFieldMetadataResponse:
        """In one version; entries without a value go. All fields replace what is noted, or none does."""
        asked = read_request(UpdateFieldMetadataRequest, request)
        updates = {one.path: one.metadata for one in asked.updates}
        replaces = {bool(one.replace) for one in asked.updates}
        if len(updates) != len(asked.updates) or not updates:
            raise InvalidInputError("'updates' names a field twice, or none")
        if len(replaces) > 1:
            raise UnsupportedOperationError(
                "of the fields of one request, all replace what is noted, or none"
            )
        with self.changed(asked, asked.branch) as dataset:
            dataset.update_field_metadata(updates, replace=replaces.pop())
            fields = {path: _noted(dataset, path) for path in updates}
            return UpdateFieldMetadataResponse(version=dataset.version, fields=fields)


def _noted(dataset: LanceDataset, path: str) -> dict[str, str]:
    """What is noted about a field."""
    field: Any = dataset.lance_schema.field(path)
    noted = field.to_arrow().metadata if field is not None else None
    return {name.decode(): value.decode() for name, value in (noted or {}).items()}
