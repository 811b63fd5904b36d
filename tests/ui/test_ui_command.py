"""``penstock ui`` serves the page of a local lake, and a server has it anyway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.lake.opener import open_lake
from tests.server.running import END_MAX_S, Client, program


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with open_lake(str(tmp_path / "lake"), create=True) as lake:
        lake.create_table("t", data={"n": [1]})
    return tmp_path / "lake"


def test_the_command_serves_the_page(place: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "ui", str(place), "--no-browser", "--json"],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
    )
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        client = Client(url)
        assert b"Penstock" in client.get("/ui/").body
        assert b"<td" in client.get("/ui/rows?key=t").body
        assert client.get("/ui/", host="elsewhere.example").status == 403
    finally:
        process.terminate()
        process.wait(END_MAX_S)
        process.stdout.close()


def test_the_command_makes_no_lake(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "ui", str(tmp_path / "nothing"), "--no-browser"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 4
    assert not (tmp_path / "nothing").exists()


@pytest.mark.verify
def test_a_lake_behind_a_server_has_the_page_there(tmp_path: Path) -> None:
    with program(tmp_path, "--lake", "memory:") as server:
        command = [sys.executable, "-m", "penstock.cli.main", "ui", server.url, "--no-browser"]
        told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert told.stdout.strip().endswith(f"{server.url}/ui/")
        assert b"/ui/log" in server.get("/ui/").body
        assert b'href="/ui/"' in server.get("/").body
