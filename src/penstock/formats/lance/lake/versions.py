"""Operations on versions of tables, which Lance's clients commit by; and on Lance's own branches and tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from lance_namespace import (
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
)
from lance_namespace_urllib3_client.models.table_version import TableVersion

from penstock.errors import (
    InvalidManifest,
    InvalidRequest,
    OutcomeUnknown,
    PenstockError,
    VersionNotFound,
    VersionTaken,
)
from penstock.formats.lance.lake.answers import LanceTableInfo, LanceVersion
from penstock.formats.lance.lake.calls import CreateLanceVersion, DeleteLanceVersions
from penstock.formats.lance.lake.errors import declare_operation, to_lance_error
from penstock.formats.lance.lake.paths import (
    make_path_from_root,
    make_whole_path,
    parse_page_size,
    parse_table_key,
    require_token,
)
from penstock.formats.lance.lake.requests import run_for_operation
from penstock.formats.lance.lake.tables import TableOperations
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.names import VERSION_MAX, lance_branch_name, make_detached_path
from penstock.formats.lance.protobuf import MalformedMessage
from penstock.lake.views import Snapshot
from penstock.model.keys import Key

PAGE_MAX: Final = 1000
_STAGED: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""How the name of a manifest goes on for as long as it is no version."""


class VersionOperations(TableOperations):
    """Versions: Lance writes their manifests, and the lake says which ones count."""

    def create_table_version(self, request: Any) -> Any:
        """The next version.

        One that belongs to no chain, which Lance calls detached, is not the lake's: it is put where Lance
        finds it, and that is all.
        """
        version = _list_request_fields(request).get("version")
        if isinstance(version, int) and not 0 <= version <= VERSION_MAX:
            try:
                return self._create_detached(_list_request_fields(request), version)
            except PenstockError as problem:
                raise to_lance_error(problem) from problem
        return self._create_version(request)

    @declare_operation(CreateTableVersionRequest)
    def _create_version(self, request: CreateTableVersionRequest) -> CreateTableVersionResponse:
        (result,) = self.change_tables([self.make_create_call(request)], request.context).done
        return make_create_response(result.version, request.version)

    def make_create_call(
        self, request: Any, locations: dict[Key, str] | None = None, now: Snapshot | None = None
    ) -> CreateLanceVersion:
        """A request for a version, as the lake is asked. ``locations`` are of tables that are yet to be;
        others are where they are ``now``."""
        key = parse_table_key(request.id)
        if (location := (locations or {}).get(key)) is None:
            location = self._require_content(now or self.snapshot(), key).location
        scheme = (request.naming_scheme or "V2").upper()
        if scheme not in ("V1", "V2"):
            raise InvalidRequest(f"unknown naming scheme {request.naming_scheme!r}; it must be V1 or V2")
        return CreateLanceVersion(
            key=key,
            branch=lance_branch_name(request.branch),
            version=request.version,
            manifest=make_whole_path(location, request.manifest_path),
            size=request.manifest_size,
            is_v1=scheme == "V1",
            e_tag=request.e_tag or "",
            metadata=dict(request.metadata or {}),
        )

    def _create_detached(self, request: dict[str, Any], version: int) -> dict[str, Any]:
        """Nothing is taken from its place but what was staged as exactly this version: any other manifest may
        be one that the lake has."""
        self.require_branch()
        key, about, name = self._find_detached(request, version)
        path = make_whole_path(about.location, str(request.get("manifest_path")))
        below = path.removeprefix(f"{about.location}/")
        if not below.startswith(name) or not _STAGED.fullmatch(below.removeprefix(name)):
            raise InvalidManifest(
                f"{path!r} cannot become version {version % 2**64} of '{key}' on this branch: "
                f"write its manifest to {about.location}/{name}-UUID, and name that path in the request"
            )
        place = self.lake.places.open_place(about.location)
        (data,) = place.read([below])
        _check_detached(key, path, data, version)
        assert data is not None
        is_new = False
        with suppress(OutcomeUnknown):  # what is there tells
            is_new = place.create(name, data)
        if not is_new and [*place.read([name])] != [data]:
            raise VersionTaken(
                f"'{key}' has no version {version % 2**64}, or a different one", table=str(key)
            )
        place.delete([below])
        response = {
            "version": version,
            "manifest_path": make_path_from_root(f"{about.location}/{name}"),
            "manifest_size": len(data),
        }
        return AnsweredVersion(version=response)

    def describe_table_version(self, request: Any) -> Any:
        version = _list_request_fields(request).get("version")
        if isinstance(version, int) and not 0 <= version <= VERSION_MAX:
            try:
                return self._describe_detached(_list_request_fields(request), version)
            except PenstockError as problem:
                raise to_lance_error(problem) from problem
        return self._describe_version(request)

    @declare_operation(DescribeTableVersionRequest)
    def _describe_version(self, request: DescribeTableVersionRequest) -> DescribeTableVersionResponse:
        key = parse_table_key(request.id)
        self.note_read(key)  # also that there is no such version
        version = self.get_version(key, request.branch, request.version)
        return DescribeTableVersionResponse(version=make_lance_version(version))

    def _describe_detached(self, request: dict[str, Any], version: int) -> dict[str, Any]:
        key, about, name = self._find_detached(request, version)
        size = self.lake.places.open_place(about.location).size(name)
        if size is None:
            raise VersionNotFound(f"'{key}' has no version {version}", table=str(key))
        path = make_path_from_root(f"{about.location}/{name}")
        return AnsweredVersion(version={"version": version, "manifest_path": path, "manifest_size": size})

    def _find_detached(self, request: dict[str, Any], version: int) -> tuple[Key, LanceTableInfo, str]:
        """Find a detached version, which belongs to no chain: the key, the table, and the path of the
        manifest."""
        key, branch = parse_table_key(request.get("id")), lance_branch_name(request.get("branch"))
        if version % 2**64 <= VERSION_MAX:
            raise InvalidRequest(f"'{key}' cannot have a version {version}")
        about = self.get_table_info(key)
        if branch:
            self.require_own_branch(key, branch)
        chain = about.folder.removeprefix(about.location).lstrip("/")
        return key, about, make_detached_path(f"{chain}/" if chain else "", branch, version)

    @declare_operation(ListTableVersionsRequest)
    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        """Newest first, whether that is asked for or not."""
        limit, token = parse_page_size(request.limit), require_token(request.page_token)
        self.note_read(parse_table_key(request.id))
        most = (self.lake.page_max or PAGE_MAX) - 1  # one more is asked for, to know whether it is
        page_limit = most if limit is None else min(limit, most)
        versions = self.list_versions(
            parse_table_key(request.id),
            request.branch,
            below=None if token is None else _parse_page_token(token),
            limit=page_limit + 1 if page_limit > 1 else 1,
        )
        is_more = len(versions) > page_limit or (
            page_limit == 1 and len(versions) == 1 and versions[0].version > 1
        )
        listed = versions[:page_limit]
        return ListTableVersionsResponse(
            versions=[make_lance_version(version) for version in listed],
            page_token=str(listed[-1].version) if is_more and listed else None,
        )

    @declare_operation(BatchCreateTableVersionsRequest, in_batch=True)
    def batch_create_table_versions(
        self, request: BatchCreateTableVersionsRequest
    ) -> BatchCreateTableVersionsResponse:
        """Versions of any number of tables, all of them or none."""
        if not request.entries:
            raise InvalidRequest("a batch needs at least one entry")
        operations = [
            run_for_operation(number, self.make_create_call, create_table_version_entry)
            for number, create_table_version_entry in enumerate(request.entries)
        ]
        committed = self.change_tables(operations, request.context)
        versions = [
            make_lance_version(require_created(result.version, create_table_version_entry.version))
            for create_table_version_entry, result in zip(request.entries, committed.done, strict=True)
        ]
        return BatchCreateTableVersionsResponse(
            versions=versions, transaction_id=None if committed.commit is None else committed.commit.id
        )

    @declare_operation(BatchDeleteTableVersionsRequest)
    def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest
    ) -> BatchDeleteTableVersionsResponse:
        (result,) = self.change_tables([make_delete_call(request)], request.context).done
        return BatchDeleteTableVersionsResponse(deleted_count=result.deleted)


