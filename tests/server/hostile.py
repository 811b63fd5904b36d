"""Somebody with a token who wants more than it allows, at random: every route of every API of a server, with
names, ids, hashes, places and page tokens of what they may neither read nor write.

What must not be seen has a word in it that no request has, the *canary*: in names, messages, properties,
columns, rows and files. What must not change is looked at before and after. As a program:
``python -m tests.server.hostile [requests] [seed]``.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from penstock.errors import PenstockError
from penstock.formats.files.lake.calls import BeginJob, ListFiles
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.lake.tokens import make_token
from penstock.lake.transactions.calls import BeginTransaction, GetTransaction
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from tests.server.hostile_calls import Calls
from tests.server.running import Client, Program, program

CANARY = "kanarienvogel"
HR = ("pay", "delta", "lance", "files", CANARY)
TOKENS: Mapping[str, tuple[str, ...]] = {
    "sales_reader": ("read:main:sales.*",),
    "sales_writer": ("write:main:sales.*",),
    "own_sales": ("write:own/*:sales.*", "read:main:sales.*", "restore:own/*:sales.*"),
    "dev_reader": ("read:dev/*",),
    "dev_writer": ("write:dev/*",),
    "sales_both": ("write:main:sales.*", "write:own/*:sales.*"),
    "nothing": ("read:nowhere",),
}
"""None may read or write ``hr``, the branch ``secret`` or what begins with the canary.

