"""``penstock serve`` as a program: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.tokens import make_token
from penstock.server.limits import Limits
from penstock.server.listener import get_url, open_listener
from penstock.server.metrics_endpoint import MetricsEndpoint
from penstock.server.options import ServerOptions
from penstock.server.run import ServerProcess
from tests.processes.ends import Ending
from tests.server.running import Client, Program, program, read_all
from tests.server.trying import Trial, trial_api

START_MAX_S = 5.0
"""It is well below a second on a quiet machine; this one is busy with other tests."""
COMMITS = "/api/penstock/v1/commits"
LAKE = "/api/penstock/v1/lake"


def commit(table: str) -> dict[str, Any]:
    content = {"type": "ICEBERG_TABLE", "metadata_location": f"s3://b/{table}.json"}
    return {"operations": [{"operation": "put", "key": table, "content": content}]}


def half_sent(server: Program, table: str) -> tuple[socket.socket, bytes]:
    """A commit whose body has arrived to half at the server, and the other half of it."""
    body = json.dumps(commit(table)).encode()
    connection = server.raw()
    told = f"host: localhost\r\nexpect: 100-continue\r\ncontent-length: {len(body)}"
    head = f"POST {COMMITS} HTTP/1.1\r\n{told}\r\n\r\n"
    connection.sendall(head.encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 100"), "the server asks for the body"
    connection.sendall(body[:20])
    return connection, body[20:]


def refused(folder: Path, *options: str, **environment: str) -> str:
    """What ``serve`` says when it does not start."""
    told = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    ran = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "serve", *options],
        capture_output=True,
        text=True,
        cwd=folder,
        env=told | environment,
        timeout=120,
        check=False,
    )
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    return " ".join(ran.stderr.split())


def wait_for_end(pid: int) -> None:
    """Until a process that is nobody's child any more has ended, if only its entry is left."""
    deadline = time.monotonic() + 60
    state = Path(f"/proc/{pid}/stat")
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, f"process {pid} goes on"
        time.sleep(0.02)


# -- starting ----------------------------------------------------------------------------------------------


def test_it_says_where_it_serves_once_it_answers(penstock_server: Program) -> None:
    assert re.fullmatch(r"Penstock serves memory: at http://127\.0\.0\.1:\d+\n", penstock_server.ready)
    assert penstock_server.get(LAKE).json["default_branch"] == "main"
    assert penstock_server.get("/readyz").status == 200
    started, asked = penstock_server.lines
    assert started["message"].startswith(f"serving memory: at {penstock_server.url} with 1 worker, Penstock ")
    assert asked["path"] == LAKE


def test_it_takes_little_computing_to_start(tmp_path: Path) -> None:
    with program(tmp_path, "--lake", "memory:") as server:
        assert server.get("/healthz").status == 200
        figures = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    user, system = map(int, figures[11:13])
    assert (user + system) / os.sysconf("SC_CLK_TCK") < START_MAX_S


def test_it_tells_programs_in_json(tmp_path: Path) -> None:
    with program(tmp_path, "--lake", "memory:", "--json") as server:
        told = json.loads(server.ready)
        assert told == {"lake": "memory:", "url": server.url, "workers": 1}
        assert server.get("/healthz").status == 200


def test_dev_makes_a_lake_beside_you(tmp_path: Path) -> None:
    with program(tmp_path) as server:
        assert server.ask("POST", COMMITS, commit("orders")).status == 200
        assert server.stop() == 0
    with open_lake(tmp_path / "lake", create=False) as lake:
        assert [str(table.key) for table in lake.tables()] == ["orders"]


def test_every_limit_is_an_option_and_a_variable(tmp_path: Path) -> None:
    environment = {"PENSTOCK_SERVE_BODY_MAX_BYTES": "100"}
    with program(tmp_path, "--lake", "memory:", "--page-max", "100", environment=environment) as server:
        assert server.ask("POST", COMMITS, b" " * 101).status == 413
        assert server.get("/api/penstock/v1/references?limit=101").status == 400
        assert server.get("/api/penstock/v1/references?limit=100").status == 200


# -- refusing ----------------------------------------------------------------------------------------------


def test_other_machines_are_not_served_without_tokens(tmp_path: Path) -> None:
    open_lake(tmp_path / "lake", create=True).close()
    said = refused(tmp_path, "--lake", "lake", "--host", "0.0.0.0", "--port", "0")
    assert "has no valid token" in said
    assert "token create" in said
    assert "--insecure" in said
    with program(tmp_path, "--lake", "lake", "--host", "0.0.0.0", "--insecure", dev=False) as server:
        assert server.get(LAKE).status == 200


def test_callers_need_a_token_unless_told_otherwise(tmp_path: Path) -> None:
    text, call = make_token("etl", ["write"])
    with open_lake(tmp_path / "lake", create=True) as lake:
        lake.catalogue.do(call)
    with program(tmp_path, "--lake", "lake", "--host", "0.0.0.0", dev=False) as server:
        nobody = server.get(LAKE)
        assert nobody.status == 401
        assert nobody.headers["www-authenticate"].startswith("Bearer")
        assert server.get(LAKE, authorization=f"Bearer {text}").status == 200
        server.get(f"{LAKE}/{text}?token={text}", authorization=f"Bearer {text}")
        assert text not in server.log
        assert text.split("_", 2)[2] not in server.log
        assert {line.get("who") for line in server.lines} == {None, "etl"}


