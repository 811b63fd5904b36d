"""Requests as data, asked of a server one after the other.

A string of a request may hold `<name>`: a value that an earlier answer of the same scenario gave and
`keep` named, or `<empty>`, the hash of an empty branch, the same on every server that speaks this API.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import urlsplit

import msgspec

EMPTY = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
CONFIGURATION = {"type": "GARBAGE_COLLECTOR", "defaultCutoffPolicy": "NONE"}
ANSWER_MAX_S = 60.0
_KEPT = re.compile(r"<([a-z][a-z0-9]*)>")


class Ask(msgspec.Struct, frozen=True):
    """One request: the path begins with the version of the API, and a string is a body sent as it is."""

    method: str
    path: str
    body: object = None
    headers: Mapping[str, str | tuple[str, ...]] = {}
    """Several values are sent as several headers of one name; one without a value is not sent."""
    keep: Mapping[str, str] = {}


class Scenario(msgspec.Struct, frozen=True):
    """Requests that tell one story, from a repository whose one branch, `main`, is empty."""

    name: str
    asks: tuple[Ask, ...]


class Answer(msgspec.Struct, frozen=True):
    """What came back: the status, and the body as JSON where it is JSON, otherwise as text."""

    status: int
    body: object
    is_json: bool


class Asker:
    """A scenario's conversation with one server, and what was kept of it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=ANSWER_MAX_S)
        self.kept: dict[str, str] = {"empty": EMPTY}

    def ask(self, ask: Ask) -> Answer:
        """Send one request. Every value that it holds must have been kept before."""
        headers: dict[str, str | tuple[str, ...]] = {"Nessie-Client-Spec": "2"}
        payload = b""
        if ask.body is not None:
            filled = self._fill(ask.body)
            payload = (filled if isinstance(filled, str) else json.dumps(filled)).encode()
            headers["Content-Type"] = "application/json"
        if payload or ask.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(payload))
        headers |= ask.headers
        self._connection.putrequest(ask.method, f"/api/{self._fill(ask.path)}", skip_accept_encoding=True)
        for name, value in headers.items():
            for each in (value,) if isinstance(value, str) else value:
                if each:
                    self._connection.putheader(name, each)
        self._connection.endheaders(payload)
        return read(self._connection.getresponse())

    def keep(self, ask: Ask, answer: Answer) -> bool:
        """Keep what a request names of its answer; false where the answer does not hold it."""
        try:
            self.kept |= {name: str(found(answer.body, where)) for name, where in ask.keep.items()}
        except LookupError:
            return False
        return True

    def close(self) -> None:
        self._connection.close()

    def _fill(self, value: object) -> object:
        match value:
            case str():
                return _KEPT.sub(lambda match: self.kept[match[1]], value)
            case dict():
                return {name: self._fill(each) for name, each in value.items()}
            case list() | tuple():
                return [self._fill(each) for each in value]
        return value


def read(response: http.client.HTTPResponse) -> Answer:
    text = response.read().decode()
    if "json" in (response.getheader("Content-Type") or ""):
        return Answer(response.status, json.loads(text), is_json=True)
    return Answer(response.status, text, is_json=False)


def found(body: object, where: str) -> object:
    """What lies at `one.2.three` in a body; ``LookupError`` where nothing does."""
    for step in where.split("."):
        match body:
            case list():
                body = body[int(step)]
            case dict():
                body = body[step]
            case _:
                raise LookupError(where)
    if body is None:
        raise LookupError(where)
    return body


def reset(url: str) -> None:
    """Make a server's repository what every scenario starts from."""
    with closing(Asker(url)) as asker:
        answer = asker.ask(Ask("POST", "v2/config/repository", {"config": CONFIGURATION}))
        assert answer.status == 200, answer
        references = found(asker.ask(Ask("GET", "v2/trees")).body, "references")
        assert isinstance(references, list)
        for each in references:
            at = f"v2/trees/{each['name']}@{each['hash']}"
            if each["name"] != "main":
                answer = asker.ask(Ask("DELETE", at))
            else:
                answer = asker.ask(Ask("PUT", at, {"type": "DETACHED", "hash": EMPTY}))
            assert answer.status == 200, answer
