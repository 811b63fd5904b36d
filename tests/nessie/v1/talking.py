"""A client of version 1, and the JSON that it sends."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.lake.lake import Lake
from tests.server.running import Client, Reply

EMPTY = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"


class Nessie(NamedTuple):
    """A client of version 1, and the lake that it reaches."""

    client: Client
    lake: Lake

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return self.client.ask(method, f"/api/v1{path}", body, headers)

    def get(self, path: str, status: int = 200) -> Any:
        reply = self.ask("GET", path)
        assert reply.status == status, reply.body
        return reply.json

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str, str]:
        """Status, code and message of an error, whose body has no other fields than Nessie's."""
        reply = self.ask(method, path, body)
        told = reply.json
        assert set(told) == {"status", "reason", "message", "errorCode", "serverStackTrace"}
        assert told["status"] == reply.status
        assert told["serverStackTrace"] is None
        return reply.status, told["errorCode"], told["message"]

    def head(self, name: str = "main") -> str:
        return str(self.get(f"/trees/tree/{name}")["hash"])

    def commit(self, *operations: Any, branch: str = "main", meta: dict[str, Any] | None = None) -> str:
        """Commit to a branch at its head, and return the new one."""
        reply = self.ask(
            "POST",
            f"/trees/branch/{branch}/commit?expectedHash={self.head(branch)}",
            {"commitMeta": {"message": "a commit", **(meta or {})}, "operations": operations},
        )
        assert reply.status == 200, reply.body
        assert set(reply.json) == {"type", "name", "hash"}
        return str(reply.json["hash"])

    def branch(self, name: str, at: str | None = None) -> None:
        reply = self.ask(
            "POST",
            "/trees/tree?sourceRefName=main",
            {"type": "BRANCH", "name": name, "hash": at or self.head()},
        )
        assert reply.status == 200, reply.body


def key(*elements: str) -> dict[str, Any]:
    return {"elements": list(elements)}


def table(number: int, identity: str | None = None) -> dict[str, Any]:
    made = {
        "type": "ICEBERG_TABLE",
        "metadataLocation": f"s3://lake/{number}.json",
        "snapshotId": number,
        "schemaId": 1,
        "specId": 2,
        "sortOrderId": 3,
    }
    return made | ({"id": identity} if identity else {})


def namespace(*elements: str, **properties: str) -> dict[str, Any]:
    return {"type": "NAMESPACE", "elements": list(elements), "properties": properties}


def put(content: dict[str, Any], *elements: str) -> dict[str, Any]:
    return {"type": "PUT", "key": key(*elements), "content": content}


def delete(*elements: str) -> dict[str, Any]:
    return {"type": "DELETE", "key": key(*elements)}
