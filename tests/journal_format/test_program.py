"""The journal format, which is in one folder and known nowhere else, through the real program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.journal_format.installation import environment, install
from tests.server.running import program

COMMAND_MAX_S = 120


class Penstock:
    """Runs ``penstock`` on a lake, in an environment."""

    def __init__(self, lake: str | Path, env: Mapping[str, str]) -> None:
        self.lake, self.env = str(lake), dict(env)

    def __call__(self, *args: str, status: int = 0) -> str:
        """What a command prints, for people and of errors."""
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *args],
            env={**self.env, "PENSTOCK_LAKE": self.lake},
            capture_output=True,
            text=True,
            timeout=COMMAND_MAX_S,
            check=False,
        )
        printed = done.stdout + done.stderr
        assert done.returncode == status, printed
        assert "Traceback" not in printed
        return printed

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "--json"))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the package of journals."""
    return install(tmp_path / "site")


@pytest.fixture
def journals(tmp_path: Path, site: Path) -> Penstock:
    return Penstock(tmp_path / "lake", environment(site))


@pytest.fixture
def plain(tmp_path: Path) -> Penstock:
    """The same lake where the package is not installed."""
    return Penstock(tmp_path / "lake", os.environ)


def texts(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "lake" / "warehouse" / "journals").rglob("*.txt"))


def test_journals_are_written_merged_checked_and_swept(journals: Penstock, tmp_path: Path) -> None:
    journals("journal", "append", "sales.diary", "opened")
    journals("branch", "create", "work")
    journals("journal", "append", "sales.diary", "rain", "--branch", "work")
    journals("journal", "append", "sales.diary", "sun")
    journals("merge", "work")
    assert journals("journal", "show", "sales.diary").split() == ["opened", "sun", "rain"]
    assert journals.json("journal", "show", "sales.diary", "--ref", "main~1") == {
        "version": 2,
        "lines": ["opened", "sun"],
    }
    assert "v3" in journals("tables")
    assert "Write and read journals." in journals("--help")

    assert texts(tmp_path)[-1].read_text() == "opened\nsun\nrain\n"
    assert "every journal is published" in journals("doctor")
    texts(tmp_path)[-1].unlink()
    swept = journals.json("sweep", "--remove-data", "--data-grace-days", "0", "--nobody-writes")
    assert swept["files"]["data_files"] == 2, swept
    assert "not published: sales.diary" in journals("doctor")
    journals("fsck")


@pytest.mark.verify
def test_journals_behind_a_server_for_those_who_may(journals: Penstock, tmp_path: Path) -> None:
    journals("journal", "append", "sales.diary", "opened")
    journals("expect", "add", "no snow", "SELECT * FROM sales.diary WHERE line = 'snow'")
    writer, reader = (
        journals.json("token", "create", name, "--grant", grant)["token"]
        for name, grant in (("writer", "write"), ("reader", "read"))
    )
    with program(
        tmp_path, "--lake", journals.lake, environment={"PYTHONPATH": journals.env["PYTHONPATH"]}, dev=False
    ) as server:
        writes = Penstock(server.url, {**journals.env, "PENSTOCK_TOKEN": writer})
        reads = Penstock(server.url, {**journals.env, "PENSTOCK_TOKEN": reader})
        writes("journal", "append", "sales.diary", "far away")
        assert reads("journal", "show", "sales.diary").split("\n")[:2] == ["opened", "far away"]
        assert "may not" in reads("journal", "append", "sales.diary", "no", status=6)
        assert "v2" in reads("tables")
        assert "no snow" in writes("journal", "append", "sales.diary", "snow", status=3)
        texts(tmp_path)[-1].unlink()
    with program(tmp_path, "--lake", journals.lake, environment={"PYTHONPATH": journals.env["PYTHONPATH"]}):
        assert texts(tmp_path)[-1].read_text() == "opened\nfar away\n", "a server catches up when it starts"


@pytest.mark.verify
def test_a_lake_with_tables_of_a_format_that_is_not_installed(
    journals: Penstock, plain: Penstock, tmp_path: Path
) -> None:
    journals("journal", "append", "sales.diary", "opened")
    journals("journal", "append", "sales.diary", "sun")
    assert "JOURNAL" in plain("tables")
    plain("put", "sales.orders", "--type", "iceberg", "metadata_location=s3://bucket/orders/v1.json")
    plain("branch", "create", "work")
    assert "there is no command" in plain("journal", "show", "sales.diary", status=2)
    before = texts(tmp_path)
    plain("sweep", "--remove-data", "--data-grace-days", "0", "--nobody-writes")
    plain("fsck")
    plain("doctor")
    assert texts(tmp_path) == before
    refused = plain("expect", "add", "empty", "SELECT * FROM sales.diary", status=3)
    assert "sales.diary" in refused
    assert "package" in refused
    assert journals("journal", "show", "sales.diary").split() == ["opened", "sun"]


@pytest.mark.parametrize(
    "at",
    [
        "penstock_journal_lost:FORMAT",
        pytest.param("penstock_journal:LOST", marks=pytest.mark.verify),
        pytest.param("json:dumps", marks=pytest.mark.verify),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named_and_stops_nothing(tmp_path: Path, at: str) -> None:
    env = environment(install(tmp_path / "site", at=at))
    broken = Penstock(tmp_path / "lake", env)
    broken("put", "sales.orders", "--type", "iceberg", "metadata_location=s3://bucket/orders/v1.json")
    assert "penstock-journal 1.0" in broken("journal", "show", "sales.diary", status=2)
    assert "penstock-journal 1.0" in broken("doctor")
    with program(tmp_path, "--lake", broken.lake, environment={"PYTHONPATH": env["PYTHONPATH"]}) as server:
        Penstock(server.url, env)("tables")
        assert "penstock-journal 1.0" in server.log


def test_short_commands_do_not_look_for_other_packages(tmp_path: Path, plain: Penstock) -> None:
    plain("put", "sales.orders", "--type", "iceberg", "metadata_location=s3://bucket/orders/v1.json")
    code = (
        "import sys; from penstock.cli.main import main\n"
        "from penstock.formats.registry import load_other_formats\n"
        "sys.argv = ['penstock', 'tables']\n"
        "try: main()\n"
        "except SystemExit: print(load_other_formats.cache_info().currsize)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_LAKE": str(tmp_path / "lake")},
        capture_output=True,
        text=True,
        timeout=COMMAND_MAX_S,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0"
