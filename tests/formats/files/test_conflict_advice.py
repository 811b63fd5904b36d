"""The advice of every conflict of a table of files is followed to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock import Delete, IcebergTable, Key, Lake, Put
from penstock.errors import MergeConflict
from penstock.formats.files.intents import WriteCondition
from tests.formats.files.lakes import EVENTS, overwrite, paths, write
from tests.formats.refusals import fits, refusals

TABLE = Key.parse(EVENTS)
Work = Callable[[Lake], object]


class Case(NamedTuple):
    """How a conflict comes about, from a table with ``day=1/a`` and ``day=2/a`` on main and dev; what is
    asked for then; and what the table has after each way out, ``None`` if what it had. A way is a mode, for
    the table or below a path, or to rename it."""

    kind: str
    work: Work
    ways: dict[str | tuple[str, str], list[str] | None]
    ask: Callable[..., object] = lambda lake, **how: lake.merge("dev", **how)


def renamed(lake: Lake, branch: str) -> None:
    """Give the table of a branch another name."""
    content = lake.at(branch).get(EVENTS)
    assert content is not None
    lake.commit([Delete(TABLE), Put(Key.parse("raw.renamed"), content)], branch=branch)


def force_reverted(lake: Lake) -> None:
    write(lake, "day=1/d", branch="dev")
    write(lake, "day=1/e", branch="dev")
    lake.revert("dev~1", "dev")
    write(lake, "day=1/m")


def met_between(lake: Lake) -> None:
    overwrite(lake, "b", branch="dev")
    write(lake, "c")
    lake.merge("main", "dev")
    overwrite(lake, "d")


def met_and_reverted(lake: Lake) -> None:
    overwrite(lake, "b", branch="dev")
    write(lake, "c")
    lake.merge("main", "dev")
    write(lake, "d")
    write(lake, "e")
    lake.revert("main~1")


def removed_and_reverted(lake: Lake) -> None:
    write(lake, removed=["day=1/a"], branch="main")
    lake.tag("undone").create(at="main")
    write(lake, "day=1/b")
    write(lake, "day=1/c")
    lake.revert("main~1")


def replaced_and_reverted(lake: Lake) -> None:
    write(lake, removed=["day=1/a"])
    lake.tag("undone").create(at="main")
    write(lake, "more", replaced=["day=1/"])
    lake.revert("main")


def overwritten_beside(lake: Lake) -> None:
    write(lake, "day=1/d", branch="dev", replaced=["day=1/"])
    lake.tag("undone").create(at="dev")
    write(lake, "day=1/m", replaced=["day=1/"])
    lake.merge("dev")
    write(lake, "day=2/m")


def removed_beside(lake: Lake) -> None:
    write(lake, removed=["day=1/a"])
    lake.tag("undone").create(at="main")
    write(lake, "day=2/d", removed=["day=1/a"], branch="dev")
    lake.merge("dev")


def taken_by_the_merge(lake: Lake) -> None:
    write(lake, "day=1/d", branch="dev", replaced=["day=1/"])
    lake.tag("undone").create(at="dev")
    write(lake, "day=1/m")
    lake.merge("dev")


def both_put(lake: Lake) -> None:
    write(lake, put=["day=1/x"], branch="dev")
    write(lake, put=["day=1/x"])
    write(lake, "day=2/d", branch="dev")


def both_rewritten(lake: Lake) -> None:
    write(lake, "day=1/d", removed=["day=1/a"], branch="dev")
    write(lake, "day=1/m", removed=["day=1/a"])


def removed_there(lake: Lake) -> None:
    write(lake, "day=1/d", branch="dev")
    write(lake, "day=2/d", removed=["day=1/d"], branch="dev")
    lake.tag("repeated").create(at="dev")
    write(lake, "day=2/m")


def set_to_another_state(lake: Lake) -> None:
    write(lake, "day=1/d", branch="dev")
    lake.tag("repeated").create(at="dev")
    lake.transplant("dev")
    write(lake, "day=1/e", removed=["day=1/d"], branch="dev")
    lake.transplant("dev", keys={EVENTS: "force"})


def repeat(lake: Lake, **how: Any) -> object:
    return lake.transplant("repeated", **how)


def rewritten_since(lake: Lake) -> None:
    write(lake, "day=1/b")
    lake.tag("undone").create(at="main")
    write(lake, "day=1/c", removed=["day=1/a", "day=1/b"])


def removed_since(lake: Lake) -> None:
    write(lake, "day=1/b", removed=["day=1/a"])
    lake.tag("undone").create(at="main")
    write(lake, removed=["day=1/b"])


def first_job(lake: Lake) -> None:
    overwrite(lake)
    lake.branch("dev").delete()
    lake.branch("dev").create()
    write(lake, "d", branch="dev", when=WriteCondition.EMPTY)
    write(lake, "m")


def two_formats(lake: Lake) -> None:
    write(lake, "d.csv", branch="dev", written_as="csv")
    write(lake, "m.orc", written_as="orc")


def dropped_here(lake: Lake) -> None:
    lake.commit([Delete(TABLE)])
    write(lake, "day=1/d", branch="dev")


def created_anew(lake: Lake) -> None:
    write(lake, "day=1/d", branch="dev")
    lake.commit([Delete(TABLE)])
    write(lake, "new")


def something_else(lake: Lake) -> None:
    write(lake, "day=1/d", branch="dev")
    lake.commit([Delete(TABLE)])
    lake.branch().put(EVENTS, IcebergTable(metadata_location="s3://lake/v1.json"))


def revert(lake: Lake, **how: Any) -> object:
    return lake.revert("undone", **how)


BASE = ["day=1/a", "day=2/a"]
IN_DOUBT = "was changed after the commit to be reverted, and not only by writes of files"
CASES = [
    Case(
        "is a different table on the other side",
        created_anew,
        {"drop": ["new"], "force": [*BASE, "day=1/d"], "rename": [*BASE, "day=1/d"]},
    ),
    Case(
        "{BOTH}, and on the source not only by writes of files",
        force_reverted,
        {"drop": None, "force": [*BASE, "day=1/e"]},
    ),
    Case(
        IN_DOUBT,
        removed_and_reverted,
        {"drop": ["day=1/c", "day=2/a"], ("day=1/", "force"): BASE},
        revert,
    ),
    Case(IN_DOUBT, replaced_and_reverted, {"drop": ["day=2/a"], ("day=1/", "force"): BASE}, revert),
    Case(
        "was also overwritten on another branch, in the folder of '{}'",
        overwritten_beside,
        {("day=1/", "force"): ["day=1/a", "day=2/a", "day=2/m"], ("day=1/", "drop"): None},
        revert,
    ),
    Case(
        "was also changed on another branch, at '{}'",
        removed_beside,
        {("day=1/", "force"): ["day=1/a", "day=2/a", "day=2/d"], "drop": ["day=2/a", "day=2/d"]},
        revert,
    ),
    Case(
        "was overwritten on a branch by the commit to be undone, and the merge of that branch also "
        "removed '{}'",
        taken_by_the_merge,
        {"drop": None, "undo the merge": [*BASE, "day=1/m"]},
        revert,
    ),
    Case(
        "{BOTH}, and on the target not only by writes of files",
        met_and_reverted,
        {"drop": None, "force": ["b", "c"]},
    ),
    Case(
        "was overwritten on both sides{}, with merges between them in the meantime",
        met_between,
        {"drop": ["d"], "force": ["b", "c"], ("", "drop"): ["d"]},
    ),
    Case(
        "{BOTH}",
        both_put,
        {
            "drop": ["day=1/a", "day=1/x", "day=2/a"],
            ("day=1/", "drop"): ["day=1/a", "day=1/x", "day=2/a", "day=2/d"],
            ("day=1/", "force"): ["day=1/a", "day=1/x", "day=2/a", "day=2/d"],
        },
    ),
    Case(
        "never had files that the commit removes",
        removed_there,
        {
            "drop": [*BASE, "day=2/m"],
            "force": [*BASE, "day=2/d"],
            ("day=1/", "drop"): [*BASE, "day=2/d", "day=2/m"],
        },
        repeat,
    ),
    Case(
        "has files that one side rewrote into others, and the other side removed or rewrote as well",
        both_rewritten,
        {
            "drop": ["day=1/m", "day=2/a"],
            "force": ["day=1/d", "day=2/a"],
            ("day=1/", "drop"): ["day=1/m", "day=2/a"],
            ("day=1/", "force"): ["day=1/d", "day=2/a"],
        },
    ),
    Case(
        "was set to another state after the commit, and may have the commit's rows in other files",
        set_to_another_state,
        {"drop": None, ("day=1/", "drop"): None, ("day=1/", "force"): [*BASE, "day=1/d"]},
        repeat,
    ),
    Case(
        "has rows of the commit to be reverted in files that a later commit wrote",
        rewritten_since,
        {"drop": None, "force": BASE, ("day=1/", "drop"): None, ("day=1/", "force"): BASE},
        revert,
    ),
    Case(
        "had files of the commit to be reverted removed by a later commit, and the files that would come back"
        " may hold the same rows",
        removed_since,
        {"drop": None, "force": BASE, ("day=1/", "drop"): None, ("day=1/", "force"): BASE},
        revert,
    ),
    Case(
        "has files now, but the other side wrote to it on the condition that it is empty",
        first_job,
        {"drop": ["m"], "force": ["d"]},
    ),
    Case(
        "{BOTH}, and has files {} here, but the other side has {}",
        two_formats,
        {"drop": [*BASE, "m.orc"], "force": ["d.csv", *BASE]},
    ),
    Case(
        "was dropped on one side and changed on the other",
        dropped_here,
        {"drop": None, "force": [*BASE, "day=1/d"]},
    ),
    Case(
        "is not a table of files on the other side",
        something_else,
        {"drop": None, "rename": [*BASE, "day=1/d"]},
    ),
]
FOLLOWED = [
    pytest.param(case, way, id=f"{number} {case.kind[:40]}: {way}")
    for number, case in enumerate(CASES)
    for way in case.ways
]


def test_every_kind_of_conflict_has_a_case() -> None:
    kinds = {
        *refusals("files/merge_rules.py"),
        *refusals("files/known_changes.py"),
        *refusals("files/format.py", ("merge", "_require_managed")),
    }
    assert kinds == {case.kind for case in CASES}


@pytest.mark.parametrize(("case", "way"), FOLLOWED)
def test_the_advice_of_a_conflict_leads_out_of_it(lake: Lake, case: Case, way: str | tuple[str, str]) -> None:
    overwrite(lake, *BASE)
    lake.branch("dev").create()
    case.work(lake)
    before = {ref: lake.resolve(ref) for ref in ("main", "dev")}
    with pytest.raises(MergeConflict) as caught:
        case.ask(lake)
    conflict = caught.value.conflicts[0]
    assert fits(case.kind, conflict.why), conflict.why
    assert {ref: lake.resolve(ref) for ref in before} == before
    told = " ".join(conflict.describe_in_merge())
    word = way if isinstance(way, str) else way[1]
    assert word in told, f"{told} does not speak of {way}"
    had = lake.at("main").get(EVENTS)
    if way == "rename":
        renamed(lake, "main")
        with pytest.raises(MergeConflict, match="was dropped on one side and changed on the other"):
            case.ask(lake)
        case.ask(lake, keys={EVENTS: "force"})
        assert lake.at("main").get("raw.renamed") == had
    elif way == "undo the merge":
        lake.revert("main")
    else:
        case.ask(lake, keys={EVENTS: way if isinstance(way, str) else {way[0]: way[1]}})
    expected = case.ways[way]
    if expected is None:
        assert lake.at("main").get(EVENTS) == had
    else:
        assert paths(lake) == sorted(expected)
