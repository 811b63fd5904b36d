"""The edges of the API: its configuration, and requests that are not what the API understands."""

from __future__ import annotations

from tests.nessie.oracle.asking import Ask
from tests.nessie.oracle.words import H, commit, get, post, put, scenario, table

SCENARIOS = (
    scenario(
        "a server says which versions it speaks",
        get("config"),
        Ask("GET", "v2/config", headers={"Accept": "application/json"}),
    ),
    scenario(
        "a repository's configuration is kept",
        post(
            "config/repository",
            {
                "config": {
                    "type": "GARBAGE_COLLECTOR",
                    "defaultCutoffPolicy": "PT30D",
                    "perRefCutoffPolicies": [{"referenceNamePattern": "main", "policy": "100"}],
                    "newFilesGracePeriod": "PT3H",
                    "expectedFileCountPerContent": 123,
                }
            },
        ),
        post("config/repository", {"config": {"type": "GARBAGE_COLLECTOR", "defaultCutoffPolicy": "P30D"}}),
        post(
            "config/repository",
            {
                "config": {
                    "type": "GARBAGE_COLLECTOR",
                    "defaultCutoffPolicy": "P30D",
                    "perRefCutoffPolicies": [{"referenceNamePattern": "main", "policy": "100"}],
                    "newFilesGracePeriod": "PT3H",
                    "expectedFileCountPerContent": 123,
                }
            },
        ),
        get("config/repository?type=GARBAGE_COLLECTOR"),
        get("config/repository?type=OTHER"),
        get("config/repository?type=OTHER&type=GARBAGE_COLLECTOR"),
        get("config/repository"),
        post("config/repository", {"config": {"type": "OTHER", "x": 1}}),
        post("config/repository", {"config": None}),
        post("config/repository", {}),
    ),
    scenario(
        "details of an error go to those who know them",
        commit("main@<empty>", put("t", table()), h1=H),
        Ask("GET", "v2/trees/main/contents/missing", headers={"Nessie-Client-Spec": ""}),
        Ask("GET", "v2/trees/main/contents/missing", headers={"Nessie-Client-Spec": "1"}),
        Ask("GET", "v2/trees/main/contents/missing", headers={"Nessie-Client-Spec": "2"}),
        Ask("GET", "v2/trees/main/contents/missing", headers={"Nessie-Client-Spec": "3"}),
        Ask("GET", "v2/trees/main/contents/missing", headers={"Nessie-Client-Spec": "x"}),
        Ask("DELETE", "v2/trees/main@<h1>", headers={"Nessie-Client-Spec": ""}),
        Ask(
            "PUT",
            "v2/trees/main@<empty>",
            {"type": "DETACHED", "hash": "<empty>"},
            headers={"Nessie-Client-Spec": ""},
        ),
    ),
    scenario(
        "what is not JSON is refused",
        Ask("POST", "v2/trees/main@<empty>/history/commit", "{}", headers={"Content-Type": "text/plain"}),
        Ask("POST", "v2/trees/main@<empty>/history/commit", "{}", headers={"Content-Type": ""}),
        Ask("POST", "v2/trees/main@<empty>/history/commit", "{not json"),
        Ask("POST", "v2/trees/main@<empty>/history/commit", "[]"),
        Ask("POST", "v2/trees/main@<empty>/history/commit", "null"),
        Ask("POST", "v2/trees/main@<empty>/history/commit", ""),
        Ask("POST", "v2/trees/main@<empty>/history/merge", ""),
        Ask("POST", "v2/trees/main@<empty>/history/transplant", ""),
        Ask("PUT", "v2/trees/main@<empty>", "{not json"),
        Ask("POST", "v2/trees/main/contents", ""),
        post(
            "trees/main@<empty>/history/merge", {"unknown": 1, "fromRefName": "main", "fromHash": "<empty>"}
        ),
        post("trees/main@<empty>/history/commit", {"unknown": 1}),
        post("trees?name=x&type=BRANCH", {"type": "BRANCH", "name": "main", "hash": "<empty>", "unknown": 1}),
        get("trees"),
    ),
    scenario(
        "what is not a path of the API is not found",
        get("nowhere"),
        get("trees/main/nowhere"),
        get(""),
        get("trees/"),
        Ask("GET", "v3/config"),
        Ask("DELETE", "v2/config"),
        Ask("POST", "v2/trees/main", {}),
        Ask("PUT", "v2/trees/main/entries", {}),
        Ask("PATCH", "v2/trees", {}),
        Ask("GET", "v2/trees/main@<empty>/history/commit"),
        Ask("GET", "v2/trees?fetch=MINIMAL", headers={"Accept": "text/plain"}),
        Ask("GET", "v2/trees", headers={"Accept": "*/*"}),
        get("trees/main/entries?unknown=1"),
        get("trees/main/entries?content=maybe"),
        get("trees/main/entries?max-records=-1"),
        get("trees/main/history?fetch=OTHER"),
    ),
    scenario(
        "all that is wrong with a request is told at once",
        *(
            Ask(method, f"v2/{path}", body)
            for method, path, body in (
                ("POST", "trees", None),
                ("POST", "trees?type=OTHER", None),
                ("POST", "trees?name=x&type=OTHER", {"type": "BRANCH", "name": "1", "hash": "x"}),
                ("POST", "trees?name=in%20valid&type=OTHER", None),
                ("PUT", "trees/in%20valid?type=OTHER", None),
                ("PUT", "trees/main?type=OTHER", None),
                ("PUT", "trees/in%20valid", {"type": "BRANCH", "name": "1", "hash": "x"}),
                ("DELETE", "trees/in%20valid?type=OTHER", None),
                ("POST", "trees/in%20valid/history/commit", None),
                (
                    "POST",
                    "trees/in%20valid/history/commit",
                    {"commitMeta": {"message": "m"}, "operations": []},
                ),
                ("POST", "trees/main/history/commit", {"commitMeta": {"message": "m"}, "operations": []}),
                ("POST", "trees/main/history/commit", {"operations": []}),
                ("POST", "trees/in%20valid/history/merge", None),
                ("POST", "trees/in%20valid/history/merge", {"fromRefName": "1", "fromHash": "x"}),
                ("POST", "trees/in%20valid/history/transplant", None),
                (
                    "POST",
                    "trees/in%20valid/history/transplant",
                    {"fromRefName": "1", "hashesToTransplant": []},
                ),
                ("POST", "trees/main/history/transplant", {"fromRefName": "1", "hashesToTransplant": ["x"]}),
                ("GET", "trees/in%20valid/history?limit-hash=x", None),
                ("GET", "trees/in%20valid/diff/1", None),
                ("POST", "trees/in%20valid/contents", None),
                ("POST", "trees/in%20valid/contents", {"requestedKeys": []}),
            )
        ),
    ),
)
