"""What follows from commits in the background comes late, in the process of the tests: a plugin, for

    .venv/bin/pytest -p tests.slow_background tests/lance

No commit waits until it is published or promoted, unless a test says for how long; and each task of the
background is begun ``PENSTOCK_SLOW_S`` later (1 second), or when somebody waits for it by an event:
``finish_background``, the end of the lake, whoever asks for a version. A test that fails so, and passes
otherwise, reads or counts what may still move: it would fail by chance on a machine that has much to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Condition
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec

from penstock.formats.delta.publishing.maintenance import CheckpointMaintenance
from penstock.formats.publisher import BackgroundPublisher, TableJob
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings

SLOW_S: Final = float(os.environ.get("PENSTOCK_SLOW_S", "1"))
LOOK_EVERY_S: Final = 0.02
WAITS: Final = ("publish_wait_s", "promote_wait_s")

R = TypeVar("R")


def pytest_configure() -> None:
    """Change the classes for as long as the process lives, before any test has made one of them."""
    _change(Kernel, Kernel.__init__, _wait_for_nothing)
    _change(BackgroundPublisher, BackgroundPublisher._take_next_job, _take_late)
    _change(BackgroundPublisher, BackgroundPublisher._catch_up, _catch_up_late)
    _change(BackgroundPublisher, BackgroundPublisher.finish, _wait_by_event)
    _change(BackgroundPublisher, BackgroundPublisher.await_catch_up, _wait_by_event)
    _change(CheckpointMaintenance, CheckpointMaintenance._maintain_table, _maintain_late)


def _change(owner: type, real: Callable[..., Any], changed: Callable[..., Any]) -> None:
    def method(self: Any, *given: Any, **named: Any) -> Any:
        return changed(real, self, *given, **named)

    setattr(owner, real.__name__, method)


def _wait_for_nothing(real: Callable[..., None], kernel: Kernel, *given: Any, **named: Any) -> None:
    real(kernel, *given, **named)
    usual = Settings()
    hasty = {name: 0.0 for name in WAITS if getattr(kernel.settings, name) == getattr(usual, name)}
    kernel.settings = msgspec.structs.replace(kernel.settings, **hasty)


def _take_late(real: Callable[..., TableJob[Any] | None], publisher: Any) -> TableJob[Any] | None:
    job = real(publisher)
    if job is not None:
        _pause(publisher.changed, lambda: bool(_is_awaited(publisher) or job.watchers or job.helpers))
    return job


def _catch_up_late(real: Callable[..., None], publisher: Any, look: Callable[[], None]) -> None:
    _pause(publisher.changed, lambda: _is_awaited(publisher))
    real(publisher, look)


def _maintain_late(real: Callable[..., None], maintenance: Any, *given: Any) -> None:
    _pause(maintenance._changed, lambda: bool(maintenance._is_closing or maintenance._urgent))
    real(maintenance, *given)


def _wait_by_event(real: Callable[..., R], publisher: Any, timeout_s: float) -> R:
    """Whoever waits by an event is not held up."""
    with publisher.changed:
        publisher.awaited = getattr(publisher, "awaited", 0) + 1
    try:
        return real(publisher, timeout_s)
    finally:
        with publisher.changed:
            publisher.awaited -= 1


def _is_awaited(publisher: Any) -> bool:
    return bool(publisher.is_closing or publisher.is_closed or getattr(publisher, "awaited", 0))


def _pause(changed: Condition, ends: Callable[[], bool]) -> None:
    until_s = monotonic() + SLOW_S
    with changed:
        while monotonic() < until_s and not ends():
            changed.wait(LOOK_EVERY_S)
