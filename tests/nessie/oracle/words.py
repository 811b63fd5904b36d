"""The words that the scenarios are written with."""

from __future__ import annotations

from tests.nessie.oracle.asking import Ask, Scenario

UNKNOWN = "1122334455667788" * 4
"""A hash that no commit has."""

H = "targetBranch.hash"
"""Where a commit's answer tells its hash."""


def scenario(name: str, *asks: Ask) -> Scenario:
    return Scenario(name, asks)


def get(path: str, /, **keep: str) -> Ask:
    return Ask("GET", f"v2/{path}", keep=keep)


def put_to(path: str, body: object, /, **keep: str) -> Ask:
    return Ask("PUT", f"v2/{path}", body, keep=keep)


def post(path: str, body: object, /, **keep: str) -> Ask:
    return Ask("POST", f"v2/{path}", body, keep=keep)


def remove(path: str, /, **keep: str) -> Ask:
    return Ask("DELETE", f"v2/{path}", keep=keep)


def key(name: str) -> dict[str, object]:
    return {"elements": name.split(".")}


def table(number: int = 1, identity: str | None = None, **fields: object) -> dict[str, object]:
    """An Iceberg table whose pointer is told from others by a number."""
    named = {} if identity is None else {"id": identity}
    return {
        "type": "ICEBERG_TABLE",
        **named,
        "metadataLocation": f"s3://lake/metadata/{number}.json",
        "snapshotId": number,
        "schemaId": 1,
        "specId": 2,
        "sortOrderId": 3,
        **fields,
    }


def view(number: int = 1, identity: str | None = None) -> dict[str, object]:
    named = {} if identity is None else {"id": identity}
    location = f"s3://lake/views/{number}.json"
    return {"type": "ICEBERG_VIEW", **named, "metadataLocation": location, "versionId": number, "schemaId": 1}


def namespace(name: str, identity: str | None = None, **properties: str) -> dict[str, object]:
    named = {} if identity is None else {"id": identity}
    return {"type": "NAMESPACE", **named, "elements": name.split("."), "properties": properties}


def put(name: str, content: object) -> dict[str, object]:
    return {"type": "PUT", "key": key(name), "content": content}


def delete(name: str) -> dict[str, object]:
    return {"type": "DELETE", "key": key(name)}


def unchanged(name: str) -> dict[str, object]:
    return {"type": "UNCHANGED", "key": key(name)}


def meta(message: str = "a commit", /, **fields: object) -> dict[str, object]:
    return {"message": message, "authors": ["Ada"], **fields}


def commit(at: str, *operations: object, message: str = "a commit", **keep: str) -> Ask:
    """A commit; `keep` says where in the answer a value lies, with `H` and `added`."""
    body = {"commitMeta": meta(message), "operations": list(operations)}
    return Ask("POST", f"v2/trees/{at}/history/commit", body, keep=keep)


def added(number: int) -> str:
    """Where a commit's answer tells the id of the content that it created."""
    return f"addedContents.{number}.contentId"


def branch(name: str, at: str = "<empty>", source: str = "main") -> Ask:
    body = {"type": "BRANCH", "name": source, "hash": at}
    return Ask("POST", f"v2/trees?name={name}&type=BRANCH", body)


def tag(name: str, at: str = "<empty>", source: str = "main") -> Ask:
    body = {"type": "BRANCH", "name": source, "hash": at}
    return Ask("POST", f"v2/trees?name={name}&type=TAG", body)


def merge(onto: str, name: str | None, at: str | None, /, keep: str = "", **fields: object) -> Ask:
    """A merge; `keep` names the hash that it leads to."""
    body = {"fromRefName": name, "fromHash": at, **fields}
    kept = {keep: "resultantTargetHash"} if keep else {}
    return Ask("POST", f"v2/trees/{onto}/history/merge", body, keep=kept)


def transplant(onto: str, name: str, hashes: list[str], /, keep: str = "", **fields: object) -> Ask:
    """A transplant; `keep` names the hash that it leads to."""
    body = {"fromRefName": name, "hashesToTransplant": hashes, **fields}
    kept = {keep: "resultantTargetHash"} if keep else {}
    return Ask("POST", f"v2/trees/{onto}/history/transplant", body, keep=kept)