Who may write ``own/*`` and read part of ``main`` may branch ``main`` to there, and whoever may read all of
``own/*`` would see all of it: so nobody may here (``docs/guide/access.md``)."""
NATIVE = "/api/penstock/v1"
_NOT_ASKED = ("/", "/docs", "/openapi.json", "/healthz", "/readyz")
_STATUS_FAULT = 500
_TRACES = frozenset(
    trace
    for shift in range(3)
    for trace in (base64.b64encode(b"x" * shift + CANARY.encode())[4:-4], CANARY.encode())
)
"""The canary, and what is left of it in a page token."""


class Leak(NamedTuple):
    """A request that was answered with what its sender may not see, or with a fault."""

    token: str
    method: str
    path: str
    body: str
    status: int
    answer: bytes


def _table(key: str, name: str) -> Put:
    return Put(Key.parse(key), IcebergTable(metadata_location=f"s3://lake/{name}.json"))


class Victim:
    """A lake with secrets in it, of every kind and format, and what may be known of them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.tokens: dict[str, str] = {}
        with penstock.open(place, create=True, author="boss") as lake:
            self._fill(lake)
            self.pool = dict(self._known(lake))

    def _fill(self, lake: Lake) -> None:
        import lance

        lake.add_root("s3://lake")
        namespaces = [
            Put(Key("sales"), Namespace()),
            Put(Key("hr"), Namespace(properties={"for": CANARY})),
        ]
        lake.commit(namespaces[:1], message="begin")
        for branch in ("dev/x", "own/x"):
            lake.branch(branch).create()
            lake.commit([_table("sales.orders", "orders"), Put(Key("hr"), Namespace())], branch=branch)
        lake.commit(namespaces[1:], message="more")
        lake.commit([_table("sales.orders", "orders"), _table("sales.returns", "returns")], message="sales")
        secret = {"message": CANARY, "properties": {"why": CANARY}}
        lake.commit([_table("hr.pay", CANARY), _table(f"hr.{CANARY}", "x")], **secret)  # type: ignore[arg-type]
        lake.commit([_table("hr.pay", f"{CANARY}2")], idempotency_key="hr-nightly", **secret)  # type: ignore[arg-type]
        rows, theirs = pa.table({CANARY: [CANARY]}), pa.table({"id": [1]})
        for name, data in (("hr", rows), ("sales", theirs)):
            lake.create_table(f"{name}.delta", data=data)
            lance.write_dataset(data, namespace_client=lake.lance(), table_id=[name, "lance"])
            lake.table(f"{name}.files").files.write({f"{CANARY if name == 'hr' else 'a'}.csv": b"x"})
        for branch in ("secret", CANARY):
            lake.branch(branch).create()
            lake.commit([_table("sales.orders", CANARY)], branch=branch, **secret)  # type: ignore[arg-type]
        lake.tag("secret-v1").create(at="secret")
        for name, grants in TOKENS.items():
            self.tokens[name], call = make_token(name, grants)
            lake.do(call)
        self.tokens["boss"], call = make_token("boss", ["admin"])
        lake.do(call)
        lake.finish_background()

    def _known(self, lake: Lake) -> Iterator[tuple[str, list[Any]]]:
        """What somebody may have heard of, by what it is. Nothing of it has the canary in it."""
        begin = BeginTransaction(id=uuid4().hex, message=CANARY, lease_s=3600.0, who="boss")
        self.transaction = lake.do(begin)
        lake.commit([_table("hr.pay", f"{CANARY}4")], branch=self.transaction.branch, message=CANARY)
        job = BeginJob(id=uuid4().hex, fence=uuid4().hex, key=Key("hr", "files"), what=CANARY)
        begun = lake.do(job)
        heads = {
            name: lake.branch(name).head
            for name in ("main", "dev/x", "own/x", "secret", self.transaction.branch)
        }
        hr = {name: lake.at("main").get(f"hr.{name}") for name in ("delta", "lance", "files")}
        [file] = lake.do(ListFiles(key=Key("hr", "files"), at="main"))
        folder = file.address.rpartition("/")[0].rpartition("_penstock/data/")[2] + "/"
        names = ["main", "secret", "dev/x", "own/x", "secret-v1", self.transaction.branch]
        names += ["dev/new", "own/new", "nowhere"]
        yield (
            "ref",
            [
                *names,
                *heads.values(),
                *(head[:12] for head in heads.values()),
                *(f"{name}@{head}" for name in names for head in heads.values()),
                *(f"{name}~1" for name in names),
                *(f"{name}^1" for name in names),
                f"main..{heads['secret']}",
                f"@{heads['secret']}",
                "-",
                "*",
                "secret*",
            ],
        )
        keys = [
            f"{above}.{name}"
            for above in ("hr", "sales")
            for name in ("pay", "orders", "delta", "lance", "files")
        ]
        yield (
            "key",
            [*keys, "hr", "sales", "hr.*", '"hr.pay"', "sales.new", "hr\x1fpay", "HR.pay", "sales.hr.pay"],
        )
        yield "elements", [key.split(".") for key in keys] + [["hr"], ["sales"], ["sales", "new"], []]
        yield "table", [key.replace(".", "$") for key in keys] + ["hr", "sales", "$", "sales$new"]
        ids = [str(one.id) for one in hr.values() if one is not None]
        yield "id", [*ids, self.transaction.id, job.id, job.fence, uuid4().hex, str(uuid4())]
        places = [one.location for one in hr.values() if one is not None and one.location]  # type: ignore[attr-defined]
        yield (
            "place",
            [
                *places,
                *(f"{place}/_versions/1.manifest" for place in places),
                f"{self.place}/warehouse",
                begun.folder,
                folder,
                "/etc/passwd",
                "s3://lake/new.json",
                "http://169.254.169.254/x",
            ],
        )
        yield (
            "text",
            ["hr-nightly", "a", "", "0", "%", "SELECT * FROM hr.pay", "true", "size(entry) >= 0", "{}"],
        )

    def state(self) -> dict[str, Any]:
        """All that no hostile token may change."""
        with penstock.open(self.place) as lake:
            main = lake.at("main")
            transaction = lake.do(GetTransaction(id=self.transaction.id))
            return {
                "heads": {
                    name: lake.branch(name).head for name in ("secret", CANARY, self.transaction.branch)
                },
                "tag": lake.tag("secret-v1").head,
                "hr": {name: main.get(f"hr.{name}") for name in HR},
                "namespace": main.get("hr"),
                "rows": main.table("hr.delta").to_arrow().to_pylist(),
                "lance": main.table("hr.lance").to_arrow().to_pylist(),
                "files": lake.table("hr.files").files.read(f"{CANARY}.csv"),
                "transaction": (transaction.state, transaction.who),
                "jobs": [
                    (job.id, job.state)
                    for job in lake.jobs()
                    if (job.key, job.branch) == ("hr.files", "main")
                ],
                "tokens": sorted(token.id for token in lake.tokens()),
                "roots": lake.roots,
                "hr-nightly": lake.outcome("hr-nightly"),
                "fsck": lake.fsck().damages,
            }


class Attack:
    """Sends requests at random, and keeps what should not have been answered."""

    def __init__(self, victim: Victim, server: Client, seed: int) -> None:
        self._victim, self._chance = victim, random.Random(seed)
        self._server = server
        self._connection = server.connection()
        described = self._described()
        self._schemas: dict[str, Any] = described["components"]["schemas"]
        self._routes: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
        for path, methods in described["paths"].items():
            for method, operation in methods.items() if path not in _NOT_ASKED else ():
                self._routes.setdefault(_api(path), []).append((method.upper(), path, operation))
        self.pages: list[str] = []
        self.statuses: Counter[str] = Counter()
        self.leaks: list[Leak] = []

    def run(self, count: int, tokens: Iterable[str] = tuple(TOKENS), *, reads_only: bool = False) -> None:
        """Send so many requests, as far as the description of the server tells what they may be."""
        chosen, apis = list(tokens), list(self._routes)
        for _ in range(count):
            api = self._chance.choice(apis)
            routes = [one for one in self._routes[api] if not reads_only or one[0] == "GET"]
            if routes:
                status = self._try(self._chance.choice(chosen), *self._chance.choice(routes))
                self.statuses[f"{api} {status}"] += 1

    def _try(self, token: str, method: str, path: str, operation: dict[str, Any]) -> int:
        query: list[tuple[str, str]] = []
        headers = {"authorization": f"Bearer {self._victim.tokens[token]}"}
        for parameter in operation.get("parameters", ()):
            name, where = parameter["name"], parameter["in"]
            if where == "path":
                value = self._text(name, path)
                path = path.replace("{" + name + "}", quote(value, safe=self._chance.choice(["", "@", "/$"])))
            elif self._chance.random() < (0.9 if parameter.get("required") else 0.3):
                given = self._value(parameter["schema"], name, path, 0)
                for one in given if isinstance(given, list) else [given]:
                    if where == "query":
                        query.append((name, _plain(one)))
                    else:
                        headers[name] = quote(_plain(one))[:200]
        body = self._body(operation, path, headers)
        address = path + (f"?{urlencode(query)}" if query else "")
        status, answer = self._send(method, address, body, headers)
        if status >= _STATUS_FAULT or any(trace in answer for trace in _TRACES):
            shown = body[:2000].decode("utf-8", "replace") if body else ""
            self.leaks.append(Leak(token, method, address, shown, status, answer[:2000]))
        self.pages += re.findall(
            r'"(?:token|page_token|nextPageToken)": ?"([^"]+)"', answer.decode("latin-1")
        )[:1]
        return status

    def call(self, count: int, tokens: Iterable[str] = tuple(TOKENS)) -> None:
        """As ``run``, with requests that are well-formed, as a client sends them."""
        made = Calls(self._victim.pool, self._chance)
        for name in tokens:
            with penstock.open(self._server.url, token=self._victim.tokens[name]) as lake:
                for _ in range(count // len(TOKENS)):
                    self._ask(name, lake, made.next())

    def _ask(self, token: str, lake: Lake, call: Call[Any]) -> None:
        is_fault = False
        try:
            answer, status = repr(lake.do(call)), "answered"
        except PenstockError as error:
            answer, status = repr((error.message, error.details)), error.code
            is_fault = error.http_status >= _STATUS_FAULT
        self.statuses[f"call {status}"] += 1
        if CANARY in answer or is_fault:
            self.leaks.append(Leak(token, status, type(call).__name__, repr(call), 0, answer.encode()))

    def close(self) -> None:
        self._connection.close()

    def _described(self) -> Any:
        """What the server says of all its routes. The first time, it imports what it needs for that."""
        connection = http.client.HTTPConnection(self._server.host, self._server.port, timeout=120)
        with closing(connection):
            answer = self._server.ask("GET", "/openapi.json", connection=connection)
            assert answer.status == 200, f"the server does not describe itself: {answer.status}"
            return answer.json

    def _send(
        self, method: str, address: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        for last in (False, True):
            try:
                self._connection.request(method, address, body, headers)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, ConnectionError):
                self._connection.close()
                self._connection = self._server.connection()
                if last:
                    raise
        raise AssertionError

    def _body(self, operation: dict[str, Any], path: str, headers: dict[str, str]) -> bytes | None:
        content = operation.get("requestBody", {}).get("content", {})
        if not content:
            return None
        kind = self._chance.choice(list(content))
        headers["content-type"] = kind
        if "json" not in kind:
            return b""
        value = self._value(content[kind].get("schema", {}), "", path, 0)
        return json.dumps(value).encode()

    def _value(self, schema: dict[str, Any] | bool, name: str, path: str, depth: int) -> Any:
        """Something that a schema allows, mostly, with what is known in it."""
        chance = self._chance
        if not isinstance(schema, dict):  # anything
            return self._text(name, path)
        if (ref := schema.get("$ref")) is not None:
            return self._value(self._schemas[ref.rpartition("/")[2]], name, path, depth + 1)
        for several in ("anyOf", "oneOf"):
            if several in schema:
                options = [one for one in schema[several] if depth < 8 or one.get("type") == "null"]
                return self._value(chance.choice(options or schema[several][-1:]), name, path, depth + 1)
        if "allOf" in schema:
            return self._value(schema["allOf"][0], name, path, depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return chance.choice(schema["enum"])
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = chance.choice(kind)
        if kind == "object":
            return self._object(schema, path, depth)
        if kind == "array":
            if name in ("elements", "id", "namespace") or (name == "key" and chance.random() < 0.5):
                return chance.choice(self._victim.pool["elements"])
            few = 0 if depth > 8 else chance.choice([0, 1, 1, 2])
            return [self._value(schema.get("items", {}), name, path, depth + 1) for _ in range(few)]
        if kind in ("integer", "number"):
            return chance.choice([0, 1, 2, 5, -1, 100])
        if kind == "boolean":
            return chance.random() < 0.5
        return None if kind == "null" else self._text(name, path)

    def _object(self, schema: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        needed = schema.get("required", ())
        found = {
            name: self._value(one, name, path, depth + 1)
            for name, one in schema.get("properties", {}).items()
            if name in needed or (depth < 6 and self._chance.random() < 0.25)
        }
        if (
            not schema.get("properties")
            and depth < 6
            and isinstance(more := schema.get("additionalProperties"), dict)
        ):
            found[self._text("key", path)] = self._value(more, "", path, depth + 1)
        return found

    def _text(self, name: str, path: str) -> str:
        """A text of the kind that a field of this name has, or, now and then, of another one."""
        chance, pool = self._chance, self._victim.pool
        kind = chance.choice(["ref", "key", "table", "id", "place", "text"])
        if chance.random() < 0.95:
            kind = _kind(name, path, kind)
        if kind == "page" and self.pages:
            return chance.choice(self.pages)
        return str(chance.choice(pool.get(kind, pool["text"])))


def _api(path: str) -> str:
    """Each is attacked as often as the others."""
    for api in ("/api/v1", "/api/v2", "/lance", f"{NATIVE}/spark-", NATIVE):
        if path.startswith(api):
            return api
    return "/"


_PARTS = {
    "key": ("key", "table", "prefix", "namespace", "elements"),
    "place": ("location", "folder", "path", "manifest", "address"),
    "id": ("id", "job", "fence", "attempt"),
    "ref": (
        *("ref", "branch", "hash", "at", "to", "source", "onto", "into", "name", "via", "base", "commit"),
        *("revision", "head", "on", "before", "one"),
    ),
}
"""What the names of fields tell of what is in them."""


def _kind(name: str, path: str, other: str) -> str:
    low = name.lower()
    if "token" in low or low == "after":
        return "page"
    if path.startswith("/lance"):
        if low == "id":
            return "id" if "/transaction/" in path else "table"
        if low in ("ref", "branch", "tag"):
            return "ref"
    for kind, parts in _PARTS.items():
        if any(part == low or (len(part) > 3 and part in low) for part in parts):
            return kind
    return other


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@contextmanager
def attacked(folder: Path) -> Iterator[tuple[Victim, Program]]:
    """A lake with secrets, and a server of it."""
    victim = Victim(folder / "lake")
    options = ("--lake", str(victim.place), "--sweep-every-hours", "0", "--log-level", "error")
    with program(folder, *options, dev=False) as server:
        yield victim, server


def main(count: int, seed: int) -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        attacked(Path(folder)) as (victim, server),
        closing(Attack(victim, server, seed)) as attack,
    ):
        before = victim.state()
        attack.run(count // 2)
        attack.call(count // 2)
        after = victim.state()
        changed = [name for name in before if before[name] != after[name]]
        print(f"seed {seed}: {count:,} requests", dict(sorted(attack.statuses.items())))
        for leak in attack.leaks:
            print(leak)
        print("leaks or faults:", len(attack.leaks), "changed:", changed)
        print(server.log[-3000:] if attack.leaks else "")
        return bool(attack.leaks or changed)


if __name__ == "__main__":
    arguments = [int(one) for one in sys.argv[1:]]
    sys.exit(main(*(*arguments, *[5000, random.randrange(2**32)][len(arguments) :])))
