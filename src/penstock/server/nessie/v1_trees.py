"""Handlers of version 1: each asks the one of version 2 that does the same, and shows its answer.

Version 1 has the commit in a parameter of its own where version 2 writes ``name@hash``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from penstock.errors import InvalidRequest, ReferenceNotFound
from penstock.lake import calls
from penstock.model.keys import Key
from penstock.server.nessie import (
    commit_handlers,
    json_types,
    merge_handlers,
    read_handlers,
    references,
    v1_json_types,
)
from penstock.server.nessie.codec import require_body
from penstock.server.nessie.pages import encode_key_token, parse_page_size, take_page
from penstock.server.nessie.pynessie import is_pynessie, keep_properties, make_content_view
from penstock.server.nessie.references import Fetch
from penstock.server.nessie.revisions import HASH_RULE, is_name, is_spec
from penstock.server.nessie.v1_answers import (
    make_v1_contents,
    make_v1_difference,
    make_v1_log,
    make_v1_merge,
    make_v1_reference,
)
from penstock.server.nessie.violations import (
    find_bad_hash,
    find_bad_name,
    find_bad_spec,
    find_null,
    raise_violations,
)
from penstock.server.routes import RouteRequest

UNPAGED_MAX: Final = 100_000
"""How many items an answer has about at most, if its reader does not say how many it wants."""

PageT = TypeVar("PageT", bound=json_types.Page)
ItemT = TypeVar("ItemT")


class FetchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How much to tell of a reference."""

    fetch: Fetch = "MINIMAL"


class V1PageQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which page of a list."""

    max_records: int | None = None
    page_token: str = ""


class ReferencesQuery(V1PageQuery, frozen=True, kw_only=True, rename="camel"):
    """Which references to list."""

    fetch: Fetch = "MINIMAL"
    """``ALL`` also tells how each compares with the default branch, and its newest commit."""
    filter: str = ""
    """A CEL expression over ``ref``, ``refType`` and, with ``ALL``, ``refMeta`` and ``commit``."""


class V1CreateQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the commit is found that a new reference names."""

    source_ref_name: str = ""


class V1EntriesQuery(V1PageQuery, frozen=True, kw_only=True, rename="camel"):
    """Which keys to list."""

    hash_on_ref: str = ""
    namespace_depth: int | None = None
    """How many elements of a key to show. A deeper one stands for a namespace; others are left out."""
    filter: str = ""
    """A CEL expression over ``entry``."""


class LogQuery(V1PageQuery, frozen=True, kw_only=True, rename="camel"):
    """Which commits to list."""

    start_hash: str = ""
    """The last commit to be listed, the oldest."""
    end_hash: str = ""
    """The first commit to be listed; the newest one if it is not given."""
    fetch: Fetch = "MINIMAL"
    """``ALL`` also tells what each commit changed."""
    filter: str = ""
    """A CEL expression over ``commit`` and, with ``ALL``, ``operations``."""


class V1ContentQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where to read."""

    ref: str | None = None
    """The default branch if it is not given."""
    hash_on_ref: str = ""


class ExpectedHashQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the writer knows of the reference that it changes."""

    expected_hash: str | None = None


class TransplantQuery(ExpectedHashQuery, frozen=True, kw_only=True, rename="camel"):
    """What the writer knows of the branch, and what to say of the commits."""

    message: str | None = None


def get_config(ask: RouteRequest) -> v1_json_types.V1NessieConfiguration:
    about = ask.catalogue.do(calls.GetAbout())
    return v1_json_types.V1NessieConfiguration(default_branch=about.default_branch)


# -- references --------------------------------------------------------------------------------------------


def list_references(ask: RouteRequest) -> v1_json_types.V1ReferencesResponse:
    query: ReferencesQuery = ask.query

    def read_page(token: str) -> json_types.ReferencesResponse:
        wanted_query = references.ListQuery(
            fetch=query.fetch, filter=query.filter, max_records=query.max_records, page_token=token
        )
        return references.list_references(_make_v2_request(ask, query=wanted_query))

    items, token = _collect_page(ask, read_page, lambda answer: answer.references)
    return v1_json_types.V1ReferencesResponse(
        has_more=token is not None, token=token, references=tuple(map(make_v1_reference, items))
    )


