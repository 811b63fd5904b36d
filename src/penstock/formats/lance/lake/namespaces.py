"""Operations on namespaces: the folders of a lake's keys, of which each key's must be there."""

from __future__ import annotations

from collections.abc import Iterator

from lance_namespace import (
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    NamespaceExistsRequest,
)
from lance_namespace.errors import (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
)
from lance_namespace_urllib3_client.models.namespace_exists_response import NamespaceExistsResponse

from penstock.errors import CommitConflict, InvalidRequest
from penstock.formats.lance.lake.errors import declare_operation
from penstock.formats.lance.lake.namespace_base import NamespaceBase, get_idempotency_key
from penstock.formats.lance.lake.paths import parse_namespace_key, parse_page_size, require_token
from penstock.formats.lance.state import is_managed
from penstock.lake.answers import Difference
from penstock.lake.calls import GetChanges, GetOutcome, ListEntries
from penstock.lake.views import Snapshot
from penstock.model.conflicts import ConflictKind
from penstock.model.content import AnyContent, Namespace
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put

TRIES_MAX = 8
"""How often the lake may change between a look and the commit that rests on it."""
PAGE = 100
LAST_NAME = "\U0010ffff"
"""No name comes after it but those that begin with it."""


class NamespaceOperations(NamespaceBase):
    """Creating, describing, listing and dropping namespaces."""

    @declare_operation(CreateNamespaceRequest)
    def create_namespace(self, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
        mode = parse_choice(request.mode, "create", ("create", "existok", "overwrite"), "mode")
        key, properties = parse_namespace_key(request.id), dict(request.properties or {})
        self.lake.begin_write()
        if (earlier_change := self.find_earlier_change(key, request.context)) and isinstance(
            earlier_change.after, Namespace
        ):
            return CreateNamespaceResponse(properties=earlier_change.after.properties)
        for _ in range(TRIES_MAX):
            snapshot = self.snapshot()
            namespace = self._find_namespace(snapshot, key)
            if namespace is not None and mode == "existok":
                return CreateNamespaceResponse(properties=namespace.properties)
            if namespace is not None and (mode == "create" or key is None):
                raise NamespaceAlreadyExistsError(f"the namespace {format_namespace(key)} already exists")
            assert key is not None
            self._check_parent(snapshot, key)
            if namespace is not None and next(list_all_below(snapshot, key), None) is not None:
                raise NamespaceNotEmptyError(
                    f"namespace {format_namespace(key)} is not empty, so it cannot be dropped"
                )
            if self._replace_namespace(snapshot, key, Namespace(properties=properties), request.context):
                return CreateNamespaceResponse(properties=properties)
        raise CommitConflict(
            [], f"namespace {format_namespace(key)} was changed by other writers too often; try again"
        )

    def _replace_namespace(
        self, snapshot: Snapshot, key: Key, content: Namespace, context: dict[str, str] | None
    ) -> bool:
        """Put a namespace, if all is as it was seen."""
        try:
            self.put_catalog_entries([Put(key, content)], snapshot.id, f"create namespace {key}", context)
        except CommitConflict as conflict:
            if any(conflict.kind is not ConflictKind.KEY_EXISTS for conflict in conflict.conflicts):
                raise
            return False
        return True

    @declare_operation(DescribeNamespaceRequest)
    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        return DescribeNamespaceResponse(properties=self._require_namespace(request.id).properties)

    @declare_operation(NamespaceExistsRequest)
    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        self._require_namespace(request.id)
        return NamespaceExistsResponse()

    @declare_operation(ListNamespacesRequest)
    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        key, snapshot = parse_namespace_key(request.id), self.snapshot()
        self.note_read(key, is_listing=True)
        self._require_namespace_or_root(snapshot, key)
        child_names = (
            child[-1]
            for child, content in self.list_children(snapshot, key, require_token(request.page_token))
            if isinstance(content, Namespace)
        )
        names, token = take_page(child_names, request.limit)
        return ListNamespacesResponse(namespaces=names, page_token=token)

    @declare_operation(DropNamespaceRequest)
    def drop_namespace(self, request: DropNamespaceRequest) -> DropNamespaceResponse:
        mode = parse_choice(request.mode, "fail", ("fail", "skip"), "mode")
        behaviour = parse_choice(request.behavior, "restrict", ("restrict", "cascade"), "behavior")
        key = parse_namespace_key(request.id)
        if key is None:
            raise InvalidRequest("the root namespace cannot be dropped")
        if (earlier_change := self.find_earlier_change(key, request.context)) and isinstance(
            earlier_change.before, Namespace
        ):
            return DropNamespaceResponse(properties=earlier_change.before.properties)
        for _ in range(TRIES_MAX):
            snapshot = self.snapshot()
            namespace = self._find_namespace(snapshot, key)
            if namespace is None:
                if mode == "skip":
                    return DropNamespaceResponse()
                raise _not_found_error(key)
            inside = list(list_all_below(snapshot, key))
            if inside and behaviour == "restrict":
                raise NamespaceNotEmptyError(
                    f"namespace {format_namespace(key)} has {_describe_members(inside)} in it"
                )
            _check_ours(key, inside)
            keys = [key, *(key for key, _ in inside)]
            try:
                self.put_catalog_entries(
                    map(Delete, keys), snapshot.id, f"drop namespace {key}", request.context
                )
            except CommitConflict:
                continue
            return DropNamespaceResponse(properties=namespace.properties)
        raise CommitConflict(
            [], f"namespace {format_namespace(key)} was changed by other writers too often; try again"
        )

    # -- looking -------------------------------------------------------------------------------------------

    def find_earlier_change(self, key: Key | None, context: dict[str, str] | None) -> Difference | None:
        """What was done to a key under the idempotency key of a request, if it is sent once more.

        A commit rests on what was seen, so that the same one is not asked for twice.
        """
        idempotency_key = get_idempotency_key(context)
        landing = (
            None
            if idempotency_key is None
            else self.do(GetOutcome(key=idempotency_key, branch=self.require_branch()))
        )
        if landing is None or not landing.commits:
            return None
        changes = GetChanges(revision=landing.head, via=self.require_branch())
        pages = self.lake.pages(changes, None, lambda last: {"after": last.key})
        return next((difference for difference in pages if difference.key == key), None)

    def _require_namespace(self, parts: list[str] | None) -> Namespace:
        key = parse_namespace_key(parts)
        if key is not None:
            self.note_read(key)
        namespace = self._find_namespace(self.snapshot(), key)
        if namespace is None:
            raise _not_found_error(key)
        return namespace

    def _find_namespace(self, snapshot: Snapshot, key: Key | None) -> Namespace | None:
        if key is None:
            return Namespace()
        namespace = snapshot.get(key)
        return namespace if isinstance(namespace, Namespace) else None

    def _require_namespace_or_root(self, snapshot: Snapshot, key: Key | None) -> None:
        if self._find_namespace(snapshot, key) is None:
            raise _not_found_error(key)

    def list_children(
        self, snapshot: Snapshot, key: Key | None, after: str | None = None
    ) -> Iterator[tuple[Key, AnyContent]]:
        """What is right in a namespace, by name, after a name.

        What is deeper costs no more than a page for each namespace, however much there is.
        """
        depth = 0 if key is None else len(key)
        last = None if after is None else Key(*(key or ()), after)
        most = min(PAGE, self.lake.page_max or PAGE)
        while True:
            call = ListEntries(at=snapshot.id, via=snapshot.via, prefix=key, after=last, limit=most)
            entries = self.do(call)
            yield from ((entry.key, entry.content) for entry in entries if len(entry.key) == depth + 1)
            if len(entries) < most:
                return
            last = entries[-1].key
            if len(last) > depth + 1:  # the page ends inside of a namespace: go on behind all of that
                last = max(last, Key(*last[: depth + 1], LAST_NAME), key=Key.encode)

    def _check_parent(self, snapshot: Snapshot, key: Key) -> None:
        for parent in key.parents[-1:]:
            self._require_namespace_or_root(snapshot, parent)
        if (content := snapshot.get(key)) is not None and not isinstance(content, Namespace):
            raise NamespaceAlreadyExistsError(
                f"{format_namespace(key)} already exists: it is {content.type_in_words}"
            )


def list_all_below(snapshot: Snapshot, key: Key) -> Iterator[tuple[Key, AnyContent]]:
    """All that is in a namespace, however deep."""
    return ((child, content) for child, content in snapshot.entries(key) if child != key)


def take_page(names: Iterator[str], limit: int | None) -> tuple[list[str], str | None]:
    """Names up to a limit, and where to go on if there are more."""
    most, page_names = parse_page_size(limit), list[str]()
    for name in names:
        if most is not None and len(page_names) == most:
            return page_names, page_names[-1] if page_names else None
        page_names.append(name)
    return page_names, None


def parse_choice(text: str | None, default: str, choices: tuple[str, ...], subject: str) -> str:
    """One of some words, however it is written; ``InvalidRequest`` if it is none."""
    choice = default if text is None else text.replace("_", "").lower()
    if choice not in choices:
        raise InvalidRequest(f"unknown {subject} {text!r}; it must be one of {', '.join(choices)}")
    return choice


def format_namespace(key: Key | None) -> str:
    return "of the lake itself" if key is None else f"'{key}'"


def _not_found_error(key: Key | None) -> NamespaceNotFoundError:
    return NamespaceNotFoundError(f"there is no namespace {format_namespace(key)}")


def _describe_members(inside: list[tuple[Key, AnyContent]]) -> str:
    return f"'{inside[0][0]}'" + (f" and {len(inside) - 1} more" if len(inside) > 1 else "")


def _check_ours(key: Key, inside: list[tuple[Key, AnyContent]]) -> None:
    """A namespace that has more in it than Lance's clients can see is not dropped by them."""
    for child, content in inside:
        if not isinstance(content, Namespace) and not is_managed(content):
            raise NamespaceNotEmptyError(
                f"namespace {format_namespace(key)} contains '{child}', which is {content.type_in_words} and "
                "not a Lance table of the lake: drop it first"
            )
