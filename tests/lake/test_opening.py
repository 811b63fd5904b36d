"""Opening and making lakes."""

import sqlite3
import subprocess
import sys
from pathlib import Path
from threading import Timer

import msgspec
import pytest

import penstock
from penstock.errors import (
    Damaged,
    Denied,
    InvalidName,
    InvalidRequest,
    LakeExists,
    LakeNotFound,
    LocationRefused,
    PenstockError,
    UnsupportedFormat,
)
from penstock.kernel.description import FORMAT_VERSION, read_description
from penstock.model.encoding import encode
from penstock.stores.sqlite import SCHEMA_VERSION
from tests.queue.hooks import table


def _files(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def _python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )


def test_a_directory_becomes_a_lake_at_once_if_that_is_wanted(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "lake"
    with penstock.open(place, create=True) as lake:
        assert lake.default_branch == "main"
        assert [branch.name for branch in lake.branches()] == ["main"]
        lake.branch().put("a", table())
    assert (place / "penstock.db").is_file()


def test_a_lake_that_is_opened_again_is_the_same(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as lake:
        commit = lake.branch().put("a.b", table())
        identity = lake.id
    for create in (True, False):
        with penstock.open(tmp_path, create=create) as lake:
            assert lake.id == identity
            assert lake.branch().head == commit.id
            assert lake.at("main").get("a.b") is not None


@pytest.mark.parametrize("exists", [False, True])
def test_a_lake_that_is_not_there_is_not_made_if_that_is_not_wanted(tmp_path: Path, exists: bool) -> None:
    place = tmp_path / "lake"
    if exists:
        place.mkdir()
    before = _files(tmp_path)
    with pytest.raises(LakeNotFound, match="lake") as caught:
        penstock.open(place, create=False)
    assert str(place) in str(caught.value)
    assert _files(tmp_path) == before


def test_a_lake_in_memory_is_new_each_time_and_its_own() -> None:
    with penstock.open("memory:") as one, penstock.open("memory:") as other:
        one.branch().put("a", table())
        assert one.id != other.id
        assert other.log() == []
    with pytest.raises(LakeNotFound):
        penstock.open("memory:", create=False)


def test_the_same_place_can_be_written_in_many_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "lake"
    with penstock.open(place, create=True) as lake:
        identity, url = lake.id, lake.url
    monkeypatch.chdir(tmp_path)
    for way in (str(place), f"{place}/", "lake", "./lake", Path("lake"), place / "penstock.db"):
        with penstock.open(way, create=False) as lake:
            assert (lake.id, lake.url) == (identity, url)
    with penstock.open(f"sqlite://{place}", create=False) as lake:
        assert lake.id == identity
    assert url == str(place)


@pytest.mark.parametrize(
    "name", ["mit Leerzeichen", "ümläut", "per%20cent", "ha#sh", "quest?ion", "a&b=c", "'q'"]
)
def test_a_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    with penstock.open(tmp_path / name) as lake:
        lake.branch().put("a", table())
        assert lake.warehouse == str(tmp_path / name / "warehouse")
    assert _files(tmp_path)[0] == name
    with penstock.open(tmp_path / name, create=False) as lake:
        assert len(lake.log()) == 1


@pytest.mark.parametrize("scheme", ["mysql", "ws", "ftp"])
def test_an_unknown_kind_of_store_is_refused_by_name(scheme: str) -> None:
    for do in (penstock.open, penstock.init):
        with pytest.raises(InvalidRequest, match=f"'{scheme}://'") as caught:
            do(f"{scheme}://host/lake")
        assert caught.value.details["scheme"] == scheme


def test_a_file_is_not_a_lake(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    file.write_text("something of mine")
    for place in (file, file / "below"):
        for do in (penstock.open, penstock.init):
            with pytest.raises(PenstockError, match=r"file\.txt"):
                do(place)
    assert file.read_text() == "something of mine"
    assert _files(tmp_path) == ["file.txt"]


def test_an_empty_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for do in (penstock.open, penstock.init):
        with pytest.raises(PenstockError):
            do("")
    assert _files(tmp_path) == []


def test_a_file_that_is_no_database_is_damage_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "penstock.db"
    file.write_bytes(b"not a database, but longer than a header would be" * 10)
    with pytest.raises(Damaged, match=r"penstock\.db"):
        penstock.open(tmp_path)
    assert file.read_bytes().startswith(b"not a database")


@pytest.mark.parametrize("version", [0, 7])
def test_somebody_elses_database_is_refused_and_stays_as_it_is(tmp_path: Path, version: int) -> None:
    file = tmp_path / "penstock.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE mine (x)")
    connection.execute(f"PRAGMA user_version={version}")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    for do in (penstock.open, penstock.init):
        with pytest.raises(InvalidRequest, match="not a lake"):
            do(tmp_path)
    assert file.read_bytes() == before


def test_a_place_that_cannot_be_made_is_refused_by_name() -> None:
    for place in ("/proc/lake", "/dev/null/lake"):
        with pytest.raises((Denied, InvalidRequest), match=place.rpartition("/")[0]):
            penstock.open(place, create=True)


# --- init ----------------------------------------------------------------------------------------------


def test_a_lake_is_made_once(tmp_path: Path) -> None:
    with penstock.init(tmp_path, default_branch="trunk") as lake:
        identity = lake.id
        assert repr(lake) == f"<Lake {tmp_path} default branch 'trunk'>"
        lake.branch().put("a", table())
    before = (tmp_path / "penstock.db").read_bytes()
    with pytest.raises(LakeExists, match=str(tmp_path)):
        penstock.init(tmp_path)
    assert (tmp_path / "penstock.db").read_bytes() == before
    with penstock.open(tmp_path, create=False) as lake:
        assert (lake.id, lake.default_branch) == (identity, "trunk")
        assert [branch.name for branch in lake.branches()] == ["trunk"]


def test_a_lake_that_is_there_cannot_be_made_again(tmp_path: Path) -> None:
    penstock.init(tmp_path).close()
    with pytest.raises(LakeExists):
        penstock.init(tmp_path)


def test_a_lake_whose_making_was_interrupted_is_made_at_the_next_try(tmp_path: Path) -> None:
    penstock.init(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "penstock.db")
    connection.execute("DELETE FROM refs WHERE name = '@lake'")
    connection.commit()
    connection.close()
    with pytest.raises(LakeNotFound):
        penstock.open(tmp_path, create=False)
    with penstock.open(tmp_path) as lake:
        lake.branch().put("a", table())
    with penstock.open(tmp_path, create=False) as lake:
        assert len(lake.log()) == 1


def test_a_wrong_default_branch_or_place_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidName):
        penstock.init(tmp_path / "a", default_branch="not a name")
    with pytest.raises(LocationRefused):
        penstock.init(tmp_path / "b", warehouse="s3://user:secret@bucket")
    with pytest.raises(LocationRefused):
        penstock.init(tmp_path / "c", roots=["../up"])
    for name in "abc":
        with pytest.raises(LakeNotFound):
            penstock.open(tmp_path / name, create=False)
    assert _files(tmp_path) == []


# --- versions ------------------------------------------------------------------------------------------


def test_a_lake_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as lake:
        description = read_description(lake.kernel.store)
    newer = encode(msgspec.structs.replace(description, format_version=FORMAT_VERSION + 1))
    connection = sqlite3.connect(tmp_path / "penstock.db")
    connection.execute("UPDATE refs SET data = ? WHERE name = '@lake'", (newer,))
    connection.commit()
    connection.close()
    for do in (penstock.open, penstock.init):
        with pytest.raises((UnsupportedFormat, LakeExists)):
            do(tmp_path)
    with pytest.raises(UnsupportedFormat) as caught:
        penstock.open(tmp_path)
    assert f"format version {FORMAT_VERSION + 1}" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.details == {"found": FORMAT_VERSION + 1, "known": FORMAT_VERSION}


def test_a_newer_description_with_fields_nobody_knows_is_refused_by_its_version(tmp_path: Path) -> None:
    penstock.init(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "penstock.db")
    strange = encode((FORMAT_VERSION + 5, {"quite": "different"}))
    connection.execute("UPDATE refs SET data = ? WHERE name = '@lake'", (strange,))
    connection.commit()
    connection.close()
    with pytest.raises(UnsupportedFormat, match=f"format version {FORMAT_VERSION + 5}"):
        penstock.open(tmp_path)


def test_a_database_of_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    penstock.init(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "penstock.db")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(UnsupportedFormat, match=f"schema version {SCHEMA_VERSION + 1}") as caught:
        penstock.open(tmp_path)
    assert str(tmp_path) in str(caught.value)


# --- several processes ---------------------------------------------------------------------------------

_OPENER = """
import sys
import penstock
print("ready", flush=True)
for line in sys.stdin:
    place, name = line.split()
    try:
        with penstock.open(place, author=name) as lake:
            lake.branch().put(name, penstock.IcebergTable(metadata_location=name))
            print("opened", lake.id, flush=True)
    except BaseException as error:
        print("failed", repr(error), flush=True)
"""


def test_processes_that_open_a_new_lake_at_the_same_instant_all_get_it(tmp_path: Path) -> None:
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", _OPENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        for opener in openers:
            assert opener.stdout is not None
            assert opener.stdout.readline() == "ready\n"
        for number in range(12):
            _open_at_once(openers, tmp_path / f"lake{number}")
    finally:
        for opener in openers:
            opener.communicate()


def _open_at_once(openers: list[subprocess.Popen[str]], place: Path) -> None:
    for number, opener in enumerate(openers):
        assert opener.stdin is not None
        opener.stdin.write(f"{place} p{number}\n")
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.flush()
    answers = [opener.stdout.readline().split() for opener in openers if opener.stdout is not None]
    assert {answer[0] for answer in answers} == {"opened"}, answers
    assert len({answer[1] for answer in answers}) == 1
    with penstock.open(place, create=False) as lake:
        assert lake.id == answers[0][1]
        assert sorted(commit.author for commit in lake.log()) == ["p0", "p1", "p2"]
        assert lake.fsck().damages == ()
        assert [line.event for line in lake.reflog()][-1] == "create"


def test_a_lake_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    """It holds the lock that one needs to make a database a lake, and lets it go before long."""
    other = sqlite3.connect(tmp_path / "penstock.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = Timer(0.3, lambda: other.execute("ROLLBACK"))
    release.start()
    with penstock.open(tmp_path) as lake:
        lake.branch().put("a", table())
    release.join()
    other.close()


_FORKER = """
import os, sys
import penstock
lake = penstock.open(sys.argv[1])
lake.branch().put("a", penstock.IcebergTable(metadata_location="x"))
child = os.fork()
if child == 0:
    for do in (lake.branches, lambda: lake.branch().put("b", penstock.IcebergTable(metadata_location="y"))):
        try:
            do()
        except penstock.errors.InvalidRequest as error:
            assert "fork" in str(error)
        else:
            os._exit(1)
    with penstock.open(sys.argv[1]) as own:
        own.branch().put("c", penstock.IcebergTable(metadata_location="z"))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert len(lake.log()) == 2
"""


def test_a_lake_is_not_used_across_a_fork_but_can_be_opened_anew(tmp_path: Path) -> None:
    ran = _python(_FORKER, str(tmp_path))
    assert ran.returncode == 0, ran.stderr


# --- importing and closing -----------------------------------------------------------------------------


def test_importing_penstock_loads_neither_sqlite_nor_the_command_line() -> None:
    ran = _python(
        "import sys; before = set(sys.modules); import penstock\n"
        "costly = {'dataclasses', 'email', 'html', 'importlib.metadata', 'inspect', 'msgspec', 'pathlib'}\n"
        "assert not costly & ({*sys.modules} - before), costly & {*sys.modules}\n"
        "heavy = ['sqlite3', '_sqlite3', 'click', 'penstock.stores.sqlite', 'penstock.cli']\n"
        "assert not [name for name in heavy if name in sys.modules], sys.modules.keys()\n"
        "penstock.open('memory:').branch().put('a.b', penstock.IcebergTable(metadata_location='x'))\n"
        "assert not [name for name in heavy if name in sys.modules], sys.modules.keys()\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_a_first_commit_loads_nothing_that_only_buckets_and_notebooks_need(tmp_path: Path) -> None:
    script = (
        "import sys; before = set(sys.modules); import penstock\n"
        "with penstock.open({place!r}) as lake:\n"
        "    lake.branch().put('a.b', penstock.IcebergTable(metadata_location='x'))\n"
        "costly = {{'asyncio', 'html', 'obstore', 'pyarrow', 'socket', 'ssl'}}\n"
        "assert not costly & ({{*sys.modules}} - before), costly & {{*sys.modules}}\n"
    )
    for place in ("memory:", str(tmp_path / "lake")):
        ran = _python(script.format(place=place))
        assert ran.returncode == 0, ran.stderr


def test_everything_that_penstock_offers_is_there() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    assert set(penstock.__all__) <= set(dir(penstock))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = penstock.nothing_of_the_kind


def _open_files(place: Path) -> list[str]:
    """The files below a place that this process holds open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith(str(place)):
            found.append(target)
    return found


def test_leaving_the_context_closes_all_connections(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as lake:
        lake.branch().put("a", table())
        assert lake.log()
        assert _open_files(tmp_path)
    assert _open_files(tmp_path) == []
    assert _files(tmp_path) == ["penstock.db"]


def test_a_lake_that_failed_to_open_holds_nothing_open(tmp_path: Path) -> None:
    penstock.init(tmp_path).close()
    with pytest.raises(LakeExists):
        penstock.init(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "penstock.db").write_bytes(b"junk" * 1000)
    with pytest.raises(Damaged):
        penstock.open(tmp_path / "other")
    assert _open_files(tmp_path) == []


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    lake = penstock.open(tmp_path, create=True)
    lake.close()
    lake.close()


def test_a_closed_lake_says_so_at_once_and_opens_nothing(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as lake:
        lake.branch().put("a", table())
    for do in (
        lake.branches,
        lambda: lake.branch().head,
        lambda: lake.branch().put("b", table()),
        lambda: lake.branch("dev").create(),
        lake.sweep,
    ):
        with pytest.raises(InvalidRequest, match="closed"):
            do()
    assert _open_files(tmp_path) == []


def test_errors_leave_the_context_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), penstock.open(tmp_path):
        raise ZeroDivisionError
    assert _open_files(tmp_path) == []


def test_the_author_is_the_user_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody")
    with penstock.open(tmp_path) as lake:
        assert lake.branch().put("a", table()).author == "somebody"
        assert lake.branch().put("b", table(), author="else").author == "else"
    with penstock.open(tmp_path, author="") as lake:
        commit = lake.branch().put("c", table())
        assert (commit.author, repr(commit)) == ("", f"<Commit {commit.id[:8]} 'put c' by nobody>")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sqlite:/x", "sqlite:///x"),
        ("rocksdb:/x", "rocksdb:///x"),
        ("FILE:/x", "file:///x"),
        ("s3:/bucket/x", "s3://bucket/x"),
        ("postgresql:host/x", "postgresql://host/x"),
        ("https:/host", "https://host"),
    ],
)
def test_a_url_with_too_few_slashes_makes_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, meant: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for make in (penstock.open, penstock.init):
        with pytest.raises(InvalidRequest, match=f"write it as {meant}$"):
            make(written)
    assert _files(tmp_path) == []
