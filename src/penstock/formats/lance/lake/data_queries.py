"""Queries: the rows of a table that a request wants, by filter, by text or nearest to a vector."""

from __future__ import annotations

import io
import re
from typing import IO, TYPE_CHECKING, Any, Final

from lance_namespace import (
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    CountTableRowsResponse,
    ExplainTableQueryPlanRequest,
    InvalidInputError,
    QueryTableRequest,
    QueryTableResponse,
    UnsupportedOperationError,
)

from penstock.formats.lance.lake.data_arrow import write_rows
from penstock.formats.lance.lake.data_requests import read_request
from penstock.formats.lance.lake.dataset_access import DatasetAccess

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.dataset import LanceScanner
    from lance.query import FullTextQuery
    from lance_namespace_urllib3_client.models.fts_query import FtsQuery
    from lance_namespace_urllib3_client.models.match_query import MatchQuery


_PRINTED: Final = re.compile(
    r'Match\(MatchQuery \{ column: (?:None|Some\("(?P<column>[^"]*)"\)), terms: "(?P<terms>(?:[^"\\]|\\.)*)"'
)
"""A query by text as LanceDB sends it, up to 0.40 at least: as its own language prints it."""


class QueryOperations(DatasetAccess):
    """What reads rows."""

    def count_table_rows(self, request: Any) -> CountTableRowsResponse:
        parsed_request = read_request(CountTableRowsRequest, request)
        with self.open_dataset(parsed_request, parsed_request.branch, parsed_request.version) as dataset:
            return CountTableRowsResponse(count=dataset.count_rows(parsed_request.predicate or None))

    def query_table(self, request: Any) -> QueryTableResponse:
        """The rows as an Arrow IPC file."""
        sink = io.BytesIO()
        self.write_query(request, sink)
        return QueryTableResponse(data=sink.getvalue())

    def write_query(self, request: Any, sink: IO[bytes]) -> None:
        """Write the rows to a file, as an Arrow IPC file."""
        parsed_request = read_request(QueryTableRequest, request)
        with self.open_dataset(parsed_request, parsed_request.branch, parsed_request.version) as dataset:
            write_rows(open_scanner(dataset, parsed_request).to_reader(), sink)

    def explain_table_query_plan(self, request: Any) -> str:
        parsed_request = read_request(ExplainTableQueryPlanRequest, request)
        query = parsed_request.query
        with self.open_dataset(
            parsed_request, parsed_request.branch or query.branch, query.version
        ) as dataset:
            return str(open_scanner(dataset, query).explain_plan(verbose=bool(parsed_request.verbose)))

    def analyze_table_query_plan(self, request: Any) -> str:
        parsed_request = read_request(AnalyzeTableQueryPlanRequest, request)
        with self.open_dataset(parsed_request, parsed_request.branch, parsed_request.version) as dataset:
            return str(open_scanner(dataset, parsed_request).analyze_plan())


def open_scanner(
    dataset: LanceDataset, query: QueryTableRequest | AnalyzeTableQueryPlanRequest
) -> LanceScanner:
    """What reads the rows that a query wants."""
    nearest = _make_nearest_search(dataset, query)
    return dataset.scanner(
        columns=_list_query_columns(query),
        filter=query.filter or None,
        # Of several vectors, each has its own nearest rows.
        limit=None if nearest is not None and query.vector.multi_vector else query.k,
        offset=query.offset,
        nearest=nearest,
        full_text_query=_make_text_query(query),
        prefilter=query.prefilter,
        with_row_id=query.with_row_id,
        fast_search=query.fast_search or None,
    )


def _list_query_columns(query: QueryTableRequest | AnalyzeTableQueryPlanRequest) -> Any:
    if query.columns is None:
        return None
    names, aliases = query.columns.column_names, query.columns.column_aliases
    if names is not None and aliases is not None:
        raise InvalidInputError("'columns' must have either 'column_names' or 'column_aliases', not both")
    return aliases if aliases is not None else names


