"""Handlers that read: contents, entries, histories and differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.lake import calls
from penstock.lake.answers import CatalogEntry as Held
from penstock.lake.answers import Difference
from penstock.lake.catalogue import Catalogue
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.model.keys import Key
from penstock.server.nessie import json_types
from penstock.server.nessie.cel_bindings import KeyFacts, bind_commit, bind_difference, bind_entry
from penstock.server.nessie.commits import list_parents, make_nessie_meta
from penstock.server.nessie.contents import get_type_name, make_nessie_content
from penstock.server.nessie.keys import quote_key, read_key
from penstock.server.nessie.pages import (
    Keep,
    encode_key_token,
    find_page_deadline_s,
    list_in_batches,
    make_filter,
    parse_key_token,
    parse_page_size,
    take_page,
)
from penstock.server.nessie.ranges import KeyRange, list_in_range
from penstock.server.nessie.references import Fetch
from penstock.server.nessie.revisions import (
    DETACHED,
    ResolvedRevision,
    parse_body,
    parse_path,
    resolve_revision,
)
from penstock.server.nessie.violations import (
    find_bad_path,
    find_bad_spec,
    find_empty,
    find_null,
    raise_violations,
)
from penstock.server.routes import RouteRequest

LOG_MAX: Final = 250
"""Commits in one page of a history, as in Nessie."""


class ContentQuery(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """How contents are read; neither of the two changes the answer."""

    with_doc: bool = False
    for_write: bool = False


class ContentsQuery(ContentQuery, frozen=True, kw_only=True, rename="kebab"):
    """Keys to be read."""

    key: tuple[str, ...] = ()
    """May be given several times."""


class RangeQuery(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Which keys to list: those given, those from one to another, or those below one."""

    key: tuple[str, ...] = ()
    """May be given several times."""
    min_key: str = ""
    max_key: str = ""
    prefix_key: str = ""
    """A key, and all that is below it; not together with the other two."""
    filter: str = ""
    """A CEL expression over ``entry``, or over ``key`` for differences."""
    max_records: int | None = None
    page_token: str = ""


