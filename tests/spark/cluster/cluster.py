"""A standalone Spark cluster on this machine: a master and two workers, which are two hosts to Spark.

Speculation only ever starts a second attempt on another host, so the workers have two loopback addresses.
All of it ends with the tests, also when these are killed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import Missing, Process, new_directory, running, start

HOSTS = ("127.0.0.1", "127.0.0.2")
SOURCES = Path(__file__).with_name("java")
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Short programs are over before a better compiler has paid for itself."""
ADDRESS = re.compile(r"spark://[\d.]+:\d+")


@dataclass
class Daemon:
    """A master or a worker."""

    process: Process


@dataclass
class Cluster:
    """A running cluster."""

    master: str
    faults: Path
    """The jar with the faults that a job can ask for."""


def home() -> Path:
    """Where pyspark keeps Spark; ``Missing`` without it, and where there is but one loopback address."""
    if sys.platform != "linux":
        raise Missing("only on Linux a second loopback address is there by itself")
    try:
        import pyspark
    except ModuleNotFoundError:
        raise Missing("pyspark is not installed: run `make setup`") from None
    return Path(pyspark.__file__).parent


def compiled(directory: Path) -> Path:
    """A jar with the faults, compiled for the Spark that is installed."""
    javac = shutil.which("javac")
    if javac is None:
        raise Missing("there is no Java compiler on this machine: run `make setup` as root")
    classes, jar = directory / "classes", directory / "faults.jar"
    sources = sorted(map(str, SOURCES.rglob("*.java")))
    path = f"{home() / 'jars'}/*"
    subprocess.run([javac, "--release", "17", "-nowarn", "-cp", path, "-d", classes, *sources], check=True)
    subprocess.run([Path(javac).with_name("jar"), "cf", jar, "-C", classes, "."], check=True)
    return jar


@contextmanager
def cluster(faults: Path) -> Iterator[Cluster]:
    """A cluster while the block runs, with room for two drivers."""
    with ExitStack() as held:
        master = held.enter_context(
            running(lambda: _daemon("master.Master", HOSTS[0], "I have been elected"))
        )
        found = ADDRESS.search(master.process.last_words())
        assert found is not None, master.process.last_words()
        for host in HOSTS:
            _worker(held, host, found[0])
        yield Cluster(found[0], faults)


def _worker(held: ExitStack, host: str, master: str) -> None:
    options = ("--cores", "4", "--memory", "1200m", master)
    held.enter_context(running(lambda: _daemon("worker.Worker", host, "Successfully registered", *options)))


def _daemon(name: str, host: str, ready: str, *options: str) -> Daemon:
    directory = new_directory()
    told = ["--host", host, "--port", "0", "--webui-port", "0", *options]
    process = start(
        [home() / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *told],
        directory,
        environment={
            "SPARK_HOME": str(home()),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
            "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_NO_DAEMONIZE": "1",
        },
    )
    process.wait_until(lambda: ready in process.last_words())
    return Daemon(process)
