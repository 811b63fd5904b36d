"""Names of references, revisions and times."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidName
from penstock.model.names import NAME_MAX_CHARS, Revision, Step, check_name, parse_revision, parse_time_us

NOVEMBER_US = 1_793_491_200_000_000
"""2026-11-01T00:00:00Z."""
WHOLE = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        ("main", Revision("main", None)),
        ("main~3", Revision("main", None, (Step("~", 3),))),
        ("main~", Revision("main", None, (Step("~", 1),))),
        ("main~0", Revision("main", None, (Step("~", 0),))),
        ("main^2", Revision("main", None, (Step("^", 2),))),
        ("main^", Revision("main", None, (Step("^", 1),))),
        ("main~~^", Revision("main", None, (Step("~", 1), Step("~", 1), Step("^", 1)))),
        ("main*2026-11-01T00:00:00Z", Revision("main", None, (Step("*", NOVEMBER_US),))),
        ("main*2026-11-01", Revision("main", None, (Step("*", NOVEMBER_US),))),
        ("main*1793491200000", Revision("main", None, (Step("*", NOVEMBER_US),))),
        ("main*2026-11-01T02:00:00+02:00", Revision("main", None, (Step("*", NOVEMBER_US),))),
        ("main*2026-11-01T00:00:00.000001Z", Revision("main", None, (Step("*", NOVEMBER_US + 1),))),
        (
            "main~3^2*2026-11-01T00:00:00Z",
            Revision("main", None, (Step("~", 3), Step("^", 2), Step("*", NOVEMBER_US))),
        ),
        (
            "main*2026-11-01T00:00:00Z~3^2",
            Revision("main", None, (Step("*", NOVEMBER_US), Step("~", 3), Step("^", 2))),
        ),
        (f"main@{WHOLE}", Revision("main", WHOLE)),
        (f"main@{WHOLE}~2", Revision("main", WHOLE, (Step("~", 2),))),
        (f"@{WHOLE}", Revision(None, WHOLE)),
        (WHOLE, Revision(None, WHOLE)),
        (WHOLE.upper(), Revision(None, WHOLE)),
        ("2e1cfa82", Revision(None, "2e1cfa82")),
        ("2e1cfa82^2~1", Revision(None, "2e1cfa82", (Step("^", 2), Step("~", 1)))),
        ("feature/returns-2026.11_b~1", Revision("feature/returns-2026.11_b", None, (Step("~", 1),))),
    ],
)
def test_a_revision_is_a_name_or_commit_and_any_steps_from_it(text: str, revision: Revision) -> None:
    assert parse_revision(text) == revision


@pytest.mark.parametrize(
    "text",
    [
        "",
        "~1",
        "^",
        "*2026-11-01",
        "main~x",
        "main~-1",
        "main~1 ",
        " main",
        "main\n",
        "main ~1",
        "main^^2x",
        "main*",
        "main*yesterday",
        "main*2026-13-01",
        "main*2026-02-30",
        "main*2026-11-01T25:00:00Z",
        "main*2026-11-01T",
        "main*12345678901234567",
        "main~1234567890",
        "main@",
        "main@xyz",
        "main@2e1cfa8",
        f"main@{WHOLE}0",
        "main@dev",
        "a@b@2e1cfa82",
        "ma:in",
        "main{1}",
        "..",
        "a..b",
        "dev..main",
    ],
)
def test_bad_revisions_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_revision(text)


@pytest.mark.parametrize("name", ["main", "a", "A-b_c.d/e9", "x" * NAME_MAX_CHARS, "v1.0", "a//b", "deadbee"])
def test_names_that_a_reference_can_have(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1a",
        "-a",
        "_a",
        "/a",
        ".a",
        "a.",
        "a/",
        "a..b",
        "a b",
        "a\n",
        "a\0",
        "a~1",
        "a^",
        "a*b",
        "a@b",
        "a:b",
        "a\\b",
        "\u00e4",
        "a\u00e4",
        "HEAD",
        "head",
        "DETACHED",
        "Detached",
        "deadbeef",
        "DEADBEEF12",
        WHOLE,
        "x" * (NAME_MAX_CHARS + 1),
        "@lake",
    ],
)
def test_names_that_a_reference_cannot_have(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(name)


@pytest.mark.parametrize("wrong", [None, 3, b"main", ["main"]])
def test_a_name_that_is_not_text_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidName):
        check_name(wrong)
    with pytest.raises(InvalidName):
        parse_revision(wrong)


def test_a_time_without_a_zone_is_utc_and_microseconds_are_exact() -> None:
    assert parse_time_us("2026-11-01") == NOVEMBER_US
    assert parse_time_us("2026-11-01T00:00:00") == NOVEMBER_US
    assert parse_time_us("2026-11-01T00:00:00-01:00") == NOVEMBER_US + 3600 * 1_000_000
    for fraction in (0, 1, 7, 123_456, 499_999, 500_001, 999_999):
        assert parse_time_us(f"2026-11-01T00:00:00.{fraction:06}Z") == NOVEMBER_US + fraction


@pytest.mark.parametrize("text", ["", "soon", "2026-11-31", "\u00b2", "\u0be7\u0bf0", "-5", "1e3"])
def test_what_is_not_a_time_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_time_us(text)
