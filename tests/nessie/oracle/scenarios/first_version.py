"""Version 1 of the API, as far as its Python client and its command line ask for it."""

from __future__ import annotations

import msgspec

from tests.nessie.oracle.asking import Ask, Scenario
from tests.nessie.oracle.words import (
    UNKNOWN,
    delete,
    get,
    key,
    meta,
    namespace,
    put,
    scenario,
    table,
    unchanged,
    view,
)


def ask(method: str, path: str, body: object = None, /, **keep: str) -> Ask:
    """A request as a client of version 1 makes it: it does not name a version of its own."""
    return Ask(method, f"v1/{path}", body, headers={"Nessie-Client-Spec": ""}, keep=keep)


def commit(branch: str, at: str, *operations: object, message: str = "a commit", **keep: str) -> Ask:
    body = {"commitMeta": {"message": message, "author": "Ada"}, "operations": list(operations)}
    return ask("POST", f"trees/branch/{branch}/commit?expectedHash={at}", body, **keep)


def create(kind: str, name: str, at: str = "<empty>", source: str = "main") -> Ask:
    return ask("POST", f"trees/tree?sourceRefName={source}", {"type": kind, "name": name, "hash": at})


def identified(answer: str = "t") -> Ask:
    """Version 1 does not tell a new content's id; it is read."""
    return ask("GET", f"contents/{answer}?ref=main", **{answer: "id"})


def with_details(scenario: Scenario) -> Scenario:
    """The same as newer clients ask it, which read the details of an error."""
    asks = tuple(msgspec.structs.replace(ask, headers={}) for ask in scenario.asks)
    return Scenario(f"{scenario.name}, to a client that reads details", asks)


APART = (
    commit("main", "<empty>", put("a", table(1)), message="root", h1="hash"),
    create("BRANCH", "dev", "<h1>"),
    commit("dev", "<h1>", put("b", table(1)), message="dev adds b", d1="hash"),
    commit("dev", "<d1>", put("c", table(1)), message="dev adds c", d2="hash"),
    commit("main", "<h1>", put("d", table(1)), message="main adds d", h2="hash"),
)