def _make_nearest_search(
    dataset: LanceDataset, query: QueryTableRequest | AnalyzeTableQueryPlanRequest
) -> dict[str, Any] | None:
    """The search for neighbours, if there is a vector: an empty one is none."""
    single, several = query.vector.single_vector, query.vector.multi_vector
    if single and several:
        raise InvalidInputError("'vector' must have either 'single_vector' or 'multi_vector', not both")
    if not single and not several:
        return None
    if several and query.offset:
        raise UnsupportedOperationError("an offset cannot be used with several vectors")
    search: dict[str, Any] = {
        "column": query.vector_column or _find_only_vector_column(dataset),
        "q": single or several,
        "k": query.k + (query.offset or 0),
        "metric": query.distance_type,
        "minimum_nprobes": query.minimum_nprobes,
        "maximum_nprobes": query.maximum_nprobes,
        "refine_factor": query.refine_factor,
        "use_index": not query.bypass_vector_index,
        "ef": query.ef,
    }
    if query.minimum_nprobes is None and query.maximum_nprobes is None:
        search["nprobes"] = query.nprobes or None
    if query.lower_bound is not None or query.upper_bound is not None:
        search["distance_range"] = (query.lower_bound, query.upper_bound)
    return {name: value for name, value in search.items() if value is not None}


def _find_only_vector_column(dataset: LanceDataset) -> str:
    import pyarrow as pa  # type: ignore[import-untyped]

    names = [field.name for field in dataset.schema if pa.types.is_fixed_size_list(field.type)]
    if len(names) != 1:
        problem = f"it has {', '.join(names)}" if names else "it has none"
        raise InvalidInputError(f"'vector_column' must name the vector column: {problem}")
    return str(names[0])


def _make_text_query(query: QueryTableRequest | AnalyzeTableQueryPlanRequest) -> Any:
    full_text = query.full_text_query
    if full_text is None:
        return None
    if full_text.string_query is not None and full_text.structured_query is not None:
        raise InvalidInputError(
            "'full_text_query' must have either 'string_query' or 'structured_query', not both"
        )
    if full_text.string_query is not None:
        columns, text = full_text.string_query.columns, full_text.string_query.query
        if (printed := _PRINTED.match(text)) is not None:
            columns = [printed["column"]] if printed["column"] else columns
            text = printed["terms"].replace('\\"', '"').replace("\\\\", "\\")
        return {"query": text, "columns": columns} if columns else text
    return (
        None
        if full_text.structured_query is None
        else _parse_full_text_query(full_text.structured_query.query)
    )


def _parse_full_text_query(query: FtsQuery) -> FullTextQuery:
    from lance.query import BooleanQuery, BoostQuery, Occur, PhraseQuery

    match_queries = [
        match_query
        for match_query in (query.match, query.phrase, query.boost, query.multi_match, query.boolean)
        if match_query
    ]
    if len(match_queries) != 1:
        raise InvalidInputError(
            "a structured query must be one of match, phrase, boost, multi_match and boolean"
        )
    if query.match is not None:
        return _parse_match_query(query.match)
    if query.phrase is not None:
        column = _require_column(query.phrase.column)
        return PhraseQuery(query.phrase.terms, column, slop=query.phrase.slop or 0)
    if query.boost is not None:
        positive, negative = (
            _parse_full_text_query(query.boost.positive),
            _parse_full_text_query(query.boost.negative),
        )
        factor = 0.5 if query.boost.negative_boost is None else float(query.boost.negative_boost)
        return BoostQuery(positive, negative, negative_boost=factor)
    if query.multi_match is not None:
        return BooleanQuery(
            [(Occur.SHOULD, _parse_match_query(query)) for query in query.multi_match.match_queries]
        )
    assert query.boolean is not None
    clauses = [(Occur.MUST, fts_query) for fts_query in query.boolean.must]
    clauses += [(Occur.MUST_NOT, fts_query) for fts_query in query.boolean.must_not]
    clauses += [(Occur.SHOULD, fts_query) for fts_query in query.boolean.should]
    return BooleanQuery([(occur, _parse_full_text_query(clause)) for occur, clause in clauses])


def _parse_match_query(query: MatchQuery) -> FullTextQuery:
    from lance.query import FullTextOperator, MatchQuery

    operator = (query.operator or "or").lower()
    if operator not in ("and", "or"):
        raise InvalidInputError(f"the operator of a match must be And or Or, got '{query.operator}'")
    return MatchQuery(
        query.terms,
        _require_column(query.column),
        boost=1.0 if query.boost is None else float(query.boost),
        fuzziness=query.fuzziness or 0,
        max_expansions=50 if query.max_expansions is None else query.max_expansions,
        operator=FullTextOperator.AND if operator == "and" else FullTextOperator.OR,
        prefix_length=query.prefix_length or 0,
    )


def _require_column(column: str | None) -> str:
    if column is None:
        raise InvalidInputError("a structured query must name a column")
    return column
