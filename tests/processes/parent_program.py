"""A program with a pool whose process is at work. It says which, and is killed by a test."""

from __future__ import annotations

from penstock.processes.pool import ProcessPool


def tell(pid: bytes) -> bytes:
    print(pid.decode(), flush=True)
    return b""


ProcessPool().run_function("tests.processes.functions:hang", answer=tell)
