"""A client that commits in batches: Lance stages, and what it would commit is kept for one request."""

from __future__ import annotations

from typing import Any

from lance_namespace import (
    BatchCommitTablesRequest,
    BatchCommitTablesResponse,
    CommitTableOperation,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    LanceNamespace,
    TableVersion,
)


class Collecting(LanceNamespace):
    """A namespace that commits nothing by itself: what Lance would commit is kept for one batch."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._wanted: list[dict[str, Any]] = []

    def namespace_id(self) -> str:
        return f"collecting {self._inner.namespace_id()}"

    def describe_table(self, request: Any) -> Any:
        return self._inner.describe_table(request)

    def list_table_versions(self, request: Any) -> Any:
        return self._inner.list_table_versions(request)

    def describe_table_version(self, request: Any) -> Any:
        return self._inner.describe_table_version(request)

    def create_table_version(self, request: Any) -> Any:
        wanted = dict(request)
        self._wanted.append(wanted)
        version = TableVersion(
            version=wanted["version"],
            manifest_path=wanted["manifest_path"],
            manifest_size=wanted.get("manifest_size"),
        )
        return CreateTableVersionResponse(version=version)

    def request(self) -> BatchCommitTablesRequest:
        """What was collected, as one request; it is forgotten here."""
        names = CreateTableVersionRequest.model_fields
        operations = [
            CommitTableOperation(
                create_table_version=CreateTableVersionRequest(
                    **{name: value for name, value in one.items() if name in names}
                )
            )
            for one in self._wanted
        ]
        self._wanted = []
        return BatchCommitTablesRequest(operations=operations)

    def commit(self) -> BatchCommitTablesResponse:
        """Commit what was collected, all at once."""
        answer: BatchCommitTablesResponse = self._inner.batch_commit_tables(self.request())
        return answer
