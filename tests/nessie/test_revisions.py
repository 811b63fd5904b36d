"""How Nessie's clients name references and commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CommitNotFound, InvalidName, InvalidRequest, ReferenceNotFound
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from penstock.server.nessie.revisions import (
    NessieRevision,
    check_name,
    parse_body,
    parse_path,
    resolve_revision,
    resolve_target,
)

HASH = "ab" * 32
quick = settings(derandomize=True, deadline=None, max_examples=200)


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    """``main`` has the commits one, two, three; ``dev`` left it after one, and was merged back by four."""
    with open_lake("memory:", author="ada") as made:
        put(made, "main", "one")
        made.branch("dev").create("main")
        put(made, "dev", "side")
        put(made, "main", "two")
        put(made, "main", "three")
        made.merge("dev", "main", message="four")
        made.tag("v1").create("main~1")
        made.branch("lone").create(EMPTY_COMMIT_ID)
        yield made


def put(lake: Lake, branch: str, name: str) -> None:
    content = IcebergTable(metadata_location=name)
    lake.commit([Put(Key(name), content)], branch=branch, message=name)


def messages(lake: Lake, text: str) -> str:
    """The message of the commit that a path names; ``empty`` for the empty lake."""
    place = resolve_revision(lake.catalogue, parse_path(text, lake.catalogue, "ref"))
    return "empty" if place.commit == EMPTY_COMMIT_ID else lake.show(place.commit).message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("main", NessieRevision(name="main")),
        ("main@", NessieRevision(name="main")),
        ("a/b.c_d-e@", NessieRevision(name="a/b.c_d-e")),
        (f"main@{HASH}", NessieRevision(name="main", commit=HASH)),
        (f"main@{HASH.upper()}", NessieRevision(name="main", commit=HASH)),
        (f"@{HASH}", NessieRevision(name=None, commit=HASH)),
        (f"DETACHED@{HASH}", NessieRevision(name=None, commit=HASH)),
        ("main~1^2~3", NessieRevision(name="main", steps=("~1", "^2", "~3"))),
        (
            f"main@{HASH}*2026-11-01T00:00:00Z~2",
            NessieRevision(name="main", commit=HASH, steps=("*2026-11-01T00:00:00Z", "~2")),
        ),
        ("main*1700000000000", NessieRevision(name="main", steps=("*1700000000000",))),
        ("-", NessieRevision(name="main")),
        (f"-@{HASH}", NessieRevision(name="main", commit=HASH)),
        ("cafebabe", NessieRevision(name="cafebabe")),
    ],
)
def test_a_path_is_read_part_by_part(lake: Lake, text: str, expected: NessieRevision) -> None:
    assert parse_path(text, lake.catalogue, "ref") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "1st",
        "with space",
        "a..b",
        "ends/",
        "main@xyz",
        "main@cafe",
        "main~",
        "main~x",
        "main*",
        f"main@{HASH}0",
        "2e1cfa82",
    ],
)
def test_what_cannot_be_a_path_is_refused(lake: Lake, text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_path(text, lake.catalogue, "ref")


@quick
@given(st.text(st.sampled_from("ma1@~^*-/.Tz:Z0é \n"), max_size=12))
def test_any_text_is_a_revision_or_refused(lake: Lake, text: str) -> None:
    try:
        read = parse_path(text, lake.catalogue, "ref")
    except InvalidRequest:
        return
    assert read.name is not None or read.commit is not None or read.steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("main", "four"),
        ("-", "four"),
        ("main~1", "three"),
        ("main^1", "three"),
        ("main^2", "side"),
        ("main^2~1", "one"),
        ("main~1~1", "two"),
        ("main~2~1", "one"),
        ("main~3~1", "empty"),
        ("main~99", "empty"),
        ("main~99~1^2", "empty"),
        ("main^3", "empty"),
        ("main~1^2", "empty"),
        ("main*2000-01-01T00:00:00.000Z", "empty"),
        ("main*2999-01-01T00:00:00Z", "four"),
        ("main*32503680000000~1", "three"),
        ("v1", "three"),
        ("v1~1", "two"),
        ("lone", "empty"),
        ("lone~1", "empty"),
        (f"main@{EMPTY_COMMIT_ID}", "empty"),
        (f"@{EMPTY_COMMIT_ID}", "empty"),
    ],
)
def test_steps_are_taken_one_after_the_other(lake: Lake, text: str, message: str) -> None:
    assert messages(lake, text) == message


def test_a_hash_is_read_under_a_name_that_any_parent_leads_from(lake: Lake) -> None:
    side = lake.resolve("dev")
    assert messages(lake, f"main@{side}") == "side"
    assert messages(lake, f"@{side}~1") == "one"


def test_a_hash_is_not_read_under_a_name_that_does_not_lead_to_it(lake: Lake) -> None:
    with pytest.raises(CommitNotFound) as refused:
        messages(lake, f"dev@{lake.resolve('main')}")
    assert refused.value.details["name"] == "dev"


@pytest.mark.parametrize("text", ["main@{0:.8}", "main@{0:.63}", "@{0:.8}", f"main@{HASH}", f"@{HASH}"])
def test_hashes_are_whole_and_known(lake: Lake, text: str) -> None:
    with pytest.raises(CommitNotFound):
        messages(lake, text.format(lake.resolve("main")))


@pytest.mark.parametrize("name", ["nowhere", "HEAD", "cafebabe"])
def test_a_name_that_nothing_has_is_not_found(lake: Lake, name: str) -> None:
    with pytest.raises(ReferenceNotFound):
        messages(lake, name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("main~0", r"Illegal value 0 for spec type N_TH_PREDECESSOR \(~\)"),
        ("main^0", r"Illegal value 0 for spec type N_TH_PARENT \(\^\)"),
        ("main~" + "9" * 30, "Illegal value 9+ for spec type N_TH_PREDECESSOR"),
        ("@~1", "Hash must contain a starting commit ID."),
    ],
)
def test_steps_that_cannot_be_taken_are_refused(lake: Lake, text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        messages(lake, text)


def test_a_time_too_long_to_be_one_is_refused_by_the_lake(lake: Lake) -> None:
    with pytest.raises(InvalidName):
        messages(lake, "main*" + "9" * 30)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"v1@{EMPTY_COMMIT_ID}", "The branch must be a branch."),
        (f"@{EMPTY_COMMIT_ID}", "The branch must be a branch."),
        ("main", "Expected hash must be provided."),
        ("main~1", "Expected hash must contain a starting commit ID."),
    ],
)
def test_a_write_goes_to_a_branch_at_a_hash(lake: Lake, text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        resolve_target(lake.catalogue, parse_path(text, lake.catalogue, "branch"), "The branch")


@pytest.mark.parametrize("text", ["x", "", "~", "cafe", HASH + "0"])
def test_a_hash_in_a_body_is_checked(text: str) -> None:
    with pytest.raises(InvalidRequest, match="must consist of either a valid commit hash"):
        parse_body("main", text)


@pytest.mark.parametrize("name", ["HEAD", "head", "Detached", "cafebabe", HASH, "1st", "", "a..b", "a/"])
def test_a_name_that_reads_as_something_else_is_not_given(name: str) -> None:
    with pytest.raises(InvalidRequest, match="Reference name mu"):
        check_name(name)


@pytest.mark.parametrize("name", ["main", "a/b/c.d_e-f", "x", "cafe", "decade"])
def test_other_names_are(name: str) -> None:
    assert check_name(name) == name
