"""Functions that tests have run in processes of a pool."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile

from penstock.errors import KeyNotFound
from penstock.processes.child_process import ChildTask, TaskResult


def echo(task: ChildTask) -> TaskResult:
    return TaskResult(task.head, task.body)


def tell_pid(_task: ChildTask) -> TaskResult:
    return TaskResult(body=str(os.getpid()).encode())


def ask_twice(task: ChildTask) -> TaskResult:
    return TaskResult(body=task.ask(task.ask(task.body)))


def write_file(task: ChildTask) -> TaskResult:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - it is given away
    file.write(b"x" * int(task.body))
    return TaskResult(b"many", file)


def fill_memory(_task: ChildTask) -> TaskResult:
    parts = []
    while True:
        parts.append(b"x" * 2**20)


def fill_memory_at_once(_task: ChildTask) -> TaskResult:
    return TaskResult(body=str(len(b"x" * 2**36)).encode())


def crash(_task: ChildTask) -> TaskResult:
    ctypes.string_at(0)
    return TaskResult()


def refuse(_task: ChildTask) -> TaskResult:
    raise KeyNotFound("there is no 'a.b'", key="a.b")


def meet_closed_port(_task: ChildTask) -> TaskResult:
    raise ConnectionRefusedError("nobody listens there")


def fail(_task: ChildTask) -> TaskResult:
    raise ZeroDivisionError("a bug")


def hang(task: ChildTask) -> TaskResult:
    """Ask once, and then never let go of Python's lock."""
    task.ask(str(os.getpid()).encode())
    re.match(r"(a+)+$", "a" * 64 + "b")
    return TaskResult()
