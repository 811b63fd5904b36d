"""Ways to open one lake several times, each as a process of its own would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock import Settings
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.server.native import NATIVE
from penstock.stores.port import Store
from tests.owner.orders import Opening
from tests.server.running import local

SETTINGS: dict[str, Any] = {"publish_wait_s": 10.0, "publish_close_s": 2.0}
"""An answered commit is published, unless something stands against it, however slow the machine is."""
QUICK = RemoteTimeouts(connect_timeout_s=60.0, answer_timeout_s=60.0, total_s=1.0, wait_max_s=0.05)
"""Who is told to come back later does so a few times, and then says so; an answer may take its time."""


@contextmanager
def embedded(target: str | Store, root: Path) -> Iterator[Opening]:
    """In this process."""
    with ExitStack() as held:

        def open_lake(**settings: Any) -> Lake:
            chosen = Settings(**SETTINGS | settings)
            return held.enter_context(penstock.open(target, create=True, author="tester", settings=chosen))

        open_lake().add_root(str(root))
        yield open_lake


@contextmanager
def served(target: str, root: Path) -> Iterator[Opening]:
    """Behind a server, each time another one."""
    with ExitStack() as held, embedded(target, root) as open_embedded:

        def open_lake(**settings: Any) -> Lake:
            server = held.enter_context(local(open_embedded(**settings).catalogue, [NATIVE]))
            return held.enter_context(Lake(RemoteCatalogue(server.url, patience=QUICK), author="tester"))

        yield open_lake
