"""Places: how many of the requests, or connections, that a server has open may be those of one caller.

Nobody gets more than one caller may have, nor more than are left for others, and the last eighth is for
callers who have none: so there is one for the next caller, however many requests the others make.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

LAST_PART: Final = 8
"""One place of so many is for callers who have none."""
NETWORK_BITS: Final = 64
"""Of an address of IPv6: what one subscriber is given has at least as many addresses as the rest makes."""


class RequestSlots:
    """So many places, and how many each caller has. Used by the thread of the event loop alone."""

    def __init__(self, count_max: int, caller_max: int) -> None:
        self.count_max, self.caller_max = count_max, caller_max
        self.taken = 0
        self._by_caller: dict[str, int] = {}

    def count_slots(self, caller: str) -> int:
        """How many places a caller has."""
        return self._by_caller.get(caller, 0)

    def has_free_slots(self) -> bool:
        return self.taken < self.count_max

    def may_take(self, caller: str) -> bool:
        """Whether a caller may have one more."""
        own, remaining = self._by_caller.get(caller, 0), self.count_max - self.taken
        if not own:
            return remaining > 0
        return remaining > self.count_max // LAST_PART and own < min(self.caller_max, remaining)

    def take_slot(self, caller: str) -> RequestSlot:
        """One more place for a caller, who may have it."""
        self.taken += 1
        self._by_caller[caller] = self._by_caller.get(caller, 0) + 1
        return RequestSlot(self, caller)

    def give_back(self, caller: str) -> None:
        self.taken -= 1
        remaining = self._by_caller[caller] - 1
        if remaining:
            self._by_caller[caller] = remaining
        else:
            del self._by_caller[caller]


class Returnable(Protocol):
    """Something that is given back."""

    def give_back(self) -> None: ...


class RequestSlot:
    """A place that a caller has until it is given back; without places, one that is not counted."""

    def __init__(self, places: RequestSlots | None = None, caller: str = "") -> None:
        self._places, self._caller = places, caller
        self._other: Returnable | None = None

    def give_back_with(self, other: Returnable | None) -> None:
        """Have another place given back with this one."""
        self._other = other

    def give_back(self) -> None:
        """May be done more than once."""
        if self._places is not None:
            self._places.give_back(self._caller)
            self._places = None
        if self._other is not None:
            self._other.give_back()
            self._other = None


def normalise_client_address(client: tuple[str, int] | None) -> str:
    """The address that a connection comes from; of IPv6, the network that its owner has addresses of."""
    return _normalise_host(client[0]) if client is not None else ""


@lru_cache(maxsize=4096)
def _normalise_host(host: str) -> str:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if isinstance(address, IPv6Address) and not address.is_loopback:
        return f"{IPv6Address(int(address) >> NETWORK_BITS << NETWORK_BITS)}/{NETWORK_BITS}"
    return str(address)
