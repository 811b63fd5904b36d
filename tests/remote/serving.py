"""A server of the native API in this process, on a free port, for as long as a block lasts."""

from __future__ import annotations

from contextlib import AbstractContextManager

from penstock.lake.catalogue import Catalogue
from penstock.server.access import AccessGate, OpenGate
from penstock.server.limits import Limits
from penstock.server.native import NATIVE
from tests.server.running import Local as Served
from tests.server.running import local

__all__ = ["Served", "serving"]


def serving(
    catalogue: Catalogue, *, gate: AccessGate | None = None, limits: Limits = Limits()
) -> AbstractContextManager[Served]:
    """Serve a catalogue until the block ends."""
    return local(catalogue, [NATIVE], gate=gate or OpenGate(any_location=True), limits=limits)
