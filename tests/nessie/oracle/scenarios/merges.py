"""Merges and transplants: applied, tried, refused, and told key by key."""

from __future__ import annotations

from tests.nessie.oracle.asking import Ask
from tests.nessie.oracle.words import (
    UNKNOWN,
    H,
    added,
    branch,
    commit,
    delete,
    get,
    key,
    merge,
    namespace,
    put,
    scenario,
    table,
    tag,
    transplant,
    unchanged,
    view,
)

APART = (
    commit(
        "main@<empty>",
        put("a", table(1)),
        put("b", table(1)),
        message="root",
        h1=H,
        id1=added(0),
        id2=added(1),
    ),
    branch("dev", "<h1>"),
    commit("dev@<h1>", put("a", table(2, "<id1>")), message="dev changes a", d1=H),
    commit("dev@<d1>", put("c", table(1)), message="dev adds c", d2=H),
    commit("main@<h1>", put("d", table(1)), message="main adds d", h2=H),
)
"""Two branches that changed different keys."""

COLLIDING = (
    commit(
        "main@<empty>",
        put("a", table(1)),
        put("b", table(1)),
        message="root",
        h1=H,
        id1=added(0),
        id2=added(1),
    ),
    branch("dev", "<h1>"),
    commit("dev@<h1>", put("a", table(2, "<id1>")), put("c", table(2)), delete("b"), message="on dev", d1=H),
    commit("main@<h1>", put("a", table(3, "<id1>")), put("c", table(3)), message="on main", h2=H),
)
"""Two branches that changed a key and created another, each in its own way."""

NAMESPACES = (
    commit(
        "main@<empty>",
        put("n", namespace("n", location="s3://root", owner="ada")),
        message="root",
        h1=H,
        id1=added(0),
    ),
    branch("dev", "<h1>"),
)
"""Two branches with a namespace that both are about to change."""

SAME = (
    commit("main@<empty>", put("a", table(1)), message="root", h1=H, id1=added(0)),
    branch("dev", "<h1>"),
    commit("dev@<h1>", put("b", table(1)), message="adds b", d1=H),
    commit("dev@<d1>", put("a", table(1, "<id1>")), message="puts what is there", d2=H),
    commit("dev@<d2>", put("c", table(1)), message="adds c", d3=H),
    commit("main@<h1>", put("d", table(1)), message="main adds d", h2=H),
)
"""A branch with a commit that changes nothing."""


def mode(name: str, behavior: str, **fields: object) -> dict[str, object]:
    return {"key": key(name), "mergeBehavior": behavior, **fields}


