"""The log: one object a line, nothing that is secret, and nothing that ends the server."""

from __future__ import annotations

import io
import json
import logging

import pytest

from penstock.server.logs import PATH_MAX_CHARS, Log, LogHandler, LogLevel, LogLineWriter, mask_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/x/penstock_0123456789ab_a-B_c9/y", "/x/penstock_0123456789ab_***/y"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("basic%20dXNlcjpwYXNz", "basic%20***"),
        ("postgresql://ada:hunter2@db/lake", "postgresql://ada:***@db/lake"),
        ("postgresql://ada:hunt@r2@db/lake", "postgresql://ada:***@db/lake"),
        ("at http://127.0.0.1:1/a@b", "at http://127.0.0.1:1/a@b"),
        ("/api/v2/trees/main@00aa/contents/a.b", "/api/v2/trees/main@00aa/contents/a.b"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert mask_secrets(text) == shown


@pytest.mark.parametrize(
    "path",
    [
        "/x/penstock_0123456789ab%5FSeCrEt",
        "/x/%70enstock_0123456789ab_SeCrEt",
        "/x/Bearer%20SeCrEt",
        "/x/penstock_0123456789ab%255FSeCrEt",
        "/x/penstock_0123456789ab%" + "25" * 20 + "5FSeCrEt",
    ],
)
def test_a_token_in_a_path_is_masked_however_it_is_encoded(path: str) -> None:
    stream = io.BytesIO()
    Log(stream).log_request(line(path))
    assert b"SeCrEt" not in stream.getvalue()
    assert b"***" in stream.getvalue()


def line(path: str) -> LogLineWriter:
    return LogLineWriter(time="", level="info", request_id="r", method="GET", path=path, status=200, ms=1.0)


def test_a_line_is_one_object_whatever_the_path_holds() -> None:
    stream = io.BytesIO()
    Log(stream).log_request(line('/a\n"b\x00' + "c" * 1000))
    [written] = stream.getvalue().splitlines()
    assert len(json.loads(written)["path"]) == PATH_MAX_CHARS


def test_less_is_said_at_a_higher_level() -> None:
    stream = io.BytesIO()
    log = Log(stream, LogLevel.ERROR)
    assert not log.wants_level(LogLevel.WARNING)
    log.log_message(LogLevel.WARNING, "not so bad")
    assert stream.getvalue() == b""
    log.log_message(LogLevel.ERROR, "bad")
    assert json.loads(stream.getvalue())["message"] == "bad"


def test_what_libraries_log_has_the_same_form() -> None:
    stream = io.BytesIO()
    handler = LogHandler(Log(stream))
    error = ValueError("s3://key:hunter2@bucket")
    told_by = ("library", logging.ERROR, "file", 1, "it broke for %s", ("penstock_0123456789ab_SeCrEt",))
    handler.handle(logging.LogRecord(*told_by, exc_info=(ValueError, error, None)))
    [written] = stream.getvalue().splitlines()
    told = json.loads(written)
    assert (told["level"], told["message"]) == ("error", "it broke for penstock_0123456789ab_***")
    assert "ValueError" in told["trace"]
    assert b"hunter2" not in written


def test_a_log_that_nobody_reads_any_more_stops_nothing() -> None:
    stream = io.BytesIO()
    stream.close()
    Log(stream).log_request(line("/a"))
