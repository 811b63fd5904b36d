"""Every error reaches people as a message and programs as an object and an exit status; no traceback does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from penstock import errors
from penstock.cli.advice import ADVICE, BEHIND_SERVER
from penstock.cli.root import EXIT_STATUSES, RootCommand
from penstock.cli.root import penstock as root
from penstock.errors import PenstockError
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from tests.cli.conftest import Terminal


def tree(kind: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from tree(below)


def failing(error: BaseException, *arguments: str) -> Result:
    """Run a command that raises an error."""

    @click.command("fail")
    def fail() -> None:
        raise error

    class Failing(RootCommand):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return fail

    return CliRunner().invoke(Failing("penstock"), [*arguments, "fail"])


def an(kind: type[PenstockError]) -> PenstockError:
    if issubclass(kind, errors.CommitConflict):
        return kind([Conflict(ConflictKind.VALUE_DIFFERS, Key("a", "b"), "x", "y")])
    return kind("what happened", name="a.b")


@pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)
def test_an_error_ends_with_its_exit_status_and_its_message(kind: type[PenstockError]) -> None:
    result = failing(an(kind))
    assert result.exit_code == kind.exit_code
    assert result.exit_code in EXIT_STATUSES
    assert result.stdout == ""
    assert result.stderr.startswith(f"penstock: {an(kind).message}\n")


@pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)
def test_an_error_in_json_has_code_message_and_details(kind: type[PenstockError]) -> None:
    result = failing(an(kind), "--json")
    assert (result.exit_code, result.stdout) == (kind.exit_code, "")
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["message"]) == (kind.code, an(kind).message)
    if issubclass(kind, errors.CommitConflict):
        expected = {
            "kind": "VALUE_DIFFERS",
            "key": "a.b",
            "expected": "x",
            "found": "y",
            "why": "",
            "path": "",
            "found_version": None,
        }
        assert error["details"] == {"conflicts": [expected]}
    else:
        assert error["details"] == {"name": "a.b"}


def test_all_exit_statuses_are_used() -> None:
    used = {kind.exit_code for kind in tree()}
    assert used | {0, click.UsageError.exit_code} == set(EXIT_STATUSES)


def test_an_outcome_unknown_names_the_way_to_find_out() -> None:
    result = failing(errors.OutcomeUnknown("no answer", key="load-7", name="dev"))
    assert "'penstock outcome load-7 --branch dev' shows the outcome" in result.stderr
    assert "Check the lake" in failing(errors.OutcomeUnknown("no answer")).stderr


def test_advice_is_one_line_about_errors_that_there_are() -> None:
    for table in (ADVICE, BEHIND_SERVER):
        assert set(table) <= set(tree())
        assert all("\n" not in text for text in table.values())


@pytest.mark.parametrize(
    "error",
    [
        errors.TimedOut("the request took longer than 30 s; nothing was changed"),
        errors.TimedOut("the request took longer than 30 s; it may still be applied"),
        errors.RetriesExhausted(
            "it moved too often. Nothing was changed; try again when there is less to do"
        ),
    ],
    ids=["read", "write", "retries"],
)
def test_what_a_message_says_is_not_said_again(error: PenstockError) -> None:
    assert failing(error).stderr == f"penstock: {error.message}\n"
    assert failing(errors.Unavailable("no answer")).stderr.endswith("\n  Nothing was changed; try again.\n")


@pytest.mark.parametrize(
    ("place", "advice"),
    [
        ({"url": "sqlite:///data/my lake/penstock.db"}, "  'penstock init '/data/my lake'' makes one.\n"),
        ({"path": "/data/lake/penstock.db"}, "  'penstock init /data/lake' makes one.\n"),
        ({"url": "postgresql://db/lake"}, "  'penstock init postgresql://db/lake' makes one.\n"),
        ({"url": "http://127.0.0.1:1"}, ""),
        ({}, ""),
    ],
)
def test_a_lake_that_is_not_there_is_made_by_a_whole_command(place: dict[str, str], advice: str) -> None:
    assert (
        failing(errors.LakeNotFound("there is none", **place)).stderr == f"penstock: there is none\n{advice}"
    )


def test_a_server_names_its_request_where_it_failed_itself() -> None:
    for error, shown in ((errors.Unavailable("no answer"), True), (errors.Denied("no"), False)):
        error.request_id = "1a2b3c4d"
        assert ("(request 1a2b3c4d)" in failing(error).stderr.splitlines()[0]) is shown
        told = json.loads(failing(error, "--json").stderr)
        assert (told["error"]["message"], told["request_id"]) == (error.message, "1a2b3c4d")
    assert json.loads(failing(errors.Denied("no"), "--json").stderr)["request_id"] == ""


def test_details_of_any_kind_can_be_printed() -> None:
    error = errors.InvalidRequest(
        "x", a=Key("a", "b.c"), b=b"\x01", c=(1, None, Key("k")), d={"e": 2.5}, f=Path("/x"), g={3}
    )
    details = json.loads(failing(error, "--json").stderr)["error"]["details"]
    assert details == {"a": 'a."b.c"', "b": "AQ==", "c": [1, None, "k"], "d": {"e": 2.5}, "f": "/x", "g": [3]}


def test_an_error_about_bytes_that_are_no_text_can_be_printed() -> None:
    error = errors.InvalidRequest("bad \udcff", name="\udcff", key=Key("a"))
    told = json.loads(failing(error, "--json").stderr)["error"]
    assert (told["message"], told["details"]["name"]) == ("bad \\udcff", "\\udcff")
    assert failing(error).stderr.startswith("penstock: bad \\udcff")


def test_a_defect_is_one_line_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    result = failing(KeyError("some\nthing"))
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first == "penstock: unexpected KeyError: 'some\\nthing'"
    assert "PENSTOCK_DEBUG=1" in second
    assert json.loads(failing(KeyError("x"), "--json").stderr)["error"]["code"] == "unexpected"
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert "Traceback" in failing(KeyError("x")).stderr
    assert failing(KeyError("x")).exit_code == 1


def test_an_error_of_the_machine_names_the_file() -> None:
    result = failing(FileNotFoundError(2, "No such file or directory", "/nowhere"))
    assert (result.exit_code, result.stderr) == (1, "penstock: /nowhere: No such file or directory\n")


def test_an_interruption_is_quiet() -> None:
    result = failing(KeyboardInterrupt())
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_a_reader_that_has_gone_is_no_error() -> None:
    result = failing(BrokenPipeError())
    assert (result.exit_code, result.output) == (141, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mrge"], "Did you mean 'merge'?"),
        (["qqqqqq"], "there is no command 'qqqqqq'"),
        (["log", "--nope"], "No such option '--nope'."),
        (["merge"], "Missing argument 'SOURCE'."),
        (["branch", "assign", "x"], "Missing option '--to'."),
        (["log", "-n", "0"], "0 is less than 1"),
        (["merge", "dev", "--default", "mine"], "'mine' is not one of 'normal', 'force', 'drop'"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_usage_errors_say_what_is_wrong_and_where_to_look(
    arguments: list[str], message: str, terminal: Terminal
) -> None:
    refused = terminal(*arguments, status=2)
    assert message in refused.err
    assert "--help' shows how to use it." in refused.err
    error = terminal(*arguments, "--json", status=2).error
    assert (error["code"], error["details"]) == ("usage", {})


def test_a_lake_of_a_newer_version_is_refused_by_name(terminal: Terminal) -> None:
    from tests.cli.test_care import change_database

    change_database(terminal.place, "PRAGMA user_version = 99")
    assert "Use a newer Penstock." in terminal("log", status=1).err
    assert terminal("log", "--json", status=1).error["code"] == "unsupported_format"


def test_a_damaged_database_is_refused_by_name(terminal: Terminal) -> None:
    (terminal.place / "penstock.db").write_bytes(b"not a database at all" * 500)
    error = terminal("log", "--json", status=1).error
    assert error["code"] == "damaged"
    assert str(terminal.place) in error["message"]
    assert "penstock fsck" in terminal("log", status=1).err


def test_a_store_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "lake" / "penstock.db").mkdir(parents=True)
    assert Terminal(tmp_path / "lake")("log", "--json", status=5).error["code"] == "unavailable"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["init", "taken"], "Use the existing lake: --lake LOCATION, or the variable PENSTOCK_LAKE."),
        (["--lake", "lake", "backup", "taken"], "choose a location for backups only"),
        (["copy", "lake", "taken"], "choose an empty location"),
        (["move", "lake", "taken", "--yes"], "choose an empty location"),
        (["restore-backup", "b.backup", "taken"], "choose an empty location"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_a_lake_in_the_way_gets_advice_that_is_right_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("lake", "taken"):
        assert CliRunner().invoke(root, ["init", place]).exit_code == 0
    assert CliRunner().invoke(root, ["--lake", "lake", "backup", "b.backup"]).exit_code == 0
    result = CliRunner().invoke(root, words)
    assert result.exit_code == errors.LakeExists.exit_code
    assert advice in result.stderr
    assert ("Use the existing lake" in result.stderr) == (words[0] == "init")
