"""Talking to a server as a Nessie client does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.model.commits import EMPTY_COMMIT_ID
from tests.server.running import Client, Reply

EMPTY = EMPTY_COMMIT_ID
SPEC_2 = {"nessie-client-spec": "2"}


def table(number: int, identity: str | None = None) -> dict[str, Any]:
    """An Iceberg table's content."""
    return {
        "type": "ICEBERG_TABLE",
        "id": identity,
        "metadataLocation": f"s3://lake/{number}.json",
        "snapshotId": number,
        "schemaId": 1,
        "specId": 2,
        "sortOrderId": 3,
    }


def put(key: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "PUT", "key": {"elements": key.split(".")}, "content": content}


def delete(key: str) -> dict[str, Any]:
    return {"type": "DELETE", "key": {"elements": key.split(".")}}


class Talk:
    """Requests to one server; what is not expected fails at once."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        return self.client.ask(method, f"/api/v2{path}", body, {**SPEC_2, **(headers or {})})

    def get(self, path: str) -> Any:
        return self._ok(self.ask("GET", path))

    def post(self, path: str, body: object, **headers: str) -> Any:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ok(self.ask("POST", path, body, told))

    def refused(self, status: int, method: str, path: str, body: object = None) -> Any:
        """The error that a request is refused with."""
        reply = self.ask(method, path, body)
        assert reply.status == status, (reply.status, reply.body)
        error = reply.json
        assert error["status"] == status
        assert error["serverStackTrace"] is None
        return error

    def commit(self, at: str, *operations: object, message: str = "a commit", **headers: str) -> str:
        """Commit at ``branch@hash``, and return the new hash."""
        body = {"commitMeta": {"message": message, "authors": ["Ada"]}, "operations": operations}
        found: str = self.post(f"/trees/{at}/history/commit", body, **headers)["targetBranch"]["hash"]
        return found

    def branch(self, name: str, at: str = EMPTY, kind: str = "BRANCH") -> None:
        self.post(f"/trees?name={name}&type={kind}", {"type": "DETACHED", "hash": at})

    def head(self, name: str) -> str:
        found: str = self.get(f"/trees/{name}@")["reference"]["hash"]
        return found

    def content(self, at: str, key: str) -> Any:
        return self.get(f"/trees/{at}/contents/{key}")["content"]

    def keys(self, path: str) -> list[str]:
        """The keys of a page of entries, differences or contents."""
        found = self.get(path)
        (items,) = (found[name] for name in ("entries", "diffs", "contents") if name in found)
        return [".".join(item[("name" if "name" in item else "key")]["elements"]) for item in items]

    def pages(self, path: str, field: str) -> list[list[Any]]:
        """All pages of a list, each from the token of the one before."""
        found, token = [], None
        while True:
            answer = self.get(path if token is None else f"{path}&page-token={token}")
            found.append(answer[field])
            assert answer["hasMore"] is (answer["token"] is not None)
            token = answer["token"]
            if token is None:
                return found

    @staticmethod
    def _ok(reply: Reply) -> Any:
        assert reply.status == 200, (reply.status, reply.body)
        return reply.json
