"""A process of a pool, as it is started: with the number of its socket, and the id of who started it."""

from __future__ import annotations

import socket
import sys

from penstock.processes.child_process import run_tasks

run_tasks(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
