"""Bad input of every sort: a typed error that names the thing, and nothing is written."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from penstock import Delete, IcebergTable, Key, KeyMerge, Namespace, Put, Unchanged, Unknown
from penstock.errors import (
    CommitConflict,
    CommitNotFound,
    InvalidContent,
    InvalidKey,
    InvalidName,
    InvalidRequest,
    PenstockError,
    ReferenceChanged,
    ReferenceNotFound,
)
from penstock.lake.lake import Lake
from penstock.model.content import CONTENT_MAX_BYTES
from penstock.model.keys import ELEMENTS_MAX, LENGTH_MAX_CHARS
from tests.queue.hooks import everything, table

NOWHERE = "ab" * 32
SOME_ID = UUID(int=1)


def _prepare(lake: Lake) -> None:
    main = lake.branch()
    main.put("sales.orders", table("1"))
    main.put("plain", table("1"))
    lake.branch("dev").create()
    lake.branch("dev").put("sales.returns", table())
    lake.branch("dev").put("sales.orders", table("dev"))
    main.put("sales.orders", table("2"))
    lake.tag("v1").create()


Case = tuple[Callable[[Lake], Any], type[PenstockError], str]

KEYS: dict[str, Case] = {
    f"key {key!r}"[:40]: (lambda lake, key=key: lake.branch().put(key, table()), InvalidKey, "")  # type: ignore[misc]
    for key in [
        *[
            "",
            ".",
            "a..b",
            "a.",
            ".a",
            'a."b',
            '"a"b',
            "a\0b",
            "a\nb",
            "a\x7f",
            "\x01reserved",
            "\ud800",
            5,
            None,
        ],
        *[
            ".".join(["x"] * (ELEMENTS_MAX + 1)),
            ".".join(["x"] * 500),
            "x" * (LENGTH_MAX_CHARS + 1),
            b"bytes",
            ["a"],
        ],
    ]
}

CONTENTS: dict[str, Case] = {
    f"content {name}": (lambda lake, content=content: lake.branch().put("sales.new", content), error, "")  # type: ignore[misc]
    for name, content, error in [
        ("none", None, InvalidContent),
        ("text", "text", InvalidContent),
        ("a class", IcebergTable, InvalidContent),
        ("with a number for text", IcebergTable(metadata_location=5), InvalidContent),  # type: ignore[arg-type]
        ("with text for a number", IcebergTable(metadata_location="x", snapshot_id="y"), InvalidContent),  # type: ignore[arg-type]
        ("beyond 64 bits", IcebergTable(metadata_location="x", snapshot_id=2**70), InvalidContent),
        ("no Unicode", IcebergTable(metadata_location="\ud800"), InvalidContent),
        ("with wrong properties", Namespace(properties={"a": 1}), InvalidContent),  # type: ignore[dict-item]
        ("unknown without a name", Unknown(type_name=""), InvalidContent),
        ("with an id that is none", IcebergTable(id="x", metadata_location="x"), InvalidContent),  # type: ignore[arg-type]
        ("with an id of nothing", IcebergTable(id=SOME_ID, metadata_location="x"), CommitConflict),
        ("holding what is not there", Unknown(type_name="X", held=(b"\0" * 32,)), InvalidContent),
    ]
}

REQUESTS: dict[str, Case] = {
    "no operations": (lambda lake: lake.branch().commit([]), InvalidRequest, "at least one operation"),
    "a key twice": (
        lambda lake: lake.branch().commit([Put(Key("x"), table()), Put(Key("x"), table())]),
        InvalidRequest,
        "'x' twice",
    ),
    "deleted twice": (
        lambda lake: lake.branch().commit([Delete(Key("plain")), Delete(Key("plain"))]),
        InvalidRequest,
        "'plain' twice",
    ),
    "put and unchanged": (
        lambda lake: lake.branch().commit(
            [Put(Key("plain"), table()), Unchanged(Key("plain"))], base=lake.branch().head
        ),
        InvalidRequest,
        "'plain' twice",
    ),
    "unchanged without a base": (
        lambda lake: lake.branch().commit([Unchanged(Key("plain"))]),
        InvalidRequest,
        "'plain' must be unchanged since a base",
    ),
    "something else": (
        lambda lake: lake.branch().commit(["put"]),  # type: ignore[list-item]
        InvalidRequest,
        "got str",
    ),
    "a key that is text": (
        lambda lake: lake.branch().commit([Put("plain", table())]),  # type: ignore[arg-type]
        InvalidRequest,
        "Key",
    ),
    "too many operations": (
        lambda lake: lake.branch().commit([Delete(Key(f"k{number}")) for number in range(100_001)]),
        InvalidRequest,
        "at most 100000",
    ),
    "a large content": (
        lambda lake: lake.branch().put("x", Unknown(type_name="X", payload=bytes(CONTENT_MAX_BYTES))),
        InvalidContent,
        str(CONTENT_MAX_BYTES),
    ),
    "a delete of nothing": (
        lambda lake: lake.branch().drop("nosuch"),
        CommitConflict,
        "'nosuch' does not exist",
    ),
    "a delete of a full namespace": (
        lambda lake: lake.branch().drop("sales"),
        CommitConflict,
        "'sales' is a namesp",
    ),
    "a table below a table": (
        lambda lake: lake.branch().put("plain.below", table()),
        CommitConflict,
        "'plain' is not a namespace",
    ),
    "another type": (lambda lake: lake.branch().put("plain", Namespace()), CommitConflict, "'plain'"),
    "a base that is not there": (
        lambda lake: lake.branch().put("x", table(), base=NOWHERE),
        CommitNotFound,
        NOWHERE,
    ),
    "a base of another branch": (
        lambda lake: lake.branch().put("x", table(), base="dev"),
        CommitNotFound,
        "not in the history of branch 'main'",
    ),
    "a base long gone": (
        lambda lake: lake.branch().put("sales.orders", table("3"), base="main~1"),
        CommitConflict,
        "'sales.orders' changed meanwhile",
    ),
    "another head": (
        lambda lake: lake.branch().put("x", table(), if_head="main~1"),
        ReferenceChanged,
        "'main'",
    ),
    "an author that is a number": (
        lambda lake: lake.branch().put("x", table(), author=5),  # type: ignore[arg-type]
        InvalidRequest,
        "",
    ),
    "an author that is bytes": (
        lambda lake: lake.branch().put("x", table(), author=b"b"),  # type: ignore[arg-type]
        InvalidRequest,
        "",
    ),
    "properties that are numbers": (
        lambda lake: lake.branch().put("x", table(), properties={"a": 5}),  # type: ignore[dict-item]
        InvalidRequest,
        "",
    ),
    "properties that are bytes": (
        lambda lake: lake.branch().put("x", table(), properties={"a": [b"x"]}),  # type: ignore[list-item]
        InvalidRequest,
        "",
    ),
    "an idempotency key that is a number": (
        lambda lake: lake.branch().put("x", table(), idempotency_key=5),  # type: ignore[arg-type]
        InvalidRequest,
        "idempotency key",
    ),
}

NAMES: dict[str, Case] = {
    "a branch that is not there": (
        lambda lake: lake.branch("nosuch").put("x", table()),
        ReferenceNotFound,
        "'nosuch'",
    ),
    "a branch that cannot be": (
        lambda lake: lake.branch("no such").put("x", table()),
        PenstockError,
        "'no such'",
    ),
    "a branch without a name": (lambda lake: lake.branch("").put("x", table()), InvalidName, ""),
    "a branch that is a number": (
        lambda lake: lake.branch(5).create(),  # type: ignore[arg-type]
        InvalidName,
        "5",
    ),
    "a commit to no branch": (lambda lake: lake.commit([Delete(Key("plain"))], branch=""), InvalidName, ""),
    "a revision without a name": (lambda lake: lake.at(""), InvalidName, ""),
    "a revision that is a number": (lambda lake: lake.at(5), InvalidName, ""),  # type: ignore[arg-type]
    "a key that is not there": (lambda lake: lake.table("nosuch").content, PenstockError, "'nosuch'"),
    "a key without a name": (lambda lake: lake.at().get(""), InvalidKey, ""),
    "a prefix without a name": (lambda lake: lake.tables(""), InvalidKey, ""),
    "an entry after nothing": (lambda lake: list(lake.at().entries(after="")), InvalidKey, ""),
    "a difference to nowhere": (lambda lake: lake.diff("main", "nosuch"), ReferenceNotFound, "'nosuch'"),
    "a show of nowhere": (lambda lake: lake.show(NOWHERE), CommitNotFound, NOWHERE),
    "a deletion of the default branch": (lambda lake: lake.branch().delete(), InvalidRequest, "'main'"),
    "an assignment to nowhere": (lambda lake: lake.branch("dev").assign(NOWHERE), CommitNotFound, NOWHERE),
}

MERGES: dict[str, Case] = {
    "a conflict": (lambda lake: lake.merge("dev", "main"), CommitConflict, "'sales.orders'"),
    "from nowhere": (lambda lake: lake.merge("nosuch", "main"), ReferenceNotFound, "'nosuch'"),
    "into nowhere": (lambda lake: lake.merge("dev", "nosuch"), ReferenceNotFound, "'nosuch'"),
    "into nothing": (lambda lake: lake.merge("dev", ""), InvalidName, ""),
    "into a tag": (lambda lake: lake.merge("dev", "v1"), InvalidRequest, "'v1' is a tag"),
    "from an unknown commit": (lambda lake: lake.merge(NOWHERE, "main"), CommitNotFound, NOWHERE),
    "in an unknown way": (lambda lake: lake.merge("dev", "main", default="wild"), InvalidRequest, "'wild'"),
    "a key in an unknown way": (
        lambda lake: lake.merge("dev", "main", keys={"sales.orders": "wild"}),
        InvalidRequest,
        "'wild'",
    ),
    "a key that is not part of it": (
        lambda lake: lake.merge("dev", "main", keys={"sales.orders": "force", "plain": "drop"}),
        InvalidRequest,
        "plain",
    ),
    "a key with a wrong content": (
        lambda lake: lake.merge("dev", "main", keys={"sales.orders": KeyMerge(content="text")}),  # type: ignore[arg-type]
        PenstockError,
        "",
    ),
    "with another head": (
        lambda lake: lake.merge("dev", "main", default="force", if_head="main~1"),
        ReferenceChanged,
        "'main'",
    ),
    "a transplant of nothing": (lambda lake: lake.transplant([], "main"), InvalidRequest, "no commits"),
    "a transplant backwards": (
        lambda lake: lake.transplant(["dev", "dev~1"], "main"),
        InvalidRequest,
        "oldest first",
    ),
    "a range that is none": (lambda lake: lake.transplant("main..dev", "main"), InvalidRequest, "'dev'"),
    "a range from nowhere": (
        lambda lake: lake.transplant("nosuch..dev", "main"),
        ReferenceNotFound,
        "'nosuch'",
    ),
    "a range without an end": (lambda lake: lake.transplant("dev~1..", "main"), InvalidName, ""),
    "a range without a start": (lambda lake: lake.transplant("..dev", "main"), InvalidName, ""),
    "a message for several": (
        lambda lake: lake.transplant("dev~2..dev", "main", message="one for all", default="force"),
        InvalidRequest,
        "single commit",
    ),
    "a revert of another branch": (lambda lake: lake.revert("dev", "main"), InvalidRequest, "'main'"),
    "a revert of nowhere": (lambda lake: lake.revert(NOWHERE), CommitNotFound, NOWHERE),
    "a rebase of the default branch": (lambda lake: lake.rebase("main", "dev"), InvalidRequest, "'main'"),
    "a rebase of nowhere": (lambda lake: lake.rebase("nosuch", "main"), ReferenceNotFound, "'nosuch'"),
    "a rebase with conflicts": (lambda lake: lake.rebase("dev", "main"), CommitConflict, "'sales.orders'"),
}


def _check(lake: Lake, case: Case) -> None:
    do, error, text = case
    _prepare(lake)
    before = everything(lake.kernel.store)
    with pytest.raises(error) as caught:
        do(lake)
    assert text in str(caught.value)
    assert caught.value.code
    assert everything(lake.kernel.store) == before


@pytest.mark.parametrize("case", KEYS.values(), ids=KEYS.keys())
def test_a_key_that_cannot_be_is_refused(lake: Lake, case: Case) -> None:
    _check(lake, case)


@pytest.mark.parametrize("case", CONTENTS.values(), ids=CONTENTS.keys())
def test_a_content_that_cannot_be_is_refused(lake: Lake, case: Case) -> None:
    _check(lake, case)


@pytest.mark.parametrize("case", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_request_that_cannot_be_is_refused(lake: Lake, case: Case) -> None:
    _check(lake, case)


@pytest.mark.parametrize("case", NAMES.values(), ids=NAMES.keys())
def test_a_name_that_leads_nowhere_is_refused(lake: Lake, case: Case) -> None:
    _check(lake, case)


@pytest.mark.parametrize("case", MERGES.values(), ids=MERGES.keys())
def test_a_merge_that_cannot_be_is_refused(lake: Lake, case: Case) -> None:
    _check(lake, case)


def test_all_conflicts_of_a_request_are_told_at_once(lake: Lake) -> None:
    _prepare(lake)
    with pytest.raises(CommitConflict) as caught:
        lake.branch().commit(
            [
                Put(Key("sales", "orders"), table("3")),
                Delete(Key("nosuch")),
                Put(Key("no", "namespace"), table()),
                Put(Key("plain"), Namespace()),
            ],
            base="main~1",
        )
    assert {str(conflict.key) for conflict in caught.value.conflicts} == {
        "sales.orders",
        "nosuch",
        "no",
        "plain",
    }
    for name in ("sales.orders", "nosuch", "'no'", "plain"):
        assert name in str(caught.value)