def get_default_branch(ask: RouteRequest) -> v1_json_types.AnyReference:
    return _fetch_reference(ask, "-", "MINIMAL")


def get_reference(ask: RouteRequest) -> v1_json_types.AnyReference:
    raise_violations(find_bad_name(ask.path["ref"], "getReferenceByName.params.refName"))
    return _fetch_reference(ask, ask.path["ref"], ask.query.fetch)


def create_reference(ask: RouteRequest) -> v1_json_types.AnyReference:
    source = ask.query.source_ref_name or None
    raise_violations(
        find_null(ask.body, "createReference.reference"),
        find_bad_name(source, "createReference.sourceRefName"),
    )
    reference: json_types.AnyReferenceInput = ask.body
    if isinstance(reference, json_types.DetachedInput):
        raise InvalidRequest("Illegal use of detached reference")
    kind = "BRANCH" if isinstance(reference, json_types.BranchInput) else "TAG"
    translated = _make_v2_request(
        ask,
        query=references.CreateQuery(name=reference.name, type=kind),
        body=_parse_source(ask.query.source_ref_name, reference.hash),
    )
    return make_v1_reference(references.create_reference(translated).reference)


def assign_reference(ask: RouteRequest) -> None:
    violation = find_null(ask.body, "assignReference.assignTo")
    path = write_expected_path(
        ask.path["name"], ask.query.expected_hash, "assignReference", "referenceName", violation
    )
    references.assign_reference(_make_v2_request(ask, path, query=_parse_type(ask), body=ask.body))


def delete_reference(ask: RouteRequest) -> None:
    path = write_expected_path(ask.path["name"], ask.query.expected_hash, "deleteReference", "referenceName")
    references.delete_reference(_make_v2_request(ask, path, query=_parse_type(ask)))


# -- reading -----------------------------------------------------------------------------------------------


def list_entries(ask: RouteRequest) -> v1_json_types.V1EntriesResponse:
    query: V1EntriesQuery = ask.query
    path = write_read_path(
        ask.path["ref"], query.hash_on_ref, ("getEntries.refName", "getEntries.params.hashOnRef")
    )
    translated = _make_v2_request(ask, path)

    def read_page(token: str, size: int | None = query.max_records) -> json_types.EntriesResponse:
        wanted_query = read_handlers.EntriesQuery(filter=query.filter, max_records=size, page_token=token)
        return read_handlers.list_entries(msgspec.structs.replace(translated, query=wanted_query))

    entries: Iterable[json_types.NessieEntry]
    if query.namespace_depth is not None and query.namespace_depth > 0:
        size = UNPAGED_MAX if query.max_records is None else parse_page_size(ask.limits, query.max_records)
        entries, token = _list_entries_at_depth(read_page, query.namespace_depth, size, query.page_token)
    else:
        entries, token = _collect_page(ask, read_page, lambda answer: answer.entries)
    return v1_json_types.V1EntriesResponse(
        has_more=token is not None,
        token=token,
        entries=tuple(v1_json_types.V1Entry(name=entry.name, type=entry.type) for entry in entries),
    )


def get_log(ask: RouteRequest) -> v1_json_types.V1LogResponse:
    query: LogQuery = ask.query
    path = write_read_path(
        ask.path["ref"],
        query.end_hash,
        ("getCommitLog.ref", "getCommitLog.params.endHash"),
        find_bad_hash(query.start_hash or None, "getCommitLog.params.startHash"),
    )
    wanted_query = read_handlers.HistoryQuery(
        fetch=query.fetch,
        limit_hash=query.start_hash,
        filter=query.filter,
        max_records=query.max_records,
        page_token=query.page_token,
    )
    return make_v1_log(
        read_handlers.get_history(_make_v2_request(ask, path, query=wanted_query)), ask.headers
    )


def get_content(ask: RouteRequest) -> json_types.AnyContent:
    path = _write_content_path(ask, "getContent")
    translated = msgspec.structs.replace(ask, path={"ref": path, "key": ask.path["key"]})
    return make_content_view(read_handlers.get_content(translated).content, ask.headers)


