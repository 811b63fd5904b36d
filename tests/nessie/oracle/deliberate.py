"""Where Penstock does not answer as Nessie does, and why.

Everything that is not listed here must be the same: the status, every field, every word of a message.
"""

from __future__ import annotations

import re

import msgspec

LIBRARY_WORDS = re.compile(
    r"""
      Cannot\ (construct\ instance|deserialize\ value)\ of | Could\ not\ resolve\ (type\ id|subtype)
    | Unexpected\ (character|end-of-input) | Unrecognized\ field | Text\ '.*'\ could\ not\ be\ parsed
    | org\.projectnessie\.cel | Illegal\ hex\ character | Missing\ type\ id | No\ type\ registered\ for
    """,
    re.VERBOSE,
)
"""Messages that Nessie's JSON and CEL libraries made up. They name Java classes and columns of a buffer that
nobody can see, and no client reads them. Penstock says it in its own words, with the same status and code."""

CRASHED = 500
REFUSED = 400
"""Nessie answers some nonsense with an internal error. It is the client's mistake, and Penstock says so."""

ERRORS = 400
"""Some of Nessie's errors have no body at all. Penstock's say what is wrong, in the form of the others."""


class Deliberate(msgspec.Struct, frozen=True):
    """A request that Penstock answers otherwise: where it is asked, the status of the answer, and why."""

    scenario: str
    path: str
    status: int
    reason: str


UNREACHABLE = (
    "Who may read a branch could otherwise read every commit of the lake by its hash; "
    "a commit is found under a name only where the name leads to it."
)
CHAINED = "Nessie forgets all but the last step of a chain in a path; the specification means all of them."
WHOLE_SECONDS = (
    "Nessie wants a fraction in an instant that a path holds; its specification does not ask for one."
)
DESCRIBED = (
    "Nessie's own description of its API calls this field so, and Nessie then ignores it: "
    "what was meant as a trial is carried out."
)
UNREADABLE = (
    "Nessie takes a parameter that it cannot read for a part of an unknown address, and answers without a "
    "word; Penstock says what is wrong with it."
)
ORDER = (
    "Keys are ordered by their UTF-8 bytes, not by the units of UTF-16 that Java has; it is another order "
    "for characters beyond the basic plane only."
)
ANY_TYPE = "There is only JSON to be had; a client that asks for something else may take it or leave it."
KEEPS_TYPE = "A content keeps its type; Nessie lets this commit land, and cannot read the key any more."
PROPERTIES = (
    "Namespaces are merged property by property: a conflict is a property that both sides changed, each in "
    "its own way. To Nessie it is any change on both sides, but none if both sides created the namespace."
)
ALIKE = "What both sides did alike is no conflict."
CHANGES = "A commit is known by what it changed; that it also put what was there already is not kept."
SAID = "A commit that changes nothing is repeated for what it says of itself, be it that it only checked."
DROPPED = "A merge that leaves out what the source changed is recorded, so that it is not brought again."

DELIBERATE = (
    *(
        Deliberate(
            "a commit is read by a name that does not lead to it",
            f"v2/trees/dev@<h1>/{what}",
            404,
            UNREACHABLE,
        )
        for what in ("entries", "contents/a", "history", "diff/main")
    ),
    Deliberate(
        "a commit is read by a name that does not lead to it",
        "v2/trees/dev@<h2>~1/entries",
        404,
        UNREACHABLE,
    ),
    Deliberate(
        "a merge takes a commit by a name that does not lead to it",
        "v2/trees/main@<h1>/history/merge",
        404,
        UNREACHABLE,
    ),
    Deliberate("commits are found relative to others", "v2/trees/main@<h3>~1~1/entries", 200, CHAINED),
    Deliberate("what is not a path of the API is not found", "v2/trees?fetch=MINIMAL", 200, ANY_TYPE),
    *(
        Deliberate(scenario, path, 400, UNREADABLE)
        for scenario, path in (
            ("what is not a path of the API is not found", "v2/trees/main/history?fetch=OTHER"),
            ("only a name finds a reference", "v2/trees/main?fetch=OTHER"),
            ("only a name finds a reference", "v2/trees/main?fetch=all"),
            ("references are listed in pages and filtered", "v2/trees?max-records=x"),
            ("keys are written in three ways", "v2/trees/main/contents/.a*x"),
            ("keys are written in three ways", "v2/trees/main/contents/."),
            ("keys are written in three ways", "v2/trees/main/contents/a..b"),
        )
    ),
    *(
        Deliberate("keys are ordered by the units of UTF-16", f"v2/trees/{path}", 200, ORDER)
        for path in (
            "main/entries",
            "main/entries?min-key=%EE%80%80",
            "main/entries?max-key=%F0%9F%98%80",
            "main/entries?max-records=4",
            "main/entries?max-records=4&page-token=<next>",
            "main@<empty>/diff/main",
        )
    ),
    Deliberate(
        "commits are found relative to others",
        "v2/trees/main*2100-01-01T00:00:00Z/entries",
        200,
        WHOLE_SECONDS,
    ),
    Deliberate("a trial may be asked for by either name", "v2/trees/main@<h2>/history/merge", 200, DESCRIBED),
    Deliberate(
        "conflicts may be asked for by either name", "v2/trees/main@<h2>/history/merge", 200, DESCRIBED
    ),
    Deliberate(
        "a namespace does not become a table when it is renamed",
        "v2/trees/main@<h1>/history/commit",
        400,
        KEEPS_TYPE,
    ),
    *(
        Deliberate(scenario, "v2/trees/main@<h2>/history/merge", status, reason)
        for scenario, status, reason in (
            ("both sides changed other properties of a namespace", 200, PROPERTIES),
            ("both sides created a namespace with one property each in its own way", 409, PROPERTIES),
            ("both sides changed a namespace alike", 200, ALIKE),
            ("both sides did the same, and merge: changed a table", 200, ALIKE),
            ("both sides did the same, and merge: deleted it", 200, ALIKE),
            ("a merge drops all that the source brings", 200, DROPPED),
        )
    ),
    *(
        Deliberate(scenario, f"v2/trees/main@<{at}>/history/transplant", 200, reason)
        for scenario, at, reason in (
            ("both sides did the same, and transplant: changed a table", "h2", ALIKE),
            ("both sides did the same, and transplant: deleted it", "h2", ALIKE),
            ("commits that change nothing are transplanted", "h2", CHANGES),
            ("commits that change nothing are transplanted", "t1", CHANGES),
            ("a put of what was there already is transplanted where the key is not", "h3", CHANGES),
            ("a commit that only checks is transplanted", "h1", SAID),
        )
    ),
    *(
        Deliberate("a put of what is there already is an operation too", f"v2/{path}", 200, CHANGES)
        for path in (
            "trees/main/history?fetch=ALL",
            "trees/main/history?fetch=ALL&filter=operations.exists(op,op.key=='a')",
        )
    ),
)
