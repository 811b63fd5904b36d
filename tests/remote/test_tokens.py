"""The token of a client: where it comes from, where it goes to, and where it never is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import Denied, InvalidRequest, PenstockError, Unauthenticated
from penstock.lake.calls import GetAbout
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.server.access import TokenGate
from tests.remote.scenarios import table
from tests.remote.scripted import Said, scripted
from tests.remote.serving import Served, serving

SECRET = "penstock_0123456789ab_s3cr3t"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_TOKEN", "PENSTOCK_TOKEN_FILE", "PENSTOCK_INSECURE"):
        monkeypatch.delenv(name, raising=False)


def sent(*args: Any) -> str | None:
    """The header that a server gets."""
    with scripted(Said(404)) as server:
        remote = RemoteCatalogue(server.url, *args)
        with pytest.raises(PenstockError):
            remote.do(GetAbout())
        remote.close()
    return server.asked[0].headers.get("authorization")


def test_without_a_token_none_is_sent() -> None:
    assert sent() is None


def test_a_token_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "another")
    assert sent(SECRET) == f"Bearer {SECRET}"


def test_a_token_is_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("another")
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("PENSTOCK_TOKEN", SECRET)
    assert sent() == f"Bearer {SECRET}"


def test_a_token_is_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(tmp_path / "token"))
    assert sent() == f"Bearer {SECRET}"


def test_an_empty_token_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", SECRET)
    assert sent("") is None


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(tmp_path / "nothing"))
    with pytest.raises(InvalidRequest, match=r"PENSTOCK_TOKEN_FILE names .*nothing.*No such file"):
        RemoteCatalogue("http://127.0.0.1:1")


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "ümlaut", "x\r\nHost: evil"])
def test_what_cannot_be_a_token_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(InvalidRequest, match="token contains characters") as caught:
        RemoteCatalogue("http://127.0.0.1:1", token)
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://lake.example", "http://10.0.0.1:19120", "http://[2001:db8::1]", "http://127.evil"]
)
def test_a_token_is_not_sent_in_the_open(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="use https://, or set PENSTOCK_INSECURE=1"):
        RemoteCatalogue(url, SECRET)
    RemoteCatalogue(url)
    monkeypatch.setenv("PENSTOCK_INSECURE", "1")
    RemoteCatalogue(url, SECRET)


@pytest.mark.parametrize(
    "url",
    [
        "https://lake.example",
        "http://localhost:19120",
        "http://127.0.0.1",
        "http://127.8.8.8",
        "http://[::1]:19120",
    ],
)
def test_a_token_is_sent_over_tls_and_to_this_machine(url: str) -> None:
    RemoteCatalogue(url, SECRET)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://user:pa55word@host", "contains a user or password"),
        ("http://host?token=pa55word", "must not contain"),
        ("http://host/#pa55word", "must not contain"),
        ("http://", "not the address"),
        ("http://ho st", "cannot be read|not the address"),
        ("ftp://host", "not the address"),
        ("http://host:port", "cannot be read"),
    ],
)
def test_an_address_that_cannot_be_is_refused_without_its_secrets(url: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told) as caught:
        RemoteCatalogue(url)
    assert "pa55word" not in str(caught.value)


def test_a_token_is_in_no_text_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with scripted(Said(500, b"no", "text/plain")) as server:
        remote = RemoteCatalogue(server.url, SECRET)
        with pytest.raises(PenstockError) as caught:
            remote.do(GetAbout())
        remote.close()
    shown = [repr(remote), repr(vars(remote)), str(caught.value), repr(caught.value.details), caplog.text]
    assert server.asked[0].headers["authorization"].endswith(SECRET)
    assert [text for text in shown if "s3cr3t" in text] == []


def test_a_redirect_does_not_get_the_token() -> None:
    with scripted(Said(200, b"{}")) as other, scripted(Said(307, headers={"location": other.url})) as server:
        remote = RemoteCatalogue(server.url, SECRET)
        with pytest.raises(InvalidRequest, match="redirects"):
            remote.do(GetAbout())
        remote.close()
    assert other.asked == []


@pytest.fixture
def guarded() -> Iterator[tuple[Lake, Served]]:
    with (
        penstock.open("memory:", author="tester") as embedded,
        serving(embedded.catalogue, gate=TokenGate(embedded.catalogue)) as server,
    ):
        yield embedded, server


def test_a_server_is_used_with_the_token_that_the_lake_made(guarded: tuple[Lake, Served]) -> None:
    embedded, server = guarded
    embedded.add_root("s3://bucket")
    token = embedded.create_token("ci", "read", "write:dev/*")
    with penstock.open(server.url, token=token) as lake:
        lake.branch("dev/a").create().put("a", table(1))
        assert lake.show("dev/a").committer == "ci"
        with pytest.raises(Denied):
            lake.branch().put("a", table(1))
        with pytest.raises(Denied):
            lake.tokens()


@pytest.mark.parametrize("token", [None, "nonsense", SECRET])
def test_without_a_token_that_is_known_nothing_is_answered(
    guarded: tuple[Lake, Served], token: str | None
) -> None:
    with pytest.raises(Unauthenticated):
        penstock.open(guarded[1].url, token=token)
