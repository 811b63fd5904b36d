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
from penstock.formats.lance.lake.asking import Asking, key_of
from penstock.formats.lance.lake.errors import operation
from penstock.formats.lance.lake.paths import checked_token, namespace_key, page_size
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


class NamespaceOperations(Asking):
    """Creating, describing, listing and dropping namespaces."""

    @operation(CreateNamespaceRequest)
    def create_namespace(self, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
        mode = word(request.mode, "create", ("create", "existok", "overwrite"), "mode")
        key, properties = namespace_key(request.id), dict(request.properties or {})
        self.lake.begin_write()
        if (done := self.done_before(key, request.context)) and isinstance(done.after, Namespace):
            return CreateNamespaceResponse(properties=done.after.properties)
        for _ in range(TRIES_MAX):
            snapshot = self.snapshot()
            there = self._namespace(snapshot, key)
            if there is not None and mode == "existok":
                return CreateNamespaceResponse(properties=there.properties)
            if there is not None and (mode == "create" or key is None):
                raise NamespaceAlreadyExistsError(f"there is a namespace {shown(key)} already")
            assert key is not None
            self._check_parent(snapshot, key)
            if there is not None and next(below(snapshot, key), None) is not None:
                raise NamespaceNotEmptyError(f"namespace {shown(key)} has something in it, and so it stays")
            if self._put_over(snapshot, key, Namespace(properties=properties), request.context):
                return CreateNamespaceResponse(properties=properties)
        raise CommitConflict([], f"namespace {shown(key)} was changed by others all the time; try again")

    def _put_over(
        self, snapshot: Snapshot, key: Key, content: Namespace, context: dict[str, str] | None
    ) -> bool:
        """Put a namespace, if all is as it was seen."""
        try:
            self.put([Put(key, content)], snapshot.id, f"create namespace {key}", context)
        except CommitConflict as conflict:
            if any(one.kind is not ConflictKind.KEY_EXISTS for one in conflict.conflicts):
                raise
            return False
        return True

    @operation(DescribeNamespaceRequest)
    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        return DescribeNamespaceResponse(properties=self._found(request.id).properties)

    @operation(NamespaceExistsRequest)
    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        self._found(request.id)
        return NamespaceExistsResponse()

    @operation(ListNamespacesRequest)
    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        key, snapshot = namespace_key(request.id), self.snapshot()
        self.note_read(key, is_listing=True)
        self._require(snapshot, key)
        found = (
            child[-1]
            for child, content in self.children(snapshot, key, checked_token(request.page_token))
            if isinstance(content, Namespace)
        )
        names, token = page(found, request.limit)
        return ListNamespacesResponse(namespaces=names, page_token=token)

    @operation(DropNamespaceRequest)
    def drop_namespace(self, request: DropNamespaceRequest) -> DropNamespaceResponse:
        mode = word(request.mode, "fail", ("fail", "skip"), "mode")
        behaviour = word(request.behavior, "restrict", ("restrict", "cascade"), "behavior")
        key = namespace_key(request.id)
        if key is None:
            raise InvalidRequest("the namespace that all others are in cannot be dropped")
        if (done := self.done_before(key, request.context)) and isinstance(done.before, Namespace):
            return DropNamespaceResponse(properties=done.before.properties)
        for _ in range(TRIES_MAX):
            snapshot = self.snapshot()
            there = self._namespace(snapshot, key)
            if there is None:
                if mode == "skip":
                    return DropNamespaceResponse()
                raise _missing(key)
            inside = list(below(snapshot, key))
            if inside and behaviour == "restrict":
                raise NamespaceNotEmptyError(f"namespace {shown(key)} has {_counted(inside)} in it")
            _check_ours(key, inside)
            keys = [key, *(one for one, _ in inside)]
            try:
                self.put(map(Delete, keys), snapshot.id, f"drop namespace {key}", request.context)
            except CommitConflict:
                continue
            return DropNamespaceResponse(properties=there.properties)
        raise CommitConflict([], f"namespace {shown(key)} was changed by others all the time; try again")

    # -- looking -------------------------------------------------------------------------------------------

    def done_before(self, key: Key | None, context: dict[str, str] | None) -> Difference | None:
        """What was done to a key under the idempotency key of a request, if it is sent once more.

        A commit rests on what was seen, so that the same one is not asked for twice.
        """
        known = key_of(context)
        landing = None if known is None else self.do(GetOutcome(key=known, branch=self.writable()))
        if landing is None or not landing.commits:
            return None
        changes = GetChanges(revision=landing.head, via=self.writable())
        found = self.lake.pages(changes, None, lambda last: {"after": last.key})
        return next((one for one in found if one.key == key), None)

    def _found(self, parts: list[str] | None) -> Namespace:
        key = namespace_key(parts)
        if key is not None:
            self.note_read(key)
        found = self._namespace(self.snapshot(), key)
        if found is None:
            raise _missing(key)
        return found

    def _namespace(self, snapshot: Snapshot, key: Key | None) -> Namespace | None:
        if key is None:
            return Namespace()
        found = snapshot.get(key)
        return found if isinstance(found, Namespace) else None

    def _require(self, snapshot: Snapshot, key: Key | None) -> None:
        if self._namespace(snapshot, key) is None:
            raise _missing(key)

    def children(
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
            yield from ((one.key, one.content) for one in entries if len(one.key) == depth + 1)
            if len(entries) < most:
                return
            last = entries[-1].key
            if len(last) > depth + 1:  # the page ends inside of a namespace: go on behind all of that
                last = max(last, Key(*last[: depth + 1], LAST_NAME), key=Key.encode)

    def _check_parent(self, snapshot: Snapshot, key: Key) -> None:
        for parent in key.parents[-1:]:
            self._require(snapshot, parent)
        if (found := snapshot.get(key)) is not None and not isinstance(found, Namespace):
            raise NamespaceAlreadyExistsError(f"there is a {found.type} at {shown(key)} already")


def below(snapshot: Snapshot, key: Key) -> Iterator[tuple[Key, AnyContent]]:
    """All that is in a namespace, however deep."""
    return ((child, content) for child, content in snapshot.entries(key) if child != key)


def page(names: Iterator[str], limit: int | None) -> tuple[list[str], str | None]:
    """Names up to a limit, and where to go on if there are more."""
    most, found = page_size(limit), list[str]()
    for name in names:
        if most is not None and len(found) == most:
            return found, found[-1] if found else None
        found.append(name)
    return found, None


def word(said: str | None, default: str, known: tuple[str, ...], what: str) -> str:
    """One of some words, however it is written; ``InvalidRequest`` if it is none."""
    found = default if said is None else said.replace("_", "").lower()
    if found not in known:
        raise InvalidRequest(f"{said!r} is no {what} that can be asked for: {', '.join(known)}")
    return found


def shown(key: Key | None) -> str:
    return "of the lake itself" if key is None else f"'{key}'"


def _missing(key: Key | None) -> NamespaceNotFoundError:
    return NamespaceNotFoundError(f"there is no namespace {shown(key)}")


def _counted(inside: list[tuple[Key, AnyContent]]) -> str:
    return f"'{inside[0][0]}'" + (f" and {len(inside) - 1} more" if len(inside) > 1 else "")


def _check_ours(key: Key, inside: list[tuple[Key, AnyContent]]) -> None:
    """A namespace that has more in it than Lance's clients can see is not dropped by them."""
    for one, content in inside:
        if not isinstance(content, Namespace) and not is_managed(content):
            raise NamespaceNotEmptyError(
                f"namespace {shown(key)} also has '{one}' in it, which is a {content.type} and no Lance table"
                " of the lake: drop that by itself first"
            )
