"""The same requests to Lance's own server over a directory and to ours, and what differs on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from tests.lance.rest.talking import Said, some_rows

_VECTOR: dict[str, Any] = {"vector": {"single_vector": []}}


class Step(NamedTuple):
    """A request, and a name for what is asked."""

    name: str
    path: str
    body: Any = None
    method: str = "POST"


STEPS = (
    Step("list no namespaces", "/namespace/$/list", method="GET"),
    Step("create a namespace", "/namespace/ws/create", {"properties": {"a": "b"}}),
    Step("create a namespace again", "/namespace/ws/create", {}),
    Step("create a namespace if there is none", "/namespace/ws/create", {"mode": "exist_ok"}),
    Step("create one within", "/namespace/ws$in/create", {"id": ["ws", "in"]}),
    Step("create one within nothing", "/namespace/a$b/create", {}),
    Step("create the outermost", "/namespace/$/create", {}),
    Step("describe a namespace", "/namespace/ws/describe", {}),
    Step("describe the outermost", "/namespace/$/describe", {}),
    Step("describe no namespace", "/namespace/nope/describe", {}),
    Step("a namespace exists", "/namespace/ws/exists", {}),
    Step("no namespace exists", "/namespace/nope/exists", {}),
    Step("list namespaces", "/namespace/ws/list", method="GET"),
    Step("list by a limit that is none", "/namespace/$/list?limit=x", method="GET"),
    Step("declare a table", "/table/ws$d/declare", {}),
    Step("declare a table again", "/table/ws$d/declare", {}),
    Step("describe a declared table", "/table/ws$d/describe", {"check_declared": True}),
    Step("versions of a declared table", "/table/ws$d/version/list"),
    Step("create what is declared", "/table/ws$d/create", some_rows(1)),
    Step(
        "create a table",
        "/table/ws$t/create?mode=Create&properties=%7B%22k%22%3A%22v%22%7D",
        some_rows(1, 2, 3),
    ),
    Step("create a table again", "/table/ws$t/create", some_rows(1)),
    Step("create a table if there is none", "/table/ws$t/create?mode=ExistOk", some_rows(1)),
    Step("create by no mode", "/table/ws$t/create?mode=zzz", some_rows(1)),
    Step("create over it", "/table/ws$t/create?mode=overwrite", some_rows(1, 2)),
    Step("a table exists", "/table/ws$t/exists", {}),
    Step("no table exists", "/table/ws$nope/exists", {}),
    Step("describe a table", "/table/ws$t/describe", {}),
    Step("describe with another delimiter", "/table/ws.t/describe?delimiter=.", {"id": ["ws", "t"]}),
    Step("describe no table", "/table/ws$nope/describe", {}),
    Step("describe no id", "/table/$/describe", {}),
    Step("body and address differ", "/table/ws$t/describe", {"id": ["other"]}),
    Step("a version that is text", "/table/ws$t/describe", {"version": "x"}),
    Step("a field that is unknown", "/table/ws$t/describe", {"zzz": 1}),
    Step("a body that is a list", "/table/ws$t/describe", []),
    Step("list tables", "/namespace/ws/table/list", method="GET"),
    Step("list tables of nothing", "/namespace/nope/table/list", method="GET"),
    Step("insert rows", "/table/ws$t/insert", some_rows(3)),
    Step("insert over all", "/table/ws$t/insert?mode=overwrite", some_rows(1, 2, 3)),
    Step("insert into nothing", "/table/ws$nope/insert", some_rows(3)),
    Step("insert what is no Arrow into nothing", "/table/ws$nope/insert", b"junk"),
    Step("insert what is no Arrow", "/table/ws$t/insert", b"\xff\xff\xff\xff\x04\x00\x00\x00junk"),
    Step("insert nothing", "/table/ws$t/insert", b""),
    Step("insert other columns", "/table/ws$t/insert", pa.table({"zzz": [1]})),
    Step(
        "merge rows",
        "/table/ws$t/merge_insert?on=id&when_matched_update_all=true&when_not_matched_insert_all=true",
        some_rows(3, 4),
    ),
    Step("merge by nothing into nothing", "/table/ws$nope/merge_insert", some_rows(5)),
    Step("merge by nothing", "/table/ws$t/merge_insert?when_not_matched_insert_all=true", some_rows(5)),
    Step("update rows", "/table/ws$t/update", {"predicate": "id = 1", "updates": [["text", "'new'"]]}),
    Step("update no column", "/table/ws$t/update", {"updates": [["zzz", "1"]]}),
    Step("delete rows", "/table/ws$t/delete", {"predicate": "id = 2"}),
    Step("delete by what is no predicate", "/table/ws$t/delete", {"predicate": "id = ("}),
    Step("delete by nothing", "/table/ws$t/delete", {}),
    Step("count rows", "/table/ws$t/count_rows", {}),
    Step("count some rows", "/table/ws$t/count_rows", {"predicate": "id > 2"}),
    Step("count rows of old", "/table/ws$t/count_rows", {"version": 1}),
    Step("count rows of no version", "/table/ws$t/count_rows", {"version": 99}),
    Step("query rows", "/table/ws$t/query", {"k": 2, **_VECTOR}),
    Step("query the nearest", "/table/ws$t/query", {"k": 2, "vector": {"single_vector": [1.0, 1.0]}}),
    Step("query no column", "/table/ws$t/query", {"k": 2, **_VECTOR, "columns": {"column_names": ["zzz"]}}),
    Step("query without a vector", "/table/ws$t/query", {"k": 2}),
    Step("explain a query", "/table/ws$t/explain_plan", {"query": {"k": 2, **_VECTOR}}),
    Step("analyze a query", "/table/ws$t/analyze_plan", {"k": 2, **_VECTOR}),
    Step("create an index", "/table/ws$t/create_scalar_index", {"column": "id", "index_type": "BTREE"}),
    Step("create it again", "/table/ws$t/create_scalar_index", {"column": "id", "index_type": "BTREE"}),
    Step(
        "create one of its name",
        "/table/ws$t/create_scalar_index",
        {"column": "text", "index_type": "BTREE", "name": "id_idx"},
    ),
    Step(
        "create one on nothing", "/table/ws$t/create_scalar_index", {"column": "zzz", "index_type": "BTREE"}
    ),
    Step(
        "create one of vectors",
        "/table/ws$t/create_index",
        {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 1},
    ),
    Step(
        "create that again",
        "/table/ws$t/create_index",
        {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 1},
    ),
    Step("list indexes", "/table/ws$t/index/list", {}),
    Step("describe an index", "/table/ws$t/index/id_idx/stats", {}),
    Step("describe no index", "/table/ws$t/index/nope/stats", {}),
    Step("drop an index", "/table/ws$t/index/id_idx/drop"),
    Step("drop no index", "/table/ws$t/index/id_idx/drop"),
    Step(
        "add a column",
        "/table/ws$t/add_columns",
        {"new_columns": [{"name": "twice", "expression": "id * 2"}]},
    ),
    Step(
        "rename a column",
        "/table/ws$t/alter_columns",
        {"alterations": [{"path": "twice", "rename": "double"}]},
    ),
    Step("drop a column", "/table/ws$t/drop_columns", {"columns": ["double"]}),
    Step("drop no column", "/table/ws$t/drop_columns", {"columns": ["double"]}),
    Step("note something of the schema", "/table/ws$t/schema_metadata/update", {"a": "b"}),
    Step("statistics", "/table/ws$d/stats", {}),
    Step(
        "describe all of it",
        "/table/ws$t/describe?load_detailed_metadata=true",
        {"load_detailed_metadata": True},
    ),
    *(
        Step(f"{limit} of {what}", f"{path}?limit={limit}", method=method)
        for limit in (0, -1)
        for what, path, method in (
            ("the namespaces", "/namespace/$/list", "GET"),
            ("the tables", "/namespace/ws/table/list", "GET"),
            ("the tags", "/table/ws$t/tags/list", "POST"),
            ("the branches", "/table/ws$t/branches/list", "POST"),
        )
    ),
    Step("no versions", "/table/ws$t/version/list?limit=0"),
    *(Step(f"{limit} of the indexes", "/table/ws$t/index/list", {"limit": limit}) for limit in (0, -1, 1)),
    Step("register what is there", "/table/ws$t/register", {"location": "nowhere"}),
    Step("register what is outside", "/table/ws$r/register", {"location": "../outside"}),
    Step("register at a whole path elsewhere", "/table/ws$r/register", {"location": "/outside"}),
    Step("register a URL elsewhere", "/table/ws$r/register", {"location": "s3://outside/t"}),
    Step("list versions", "/table/ws$t/version/list?descending=true&limit=1"),
    Step("describe a version", "/table/ws$t/version/describe", {"version": 1}),
    Step("describe no version", "/table/ws$t/version/describe", {"version": 99}),
    Step("restore a version", "/table/ws$t/restore", {"version": 1}),
    Step("restore no version", "/table/ws$t/restore", {"version": 99}),
    Step("create a tag", "/table/ws$t/tags/create", {"tag": "v1", "version": 1}),
    Step("create a tag again", "/table/ws$t/tags/create", {"tag": "v1", "version": 1}),
    Step("a tag of no version", "/table/ws$t/tags/create", {"tag": "v99", "version": 99}),
    Step("what a tag names", "/table/ws$t/tags/version", {"tag": "v1"}),
    Step("move a tag", "/table/ws$t/tags/update", {"tag": "v1", "version": 2}),
    Step("list tags", "/table/ws$t/tags/list"),
    Step("delete a tag", "/table/ws$t/tags/delete", {"tag": "v1"}),
    Step("delete no tag", "/table/ws$t/tags/delete", {"tag": "v1"}),
    Step("create a branch", "/table/ws$t/branches/create", {"name": "dev"}),
    Step("create a branch again", "/table/ws$t/branches/create", {"name": "dev"}),
    Step("insert on a branch", "/table/ws$t/insert?branch=dev", some_rows(9)),
    Step("count on a branch", "/table/ws$t/count_rows", {"branch": "dev"}),
    Step("count on no branch", "/table/ws$t/count_rows", {"branch": "nope"}),
    Step("list branches", "/table/ws$t/branches/list"),
    Step("delete a branch", "/table/ws$t/branches/delete", {"name": "dev"}),
    Step("delete no branch", "/table/ws$t/branches/delete", {"name": "dev"}),
    Step("describe no transaction", "/transaction/ws$t$nope/describe", {}),
    Step("an empty batch", "/table/batch-commit", {"operations": []}),
    Step("batch of nothing", "/table/version/batch-create", {"entries": []}),
    Step("backfill a column", "/table/ws$t/backfill_column", {"column": "id"}),
    Step("a view", "/materialized_view/ws$v/create", {"source_table": "t"}),
    Step("rename a table", "/table/ws$d/rename", {"new_table_name": "e"}),
    Step("drop what is not empty", "/namespace/ws/drop", {}),
    Step("drop the outermost", "/namespace/$/drop", {}),
    Step("deregister a table", "/table/ws$t/deregister", {}),
    Step("drop a table", "/table/ws$e/drop"),
    Step("drop no table", "/table/ws$nope/drop"),
    Step("drop a namespace", "/namespace/ws$in/drop", {}),
    Step("drop no namespace", "/namespace/ws$in/drop", {}),
    Step("drop none, if there is none", "/namespace/ws$in/drop", {"mode": "Skip"}),
    Step("what takes no GET", "/table/ws$t/describe", method="GET"),
    Step("what is nowhere", "/nope", method="GET"),
)

VOLATILE = frozenset(
    (
        *("location", "manifest_path", "manifest_size", "manifestSize", "created_at", "timestamp_millis"),
        *("createAt", "index_uuid", "size_bytes", "total_bytes", "index_details", "index_version", "error"),
        "table_uri",
    )
)
"""Fields whose values are each server's own; that they are there is compared."""

