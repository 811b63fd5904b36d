"""Operations on tables as a whole: how they come, what can be told of them, and how they go."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from lance_namespace import (
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DropTableRequest,
    DropTableResponse,
    ListTablesRequest,
    ListTablesResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
    TableExistsRequest,
)
from lance_namespace_urllib3_client.models.table_exists_response import TableExistsResponse

from penstock.errors import CommitConflict, InvalidRequest, TableExists, TableNotFound
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.answers import LanceOperationResult
from penstock.formats.lance.lake.calls import (
    DeclareLance,
    DeregisterLance,
    LanceOperation,
    RegisterLance,
)
from penstock.formats.lance.lake.errors import declare_operation
from penstock.formats.lance.lake.namespaces import TRIES_MAX, NamespaceOperations, parse_choice, take_page
from penstock.formats.lance.lake.paths import (
    is_whole_path,
    parse_namespace_key,
    parse_table_key,
    require_token,
)
from penstock.formats.lance.names import lance_branch_name
from penstock.formats.lance.state import decode_state, is_managed
from penstock.lake.views import Snapshot
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.operations import Delete, Operation, Put

PRIVATE = "penstock.private"
"""The property by which a table is declared whose versions only the lake tells of."""
DELIMITER = "$"
"""Between the parts of an id where it is one text."""


class TableOperations(NamespaceOperations):
    """Tables, without a look at their rows."""

    delimiter = DELIMITER
    """Between the parts of an id in a list of all tables."""

    # -- listing -------------------------------------------------------------------------------------------

    @declare_operation(ListTablesRequest)
    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        key, snapshot = parse_namespace_key(request.id), self.snapshot()
        self.note_read(key, is_listing=True)
        self._require_namespace_or_root(snapshot, key)
        table_names = (
            child[-1]
            for child, content in self.list_children(snapshot, key, require_token(request.page_token))
            if _is_listed(content, request.include_declared)
        )
        names, token = take_page(table_names, request.limit)
        return ListTablesResponse(tables=names, page_token=token)

    @declare_operation(ListTablesRequest)
    def list_all_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """Tables of all namespaces, each as one text; where to go on is a key as the lake writes it."""
        snapshot, token = self.snapshot(), require_token(request.page_token)
        after = None if token is None else Key.parse(token)
        self.note_read(None, is_listing=True)
        table_keys = (
            str(key)
            for key, content in snapshot.entries(after=after)
            if _is_listed(content, request.include_declared)
        )
        names, token = take_page(table_keys, request.limit)
        listed = [self.delimiter.join(Key.parse(name)) for name in names]
        return ListTablesResponse(tables=listed, page_token=token)

    # -- looking -------------------------------------------------------------------------------------------

    @declare_operation(DescribeTableRequest)
    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        key = parse_table_key(request.id)
        if request.version is None:
            self.note_read(key)
        about = self.get_table_info(key)
        branch, number = self._choose_version(key, request)
        answer: dict[str, Any] = {
            "table": key[-1],
            "namespace": list(key[:-1]),
            "location": about.folder,
            "table_uri": make_uri(about.folder),
            "properties": about.properties,
            "managed_versioning": True,
        }
        if request.check_declared or request.load_detailed_metadata:
            answer["is_only_declared"] = about.version is None
        if number is not None or branch:
            answer["version"] = self.get_version(key, branch, number).version
        elif about.version is not None:
            answer["version"] = about.version
        if request.load_detailed_metadata and about.version is not None:
            answer |= self.describe_details(key, branch, answer.get("version"))
        return DescribeTableResponse.model_validate(answer)

    def describe_details(self, key: Key, branch: str, version: int | None) -> dict[str, Any]:  # noqa: ARG002
        """Further fields of a table's description that are read from the table itself, such as its schema."""
        return {}

    def _choose_version(self, key: Key, request: DescribeTableRequest) -> tuple[str, int | None]:
        """Lance's own branch, and the version, that a request is about."""
        if request.tag is not None:
            if request.version is not None or request.branch is not None:
                raise InvalidRequest(
                    "a tag already names a version and its branch: give no version or branch with it"
                )
            return self.find_tag(key, request.tag)
        branch = lance_branch_name(request.branch)
        if branch:
            self.require_own_branch(key, branch)
        return branch, request.version

    @declare_operation(TableExistsRequest)
    def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        key = parse_table_key(request.id)
        self.note_read(key, is_listing=True)
        self._require_content(self.snapshot(), key)
        if request.version is not None:
            self.get_version(key, None, request.version)
        return TableExistsResponse()

    def _require_content(self, snapshot: Snapshot, key: Key) -> LanceTable:
        content = snapshot.get(key)
        if not isinstance(content, LanceTable) or not is_managed(content):
            raise TableNotFound(f"there is no Lance table '{key}'", table=str(key))
        return content

    # -- making --------------------------------------------------------------------------------------------

    @declare_operation(DeclareTableRequest)
    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        return make_declare_response(self._change_table(self.declare_table_call(request), request.context))

    def declare_table_call(self, request: DeclareTableRequest) -> DeclareLance:
        """A request to declare a table, as the lake is asked."""
        properties, is_private = _parse_table_properties(request.properties)
        location = None if request.location is None else self.make_whole_location(request.location)
        return DeclareLance(
            key=parse_table_key(request.id), location=location, is_private=is_private, properties=properties
        )

    @declare_operation(RegisterTableRequest)
    def register_table(self, request: RegisterTableRequest) -> RegisterTableResponse:
        mode = parse_choice(request.mode, "create", ("create", "overwrite"), "mode")
        properties, is_private = _parse_table_properties(request.properties)
        key = parse_table_key(request.id)
        operation = RegisterLance(
            key=key,
            location=self.make_whole_location(request.location),
            replaces=mode == "overwrite",
            is_private=is_private,
            properties=properties,
        )
        try:
            result = self._change_table(operation, request.context)
        except TableNotFound as problem:
            if mode == "create" and (content := self.snapshot().get(key)) is not None:
                raise TableExists(f"'{key}' already exists: it is {content.type_in_words}") from problem
            raise
        location = result.folder if is_whole_path(request.location) else request.location
        return RegisterTableResponse(location=location, properties=result.properties)

    def make_whole_location(self, location: str) -> str:
        """The whole path or URL of a place. Below the lake's warehouse it may be named as Lance names places
        below its root: by what follows the warehouse."""
        if is_whole_path(location):
            return location.rstrip("/")
        if ".." in unquote(location).split("/"):
            raise InvalidRequest(f"Path traversal is not allowed: {location!r} leaves the lake's warehouse")
        if not location.strip("/ "):
            raise InvalidRequest("the location is empty")
        if not self.lake.warehouse:
            raise InvalidRequest(
                f"the lake has no warehouse, so the location {location!r} must be a full path or URL"
            )
        return f"{self.lake.warehouse.rstrip('/')}/{location.strip('/')}"

    def _change_table(
        self, operation: LanceOperation, context: dict[str, str] | None
    ) -> LanceOperationResult:
        return self.change_tables([operation], context).done[0]

    # -- going ---------------------------------------------------------------------------------------------

    @declare_operation(DeregisterTableRequest)
    def deregister_table(self, request: DeregisterTableRequest) -> DeregisterTableResponse:
        return make_deregister_response(
            request, self._change_table(DeregisterLance(key=parse_table_key(request.id)), request.context)
        )

    @declare_operation(DropTableRequest)
    def drop_table(self, request: DropTableRequest) -> DropTableResponse:
        """The table goes from the branch. Its files go when no commit that is kept has it."""
        key = parse_table_key(request.id)
        if (earlier_change := self.find_earlier_change(key, request.context)) and isinstance(
            earlier_change.before, LanceTable
        ):
            properties = dict(decode_state(earlier_change.before).properties)
            return DropTableResponse(
                id=list(key), location=earlier_change.before.location, properties=properties
            )
        for _ in range(TRIES_MAX):
            snapshot = self.snapshot()
            content = self._require_content(snapshot, key)
            try:
                self.put_catalog_entries([Delete(key)], snapshot.id, f"drop {key}", request.context)
            except CommitConflict:
                continue
            return DropTableResponse(
                id=list(key), location=content.location, properties=dict(decode_state(content).properties)
            )
        raise CommitConflict([], f"'{key}' was changed by other writers too often; try again")

    @declare_operation(RenameTableRequest)
    def rename_table(self, request: RenameTableRequest) -> RenameTableResponse:
        """The table comes to another key, with its whole history; its place stays."""
        key = parse_table_key(request.id)
        parts = key[:-1] if request.new_namespace_id is None else tuple(request.new_namespace_id)
        becomes = Key(*parts, request.new_table_name)
        if becomes == key:
            raise InvalidRequest(f"'{key}' already has that name")
        for _ in range(TRIES_MAX):
            snapshot = self.snapshot()
            content = self._require_content(snapshot, key)
            self._require_namespace_or_root(snapshot, parse_namespace_key(list(parts)))
            if (target_content := snapshot.get(becomes)) is not None:
                raise TableExists(f"'{becomes}' already exists: it is {target_content.type_in_words}")
            try:
                operations: list[Operation] = [Delete(key), Put(becomes, content)]
                self.put_catalog_entries(
                    operations, snapshot.id, f"rename {key} to {becomes}", request.context
                )
            except CommitConflict:
                continue
            return RenameTableResponse()
        raise CommitConflict([], f"'{key}' was changed by other writers too often; try again")


def make_declare_response(result: LanceOperationResult) -> DeclareTableResponse:
    return DeclareTableResponse(
        location=result.folder, properties=dict(result.properties), managed_versioning=True
    )


def make_deregister_response(
    request: DeregisterTableRequest, result: LanceOperationResult
) -> DeregisterTableResponse:
    return DeregisterTableResponse(
        id=request.id, location=result.location, properties=dict(result.properties)
    )


def make_uri(folder: str) -> str:
    """A folder as a complete URI."""
    from pathlib import Path

    return folder if "://" in folder else Path(folder).as_uri()


def _parse_table_properties(said: dict[str, str] | None) -> tuple[dict[str, str], bool]:
    """A table's properties, and whether one of them says that it is private."""
    properties = dict(said or {})
    value = properties.get(PRIVATE, "false").lower()
    if value not in ("true", "false"):
        raise InvalidRequest(f"{PRIVATE} must be true or false, got {value!r}")
    return properties, value == "true"


def _is_listed(content: AnyContent, include_declared: bool | None) -> bool:
    if not isinstance(content, LanceTable) or not is_managed(content):
        return False
    return include_declared is not False or decode_state(content).newest > 0