PLAIN = (
    scenario(
        "version 1 creates, finds, assigns and deletes references",
        ask("GET", "config"),
        ask("GET", "trees"),
        ask("GET", "trees/tree"),
        ask("GET", "trees/tree/main"),
        ask("GET", "trees/tree/nowhere"),
        create("BRANCH", "dev"),
        create("BRANCH", "dev"),
        create("TAG", "v1"),
        ask("POST", "trees/tree", {"type": "BRANCH", "name": "plain", "hash": None}),
        ask("POST", "trees/tree", {"type": "BRANCH", "name": "sourced", "hash": "<empty>"}),
        ask("POST", "trees/tree?sourceRefName=nowhere", {"type": "BRANCH", "name": "x", "hash": "<empty>"}),
        create("BRANCH", "x", UNKNOWN),
        create("BRANCH", "in%20valid"),
        create("BRANCH", "1st"),
        commit("main", "<empty>", put("t", table()), h1="hash"),
        ask(
            "PUT", "trees/branch/dev?expectedHash=<empty>", {"type": "BRANCH", "name": "main", "hash": "<h1>"}
        ),
        ask(
            "PUT", "trees/branch/dev?expectedHash=<empty>", {"type": "BRANCH", "name": "main", "hash": "<h1>"}
        ),
        ask("PUT", "trees/tag/v1?expectedHash=<empty>", {"type": "BRANCH", "name": "main", "hash": "<h1>"}),
        ask("PUT", "trees/tag/dev?expectedHash=<h1>", {"type": "BRANCH", "name": "main", "hash": "<empty>"}),
        ask(
            "PUT",
            "trees/branch/nowhere?expectedHash=<h1>",
            {"type": "BRANCH", "name": "main", "hash": "<h1>"},
        ),
        ask("PUT", "trees/branch/dev", {"type": "BRANCH", "name": "main", "hash": "<h1>"}),
        ask("GET", "trees"),
        ask("GET", "trees?fetch=ALL"),
        ask("GET", "trees/tree/dev?fetch=ALL"),
        ask("DELETE", "trees/branch/dev?expectedHash=<empty>"),
        ask("DELETE", "trees/branch/dev"),
        ask("DELETE", "trees/tag/dev?expectedHash=<h1>"),
        ask("DELETE", "trees/branch/dev?expectedHash=<h1>"),
        ask("DELETE", "trees/branch/dev?expectedHash=<h1>"),
        ask("DELETE", "trees/tag/v1?expectedHash=<h1>"),
        ask("DELETE", "trees/branch/main?expectedHash=<h1>"),
        ask("GET", "trees"),
    ),
    scenario(
        "version 1 lists references in pages and filtered",
        create("BRANCH", "b1"),
        create("TAG", "t1"),
        ask("GET", "trees?maxRecords=1", next="token"),
        ask("GET", "trees?maxRecords=1&pageToken=<next>"),
        ask("GET", "trees?filter=refType%20%3D%3D%20'TAG'"),
        ask("GET", "trees?filter=nonsense("),
    ),
    scenario(
        "version 1 commits and reads contents",
        commit("main", "<empty>", put("t", table(1)), h1="hash"),
        identified(),
        ask("GET", "contents/t?ref=main&hashOnRef=<h1>"),
        ask("GET", "contents/t?ref=main&hashOnRef=<empty>"),
        ask("GET", "contents/missing?ref=main"),
        ask("GET", "contents/t?ref=nowhere"),
        ask("GET", "contents/t"),
        ask("GET", f"contents/t?ref=main&hashOnRef={UNKNOWN}"),
        ask("GET", "contents/t?hashOnRef=<h1>"),
        ask("GET", "contents/t?ref=DETACHED&hashOnRef=<h1>"),
        commit("main", "<h1>", put("t", table(2, "<t>")), message="update", h2="hash"),
        commit("main", "<h1>", put("t", table(3, "<t>"))),
        commit("main", "<h2>", {**put("t", table(4, "<t>")), "expectedContent": table(2, "<t>")}, h3="hash"),
        commit("main", "<h3>", {**put("t", table(5, "<t>")), "expectedContent": table(2, "<t>")}, h4="hash"),
        commit("main", "<h4>", put("u", table(1)), unchanged("t"), h5="hash"),
        commit("main", "<h5>", delete("u"), h6="hash"),
        commit("main", "<h6>", delete("u")),
        commit("main", "<h6>", put("v", view(1)), put("n", namespace("n", owner="ada")), h7="hash"),
        commit("main", UNKNOWN, put("x", table(1))),
        commit("nowhere", "<h7>", put("x", table(1))),
        commit("main", "<h7>"),
        ask("POST", "trees/branch/main/commit", {"commitMeta": meta(), "operations": [put("x", table(1))]}),
        ask("POST", "contents?ref=main", {"requestedKeys": [key("t"), key("v"), key("missing")]}),
        ask("POST", "contents?ref=main&hashOnRef=<h1>", {"requestedKeys": [key("t"), key("v")]}),
        ask("GET", "contents/v?ref=main"),
        ask("GET", "contents/n?ref=main"),
        ask("GET", "trees/tree/main/log?fetch=ALL&maxRecords=3"),
    ),
    scenario(
        "version 1 lists entries",
        commit(
            "main",
            "<empty>",
            put("a", namespace("a")),
            put("a.b", namespace("a.b")),
            put("a.b.t", table(1)),
            put("a.v", view(1)),
            put("z", table(2)),
            h1="hash",
        ),
        ask("GET", "trees/tree/main/entries"),
        ask("GET", "trees/tree/main/entries?maxRecords=2", next="token"),
        ask("GET", "trees/tree/main/entries?maxRecords=2&pageToken=<next>"),
        ask("GET", "trees/tree/main/entries?hashOnRef=<empty>"),
        ask("GET", "trees/tree/main/entries?hashOnRef=<h1>&maxRecords=1"),
        ask("GET", f"trees/tree/main/entries?hashOnRef={UNKNOWN}"),
        ask("GET", "trees/tree/nowhere/entries"),
        ask("GET", "trees/tree/main/entries?namespaceDepth=1"),
        ask("GET", "trees/tree/main/entries?namespaceDepth=2"),
        ask("GET", "trees/tree/main/entries?filter=entry.contentType%20in%20%5B'ICEBERG_TABLE'%5D"),
        ask("GET", "trees/tree/main/entries?filter=entry.namespace.matches('a(%5C%5C..*%7C$)')"),
        ask("GET", "trees/tree/main/entries?filter=nonsense("),
    ),
    scenario(
        "version 1 reads a history",
        *APART,
        ask("GET", "trees/tree/main/log"),
        ask("GET", "trees/tree/dev/log?fetch=ALL"),
        ask("GET", "trees/tree/dev/log?maxRecords=1", next="token"),
        ask("GET", "trees/tree/dev/log?maxRecords=1&pageToken=<next>"),
        ask("GET", "trees/tree/dev/log?startHash=<d1>"),
        ask("GET", "trees/tree/dev/log?endHash=<d1>"),
        ask("GET", "trees/tree/dev/log?startHash=<h1>&endHash=<d1>"),
        ask("GET", f"trees/tree/dev/log?endHash={UNKNOWN}"),
        ask("GET", "trees/tree/dev/log?hashOnRef=<d1>"),
        ask("GET", "trees/tree/nowhere/log"),
        ask("GET", "trees/tree/dev/log?filter=commit.author%20%3D%3D%20'Ada'&maxRecords=1"),
        ask("GET", "trees/tree/dev/log?filter=commit.author%20%3D%3D%20'nobody'"),
        ask(
            "GET",
            "trees/tree/dev/log?filter=timestamp(commit.commitTime)%20%3E%20timestamp('2020-01-01T00:00:00Z')&maxRecords=1",
        ),
    ),
    scenario(
        "version 1 merges",
        *APART,
        ask("POST", "trees/branch/main/merge?expectedHash=<h2>", {"fromRefName": "dev", "fromHash": "<d1>"}),
        ask("GET", "trees/tree/main/log?fetch=ALL&maxRecords=1"),
        ask("POST", "trees/branch/main/merge?expectedHash=<h2>", {"fromRefName": "dev", "fromHash": "<d2>"}),
        ask("GET", "trees/tree/main/log?maxRecords=2"),
        ask("POST", "trees/branch/main/merge?expectedHash=<h2>", {"fromRefName": "dev", "fromHash": "<d2>"}),
        ask("POST", "trees/branch/main/merge", {"fromRefName": "dev", "fromHash": "<d2>"}),
        ask(
            "POST", "trees/branch/nowhere/merge?expectedHash=<h2>", {"fromRefName": "dev", "fromHash": "<d2>"}
        ),
        ask(
            "POST",
            f"trees/branch/main/merge?expectedHash={UNKNOWN}",
            {"fromRefName": "dev", "fromHash": "<d2>"},
        ),
        ask(
            "POST",
            "trees/branch/main/merge?expectedHash=<h2>",
            {"fromRefName": "nowhere", "fromHash": "<d2>"},
        ),
        ask("POST", "trees/branch/main/merge?expectedHash=<h2>", {"fromRefName": "dev"}),
        ask("POST", "trees/branch/main/merge?expectedHash=<h2>", {"fromRefName": "dev", "fromHash": UNKNOWN}),
    ),
    scenario(
        "version 1 tells why it does not merge",
        commit("main", "<empty>", put("t", table(1)), h1="hash"),
        identified(),
        create("BRANCH", "dev", "<h1>"),
        commit("dev", "<h1>", put("t", table(2, "<t>")), d1="hash"),
        commit("main", "<h1>", put("t", table(3, "<t>")), h2="hash"),
        ask("POST", "trees/branch/main/merge?expectedHash=<h2>", {"fromRefName": "dev", "fromHash": "<d1>"}),
        ask(
            "POST",
            "trees/branch/main/merge?expectedHash=<h2>",
            {"fromRefName": "dev", "fromHash": "<d1>", "isReturnConflictAsResult": True},
        ),
        ask(
            "POST",
            "trees/branch/main/merge?expectedHash=<h2>",
            {"fromRefName": "dev", "fromHash": "<d1>", "isDryRun": True, "defaultKeyMergeMode": "FORCE"},
        ),
        ask(
            "POST",
            "trees/branch/main/transplant?expectedHash=<h2>",
            {"fromRefName": "dev", "hashesToTransplant": ["<d1>"]},
        ),
        ask(
            "POST",
            "trees/branch/main/merge?expectedHash=<h2>",
            {
                "fromRefName": "dev",
                "fromHash": "<d1>",
                "keepIndividualCommits": False,
                "keyMergeModes": [{"key": key("t"), "mergeBehavior": "FORCE"}],
            },
        ),
        ask("GET", "contents/t?ref=main"),
    ),
    scenario(
        "version 1 transplants",
        *APART,
        ask(
            "POST",
            "trees/branch/main/transplant?expectedHash=<h2>",
            {"fromRefName": "dev", "hashesToTransplant": ["<d1>", "<d2>"]},
        ),
        ask("GET", "trees/tree/main/log?fetch=ALL&maxRecords=2"),
        ask("POST", "trees/branch/main/transplant", {"fromRefName": "dev", "hashesToTransplant": ["<d2>"]}),
        ask(
            "POST",
            "trees/branch/main/transplant?expectedHash=<h2>",
            {"fromRefName": "dev", "hashesToTransplant": ["<d2>"]},
        ),
        ask(
            "POST",
            "trees/branch/main/transplant?expectedHash=<h2>&message=told",
            {"fromRefName": "dev", "hashesToTransplant": ["<d1>", "<d2>"], "keepIndividualCommits": True},
        ),
        ask(
            "POST",
            "trees/branch/main/transplant?expectedHash=<h2>",
            {"fromRefName": "dev", "hashesToTransplant": []},
        ),
        ask(
            "POST",
            "trees/branch/main/transplant?expectedHash=<h2>",
            {"fromRefName": "dev", "hashesToTransplant": [UNKNOWN]},
        ),
        ask(
            "POST",
            "trees/branch/main/transplant?expectedHash=<h2>",
            {"fromRefName": "nowhere", "hashesToTransplant": ["<d2>"]},
        ),
        ask("POST", "trees/branch/main/transplant?expectedHash=<h2>", {"hashesToTransplant": ["<d1>"]}),
    ),
    scenario(
        "version 1 compares",
        *APART,
        ask("GET", "diffs/main...dev"),
        ask("GET", "diffs/main*<h1>...dev*<d1>"),
        ask("GET", "diffs/main%2A<h1>...dev"),
        ask("GET", "diffs/main...dev%2A<d1>"),
        ask("GET", "diffs/main...main"),
        ask("GET", "diffs/main...nowhere"),
        ask("GET", "diffs/nowhere...main"),
        ask("GET", "diffs/main"),
    ),
    scenario(
        "version 1 keeps namespaces",
        ask("PUT", "namespaces/namespace/main/a", {"type": "NAMESPACE", "elements": ["a"], "properties": {}}),
        ask(
            "PUT",
            "namespaces/namespace/main/a.b",
            {"type": "NAMESPACE", "elements": ["a", "b"], "properties": {"k": "v"}},
        ),
        ask("PUT", "namespaces/namespace/main/a", {"type": "NAMESPACE", "elements": ["a"], "properties": {}}),
        ask(
            "PUT",
            "namespaces/namespace/main/x.y",
            {"type": "NAMESPACE", "elements": ["x", "y"], "properties": {}},
        ),
        ask("GET", "namespaces/namespace/main/a.b"),
        ask("GET", "namespaces/namespace/main/missing"),
        ask("GET", "namespaces/namespace/nowhere/a"),
        ask("GET", "namespaces/main"),
        ask("GET", "namespaces/main?name=a"),
        ask("GET", "namespaces/main?name=missing"),
        ask(
            "POST",
            "namespaces/namespace/main/a.b",
            {"propertyUpdates": {"n": "1"}, "propertyRemovals": ["k"]},
        ),
        ask("POST", "namespaces/namespace/main/missing", {"propertyUpdates": {"n": "1"}}),
        ask("GET", "namespaces/namespace/main/a.b"),
        ask("DELETE", "namespaces/namespace/main/a"),
        ask("DELETE", "namespaces/namespace/main/missing"),
        ask("DELETE", "namespaces/namespace/main/a.b"),
        ask("DELETE", "namespaces/namespace/main/a"),
        ask("GET", "trees/tree/main/log?fetch=ALL"),
    ),
    scenario(
        "version 1 shows what version 2 has written, and the other way round",
        Ask(
            "POST",
            "v2/trees/main@<empty>/history/commit",
            {
                "commitMeta": {
                    "message": "by version 2",
                    "authors": ["Ada", "Grace"],
                    "allSignedOffBy": ["Edsger", "Alan"],
                    "allProperties": {"one": ["1"], "many": ["1", "2"]},
                },
                "operations": [put("t", table(1))],
            },
            keep={"h1": "targetBranch.hash"},
        ),
        ask("GET", "trees/tree/main/log?fetch=ALL"),
        ask("GET", "trees?fetch=ALL"),
        commit("main", "<h1>", put("u", table(1)), message="by version 1", h2="hash"),
        get("trees/main/history?fetch=ALL"),
    ),
    scenario(
        "version 1 tells all that is wrong with a request",
        *(
            ask(method, path, body)
            for method, path, body in (
                ("POST", "trees/branch/main/commit", None),
                ("POST", "trees/branch/in%20valid/commit", None),
                ("POST", "trees/branch/in%20valid/commit?expectedHash=x", {}),
                ("POST", "trees/branch/main/commit?expectedHash=x", {"commitMeta": meta(), "operations": []}),
                ("POST", "trees/branch/main/commit", {"operations": [put("a", table())]}),
                ("POST", "trees/branch/main/commit", {"commitMeta": meta()}),
                ("POST", "trees/branch/main/commit", {}),
                ("POST", "trees/branch/main/merge", None),
                ("POST", "trees/branch/in%20valid/merge?expectedHash=x", {}),
                ("POST", "trees/branch/in%20valid/merge", {"fromRefName": "in valid", "fromHash": "x"}),
                ("POST", "trees/branch/main/merge?expectedHash=x", {"fromRefName": "1"}),
                ("POST", "trees/branch/main/transplant", None),
                (
                    "POST",
                    "trees/branch/in%20valid/transplant",
                    {"fromRefName": "1", "hashesToTransplant": []},
                ),
                ("POST", "trees/branch/in%20valid/transplant?expectedHash=x", {}),
                (
                    "POST",
                    "trees/branch/main/transplant?expectedHash=x",
                    {"fromRefName": "1", "hashesToTransplant": ["x", "y"]},
                ),
                ("PUT", "trees/branch/in%20valid", None),
                ("PUT", "trees/branch/main", None),
                ("PUT", "trees/branch/main?expectedHash=x", {"type": "BRANCH", "name": "in valid"}),
                ("PUT", "trees/branch/main", {"type": "BRANCH", "name": "in valid", "hash": "x"}),
                ("DELETE", "trees/branch/in%20valid", None),
                ("DELETE", "trees/branch/in%20valid?expectedHash=x", None),
                ("POST", "trees/tree?sourceRefName=1", None),
                ("POST", "trees/tree?sourceRefName=1", {"type": "BRANCH", "name": "in valid", "hash": "x"}),
                ("POST", "trees/tree", {"type": "BRANCH", "name": None, "hash": "x"}),
                ("GET", "trees/tree/in%20valid", None),
                ("GET", "trees/tree/in%20valid/entries?hashOnRef=x", None),
                ("GET", "trees/tree/in%20valid/log?startHash=x&endHash=y", None),
                ("GET", "contents/a?ref=1&hashOnRef=x", None),
                ("POST", "contents?ref=1&hashOnRef=x", None),
                ("POST", "contents?ref=1&hashOnRef=x", {"requestedKeys": []}),
                ("POST", "contents?ref=main", {}),
                ("GET", "diffs/1...2", None),
                ("GET", "diffs/main*x...1*y", None),
                ("GET", "namespaces/namespace/1/a?hashOnRef=x", None),
                ("GET", "namespaces/1?hashOnRef=x", None),
                ("PUT", "namespaces/namespace/1/a", None),
                ("POST", "namespaces/namespace/1/a", None),
                ("DELETE", "namespaces/namespace/1/a", None),
            )
        ),
    ),
    scenario(
        "version 1 keeps all properties of a namespace that a client reads, changes and puts",
        commit("main", "<empty>", put("n", namespace("n", owner="ada", location="s3://lake/n")), h1="hash"),
        ask("GET", "contents/n?ref=main", n="id"),
        ask("POST", "contents?ref=main", {"requestedKeys": [key("n")]}),
        commit(
            "main",
            "<h1>",
            put("n", namespace("n", "<n>", owner="grace", location="s3://lake/n", more="1")),
            h2="hash",
        ),
        ask("GET", "contents/n?ref=main"),
        ask("GET", "diffs/main*<h1>...main"),
        ask("GET", "trees/tree/main/log?fetch=ALL"),
        get("trees/main/contents/n"),
        commit("main", "<h2>", put("n", {"type": "NAMESPACE", "id": "<n>", "elements": ["n"]}), h3="hash"),
        ask("GET", "contents/n?ref=main"),
    ),
)
SCENARIOS = (*PLAIN, *map(with_details, PLAIN))
