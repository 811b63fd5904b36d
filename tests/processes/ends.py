"""Waiting for the end of processes that are not children of the test."""

from __future__ import annotations

import os
import select

END_MAX_MS = 60_000


class Ending:
    """A process, held on to before it ends, so that no other one is taken for it."""

    def __init__(self, pid: int) -> None:
        self._process = os.pidfd_open(pid)

    def wait(self) -> None:
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        assert poll.poll(END_MAX_MS), "the process goes on"
        os.close(self._process)
