"""Indexes of a table: made, listed, measured and dropped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lance_namespace import (
    CreateTableIndexRequest,
    CreateTableIndexResponse,
    CreateTableScalarIndexResponse,
    DescribeTableIndexStatsRequest,
    DescribeTableIndexStatsResponse,
    DropTableIndexRequest,
    DropTableIndexResponse,
    InvalidInputError,
    ListTableIndicesRequest,
    ListTableIndicesResponse,
    TableIndexAlreadyExistsError,
    TableIndexNotFoundError,
)
from lance_namespace_urllib3_client.models.index_content import IndexContent

from penstock.formats.lance.lake.data_errors import format_table_name
from penstock.formats.lance.lake.data_requests import read_request, require_table_id
from penstock.formats.lance.lake.dataset_access import DatasetAccess
from penstock.formats.lance.lake.paths import parse_page_size

if TYPE_CHECKING:
    from lance import LanceDataset

SCALAR: Final = (
    "BTREE",
    "BITMAP",
    "LABEL_LIST",
    "INVERTED",
    "FTS",
    "NGRAM",
    "ZONEMAP",
    "BLOOMFILTER",
    "RTREE",
)
VECTOR: Final = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ")

_OF_TEXT: Final = (
    *("with_position", "base_tokenizer", "language", "max_token_length"),
    *("lower_case", "stem", "remove_stop_words", "ascii_folding"),
)
_OF_VECTORS: Final = (
    *("num_partitions", "num_sub_vectors", "num_bits", "sample_rate"),
    *("target_partition_size", "m", "ef_construction"),
)


class IndexOperations(DatasetAccess):
    """What is done with indexes."""

    def create_table_index(self, request: Any) -> CreateTableIndexResponse:
        self._create_index(read_request(CreateTableIndexRequest, request))
        return CreateTableIndexResponse()

    def create_table_scalar_index(self, request: Any) -> CreateTableScalarIndexResponse:
        parsed_request = read_request(CreateTableIndexRequest, request)
        if _normalise_kind(parsed_request.index_type) not in SCALAR:
            raise InvalidInputError(
                f"'{parsed_request.index_type}' is not a scalar index type; the types are: "
                f"{', '.join(SCALAR)}"
            )
        self._create_index(parsed_request)
        return CreateTableScalarIndexResponse()

    def list_table_indices(self, request: Any) -> ListTableIndicesResponse:
        """By name; a page goes on after the name that is its token."""
        parsed_request = read_request(ListTableIndicesRequest, request)
        with self.open_dataset(parsed_request, parsed_request.branch, parsed_request.version) as dataset:
            indices = sorted(dataset.describe_indices(), key=lambda index_description: index_description.name)
            rest = [
                index_description
                for index_description in indices
                if index_description.name > (parsed_request.page_token or "")
            ]
            page = [
                _describe_index(dataset, index_description)
                for index_description in rest[: parse_page_size(parsed_request.limit)]
            ]
            more = page[-1].index_name if page and len(rest) > len(page) else None
            return ListTableIndicesResponse(indexes=page, page_token=more)

    def describe_table_index_stats(self, request: Any) -> DescribeTableIndexStatsResponse:
        parsed_request = read_request(DescribeTableIndexStatsRequest, request)
        name = _check_index_name(parsed_request.index_name)
        with self.open_dataset(parsed_request, parsed_request.branch, parsed_request.version) as dataset:
            _require_index(dataset, require_table_id(parsed_request.id), name)
            index_stats = dataset.stats.index_stats(name)
            metric = next(
                (index["metric_type"] for index in index_stats["indices"] if "metric_type" in index), None
            )
            return DescribeTableIndexStatsResponse(
                distance_type=metric,
                index_type=index_stats["index_type"],
                num_indexed_rows=index_stats["num_indexed_rows"],
                num_unindexed_rows=index_stats["num_unindexed_rows"],
                num_indices=index_stats["num_indices"],
            )

    def drop_table_index(self, request: Any) -> DropTableIndexResponse:
        parsed_request = read_request(DropTableIndexRequest, request)
        name = _check_index_name(parsed_request.index_name)
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            _require_index(dataset, require_table_id(parsed_request.id), name)
            dataset.drop_index(name)
        return DropTableIndexResponse()

    def _create_index(self, request: CreateTableIndexRequest) -> None:
        kind = _normalise_kind(request.index_type)
        with self.open_to_write(request, request.branch) as dataset:
            name = request.name or f"{request.column}_idx"
            if any(index.name == name for index in dataset.describe_indices()):
                raise TableIndexAlreadyExistsError(
                    f"{format_table_name(require_table_id(request.id))} already has an index '{name}'"
                )
            if kind in SCALAR:
                scalar: Any = kind
                dataset.create_scalar_index(
                    request.column,
                    scalar,
                    name=request.name,
                    replace=False,
                    **_list_set_fields(request, _OF_TEXT),
                )
            elif kind in VECTOR:
                more = _list_set_fields(request, _OF_VECTORS)
                if request.max_iterations is not None:
                    more["max_iters"] = request.max_iterations
                metric = request.distance_type or "l2"
                dataset.create_index(
                    request.column, kind, name=request.name, metric=metric, replace=False, **more
                )
            else:
                known_kinds = ", ".join((*VECTOR, *SCALAR))
                raise InvalidInputError(
                    f"unknown index type '{request.index_type}'; the types are {known_kinds}"
                )


def _normalise_kind(name: str) -> str:
    kind = name.upper().replace("-", "_")
    return {"LABELLIST": "LABEL_LIST", "BLOOM_FILTER": "BLOOMFILTER", "ZONE_MAP": "ZONEMAP"}.get(kind, kind)


def _list_set_fields(request: CreateTableIndexRequest, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(request, name) for name in names if getattr(request, name) is not None}


def _check_index_name(name: str | None) -> str:
    if not name:
        raise InvalidInputError("'index_name' is missing")
    return name


def _require_index(dataset: LanceDataset, table: list[str], name: str) -> None:
    if not any(index.name == name for index in dataset.describe_indices()):
        raise TableIndexNotFoundError(f"{format_table_name(table)} has no index '{name}'")


def _describe_index(dataset: LanceDataset, index: Any) -> IndexContent:
    """An index, as it is listed."""
    rows, segments = dataset.count_rows(), list(index.segments)
    newest = max(segments, key=lambda segment: segment.created_at.timestamp() if segment.created_at else 0)
    return IndexContent(
        index_name=index.name,
        index_uuid=newest.uuid,
        columns=list(index.field_names),
        status="SUCCEEDED",
        index_type=index.index_type,
        type_url=index.type_url,
        num_indexed_rows=index.num_rows_indexed,
        num_unindexed_rows=max(0, rows - index.num_rows_indexed),
        size_bytes=index.total_size_bytes,
        num_segments=len(segments),
        created_at=newest.created_at,
        index_version=newest.index_version,
        index_details=json.dumps(index.details, separators=(",", ":"), default=str),
    )