class EntriesQuery(RangeQuery, frozen=True, kw_only=True, rename="kebab"):
    """Which keys to list, and whether with what they hold."""

    content: bool = False


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Which commits to list."""

    fetch: Fetch = "MINIMAL"
    """``ALL`` also tells what each commit changed."""
    limit_hash: str = ""
    """The last commit to be listed."""
    filter: str = ""
    """A CEL expression over ``commit`` and, with ``ALL``, ``operations``."""
    max_records: int | None = None
    page_token: str = ""


def get_content(ask: RouteRequest) -> json_types.ContentResponse:
    place = _resolve_revision(ask, "getContent.ref")
    key = read_key(ask.path["key"])
    for held in _read_entries(ask.catalogue, place, (key,)):
        return json_types.ContentResponse(
            content=make_nessie_content(key, held.content), effective_reference=place.effective
        )
    raise KeyNotFound(
        f"Could not find content for key '{quote_key(key)}' in reference '{place.name or DETACHED}'.", key=key
    )


def get_contents(ask: RouteRequest) -> json_types.GetMultipleContentsResponse:
    query: ContentsQuery = ask.query
    return _get_contents(ask, "getSeveralContents.ref", tuple(read_key(text) for text in query.key))


def get_requested_contents(ask: RouteRequest) -> json_types.GetMultipleContentsResponse:
    raise_violations(find_body_violation(ask.body), find_bad_path(ask.path["ref"], "getMultipleContents.ref"))
    body: json_types.GetMultipleContentsRequest = ask.body
    keys = tuple(Key(*key.elements) for key in body.requested_keys or ())
    return _get_contents(ask, "getMultipleContents.ref", keys)


def find_body_violation(body: json_types.GetMultipleContentsRequest | None) -> str | None:
    """What is wrong with a list of keys: that there is none, or nothing in it."""
    if body is None:
        return find_null(body, "getMultipleContents.request")
    return find_empty(body.requested_keys, "getMultipleContents.request.requestedKeys")


def list_entries(ask: RouteRequest) -> json_types.EntriesResponse:
    query: EntriesQuery = ask.query
    place = _resolve_revision(ask, "getEntries.refName")
    keep: Keep[Held] = make_filter(
        "entries", query.filter, lambda held: bind_entry(held.key, get_type_name(held.content))
    )
    size = parse_page_size(ask.limits, query.max_records)
    entries = list_in_range(
        _parse_range(query),
        lambda keys: _read_entries(ask.catalogue, place, keys),
        lambda prefix, after: _list_entries(ask.catalogue, place, prefix, after, size),
    )
    page_entries, token = take_page(
        entries, size, lambda held: encode_key_token(held.key), keep, find_page_deadline_s(ask.deadline_s)
    )
    return json_types.EntriesResponse(
        has_more=token is not None,
        token=token,
        effective_reference=place.effective,
        entries=tuple(_shape_entry(held, query.content) for held in page_entries),
    )


def get_diff(ask: RouteRequest) -> json_types.DiffResponse:
    query: RangeQuery = ask.query
    raise_violations(
        find_bad_path(ask.path["from"], "getDiff.params.fromRef"),
        find_bad_path(ask.path["to"], "getDiff.params.toRef"),
    )
    before = _resolve_revision(ask, "getDiff.params.fromRef", "from", '"From" hash')
    after = _resolve_revision(ask, "getDiff.params.toRef", "to", '"To" hash')
    keep: Keep[Difference] = make_filter(
        "diff", query.filter, lambda difference: bind_difference(difference.key)
    )
    size = parse_page_size(ask.limits, query.max_records)
    differences = list_in_range(
        _parse_range(query),
        lambda keys: _compare_keys(ask.catalogue, before, after, keys),
        lambda prefix, last: _list_differences(ask.catalogue, before, after, prefix, last, size),
    )
    page_differences, token = take_page(
        differences,
        size,
        lambda difference: encode_key_token(difference.key),
        keep,
        find_page_deadline_s(ask.deadline_s),
    )
    return json_types.DiffResponse(
        has_more=token is not None,
        token=token,
        effective_from_reference=before.effective,
        effective_to_reference=after.effective,
        diffs=tuple(_make_diff_entry(difference) for difference in page_differences),
    )


def get_history(ask: RouteRequest) -> json_types.LogResponse:
    query: HistoryQuery = ask.query
    raise_violations(
        find_bad_spec(query.limit_hash, "getCommitLog.params.startHash"),
        find_bad_path(ask.path["ref"], "getCommitLog.ref"),
    )
    place = _find_history_start(ask, query)
    last = _find_history_end(ask.catalogue, place, query.limit_hash)

    @lru_cache(maxsize=2 * LOG_MAX)  # a filter looks at them before they are shown
    def list_changes(commit: str) -> tuple[Difference, ...]:
        return _list_changes(ask.catalogue, place, commit) if query.fetch == "ALL" else ()

    keep: Keep[Commit] = make_filter(
        "commits", query.filter, lambda commit: bind_commit(commit, _bind_operations(list_changes(commit.id)))
    )
    limits = msgspec.structs.replace(ask.limits, page_max=min(LOG_MAX, ask.limits.page_max))
    size = parse_page_size(limits, query.max_records)
    commits = _take_up_to(_list_commits(ask.catalogue, place, size), last)
    page_commits, token = take_page(
        commits, size, lambda commit: commit.id, keep, find_page_deadline_s(ask.deadline_s)
    )
    return json_types.LogResponse(
        has_more=token is not None,
        token=token,
        log_entries=tuple(_make_log_entry(commit, list_changes(commit.id)) for commit in page_commits),
    )


# -- places and ranges -------------------------------------------------------------------------------------


def _resolve_revision(
    ask: RouteRequest, parameter: str, name: str = "ref", subject: str = "Expected hash"
) -> ResolvedRevision:
    return resolve_revision(ask.catalogue, parse_path(ask.path[name], ask.catalogue, parameter), subject)


def _parse_range(query: RangeQuery) -> KeyRange:
    if query.prefix_key and (query.min_key or query.max_key):
        raise InvalidRequest("Combining prefixKey with either minKey or maxKey is not supported.")
    start = read_key(query.min_key) if query.min_key else None
    return KeyRange(
        keys=tuple(read_key(text) for text in query.key),
        start=parse_key_token(query.page_token) if query.page_token else start,
        stop=read_key(query.max_key) if query.max_key else None,
        prefix=read_key(query.prefix_key) if query.prefix_key else None,
    )


# -- contents and entries ----------------------------------------------------------------------------------


def _read_entries(
    catalogue: Catalogue, resolved: ResolvedRevision, keys: tuple[Key, ...]
) -> tuple[Held, ...]:
    return catalogue.do(calls.GetContents(at=resolved.commit, via=resolved.name, key=keys))


def _get_contents(
    ask: RouteRequest, parameter: str, keys: tuple[Key, ...]
) -> json_types.GetMultipleContentsResponse:
    if not keys:
        raise InvalidRequest(
            "getMultipleContents.request.requestedKeys: size must be between 1 and 2147483647"
        )
    if len(keys) > ask.limits.operations_max:
        raise InvalidRequest(f"a request can read at most {ask.limits.operations_max} keys, got {len(keys)}")
    place = _resolve_revision(ask, parameter)
    return json_types.GetMultipleContentsResponse(
        contents=tuple(
            json_types.ContentWithKey(
                key=_make_nessie_key(held.key), content=make_nessie_content(held.key, held.content)
            )
            for held in _read_entries(ask.catalogue, place, keys)
        ),
        effective_reference=place.effective,
    )


def _list_entries(
    catalogue: Catalogue, resolved: ResolvedRevision, prefix: Key | None, after: Key | None, size: int
) -> Iterator[Held]:
    def read_page(last: Held | None, limit: int) -> tuple[Held, ...]:
        key = last.key if last is not None else after
        return catalogue.do(
            calls.ListEntries(at=resolved.commit, via=resolved.name, prefix=prefix, after=key, limit=limit)
        )

    return list_in_batches(read_page, size)


def _shape_entry(held: Held, with_content: bool) -> json_types.NessieEntry:
    return json_types.NessieEntry(
        name=_make_nessie_key(held.key),
        type=get_type_name(held.content),
        content_id=str(held.content.id),
        content=make_nessie_content(held.key, held.content) if with_content else None,
    )


def _make_nessie_key(key: Key) -> json_types.ContentKey:
    return json_types.ContentKey(elements=tuple(key))


# -- differences -------------------------------------------------------------------------------------------


def _list_differences(
    catalogue: Catalogue,
    before: ResolvedRevision,
    to: ResolvedRevision,
    prefix: Key | None,
    after: Key | None,
    size: int,
) -> Iterator[Difference]:
    def read_page(last: Difference | None, limit: int) -> tuple[Difference, ...]:
        key = last.key if last is not None else after
        return catalogue.do(
            calls.Diff(before=before.revision, to=to.revision, prefix=prefix, after=key, limit=limit)
        )

    return list_in_batches(read_page, size)


def _compare_keys(
    catalogue: Catalogue, before: ResolvedRevision, to: ResolvedRevision, keys: tuple[Key, ...]
) -> tuple[Difference, ...]:
    """How single keys differ."""
    old_contents = {held.key: held.content for held in _read_entries(catalogue, before, keys)}
    now = {held.key: held.content for held in _read_entries(catalogue, to, keys)}
    return tuple(
        Difference(key, old_contents.get(key), now.get(key))
        for key in dict.fromkeys(keys)
        if old_contents.get(key) != now.get(key)
    )


def _make_diff_entry(difference: Difference) -> json_types.DiffEntry:
    key, before, after = difference.key, difference.before, difference.after
    return json_types.DiffEntry(
        key=_make_nessie_key(key),
        from_=make_nessie_content(key, before) if before is not None else None,
        to=make_nessie_content(key, after) if after is not None else None,
    )


# -- histories ---------------------------------------------------------------------------------------------


def _find_history_start(ask: RouteRequest, query: HistoryQuery) -> ResolvedRevision:
    """Where a page of a history begins; its token is the hash of its first commit."""
    revision = parse_path(ask.path["ref"], ask.catalogue, "getCommitLog.ref")
    if not query.page_token:
        return resolve_revision(ask.catalogue, revision, "Youngest hash")
    start = parse_body(revision.name, query.page_token, "{rule} [{text}]")
    return resolve_revision(ask.catalogue, start, "Token pagination hash")


def _find_history_end(catalogue: Catalogue, resolved: ResolvedRevision, limit_hash: str) -> str | None:
    """The last commit to be listed. One that the history does not have ends nothing."""
    if not limit_hash:
        return None
    revision = parse_body(resolved.name, limit_hash, "getCommitLog.params.startHash: {rule}")
    if not revision.steps:
        return revision.commit
    return resolve_revision(catalogue, revision, "Oldest hash").commit


def _list_commits(catalogue: Catalogue, resolved: ResolvedRevision, size: int) -> Iterator[Commit]:
    if resolved.commit == EMPTY_COMMIT_ID:
        return iter(())

    def read_page(last: Commit | None, limit: int) -> tuple[Commit, ...]:
        after = last.id if last is not None else None
        return catalogue.do(
            calls.ListCommits(ref=resolved.commit, via=resolved.name, after=after, limit=limit)
        )

    return list_in_batches(read_page, size)


def _take_up_to(commits: Iterable[Commit], last: str | None) -> Iterator[Commit]:
    for commit in commits:
        yield commit
        if commit.id == last:
            return


def _list_changes(catalogue: Catalogue, resolved: ResolvedRevision, commit: str) -> tuple[Difference, ...]:
    def read_page(last: Difference | None, limit: int) -> tuple[Difference, ...]:
        key = last.key if last is not None else None
        return catalogue.do(calls.GetChanges(revision=commit, via=resolved.name, after=key, limit=limit))

    return tuple(list_in_batches(read_page, calls.PAGE_MAX))


def _bind_operations(changes: Iterable[Difference]) -> tuple[KeyFacts, ...]:
    return tuple(
        KeyFacts(difference.key, operation="DELETE")
        if difference.after is None
        else KeyFacts(difference.key, get_type_name(difference.after), str(difference.after.id), "PUT")
        for difference in _sort_deletes_first(changes)
    )


def _make_log_entry(commit: Commit, changes: Iterable[Difference]) -> json_types.NessieLogEntry:
    operations: tuple[json_types.PutOperation | json_types.DeleteOperation, ...] = tuple(
        json_types.DeleteOperation(key=_make_nessie_key(difference.key))
        if difference.after is None
        else json_types.PutOperation(
            key=_make_nessie_key(difference.key),
            content=make_nessie_content(difference.key, difference.after),
        )
        for difference in _sort_deletes_first(changes)
    )
    return json_types.NessieLogEntry(
        commit_meta=make_nessie_meta(commit),
        parent_commit_hash=list_parents(commit)[0],
        operations=operations or None,
    )


def _sort_deletes_first(changes: Iterable[Difference]) -> list[Difference]:
    return sorted(changes, key=lambda difference: difference.after is not None)
