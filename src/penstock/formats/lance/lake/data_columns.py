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
from penstock.formats.lance.lake.data_types import parse_arrow_type, write_json_schema
from penstock.formats.lance.lake.dataset_access import DatasetAccess

if TYPE_CHECKING:
    from lance import LanceDataset


class ColumnOperations(DatasetAccess):
    """What changes columns, and tells which there are."""

    def describe_schema(self, table: list[str], branch: str, version: int | None) -> dict[str, Any]:
        """The schema of a table, and how it is stored, as a description has them."""
        with self.open_dataset(DescribeTableRequest(id=table), branch, version) as dataset:
            counted = dataset.stats.dataset_stats()
            return {
                "schema": write_json_schema(dataset.schema),
                "stats": {name: counted[name] for name in ("num_deleted_rows", "num_fragments")},
            }

    def alter_table_add_columns(self, request: Any) -> AlterTableAddColumnsResponse:
        parsed_request = read_request(AlterTableAddColumnsRequest, request)
        columns: dict[str, str] = {}
        for column in parsed_request.new_columns:
            if column.virtual_column is not None or column.computed is not None:
                raise UnsupportedOperationError(
                    f"'{column.name}': only columns that are computed by an expression are supported"
                )
            if not column.expression:
                raise InvalidInputError(f"'{column.name}' needs an expression")
            if columns.setdefault(column.name, column.expression) is not column.expression:
                raise InvalidInputError(f"'{column.name}' is added twice")
        if not columns:
            raise InvalidInputError("'new_columns' is empty")
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            dataset.add_columns(columns)
            return AlterTableAddColumnsResponse(version=dataset.version)

    def alter_table_alter_columns(self, request: Any) -> AlterTableAlterColumnsResponse:
        parsed_request = read_request(AlterTableAlterColumnsRequest, request)
        changes: list[Any] = []
        for alteration in parsed_request.alterations:
            if alteration.virtual_column is not None:
                raise UnsupportedOperationError(f"'{alteration.path}': virtual columns are not supported")
            change: dict[str, Any] = {"path": alteration.path}
            if alteration.rename is not None:
                change["name"] = alteration.rename
            if alteration.nullable is not None:
                change["nullable"] = alteration.nullable
            if alteration.data_type is not None:
                change["data_type"] = parse_arrow_type(alteration.data_type)
            if len(change) == 1:
                raise InvalidInputError(f"no change is given for '{alteration.path}'")
            changes.append(change)
        if not changes:
            raise InvalidInputError("'alterations' is empty")
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            dataset.alter_columns(*changes)
            return AlterTableAlterColumnsResponse(version=dataset.version)

    def alter_table_drop_columns(self, request: Any) -> AlterTableDropColumnsResponse:
        parsed_request = read_request(AlterTableDropColumnsRequest, request)
        if not parsed_request.columns:
            raise InvalidInputError("'columns' is empty")
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            dataset.drop_columns(parsed_request.columns)
            return AlterTableDropColumnsResponse(version=dataset.version)

    def update_table_schema_metadata(self, request: Any) -> UpdateTableSchemaMetadataResponse:
        """All of it afterwards. What is not named stays as it is."""
        parsed_request = read_request(UpdateTableSchemaMetadataRequest, request)
        values: dict[str, str | None] = {**(parsed_request.metadata or {})}
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            return UpdateTableSchemaMetadataResponse(metadata=dataset.update_schema_metadata(values))

    def update_field_metadata(self, request: Any) -> UpdateFieldMetadataResponse:
        """In one version; entries without a value go. All fields replace what is noted, or none does."""
        parsed_request = read_request(UpdateFieldMetadataRequest, request)
        updates = {update.path: update.metadata for update in parsed_request.updates}
        replaces = {bool(update.replace) for update in parsed_request.updates}
        if len(updates) != len(parsed_request.updates) or not updates:
            raise InvalidInputError("'updates' must have at least one field, and each field only once")
        if len(replaces) > 1:
            raise UnsupportedOperationError("'replace' must be the same for all fields of one request")
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            dataset.update_field_metadata(updates, replace=replaces.pop())
            fields = {path: _read_field_metadata(dataset, path) for path in updates}
            return UpdateFieldMetadataResponse(version=dataset.version, fields=fields)


def _read_field_metadata(dataset: LanceDataset, path: str) -> dict[str, str]:
    """The metadata of a field."""
    field: Any = dataset.lance_schema.field(path)
    noted = field.to_arrow().metadata if field is not None else None
    return {name.decode(): value.decode() for name, value in (noted or {}).items()}