SCENARIOS = (
    scenario(
        "a branch is merged into another",
        *APART,
        merge("main@<h2>", "dev", "<d2>", keep="m1"),
        get("trees/main/history?fetch=ALL"),
        get("trees/main/entries?content=true"),
        get("trees/dev"),
        merge("main@<m1>", "dev", "<d2>"),
        commit("dev@<d2>", put("e", table(1)), message="dev adds e", d3=H),
        merge("main@<m1>", "dev", "<d3>", keep="m2"),
        get("trees/main/history?fetch=ALL&max-records=1"),
        get("trees/main%5E2/history"),
        merge("dev@<d3>", "main", "<m2>", keep="m3"),
        get("trees/dev/history?max-records=1&fetch=ALL"),
        get("trees/main/diff/dev"),
        get("trees/dev?fetch=ALL"),
    ),
    scenario(
        "a merge of a branch that nobody moved is a commit too",
        commit("main@<empty>", put("a", table(1)), message="root", h1=H, id1=added(0)),
        branch("dev", "<h1>"),
        commit("dev@<h1>", put("b", table(1)), message="one on dev", d1=H),
        merge("main@<h1>", "dev", "<d1>"),
        get("trees/main/history?fetch=ALL"),
    ),
    scenario(
        "a merge is tried without being done",
        *APART,
        merge("main@<h2>", "dev", "<d2>", isDryRun=True),
        merge("main@<h2>", "dev", "<d2>", isDryRun=True, isFetchAdditionalInfo=True),
        get("trees/main"),
        merge("main@<h2>", "dev", "<d1>", isDryRun=False, isFetchAdditionalInfo=True),
        get("trees/main/history?max-records=1&fetch=ALL"),
    ),
    scenario(
        "a trial may be asked for by either name", *APART, merge("main@<h2>", "dev", "<d2>", dryRun=True)
    ),
    scenario(
        "a merge that collides is refused, or its conflicts are the answer",
        *COLLIDING,
        merge("main@<h2>", "dev", "<d1>"),
        merge("main@<h2>", "dev", "<d1>", isReturnConflictAsResult=True),
        merge("main@<h2>", "dev", "<d1>", isDryRun=True),
        merge("main@<h2>", "dev", "<d1>", isDryRun=True, isReturnConflictAsResult=True),
        get("trees/main"),
    ),
    scenario(
        "conflicts may be asked for by either name",
        *COLLIDING,
        merge("main@<h2>", "dev", "<d1>", returnConflictAsResult=True),
    ),
    scenario(
        "a merge's conflicts are decided key by key",
        *COLLIDING,
        merge("main@<h2>", "dev", "<d1>", keyMergeModes=[mode("a", "FORCE")], isReturnConflictAsResult=True),
        merge("main@<h2>", "dev", "<d1>", keyMergeModes=[mode("a", "FORCE"), mode("c", "DROP")], keep="m1"),
        get("trees/main/entries?content=true"),
        get("trees/main/history?max-records=1&fetch=ALL"),
    ),
    scenario(
        "a merge's default decides what no key does",
        *COLLIDING,
        merge("main@<h2>", "dev", "<d1>", defaultKeyMergeMode="DROP", isDryRun=True),
        merge("main@<h2>", "dev", "<d1>", defaultKeyMergeMode="OTHER"),
        merge(
            "main@<h2>",
            "dev",
            "<d1>",
            defaultKeyMergeMode="DROP",
            keyMergeModes=[mode("b", "NORMAL")],
            keep="m1",
        ),
        get("trees/main/entries?content=true"),
        merge("main@<m1>", "dev", "<d1>"),
    ),
    scenario(
        "a merge is forced",
        *COLLIDING,
        merge("main@<h2>", "dev", "<d1>", defaultKeyMergeMode="FORCE"),
        get("trees/main/entries?content=true"),
    ),
    scenario(
        "a merge takes contents that the client made from both sides",
        *COLLIDING,
        get("trees/main/contents/c", c="content.id"),
        merge(
            "main@<h2>",
            "dev",
            "<d1>",
            keyMergeModes=[
                mode(
                    "a", "NORMAL", expectedTargetContent=table(3, "<id1>"), resolvedContent=table(9, "<id1>")
                ),
                mode("c", "DROP"),
            ],
            keep="m1",
        ),
        get("trees/main/entries?content=true"),
        get("trees/main/history?max-records=1&fetch=ALL"),
    ),
    scenario(
        "what a merge is told of its keys must fit",
        *COLLIDING,
        merge(
            "main@<h2>", "dev", "<d1>", keyMergeModes=[mode("a", "NORMAL", resolvedContent=table(9, "<id1>"))]
        ),
        merge(
            "main@<h2>",
            "dev",
            "<d1>",
            keyMergeModes=[
                mode(
                    "a", "NORMAL", expectedTargetContent=table(4, "<id1>"), resolvedContent=table(9, "<id1>")
                ),
                mode("c", "DROP"),
            ],
        ),
        merge("main@<h2>", "dev", "<d1>", keyMergeModes=[mode("never", "DROP")], defaultKeyMergeMode="FORCE"),
        merge("main@<h2>", "dev", "<d1>", keyMergeModes=[mode("a", "DROP"), mode("a", "FORCE")]),
        merge("main@<h2>", "dev", "<d1>", keyMergeModes=[mode("a", "OTHER")]),
        merge("main@<h2>", "dev", "<d1>", keyMergeModes=[{"key": key("a")}], isReturnConflictAsResult=True),
        merge(
            "main@<h2>",
            "dev",
            "<d1>",
            keyMergeModes=[
                mode(
                    "a", "FORCE", expectedTargetContent=table(3, "<id1>"), resolvedContent=table(9, "<id1>")
                ),
            ],
        ),
        merge(
            "main@<h2>",
            "dev",
            "<d1>",
            keyMergeModes=[mode("a", "DROP", expectedTargetContent=table(3, "<id1>")), mode("c", "DROP")],
            isDryRun=True,
        ),
    ),
    scenario(
        "a merge says what it was told to say",
        *APART,
        merge("main@<h2>", "dev", "<d1>", message="told so", keep="m1"),
        get("trees/main/history?max-records=1"),
        merge(
            "main@<m1>",
            "dev",
            "<d2>",
            commitMeta={
                "message": "told more",
                "authors": ["Grace"],
                "allSignedOffBy": ["Edsger"],
                "allProperties": {"team": ["storage"]},
            },
            keep="m2",
        ),
        get("trees/main/history?max-records=1"),
    ),
    scenario(
        "a merge goes from a commit to a branch",
        *APART,
        tag("v1", "<h2>"),
        merge("main", "dev", "<d2>"),
        merge("main@<h2>", "dev", None),
        merge("main@<h2>", "nowhere", "<d2>"),
        merge("main@<h2>", None, "<d2>"),
        merge("main@<h2>", "dev", UNKNOWN),
        merge("main@<h2>", "dev", "nothex"),
        merge("v1@<h2>", "dev", "<d2>"),
        merge("nowhere@<h2>", "dev", "<d2>"),
        merge(f"main@{UNKNOWN}", "dev", "<d2>"),
        merge("main@<d2>", "dev", "<d2>"),
        merge("main@<h2>", "main", "<h2>"),
        merge("main@<h2>", "main", "<h1>"),
        merge("main@<h1>", "dev", "<d1>"),
        merge("main@<h1>", "dev", "<d2>~1"),
        merge("main@<h1>", "DETACHED", "<d2>"),
        get("trees/main/history?max-records=1"),
    ),
    scenario(
        "a merge takes a commit by a name that does not lead to it",
        commit("main@<empty>", put("a", table(1)), h1=H),
        branch("dev", "<h1>"),
        branch("other", "<h1>"),
        commit("dev@<h1>", put("b", table(1)), d1=H),
        merge("main@<h1>", "other", "<d1>"),
    ),
    scenario(
        "branches without a common commit are merged from the beginning",
        branch("other"),
        commit("main@<empty>", put("a", table(1)), message="on main", h1=H),
        commit("other@<empty>", put("b", table(1)), message="on other", o1=H),
        merge("main@<h1>", "other", "<o1>"),
        get("trees/main/history"),
        get("trees/main/entries"),
    ),
    scenario(
        "a merge keeps namespaces whole",
        commit("main@<empty>", put("ns", namespace("ns")), put("ns.t", table(1)), message="root", h1=H),
        branch("dev", "<h1>"),
        branch("gone", "<h1>"),
        commit("dev@<h1>", put("ns.u", table(2)), message="adds", d1=H),
        commit("gone@<h1>", delete("ns.t"), delete("ns"), message="removes", g1=H),
        merge("gone@<g1>", "dev", "<d1>"),
        merge("gone@<g1>", "dev", "<d1>", isReturnConflictAsResult=True),
        merge("dev@<d1>", "gone", "<g1>"),
        branch("left"),
        branch("right"),
        commit("left@<empty>", put("n", namespace("n", side="left")), message="left", l1=H),
        commit("right@<empty>", put("n", namespace("n", side="right")), message="right", r1=H),
        merge("left@<l1>", "right", "<r1>"),
        get("trees/left/contents/n"),
    ),
    scenario(
        "commits are transplanted one by one",
        *APART,
        transplant("main@<h2>", "dev", ["<d1>", "<d2>"], keep="t1"),
        get("trees/main/history?fetch=ALL"),
        get("trees/main/entries"),
        transplant("main@<t1>", "dev", ["<d2>"]),
        transplant("main@<t1>", "dev", ["<d2>"], isReturnConflictAsResult=True),
    ),
    scenario(
        "one commit is transplanted with a message of its own",
        *APART,
        transplant("main@<h2>", "dev", ["<d2>"], message="picked", keep="t1"),
        get("trees/main/history?max-records=1&fetch=ALL"),
        transplant("main@<t1>", "dev", ["<d1>"], isDryRun=True, isFetchAdditionalInfo=True),
        get("trees/main"),
    ),
    scenario(
        "several commits are transplanted with their own messages",
        *APART,
        transplant("main@<h2>", "dev", ["<d1>", "<d2>"], message="ignored"),
        get("trees/main/history?max-records=2"),
    ),
    scenario(
        "a transplant that collides is refused, forced or left out",
        *COLLIDING,
        transplant("main@<h2>", "dev", ["<d1>"]),
        transplant("main@<h2>", "dev", ["<d1>"], isReturnConflictAsResult=True),
        transplant(
            "main@<h2>", "dev", ["<d1>"], keyMergeModes=[mode("a", "FORCE"), mode("c", "DROP")], keep="t1"
        ),
        get("trees/main/entries?content=true"),
        get("trees/main/history?max-records=1&fetch=ALL"),
        transplant("main@<t1>", "dev", ["<d1>"], defaultKeyMergeMode="FORCE"),
    ),
    scenario(
        "a transplant names commits in order, from somewhere to a branch",
        *APART,
        tag("v1", "<h2>"),
        transplant("main@<h2>", "dev", []),
        transplant("main@<h2>", "dev", ["<d2>", "<d1>"]),
        transplant("main@<h2>", "dev", ["<h1>", "<d2>"]),
        transplant("main@<h2>", "dev", [UNKNOWN]),
        transplant("main@<h2>", "dev", ["nothex"]),
        transplant("main@<h2>", "nowhere", ["<d1>"]),
        transplant("main", "dev", ["<d1>"]),
        transplant("v1@<h2>", "dev", ["<d1>"]),
        transplant("nowhere@<h2>", "dev", ["<d1>"]),
        transplant(f"main@{UNKNOWN}", "dev", ["<d1>"]),
        transplant("main@<h2>", "dev", ["<empty>"]),
        transplant("main@<h2>", "dev", ["<d2>~1"]),
        transplant("main@<h1>", "main", ["<h2>"]),
        get("trees/main"),
    ),
    scenario(
        "a changed type collides as such",
        commit("main@<empty>", put("a", table(1)), message="root", h1=H),
        branch("dev", "<h1>"),
        commit("dev@<h1>", delete("a"), message="without", d1=H),
        commit("dev@<d1>", put("a", view(1)), message="a view", d2=H),
        merge("main@<h1>", "dev", "<d2>"),
        get("trees/main/entries?content=true"),
    ),
    scenario(
        "a property of a namespace that both sides changed is a conflict",
        *NAMESPACES,
        commit("dev@<h1>", put("n", namespace("n", "<id1>", location="s3://dev", owner="ada")), d1=H),
        commit("main@<h1>", put("n", namespace("n", "<id1>", location="s3://main", owner="ada")), h2=H),
        merge("main@<h2>", "dev", "<d1>", isDryRun=True),
        merge("main@<h2>", "dev", "<d1>"),
        merge("main@<h2>", "dev", "<d1>", isReturnConflictAsResult=True),
        transplant("main@<h2>", "dev", ["<d1>"], isDryRun=True),
        transplant("main@<h2>", "dev", ["<d1>"]),
        transplant("main@<h2>", "dev", ["<d1>"], isReturnConflictAsResult=True),
        Ask(
            "POST", "v1/trees/branch/main/merge?expectedHash=<h2>", {"fromRefName": "dev", "fromHash": "<d1>"}
        ),
        Ask(
            "POST",
            "v1/trees/branch/main/transplant?expectedHash=<h2>",
            {"fromRefName": "dev", "hashesToTransplant": ["<d1>"]},
        ),
        get("trees/main/contents/n"),
        merge("main@<h2>", "dev", "<d1>", keyMergeModes=[mode("n", "FORCE")], keep="m1"),
        get("trees/main/contents/n"),
    ),
    scenario(
        "a property of a namespace that one side removed and the other changed is a conflict",
        *NAMESPACES,
        commit("dev@<h1>", put("n", namespace("n", "<id1>", owner="ada")), d1=H),
        commit("main@<h1>", put("n", namespace("n", "<id1>", location="s3://main", owner="ada")), h2=H),
        merge("main@<h2>", "dev", "<d1>"),
        merge("dev@<d1>", "main", "<h2>"),
    ),
    scenario(
        "both sides changed other properties of a namespace",
        *NAMESPACES,
        commit("dev@<h1>", put("n", namespace("n", "<id1>", location="s3://dev", owner="ada")), d1=H),
        commit("main@<h1>", put("n", namespace("n", "<id1>", location="s3://root", owner="grace")), h2=H),
        merge("main@<h2>", "dev", "<d1>"),
    ),
    scenario(
        "both sides changed a namespace alike",
        *NAMESPACES,
        commit("dev@<h1>", put("n", namespace("n", "<id1>", location="s3://new")), d1=H),
        commit("main@<h1>", put("n", namespace("n", "<id1>", location="s3://new")), h2=H),
        merge("main@<h2>", "dev", "<d1>"),
    ),
    scenario(
        "both sides created a namespace",
        commit("main@<empty>", put("a", table(1)), message="root", h1=H),
        branch("dev", "<h1>"),
        commit("dev@<h1>", put("n", namespace("n")), put("n.t", table(1)), d1=H),
        commit("main@<h1>", put("n", namespace("n")), put("n.u", table(1)), h2=H),
        merge("main@<h2>", "dev", "<d1>"),
    ),
    scenario(
        "both sides created a namespace with one property each in its own way",
        commit("main@<empty>", put("a", table(1)), message="root", h1=H),
        branch("dev", "<h1>"),
        commit("dev@<h1>", put("n", namespace("n", location="s3://dev")), d1=H),
        commit("main@<h1>", put("n", namespace("n", location="s3://main")), h2=H),
        merge("main@<h2>", "dev", "<d1>"),
    ),
    scenario(
        "commits that change nothing are transplanted",
        *SAME,
        transplant("main@<h2>", "dev", ["<d1>", "<d2>", "<d3>"], isDryRun=True),
        transplant("main@<h2>", "dev", ["<d1>", "<d2>", "<d3>"], keep="t1"),
        get("trees/main/history?max-records=3"),
        transplant("main@<t1>", "dev", ["<d2>"], keep="t2"),
        get("trees/main/history?max-records=1"),
    ),
    scenario(
        "a commit that only checks is transplanted",
        commit("main@<empty>", put("a", table(1)), message="root", h1=H),
        branch("dev", "<h1>"),
        commit("dev@<h1>", unchanged("a"), message="checks", d1=H),
        transplant("main@<h1>", "dev", ["<d1>"]),
    ),
    scenario(
        "a put of what was there already is transplanted where the key is not",
        *SAME,
        commit("main@<h2>", delete("a"), message="without a", h3=H),
        transplant("main@<h3>", "dev", ["<d2>"]),
    ),
    scenario(
        "a merge of what changes nothing is none",
        commit("main@<empty>", put("a", table(1)), message="root", h1=H, id1=added(0)),
        branch("dev", "<h1>"),
        commit("dev@<h1>", put("a", table(2, "<id1>")), message="there", d1=H),
        commit("dev@<d1>", put("a", table(1, "<id1>")), message="and back", d2=H),
        merge("main@<h1>", "dev", "<d2>", isDryRun=True),
        merge("main@<h1>", "dev", "<d2>"),
        merge("main@<h1>", "dev", "<d2>", keyMergeModes=[mode("a", "NORMAL")]),
        merge("main@<h1>", "dev", "<d2>", keyMergeModes=[mode("a", "FORCE")]),
        merge("main@<h1>", "dev", "<d2>", keyMergeModes=[mode("a", "DROP")]),
        merge("main@<h1>", "dev", "<d2>", keyMergeModes=[mode("b", "DROP")]),
        get("trees/main/history"),
        commit("main@<h1>", put("b", table(1)), message="on main", h2=H),
        merge("main@<h2>", "dev", "<d2>"),
        merge("main@<h2>", "dev", "<d2>"),
        get("trees/main/history"),
        commit("dev@<d2>", put("c", table(1)), message="more", d3=H),
        merge("main@<h2>", "dev", "<d3>", keyMergeModes=[mode("a", "FORCE")], isDryRun=True),
        merge("main@<h2>", "dev", "<d3>", keyMergeModes=[mode("a", "DROP")]),
        get("trees/main/history?fetch=ALL"),
    ),
    scenario(
        "a merge drops all that the source brings",
        *APART,
        merge("main@<h2>", "dev", "<d2>", defaultKeyMergeMode="DROP"),
    ),
    *(
        scenario(
            f"both sides did the same, and {name}",
            commit("main@<empty>", put("a", table(1)), message="root", h1=H, id1=added(0)),
            branch("dev", "<h1>"),
            commit("dev@<h1>", same, message="there", d1=H),
            commit("main@<h1>", same, message="here too", h2=H),
            ask,
        )
        for did, same in (("changed a table", put("a", table(2, "<id1>"))), ("deleted it", delete("a")))
        for name, ask in (
            (f"merge: {did}", merge("main@<h2>", "dev", "<d1>")),
            (f"transplant: {did}", transplant("main@<h2>", "dev", ["<d1>"])),
        )
    ),
)
