"""Requests that make no sense never meet a bug: whatever a client sends, it is told what is wrong."""

from __future__ import annotations

import random
import string
from typing import Any

from penstock.formats.lance.rest.operations import OPERATIONS, RestOperation
from tests.lance.rest.talking import Talk, some_rows, stream_of
from tests.server.running import Local

REQUESTS = 600

_IDS = ("ws$t", "ws", "$", "ws$nope", "t", "a$b$c", "ws$$t", "%00", "ws$%E2%82%AC", "$" * 30)
_WORDS = (
    "",
    "t",
    "ws",
    "main",
    "dev",
    "id",
    "id = 1",
    "id = (",
    "append",
    "BTREE",
    "\x00",
    "€",
    "x" * 300,
    "../..",
)
_BASES = ("", "", "", "/branch/main", "/at/main", "/tx/none", "/branch/nope")


class Nonsense:
    """Makes up requests."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def address(self, operation: RestOperation) -> str:
        chance = self._random
        path = operation.path.replace("{id}", chance.choice(_IDS)).replace("{index_name}", "id_idx")
        names = [name for name in operation.query.__struct_fields__ if chance.random() < 0.3]
        fields = "&".join(f"{name}={chance.choice(('x', '1', '-1', 'true', '', '%7B%7D'))}" for name in names)
        return f"{chance.choice(_BASES)}/v1{path}?{fields}"

    def body(self, operation: RestOperation, fields: list[str]) -> Any:
        chance = self._random
        if operation.has_rows:
            data = bytearray(stream_of(some_rows(1, 2)))
            for _ in range(chance.choice((0, 1, 5))):
                data[chance.randrange(len(data))] = chance.randrange(256)
            return bytes(data[: chance.choice((len(data), len(data) // 2))])
        if not operation.has_body:
            return None
        if chance.random() < 0.1:
            return chance.choice((b"{", b"null", b"[]", b'"x"', b"\xff", b"{" * 2000, b"1e999"))
        return {name: self.value(3) for name in fields if chance.random() < 0.7}

    def value(self, depth: int) -> Any:
        chance = self._random
        kinds = ["text", "text", "number", "large", "float", "bool", "none"]
        kind = chance.choice(kinds + ["list", "list", "object"] * (depth > 0))
        if kind == "text":
            return chance.choice(_WORDS)
        if kind == "list":
            return [self.value(depth - 1) for _ in range(chance.randrange(3))]
        if kind == "object":
            return {self.word(): self.value(depth - 1) for _ in range(chance.randrange(3))}
        whole = chance.choice((0, 1, 2, -1, 99))
        large = chance.choice((2**63 - 1, 2**63, -(2**63) - 1, 2**70))
        return {"number": whole, "large": large, "float": 1.5, "bool": chance.random() < 0.5}.get(kind)

    def word(self) -> str:
        names = ("terms", "column", "single_vector", "column_names", "query", "name", "path", "id")
        return self._random.choice((*names, self._random.choice(string.ascii_letters)))

    def operation(self) -> RestOperation:
        return self._random.choice(OPERATIONS)


def test_no_request_meets_a_bug(server: Local, talk: Talk, seed: int) -> None:
    import lance_namespace_urllib3_client.models as models

    nonsense = Nonsense(seed)
    met = set()
    for number in range(REQUESTS):
        if number % 50 == 0:  # what a request dropped is there again
            talk("/namespace/ws/create", {"mode": "ExistOk"})
            talk("/table/ws$t/create?mode=ExistOk", some_rows(1, 2))
        operation = nonsense.operation()
        fields = list(getattr(models, operation.request).model_fields)
        address, body = nonsense.address(operation), nonsense.body(operation, fields)
        reply = server.ask(operation.method, f"/lance{address}", body)
        assert reply.status < 500, (operation.name, address, body, reply.body)
        if reply.status >= 400:
            assert {"error", "code", "instance"} <= reply.json.keys(), reply.body
        met.add((operation.name, reply.status))
    statuses = {status for _, status in met}
    assert {200, 400, 404} <= statuses
    assert len({name for name, _ in met}) == len(OPERATIONS)
