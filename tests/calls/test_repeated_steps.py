"""The steps of a write of Spark's, for drivers without Python: each may be asked for again, and is done once.

A driver that heard nothing, or nothing that it can read, sends the same step again. So that is what is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.server.native import PREFIX
from tests.calls.world import RAW, World, state_of
from tests.disks import disks_are_not_waited_for
from tests.remote.serving import Served, serving

__all__ = ["disks_are_not_waited_for"]

FACTS = {
    "job": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "attempt": "9" * 32,
    "path": "file:/data/raw",
    "home": "file:///",
    "tables": msgspec.json.encode({"/data/raw": str(RAW)}).decode(),
    "mode": "Append",
    "format": "text",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("calls"))


def _steps(server: Served, *names: str, times: int) -> Iterator[Any]:
    """The answers of steps, one after the other, each asked for so often."""
    begun: dict[str, Any] | None = None
    for name in names:
        wish: dict[str, Any] = {"facts": FACTS}
        if begun is not None:
            file = Path(begun["place"]) / "part-0.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"rows")
            wish |= {"begun": begun, "rows": 1}
            wish["files"] = [{"name": file.name, "partition": "", "size": 4, "modified_ms": 1}]
        replies = [server.ask("POST", f"{PREFIX}/spark-writes/{name}", wish) for _ in range(times)]
        assert [(reply.status, reply.json) for reply in replies] == [(200, replies[0].json)] * times
        begun = replies[0].json if name == "begin" else begun
        yield replies[0].json


@pytest.mark.parametrize(
    ("names", "last"),
    [
        (("check", "begin", "commit"), {"remove": False}),
        (("check", "begin", "abort"), {"remove": True}),
        (("check", "begin", "commit", "abort"), {"remove": False}),
    ],
    ids=["landed", "aborted", "landed and aborted"],
)
def test_a_step_that_is_asked_for_again_is_answered_alike_and_done_once(
    world: World, names: tuple[str, ...], last: dict[str, bool]
) -> None:
    states = []
    for times in (1, 2):
        world.restore()
        with world.open() as lake, serving(lake.catalogue) as server:
            *_, answer = _steps(server, *names, times=times)
            assert answer == last
            states.append(state_of(lake))
    once, twice = states
    assert twice == once
