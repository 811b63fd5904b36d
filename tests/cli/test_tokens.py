"""Tokens from the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

import penstock
from penstock.lake.tokens import make_token
from penstock.server.access import TokenGate
from tests.cli.conftest import Terminal


def enter(terminal: Terminal, text: str) -> tuple[str, list[str]]:
    """Who gets in with a token, and what they may do."""
    with penstock.open(terminal.place) as lake:
        caller = TokenGate(lake.catalogue)({"authorization": f"Bearer {text}"})
        return caller.name, [str(grant) for grant in caller.grants]


def test_a_new_token_is_all_that_is_printed_and_opens_a_server(terminal: Terminal) -> None:
    ran = terminal("token", "create", "etl", "--grant", "read", "--grant", "write:dev/*:sales.*")
    (text,) = ran.lines
    assert "not shown again" in ran.err
    assert "PENSTOCK_TOKEN" in ran.err
    assert text not in ran.err
    assert enter(terminal, text) == ("etl", ["read", "write:dev/*:sales.*"])


def test_a_second_token_of_a_name_replaces_the_first_or_is_refused(terminal: Terminal) -> None:
    first = terminal.json("token", "create", "etl", "--grant", "write")
    refused = terminal("token", "create", "etl", "--grant", "write", status=3)
    assert f"'etl' already has a token, {first['id']}" in refused.err
    assert len(terminal.json("token")["items"]) == 1
    unknown = terminal("token", "create", "dbt", "--grant", "write", "--replaces", first["id"], status=4)
    assert f"there is no token '{first['id']}' of 'dbt' to replace" in unknown.err
    made = terminal("token", "create", "etl", "--grant", "write", "--replaces", first["id"])
    assert f"penstock token revoke {first['id']}" in made.err
    assert terminal("token", "revoke", first["id"]).status == 0
    assert len(terminal.json("token")["items"]) == 1


def test_a_new_token_as_an_object(terminal: Terminal) -> None:
    found = terminal.json("token", "create", "etl", "--grant", "admin")
    assert sorted(found) == ["created", "expires", "grants", "id", "name", "secret_hash", "token"]
    assert found["token"].startswith(f"penstock_{found['id']}_")
    assert (found["name"], found["expires"], found["secret_hash"]) == ("etl", None, "")
    assert found["grants"] == [{"role": "admin", "references": "*", "keys": "*"}]
    assert enter(terminal, found["token"]) == ("etl", ["admin"])


def test_tokens_are_listed_without_their_secrets(terminal: Terminal) -> None:
    assert terminal("token").lines == ["no tokens"]
    made = terminal.json("token", "create", "etl", "--grant", "read:main", "--expires", "90d")
    secret = made["token"].split("_", 2)[2]
    for how in (["token"], ["token", "list"]):
        ran = terminal(*how)
        (line,) = ran.lines
        assert line.split()[:3] == [made["id"], "etl", "read:main"]
        assert f"until {made['expires'][:10]}" in line
        assert secret not in ran.out + ran.err
    (listed,) = terminal.json("token", "list")["items"]
    assert listed == {name: value for name, value in made.items() if name != "token"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 90 * 86_400), ("12h", 12 * 3600), ("30min", 1800), ("2 w", 14 * 86_400)]
)
def test_a_token_expires_after_a_while(terminal: Terminal, text: str, seconds: int) -> None:
    before = datetime.now(UTC)
    made = terminal.json("token", "create", "etl", "--grant", "read", "--expires", text)
    left = datetime.fromisoformat(made["expires"]) - before
    assert timedelta(seconds=seconds) <= left < timedelta(seconds=seconds + 60)


def test_a_token_expires_at_a_moment(terminal: Terminal) -> None:
    made = terminal.json("token", "create", "etl", "--grant", "read", "--expires", "2100-01-01")
    assert made["expires"] == "2100-01-01T00:00:00Z"


@pytest.mark.parametrize("text", ["soon", "", "9999999d", "99999999999999999999", "-3d"])
def test_a_time_that_cannot_be_read_is_a_mistake_of_usage(terminal: Terminal, text: str) -> None:
    ran = terminal("token", "create", "etl", "--grant", "read", "--expires", text, status=2)
    assert "--expires" in ran.err
    assert terminal("token").lines == ["no tokens"]


def test_a_token_that_could_never_be_used_is_not_made(terminal: Terminal) -> None:
    ran = terminal("token", "create", "etl", "--grant", "read", "--expires", "2020-01-01", status=1)
    assert "cannot expire in the past" in ran.err


@pytest.mark.parametrize("grant", ["own", "", "read:", "read::sales.*", "read:main:", "admin:dev/*"])
def test_what_is_no_grant_is_refused_and_quoted(terminal: Terminal, grant: str) -> None:
    assert f"'{grant}'" in terminal("token", "create", "etl", "--grant", grant, status=1).err
    terminal("token", "create", "etl", status=2)
    assert terminal("token").lines == ["no tokens"]


@pytest.mark.parametrize("how", ["id", "name", "token"])
def test_a_token_is_revoked_by_id_by_name_or_by_itself(terminal: Terminal, how: str) -> None:
    made = terminal.json("token", "create", "etl", "--grant", "read")
    kept = terminal.json("token", "create", "other", "--grant", "read")
    assert terminal("token", "revoke", made[how]).lines == [f"revoked token {made['id']} of etl"]
    assert [one["id"] for one in terminal.json("token")["items"]] == [kept["id"]]
    assert terminal("token", "revoke", made["id"], "--json", status=4).error["code"] == "token_not_found"
    assert terminal("token", "revoke", "nobody", status=4).err.count("'penstock token") == 1


def test_of_several_tokens_with_one_name_none_is_guessed(terminal: Terminal) -> None:
    made = [terminal.json("token", "create", "etl", "--grant", "read")]
    made.append(terminal.json("token", "create", "etl", "--grant", "read", "--replaces", made[0]["id"]))
    ran = terminal("token", "revoke", "etl", status=1)
    assert all(one["id"] in ran.err for one in made)
    assert len(terminal.json("token")["items"]) == 2
    gone = terminal.json("token", "revoke", made[0]["id"])
    assert gone["id"] == made[0]["id"]


def test_an_expired_token_is_shown_as_such(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        _, call = make_token("old", ["read"])
        past = datetime(2026, 1, 1, tzinfo=UTC)
        lake.do(msgspec.structs.replace(call, expires=past))
    assert "expired 2026-01-01" in terminal("token").lines[0]