def get_contents(ask: RouteRequest) -> v1_json_types.V1GetMultipleContentsResponse:
    path = _write_content_path(ask, "getMultipleContents", read_handlers.find_body_violation(ask.body))
    answer = read_handlers.get_requested_contents(_make_v2_request(ask, path, body=ask.body))
    return make_v1_contents(answer, ask.headers)


def get_diff(ask: RouteRequest) -> v1_json_types.V1DiffResponse:
    query: V1PageQuery = ask.query
    path = {side: _write_diff_path(ask.path[side]) for side in ("from", "to")}

    def read_page(token: str) -> json_types.DiffResponse:
        wanted_query = read_handlers.RangeQuery(max_records=query.max_records, page_token=token)
        return read_handlers.get_diff(msgspec.structs.replace(ask, path=path, query=wanted_query))

    differences, token = _collect_page(ask, read_page, lambda answer: answer.diffs)
    return v1_json_types.V1DiffResponse(
        has_more=token is not None,
        token=token,
        diffs=tuple(make_v1_difference(difference, ask.headers) for difference in differences),
    )


# -- writing -----------------------------------------------------------------------------------------------


def handle_commit(ask: RouteRequest) -> v1_json_types.AnyReference:
    path = _write_expected_branch(
        ask, "commitMultipleOperations", commit_handlers.find_body_violation(ask.body)
    )
    body: json_types.Operations = ask.body
    if is_pynessie(ask.headers):
        body = keep_properties(ask.catalogue, path, body)
    return make_v1_reference(
        commit_handlers.handle_commit(_make_v2_request(ask, path, body=body)).target_branch
    )


def handle_merge(ask: RouteRequest) -> v1_json_types.V1MergeResponse:
    request_body: v1_json_types.V1MergeRequest | None = ask.body
    source = request_body.from_ref_name if request_body is not None else None
    path = _write_expected_branch(
        ask,
        "mergeRefIntoBranch",
        find_null(request_body, "mergeRefIntoBranch.merge"),
        find_bad_name(source, "mergeRefIntoBranch.merge.fromRefName"),
    )
    body: v1_json_types.V1MergeRequest = ask.body
    if body.keep_individual_commits:
        raise InvalidRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Merge operations only support squashed now."
        )
    request = json_types.NessieMerge(**_make_v2_merge_fields(body), from_hash=body.from_hash)
    return make_v1_merge(merge_handlers.handle_merge(_make_v2_request(ask, path, body=request)))


def handle_transplant(ask: RouteRequest) -> v1_json_types.V1MergeResponse:
    path = _write_expected_branch(
        ask, "transplantCommitsIntoBranch", *merge_handlers.find_transplant_violations(ask.body)
    )
    body: v1_json_types.V1TransplantRequest = require_body(ask.body, "transplantCommitsIntoBranch.transplant")
    if body.keep_individual_commits is False:
        raise InvalidRequest(
            "The parameter 'keepIndividualCommits' is deprecated. "
            "Transplant operations only support unsquashed now."
        )
    fields = _make_v2_merge_fields(body) | {"message": ask.query.message}
    request = json_types.NessieTransplant(**fields, hashes_to_transplant=body.hashes_to_transplant)
    return make_v1_merge(merge_handlers.handle_transplant(_make_v2_request(ask, path, body=request)))


# -- the parts ---------------------------------------------------------------------------------------------


def _make_v2_request(
    ask: RouteRequest, path: str = "", *, query: Any = None, body: Any = None
) -> RouteRequest:
    """The same request, as version 2 has it."""
    return msgspec.structs.replace(ask, path={"ref": path, "branch": path}, query=query, body=body)


def _fetch_reference(ask: RouteRequest, name: str, fetch: Fetch) -> v1_json_types.AnyReference:
    translated = _make_v2_request(ask, name, query=references.GetQuery(fetch=fetch))
    return make_v1_reference(references.get_reference(translated).reference)


def _parse_type(ask: RouteRequest) -> references.TypeQuery:
    return references.TypeQuery(type=ask.path["type"].upper())


def _parse_source(name: str, commit: str | None) -> json_types.AnyReferenceInput | None:
    """The commit that a new reference names."""
    if commit is None:
        return None
    return json_types.BranchInput(name=name, hash=commit) if name else json_types.DetachedInput(hash=commit)


