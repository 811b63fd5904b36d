"""Text for people: columns, times, changes; what a screen can show."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from penstock.cli import format_cli, progress
from penstock.cli.format_cli import FormatCli
from penstock.cli.rendering.contents import describe_change, describe_version, list_fields
from penstock.cli.rendering.screen import Screen, clip_text, escape_controls, measure_width
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns, fit_items_on_line
from penstock.cli.rendering.times import format_age, format_count, format_iso_time, format_size, parse_moment
from penstock.formats.lance.content import LanceTable
from penstock.model.content import Namespace
from penstock.model.nessie import DeltaTable, IcebergTable

NOW = datetime(2026, 11, 14, 10, 0, tzinfo=UTC)


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


# -- screens -----------------------------------------------------------------------------------------------


def test_a_terminal_has_colours_and_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen.of_stream(Tty())
    assert (screen.width, screen.colour) == (77, True)
    assert screen.style("main", "name") == "\x1b[1;36mmain\x1b[0m"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_declined(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    assert Screen.of_stream(Tty()).style("main", "name") == "main"


def test_a_file_has_neither_colours_nor_a_width() -> None:
    screen = Screen.of_stream(io.StringIO())
    assert (screen.width, screen.colour) == (None, False)


def test_a_stream_that_knows_no_lines_gets_plain_characters() -> None:
    screen = Screen.of_stream(io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert screen.replace_unsupported("●─╮ main → dev … more") == "*-\\ main -> dev ... more"


def test_text_cannot_command_the_terminal() -> None:
    assert escape_controls("a\x1b[2Jb\nc\u202ed") == "a\\x1b[2Jb\\nc\\u202ed"
    assert escape_controls("größe 大小") == "größe 大小"


def test_wide_characters_take_two_columns() -> None:
    assert measure_width("大小") == 4
    assert measure_width("e\u0301") == 1
    assert clip_text("大小大小", 6) == "大小…"
    assert clip_text("orders", 6) == "orders"
    assert clip_text("customers", 6) == "custo…"


# -- columns -----------------------------------------------------------------------------------------------


def test_columns_line_up_and_empty_ones_vanish() -> None:
    rows = [["a", "", "short", "1"], ["大小", "", "longer text", "22"]]
    assert list(align_columns(Screen(), rows)) == ["a     short        1", "大小  longer text  22"]


def test_a_screen_that_is_too_narrow_shortens_the_flexible_column() -> None:
    rows = [["id", "a message that is far too long for this", "ada"]]
    (line,) = align_columns(Screen(width=30), rows, flexible=1)
    assert line == "id  a message that is fa…  ada"
    (line,) = align_columns(Screen(width=5), rows, flexible=1)
    assert line == "id  a message t…  ada", "it stays readable on a screen of any width"


def test_colours_do_not_count_as_width() -> None:
    rows: list[Row] = [[StyledText("a", "id"), "x"], [StyledText("bb", "id"), "y"]]
    plain = list(align_columns(Screen(), rows))
    assert plain == ["a   x", "bb  y"]
    painted = list(align_columns(Screen(colour=True), rows))
    assert painted == ["\x1b[33ma\x1b[0m   x", "\x1b[33mbb\x1b[0m  y"]


def test_no_rows_are_no_lines() -> None:
    assert list(align_columns(Screen(), [])) == []


def test_what_does_not_fit_on_a_line_is_counted() -> None:
    items = [StyledText(f"+ sales.t{number}") for number in range(9)]
    assert fit_items_on_line(Screen(width=40), items) == "+ sales.t0   + sales.t1   … 7 more"
    assert fit_items_on_line(Screen(width=5), items[:2]).startswith("+ sales.t0"), "at least one is shown"
    assert fit_items_on_line(Screen(), items).count("sales") == 9


# -- times -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_400, "1 day ago"),
        (3 * 86_400, "3 days ago"),
        (30 * 86_400, "2026-10-15"),
        (-5, "just now"),
        (-3600, "2026-11-14 11:00 UTC"),
    ],
)
def test_times_are_told_as_people_say_them(seconds: int, text: str) -> None:
    assert format_age(NOW - timedelta(seconds=seconds), NOW) == text


def test_a_moment_can_be_told_by_how_long_ago_it_was() -> None:
    assert parse_moment("2h", NOW) == NOW - timedelta(hours=2)
    assert parse_moment("30 min ago", NOW) == NOW - timedelta(minutes=30)
    assert parse_moment("7d", NOW) == NOW - timedelta(days=7)
    assert parse_moment("2026-11-01", NOW) == "2026-11-01"
    assert format_iso_time(NOW) == "2026-11-14T10:00:00.000000Z"


def test_sizes_and_counts() -> None:
    assert [format_size(0), format_size(1023), format_size(1536), format_size(5 * 1024**4)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "5.0 TiB",
    ]
    assert [format_count(1, "branch", "branches"), format_count(2000, "branch", "branches")] == [
        "1 branch",
        "2,000 branches",
    ]


# -- contents ----------------------------------------------------------------------------------------------


def test_a_change_names_the_fields_that_changed() -> None:
    one = uuid4()
    before = IcebergTable(id=one, metadata_location="s3://b/orders/meta/v1.json", snapshot_id=5)
    after = IcebergTable(id=one, metadata_location="s3://b/orders/meta/v2.json", snapshot_id=6)
    assert describe_change(before, after) == "metadata_location …/v1.json → …/v2.json, snapshot_id 5 → 6"
    assert describe_change(None, after) == "ICEBERG_TABLE s3://b/orders/meta/v2.json"
    assert describe_change(before, LanceTable(id=one, location="/w/x")) == (
        "ICEBERG_TABLE s3://b/orders/meta/v1.json → LANCE_TABLE /w/x"
    )


def test_a_table_created_anew_says_so() -> None:
    before = DeltaTable(id=uuid4(), state=b"1")
    assert (
        describe_change(before, DeltaTable(id=uuid4(), state=b"2"))
        == "dropped and created again, state changed"
    )


def test_fields_at_their_default_are_left_out() -> None:
    assert list_fields(IcebergTable(metadata_location="s3://x")) == [("metadata_location", "s3://x")]
    assert list_fields(Namespace(properties={"owner": "ada\x1b"})) == [("properties", "owner=ada\\x1b")]
    assert list_fields(LanceTable(state=b"12345", held=(b"\x01" * 32,))) == [
        ("state", "5 bytes"),
        ("held", "01" * 32),
    ]


# -- progress ----------------------------------------------------------------------------------------------


def test_a_table_of_a_format_without_words_is_told_by_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_cli, "_load_format_cli", lambda _: FormatCli())
    monkeypatch.setattr(format_cli, "find_plugin", lambda _: None)
    before = LanceTable(id=uuid4(), location="/w/t", state=b"1")
    after = LanceTable(id=before.id, location="/w/t", state=b"22")
    assert list_fields(after) == [("id", str(after.id)), ("location", "/w/t"), ("state", "2 bytes")]
    assert describe_change(before, after) == "state changed"
    assert describe_version(after) == ""
    assert FormatCli().describe_change(before, after) is None


def test_progress_is_a_line_on_a_terminal_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Tty()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "REDRAW_S", 0)
    with progress.Progress() as told:
        told("checked", 1000)
        assert stream.getvalue() == "\r\x1b[Kchecked 1,000 objects"
    assert stream.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("stream", "quiet"), [(io.StringIO(), False), (Tty(), True)])
def test_progress_is_silent_elsewhere(
    stream: io.StringIO, quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "REDRAW_S", 0)
    with progress.Progress(quiet) as told:
        told("checked", 1000)
    assert stream.getvalue() == ""
