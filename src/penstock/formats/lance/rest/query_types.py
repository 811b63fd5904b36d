"""The queries of Lance's API: their fields are named as those of the requests that they become part of."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.errors import InvalidRequest
from penstock.model.decoders import get_json_decoder

DELIMITER: Final = "$"


class LanceQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every request may have."""

    delimiter: Annotated[str, Meta(min_length=1, max_length=16)] = DELIMITER
    """Between the parts of the id in the path. The id that is only this is the outermost namespace's."""

    def to_request_fields(self) -> dict[str, Any]:
        """The fields of the request that the query string sets."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if name != "delimiter" and value is not None}


class PageQuery(LanceQuery, frozen=True, kw_only=True):
    """A page of a list."""

    page_token: str | None = None
    limit: int | None = None


class TablesQuery(PageQuery, frozen=True, kw_only=True):
    """A page of tables."""

    include_declared: bool | None = None


class VersionsQuery(PageQuery, frozen=True, kw_only=True):
    """A page of versions."""

    branch: str | None = None
    descending: bool | None = None


class DescribeQuery(LanceQuery, frozen=True, kw_only=True):
    """What is wanted to be known of a table."""

    with_table_uri: bool | None = None
    load_detailed_metadata: bool | None = None
    check_declared: bool | None = None


class BranchQuery(LanceQuery, frozen=True, kw_only=True):
    """One of Lance's own branches of a table."""

    branch: str | None = None


class LanceCreateQuery(LanceQuery, frozen=True, kw_only=True):
    """How a table is created."""

    mode: str | None = None
    properties: str | None = None
    """As a JSON object."""
    storage_options: str | None = None
    """As a JSON object."""

    def to_request_fields(self) -> dict[str, Any]:
        request_fields = super().to_request_fields()
        for name in {"properties", "storage_options"} & request_fields.keys():
            try:
                request_fields[name] = get_json_decoder(dict[str, str]).decode(request_fields[name])
            except msgspec.MsgspecError as problem:
                raise InvalidRequest(
                    f"'{name}' is not a JSON object with string values: {problem}", field=name
                ) from None
        return request_fields


class InsertQuery(BranchQuery, frozen=True, kw_only=True):
    """How rows are inserted."""

    mode: str | None = None


class MergeQuery(BranchQuery, frozen=True, kw_only=True):
    """How rows are merged."""

    on: tuple[str, ...] = ()
    when_matched_update_all: bool | None = None
    when_matched_update_all_filt: str | None = None
    when_not_matched_insert_all: bool | None = None
    when_not_matched_by_source_delete: bool | None = None
    when_not_matched_by_source_delete_filt: str | None = None
    timeout: str | None = None
    use_index: bool | None = None

    def to_request_fields(self) -> dict[str, Any]:
        request_fields = super().to_request_fields()
        on = request_fields.pop("on")
        return {**request_fields, "on": list(on)} if on else request_fields