UNSAID = frozenset(("e_tag", "detail", "instance", "transaction_id", "is_only_declared"))
"""Fields that each server may leave out."""

TEXT_MAX_CHARS = 80
"""Longer texts, such as plans of queries, are only compared by being there."""


def differences(theirs: Said, ours: Said) -> dict[str, tuple[Any, Any]]:
    """What is not the same in two answers, by its place."""
    one, other = dict(_leaves("", theirs.body)), dict(_leaves("", ours.body))
    found = {place: (one.get(place), other.get(place)) for place in sorted(one.keys() | other.keys())}
    found["status"] = (theirs.status, ours.status)
    return {place: pair for place, pair in found.items() if pair[0] != pair[1]}


def _leaves(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, one in value.items():
            if name in VOLATILE:
                yield f"{place}.{name}".lstrip("."), "…"
            elif name not in UNSAID:
                yield from _leaves(f"{place}.{name}".lstrip("."), one)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _leaves(f"{place}[{number}]", one)
        yield f"{place}[]", len(value)
    elif value is not None:
        yield place, "…" if isinstance(value, str) and len(value) > TEXT_MAX_CHARS else value


_Differences = dict[str, tuple[Any, Any]]

_DESCRIBED: _Differences = {"properties.k": (None, "v"), "version": (None, 2)}
_NOT_FORGOTTEN: _Differences = {"properties.k": (None, "v")}


def _codes(theirs: tuple[int, int], ours: tuple[int, int]) -> _Differences:
    pairs = {"status": (theirs[0], ours[0]), "code": (theirs[1], ours[1])}
    return {place: pair for place, pair in pairs.items() if pair[0] != pair[1]}


def _works(theirs: tuple[int, int], **ours: Any) -> _Differences:
    """What they refuse, and we do."""
    more = {place.replace("__", "."): (None, value) for place, value in ours.items()}
    return {"status": (theirs[0], 200), "code": (theirs[1], None), "error": ("…", None), **more}


_ELSEWHERE = "an address that is none is refused in the form of all errors"
_CLIENT = "what a client got wrong is no error of the server"
_UNSUPPORTED = "what is not supported says so"

DELIBERATE: dict[str, tuple[_Differences, str]] = {
    "create a namespace if there is none": (
        _works((409, 2), properties__a="b"),
        "modes are read in every spelling that the specification has",
    ),
    "create over it": (_NOT_FORGOTTEN, "properties are kept"),
    "describe a table": (_DESCRIBED, "version and properties are known at no cost"),
    "describe with another delimiter": (_DESCRIBED, "as above"),
    "a field that is unknown": (_DESCRIBED, "as above"),
    "describe all of it": (
        {**_NOT_FORGOTTEN, "stats.num_deleted_rows": (None, 0), "stats.num_fragments": (None, 2)},
        "statistics are part of the details",
    ),
    "deregister a table": (_NOT_FORGOTTEN, "properties are kept"),
    "list tables of nothing": (
        {"code": (None, 1), "error": (None, "…"), "tables[]": (0, None), "status": (200, 404)},
        "there is no such namespace",
    ),
    "insert other columns": (_codes((500, 18), (400, 20)), _CLIENT),
    "update no column": (_codes((400, 13), (404, 12)), "there is a code for it"),
    "query no column": (_codes((500, 18), (404, 12)), _CLIENT),
    "drop no column": (_codes((500, 18), (404, 12)), _CLIENT),
    "restore no version": (_codes((500, 18), (404, 11)), _CLIENT),
    "count on no branch": (_codes((404, 4), (404, 22)), "there is a code for it"),
    "count on a branch": ({"": (3, 4)}, "rows that were inserted on a branch are there"),
    "list versions": ({"page_token": (None, "14")}, "there are more"),
    "an empty batch": (_codes((500, 18), (400, 13)), "batches work, but not without an operation"),
    "batch of nothing": (_codes((500, 18), (400, 13)), "batches work, but not without an entry"),
    "backfill a column": (_codes((500, 18), (406, 0)), _UNSUPPORTED),
    "rename a table": (_works((500, 18)), "tables can be renamed"),
    "drop a table": (
        {**_works((404, 4), location="…"), "id[0]": (None, "ws"), "id[1]": (None, "e"), "id[]": (None, 2)},
        "it could be renamed before",
    ),
    "drop none, if there is none": (_works((404, 1)), "that is what the mode means"),
    "what takes no GET": ({"code": (None, 0), "error": (None, "…")}, _ELSEWHERE),
    "what is nowhere": ({"code": (None, 0), "error": (None, "…")}, _ELSEWHERE),
}
"""What differs, of each step: theirs and ours, and why that is so. All else is the same."""
