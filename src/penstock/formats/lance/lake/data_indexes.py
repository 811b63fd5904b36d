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

from penstock.formats.lance.lake.data_errors import shown
from penstock.formats.lance.lake.data_requests import named, read_request
from penstock.formats.lance.lake.data_work import Work
from penstock.formats.lance.lake.paths import page_size

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


class IndexOperations(Work):
    """What is done with indexes."""

    def create_table_index(self, request: Any) -> CreateTableIndexResponse:
        self._create(read_request(CreateTableIndexRequest, request))
        return CreateTableIndexResponse()

    def create_table_scalar_index(self, request: Any) -> CreateTableScalarIndexResponse:
        asked = read_request(CreateTableIndexRequest, request)
        if _kind(asked.index_type) not in SCALAR:
            raise InvalidInputError(f"'{asked.index_type}' is no scalar index: {', '.join(SCALAR)} are")
        self._create(asked)
        return CreateTableScalarIndexResponse()

    def list_table_indices(self, request: Any) -> ListTableIndicesResponse:
        """By name; a page goes on after the name that is its token."""
        asked = read_request(ListTableIndicesRequest, request)
        with self.opened(asked, asked.branch, asked.version) as dataset:
            found = sorted(dataset.describe_indices(), key=lambda one: one.name)
            rest = [one for one in found if one.name > (asked.page_token or "")]
            page = [_content(dataset, one) for one in rest[: page_size(asked.limit)]]
            more = page[-1].index_name if page and len(rest) > len(page) else None
            return ListTableIndicesResponse(indexes=page, page_token=more)

    def describe_table_index_stats(self, request: Any) -> DescribeTableIndexStatsResponse:
        asked = read_request(DescribeTableIndexStatsRequest, request)
        name = _name(asked.index_name)
        with self.opened(asked, asked.branch, asked.version) as dataset:
            _require(dataset, named(asked.id), name)
            found = dataset.stats.index_stats(name)
            metric = next((one["metric_type"] for one in found["indices"] if "metric_type" in one), None)
            return DescribeTableIndexStatsResponse(
                distance_type=metric,
                index_type=found["index_type"],
                num_indexed_rows=found["num_indexed_rows"],
                num_unindexed_rows=found["num_unindexed_rows"],
                num_indices=found["num_indices"],
            )

    def drop_table_index(self, request: Any) -> DropTableIndexResponse:
        asked = read_request(DropTableIndexRequest, request)
        name = _name(asked.index_name)
        with self.changed(asked, asked.branch) as dataset:
            _require(dataset, named(asked.id), name)
            dataset.drop_index(name)
        return DropTableIndexResponse()

    def _create(self, request: CreateTableIndexRequest) -> None:
        kind = _kind(request.index_type)
        with self.changed(request, request.branch) as dataset:
            name = request.name or f"{request.column}_idx"
            if any(one.name == name for one in dataset.describe_indices()):
                raise TableIndexAlreadyExistsError(
                    f"{shown(named(request.id))} has an index '{name}' already"
                )
            if kind in SCALAR:
                scalar: Any = kind
                dataset.create_scalar_index(
                    request.column, scalar, name=request.name, replace=False, **_given(request, _OF_TEXT)
                )
            elif kind in VECTOR:
                more = _given(request, _OF_VECTORS)
                if request.max_iterations is not None:
                    more["max_iters"] = request.max_iterations
                metric = request.distance_type or "l2"
                dataset.create_index(
                    request.column, kind, name=request.name, metric=metric, replace=False, **more
                )
            else:
                known = ", ".join((*VECTOR, *SCALAR))
                raise InvalidInputError(f"there is no index of the type '{request.index_type}', but {known}")


def _kind(said: str) -> str:
    wanted = said.upper().replace("-", "_")
    return {"LABELLIST": "LABEL_LIST", "BLOOM_FILTER": "BLOOMFILTER", "ZONE_MAP": "ZONEMAP"}.get(
        wanted, wanted
    )


def _given(request: CreateTableIndexRequest, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(request, name) for name in names if getattr(request, name) is not None}


def _name(said: str | None) -> str:
    if not said:
        raise InvalidInputError("'index_name' is missing")
    return said


def _require(dataset: LanceDataset, table: list[str], name: str) -> None:
    if not any(one.name == name for one in dataset.describe_indices()):
        raise TableIndexNotFoundError(f"{shown(table)} has no index '{name}'")


def _content(dataset: LanceDataset, one: Any) -> IndexContent:
    """An index, as it is listed."""
    rows, segments = dataset.count_rows(), list(one.segments)
    newest = max(segments, key=lambda segment: segment.created_at.timestamp() if segment.created_at else 0)
    return IndexContent(
        index_name=one.name,
        index_uuid=newest.uuid,
        columns=list(one.field_names),
        status="SUCCEEDED",
        index_type=one.index_type,
        type_url=one.type_url,
        num_indexed_rows=one.num_rows_indexed,
        num_unindexed_rows=max(0, rows - one.num_rows_indexed),
        size_bytes=one.total_size_bytes,
        num_segments=len(segments),
        created_at=newest.created_at,
        index_version=newest.index_version,
        index_details=json.dumps(one.details, separators=(",", ":"), default=str),
    )
