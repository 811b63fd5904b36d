"""The few requests that a test makes itself, to prepare a branch or to look at one: plain JSON over HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import urllib3


class Nessie:
    """A server that speaks Nessie's API, at ``http://host:port``."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._pool = urllib3.PoolManager()

    def get(self, path: str, **query: str) -> Any:
        return self._send("GET", path, None, query)

    def post(self, path: str, body: object, **query: str) -> Any:
        return self._send("POST", path, body, query)

    def head(self, name: str) -> str:
        """The hash that a branch or tag points to."""
        return str(self.get(f"trees/{quote(name, safe='')}@")["reference"]["hash"])

    def create_branch(self, name: str, source: str, source_hash: str = "") -> str:
        """Create a branch at another's head, or at a hash of its past."""
        at = {"type": "BRANCH", "name": source, "hash": source_hash or self.head(source)}
        return str(self.post("trees", at, name=name, type="BRANCH")["reference"]["hash"])

    def put(
        self, branch: str, key: str, content: dict[str, object], message: str, author: str = "anna"
    ) -> str:
        """Commit one content, new or the next version of the one there; return the branch's new hash."""
        elements = {"elements": key.split(".")}
        there = self.post(f"trees/{branch}/contents", {"requestedKeys": [elements]})["contents"]
        identity = {"id": there[0]["content"]["id"]} if there else {}
        operation = {"type": "PUT", "key": elements, "content": {**content, **identity}}
        body = {"commitMeta": {"message": message, "authors": [author]}, "operations": [operation]}
        path = f"trees/{branch}@{self.head(branch)}/history/commit"
        return str(self.post(path, body)["targetBranch"]["hash"])

    def merge(self, source: str, target: str) -> Any:
        body = {"fromRefName": source, "fromHash": self.head(source)}
        return self.post(f"trees/{target}@{self.head(target)}/history/merge", body)

    def _send(self, method: str, path: str, body: object, query: dict[str, str]) -> Any:
        url = f"{self.uri}/api/v2/{path}"
        if query:
            url += "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        response = self._pool.request(
            method,
            url,
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            retries=False,
        )
        assert response.status == 200, f"{method} {url}: {response.status} {response.data.decode()}"
        return json.loads(response.data)