def _write_content_path(ask: RouteRequest, operation: str, *violations: str | None) -> str:
    query: V1ContentQuery = ask.query
    parameters = f"{operation}.ref", f"{operation}.hashOnRef"
    return write_read_path(query.ref, query.hash_on_ref, parameters, *violations)


def _write_expected_branch(ask: RouteRequest, operation: str, *violations: str | None) -> str:
    return write_expected_path(
        ask.path["branch"], ask.query.expected_hash, operation, "branchName", *violations
    )


def _write_diff_path(text: str) -> str:
    """A side of ``from*hash...to*hash``, as version 2 has it in paths."""
    name, _, spec = text.partition("*")
    if name and not is_name(name):
        raise ReferenceNotFound(f"there is no branch or tag '{name}'", name=name)
    if spec and not is_spec(spec):
        raise InvalidRequest(f"{HASH_RULE} [{spec}]")
    return f"{name}@{spec}" if spec else name


def _make_v2_merge_fields(body: json_types.NessieMergeFields) -> dict[str, Any]:
    return {field: getattr(body, field) for field in json_types.NessieMergeFields.__struct_fields__}


def _collect_page(
    ask: RouteRequest, read: Callable[[str], PageT], items: Callable[[PageT], Iterable[ItemT]]
) -> tuple[list[ItemT], str | None]:
    """The items of a page, and the token of the next one.

    Who does not say how many gets all, as far as half of a request's time reaches: pynessie never asks for
    a second page.
    """
    query: V1PageQuery = ask.query
    deadline = time.monotonic() + ask.limits.request_timeout_s / 2
    answer = read(query.page_token)
    page_items = list(items(answer))
    while query.max_records is None and answer.token is not None and len(page_items) < UNPAGED_MAX:
        if time.monotonic() > deadline:
            break
        answer = read(answer.token)
        page_items += items(answer)
    return page_items, answer.token


def _list_entries_at_depth(
    read: Callable[[str, None], json_types.EntriesResponse], depth: int, size: int, token: str
) -> tuple[list[json_types.NessieEntry], str | None]:
    """A page of entries at a depth, and the token of the next one."""

    def read_entries(start: str | None) -> Iterator[json_types.NessieEntry]:
        while start is not None:
            answer = read(start, None)
            yield from answer.entries
            start = answer.token

    page_entries, following = take_page(
        _truncate_keys(read_entries(token), depth), size, lambda item: encode_key_token(item[0])
    )
    return [entry for _, entry in page_entries], following


def _truncate_keys(
    entries: Iterable[json_types.NessieEntry], depth: int
) -> Iterator[tuple[Key, json_types.NessieEntry]]:
    """Entries at a depth; one that is deeper stands for the namespace that it is in, once."""
    last: tuple[str, ...] = ()
    for entry in entries:
        elements = entry.name.elements
        if len(elements) < depth or elements[:depth] == last:
            continue
        last = elements[:depth]
        is_deeper = len(elements) > depth
        namespace = json_types.NessieEntry(name=json_types.ContentKey(elements=last), type="NAMESPACE")
        yield Key(*elements), namespace if is_deeper else entry


def write_expected_path(
    name: str, expected_hash: str | None, operation: str, parameter: str, *violations: str | None
) -> str:
    """A reference that is to be written and its expected hash, as version 2 has them in paths.

    ``violations`` are those of the request's body, which are told first.
    """
    parameter_name = f"{operation}.expectedHash"
    raise_violations(
        *violations,
        find_bad_name(name, f"{operation}.{parameter}"),
        find_null(expected_hash, parameter_name),
        find_bad_hash(expected_hash, parameter_name),
    )
    return f"{name}@{expected_hash}"


def write_read_path(name: str | None, spec: str, parameters: tuple[str, str], *violations: str | None) -> str:
    """A reference and a commit that are to be read, as version 2 has them in paths.

    Without a name the default branch is meant. ``parameters`` are what Nessie calls the two, ``violations``
    are those of the rest of the request, which are told first.
    """
    raise_violations(*violations, find_bad_name(name, parameters[0]), find_bad_spec(spec, parameters[1]))
    return f"{name or '-'}@{spec}" if spec else name or "-"