class AnsweredVersion(dict[str, Any]):
    """An answer that Lance's own models do not take, though its core does: a version below zero."""

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(self)


def make_delete_call(request: BatchDeleteTableVersionsRequest) -> DeleteLanceVersions:
    """A request to delete versions, as the lake is asked."""
    ranges: Sequence[tuple[int, int]] = [
        (version_range.start_version, version_range.end_version) for version_range in request.ranges
    ]
    if not ranges:
        raise InvalidRequest("a request to delete versions needs at least one range")
    for start, end in ranges:
        if not 0 <= start <= VERSION_MAX or not (end == -1 or start < end <= VERSION_MAX):
            raise InvalidRequest(f"invalid range of versions: from {start} up to, but not including, {end}")
    return DeleteLanceVersions(
        key=parse_table_key(request.id), branch=lance_branch_name(request.branch), ranges=tuple(ranges)
    )


def make_create_response(found_version: LanceVersion | None, version: int) -> CreateTableVersionResponse:
    return CreateTableVersionResponse(version=make_lance_version(require_created(found_version, version)))


def require_created(found_version: LanceVersion | None, version: int) -> LanceVersion:
    if found_version is None:
        raise VersionNotFound(f"version {version} was created, but was deleted since")
    return found_version


def make_lance_version(version: LanceVersion) -> TableVersion:
    """A version in Lance's words."""
    return TableVersion(
        version=version.version,
        manifest_path=make_path_from_root(version.manifest),
        manifest_size=version.size,
        timestamp_millis=None if version.created is None else round(version.created.timestamp() * 1000),
        metadata=dict(version.metadata) or None,
    )


def _check_detached(key: Key, path: str, data: bytes | None, version: int) -> None:
    """``InvalidManifest`` unless a manifest says of itself that it is this version."""
    if data is None:
        raise InvalidManifest(
            f"the manifest {path}, which the request names for '{key}', does not "
            "exist; write it before the version is created"
        )
    try:
        says = Manifest.decode(data).version
    except MalformedMessage as problem:
        raise InvalidManifest(f"{path} is not a manifest: {problem}") from None
    if says != version % 2**64:
        raise InvalidManifest(f"{path} is version {says} of '{key}' according to its content")


def _parse_page_token(token: str) -> int:
    if not token.isascii() or not token.isdecimal() or int(token) > VERSION_MAX:
        raise InvalidRequest(f"{token!r} is not a page token of this lake")
    return int(token)


def _list_request_fields(request: Any) -> dict[str, Any]:
    """A request whose fields are to be looked at before it is checked."""
    if isinstance(request, dict):
        return request
    dump = getattr(request, "model_dump", None)
    return dict(dump()) if dump is not None else {}
