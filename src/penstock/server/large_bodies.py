"""Large bodies: a few are read at the same time, since each is in memory until its request has been handled.

A request that finds no place for its body waits for one, and is not read meanwhile: what its client sends
stays with the client.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.server.request_slots import RequestSlot, RequestSlots

LARGE_BODY_BYTES: Final = 1024 * 1024
"""From here on a body is large."""
LARGE_BODIES_MAX: Final = 16
LARGE_BODIES_OF_CALLER_MAX: Final = 8


class LargeBodySlots:
    """So many places, and who waits for one. Used by the thread of the event loop alone."""

    def __init__(self) -> None:
        self._places = RequestSlots(LARGE_BODIES_MAX, LARGE_BODIES_OF_CALLER_MAX)
        self._waiting: list[asyncio.Future[None]] = []

    async def wait_for_place(self, caller: str) -> LargeBodySlot:
        """A place for a caller, once there is one that it may have."""
        while not self._places.may_take(caller):
            freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(freed)
            await freed
        return LargeBodySlot(self, self._places.take_slot(caller))

    def look_again(self) -> None:
        """Let all who wait see whether there is a place for them."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class LargeBodySlot:
    """A place that a body has until it is given back, with that of its request."""

    def __init__(self, bodies: LargeBodySlots, slot: RequestSlot) -> None:
        self._bodies, self._place = bodies, slot

    def give_back(self) -> None:
        """May be done more than once."""
        self._place.give_back()
        self._bodies.look_again()