def test_a_lake_that_is_not_there_is_not_made_without_dev(tmp_path: Path) -> None:
    assert "penstock init" in refused(tmp_path, "--lake", "nowhere", "--port", "0")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--dev", "--host", "0.0.0.0"), "can only serve this machine"),
        (("--dev", "--workers", "2", "--lake", "memory:"), "only one process"),
        (("--dev", "--workers", "2", "--lake", "rocksdb:///x"), "only one process"),
        (("--dev", "--lake", "http://127.0.0.1:1"), "another server"),
        (("--dev", "--lake", "memory:", "--page-max", "0"), "--page-max: 0 is not 100 or more"),
        (("--dev", "--lake", "memory:", "--open-requests-max", "0"), "0 is not 1 or more and up to 10,000"),
        (("--dev", "--lake", "memory:", "--body-timeout-s", "0"), "0.0 is not above 0 and up to 86,400"),
        (("--dev", "--lake", "memory:", "--request-timeout-s", "nan"), "--request-timeout-s"),
        (("--dev", "--lake", "memory:", "--body-timeout-s", "inf"), "--body-timeout-s"),
        (("--dev", "--lake", "memory:", "--drain-timeout-s", "inf"), "--drain-timeout-s"),
        (("--dev", "--lake", "memory:", "--port", "65536"), "--port"),
        (
            ("--insecure", "--lake", "memory:", "--host", "no.such.host.invalid"),
            "unknown host 'no.such.host.invalid'",
        ),
        (("--insecure", "--lake", "memory:", "--host", "192.0.2.1"), "not an address of this machine"),
    ],
)
def test_what_contradicts_itself_is_refused_at_once(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    assert words in refused(tmp_path, *options)


@pytest.mark.verify
def test_a_port_that_is_taken_is_named(penstock_server: Program, tmp_path: Path) -> None:
    port = str(penstock_server.port)
    said = refused(tmp_path, "--dev", "--lake", "memory:", "--port", port)
    assert f"port {port} is in use by another program" in said
    assert "--port 0" in said
    assert "try again" not in said


@pytest.mark.verify
def test_a_lake_whose_tokens_have_expired_is_as_one_without(tmp_path: Path) -> None:
    _, call = make_token("old", ["read"], expires=datetime.now(UTC) + timedelta(seconds=1))
    with open_lake(tmp_path / "lake", create=True) as lake:
        lake.catalogue.do(msgspec.structs.replace(call, expires=datetime(2020, 1, 1, tzinfo=UTC)))
    assert "has no valid token" in refused(tmp_path, "--lake", "lake", "--host", "0.0.0.0")
    with program(tmp_path, "--lake", "lake", dev=False) as server:
        assert "every request will be refused" in server.log


@pytest.mark.verify
def test_a_lake_that_is_open_to_the_network_is_warned_about(tmp_path: Path) -> None:
    open_lake(tmp_path / "lake", create=True).close()
    with program(tmp_path, "--lake", "lake", "--host", "0.0.0.0", "--insecure", dev=False) as server:
        assert [line["level"] for line in server.lines] == ["warning", "info"]
        assert "everybody who can reach 0.0.0.0 can read and change the whole lake" in server.log
        assert "to every network of this machine, here at http://127.0.0.1:" in server.ready


@pytest.mark.verify
def test_a_lake_without_roots_is_warned_about(tmp_path: Path) -> None:
    with program(tmp_path, "--lake", "memory:", "--insecure", dev=False) as server:
        assert "every table will be refused: the lake has no root" in server.log
        assert server.ask("POST", COMMITS, commit("orders")).code == "location_refused"


# -- ending ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.verify)])
def test_a_signal_lets_open_requests_finish(tmp_path: Path, number: signal.Signals) -> None:
    with program(tmp_path) as server:
        connection, rest = half_sent(server, "orders")
        with connection:
            server.process.send_signal(number)
            while accepts(server):
                time.sleep(0.02)
            connection.sendall(rest)
            assert read_all(connection).startswith(b"HTTP/1.1 200")
        assert server.wait() == 0
    with open_lake(tmp_path / "lake", create=False) as lake:
        assert [str(table.key) for table in lake.tables()] == ["orders"]


def accepts(server: Client) -> bool:
    try:
        server.raw().close()
    except ConnectionError:
        return False
    return True


@pytest.mark.verify
def test_a_second_signal_does_not_wait(penstock_server: Program) -> None:
    connection, _ = half_sent(penstock_server, "orders")
    with connection:
        penstock_server.process.send_signal(signal.SIGTERM)
        while accepts(penstock_server):
            time.sleep(0.02)
        assert penstock_server.stop() == 128 + signal.SIGTERM


@pytest.mark.verify
def test_requests_that_do_not_end_are_given_up_after_a_time(tmp_path: Path) -> None:
    with program(tmp_path, "--lake", "memory:", "--drain-timeout-s", "0.3") as server:
        connection, _ = half_sent(server, "orders")
        with connection:
            assert server.stop() == 0
            assert read_all(connection).startswith(b"HTTP/1.1 408")


@pytest.mark.verify
def test_work_that_goes_on_after_its_answer_is_waited_for_at_the_end(lake: Lake) -> None:
    trial, started = Trial(), threading.Event()
    serving = ServerOptions(lake="memory:", is_dev=True, limits=Limits(request_timeout_s=0.1))
    with open_listener("127.0.0.1", 0) as listener:
        client = Client(get_url(listener))
        service = ServerProcess(lake.catalogue, serving, MetricsEndpoint(), apis=[trial_api(trial)])
        running = threading.Thread(target=service.serve_until_signal, args=(listener, started.set))
        running.start()
        assert started.wait(60)
        assert client.ask("POST", "/try/wait").status == 408
        service.stop()
        while accepts(client):
            time.sleep(0.02)
        running.join(0.5)
        assert running.is_alive(), "the write is waited for"
        trial.opened.set()
        running.join(60)
        assert not running.is_alive()
        assert trial.finished.acquire(blocking=False)


GIVES_UP = """
import threading
from penstock.lake.opener import open_lake
from penstock.server.metrics_endpoint import MetricsEndpoint
from penstock.server.limits import Limits
from penstock.server.listener import get_url, open_listener
from penstock.server.run import ServerProcess
from penstock.server.options import ServerOptions
from tests.processes.ends import Ending
from tests.server.running import Client
from tests.server.trying import Trial, trial_api

def client():
    Client(get_url(listener)).ask("POST", "/try/wait")
    service.stop()

lake = open_lake("memory:")
limits = Limits(request_timeout_s=0.1)
serving = ServerOptions(lake="memory:", is_dev=True, limits=limits, drain_timeout_s=0.4)
listener = open_listener("127.0.0.1", 0)
service = ServerProcess(lake.catalogue, serving, MetricsEndpoint(), apis=[trial_api(Trial())])
service.serve_until_signal(listener, threading.Thread(target=client).start)
"""


@pytest.mark.verify
def test_work_that_does_not_end_is_given_up_and_counted() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", GIVES_UP], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 1
    last = json.loads(ran.stderr.splitlines()[-1])
    told = re.fullmatch(
        r"stopped after (\d+\.\d) s, and cancelled 1 request that did not end", last["message"]
    )
    assert told is not None
    assert float(told[1]) >= 0.4, "it was given its time"


def test_the_log_says_that_it_stopped_and_why(penstock_server: Program) -> None:
    assert penstock_server.stop() == 0
    last = penstock_server.lines[-1]
    assert last["level"] == "info"
    assert re.fullmatch(r"stopped by SIGTERM, after \d+\.\d s", last["message"])


# -- several workers ---------------------------------------------------------------------------------------


def workers(server: Program) -> set[int]:
    """The processes that answer for the server, which are its children."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return {int(pid) for pid in children.split()}


def children_of(pid: int) -> set[int]:
    """The processes that any thread of a process has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


@pytest.mark.verify
def test_several_workers_serve_one_lake_and_add_up_their_figures(tmp_path: Path) -> None:
    with program(tmp_path, "--workers", "2") as server:
        connections = [server.connection() for _ in range(20)]
        for number, connection in enumerate(connections):
            assert server.ask("POST", COMMITS, commit(f"t{number}"), connection=connection).status == 200
        for connection in connections:  # each worker has noted what it answered before this
            assert server.ask("GET", "/healthz", connection=connection).status == 200
        assert len(server.get("/api/penstock/v1/entries").json) == 20
        assert {line["worker"] for line in server.lines if "path" in line} <= workers(server)
        counted = re.search(
            r'penstock_http_requests_total\{.*route="POST /commits".*\} (\S+)',
            server.get("/metrics").body.decode(),
        )
        assert counted is not None
        assert float(counted[1]) == 20
        for connection in connections:
            connection.close()
        children = workers(server)
        assert len(children) == 2
        assert server.stop() == 0
    for pid in children:
        wait_for_end(pid)


@pytest.mark.verify
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with program(tmp_path, "--workers", "2") as server:
        before = workers(server)
        killed = min(before)
        acceptors = [Ending(pid) for pid in children_of(killed)]
        os.kill(killed, signal.SIGKILL)
        for acceptor in acceptors:  # until then it may accept what nobody will answer
            acceptor.wait()
        while len(after := workers(server) - {killed}) < 2:
            time.sleep(0.05)
        assert len(after - before) == 1
        for _ in range(5):
            assert server.get(LAKE).status == 200
        assert server.stop() == 0
        assert f"worker {killed} ended" in server.log


@pytest.mark.verify
def test_workers_do_not_outlive_their_supervisor_and_leave_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with program(tmp_path, "--workers", "2", environment={"TMPDIR": str(temporary)}) as server:
        children = workers(server)
        assert server.get("/metrics").status == 200
        server.process.kill()
        server.wait()
    for pid in children:
        wait_for_end(pid)
    assert list(temporary.iterdir()) == []
