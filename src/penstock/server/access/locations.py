"""Where a server lets tables be: below the lake's roots, and never at an address that hands out secrets.

A location in a content is followed by engines, by formats and by clean-up, all with rights that whoever sent
it may not have. So it is refused before it is stored.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

from penstock.errors import LocationRefused
from penstock.model.content import AnyContent, DeltaTable, IcebergTable, IcebergView, ManagedTable, Udf
from penstock.storage.locations import check_under

SAME_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
"""What engines call a store that is written otherwise in a root."""

METADATA_ADDRESSES: Final = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
"""Of clouds that do not use a link-local one."""

METADATA_NAMES: Final = frozenset(
    ("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal")
)

NAT64: Final = IPv6Network("64:ff9b::/96")


def check_locations(contents: Iterable[AnyContent | None], roots: Iterable[str]) -> None:
    """``LocationRefused`` if a content names a place where no table of the lake may be."""
    places = [_as_root(root) for root in roots]
    for content in contents:
        for location in locations_of(content):
            check_host(location)
            check_under(_as_root(location), places)


def locations_of(content: AnyContent | None) -> Iterator[str]:
    """The places that a content names."""
    if isinstance(content, IcebergTable | IcebergView):
        yield content.metadata_location
    elif isinstance(content, Udf):
        yield from filter(None, (content.metadata_location,))
    elif isinstance(content, ManagedTable):
        yield from filter(None, (content.location,))
    if isinstance(content, DeltaTable):
        yield from content.metadata_location_history
        yield from content.checkpoint_location_history


def check_host(location: str) -> None:
    """``LocationRefused`` if a location is on a host that no lake has a root on, in whatever spelling."""
    scheme, host = _host(location)
    address = _address(host)
    if address is not None and any(map(_is_forbidden, _ways_to(address))):
        raise _refused(location)
    if scheme in ("http", "https") and host in METADATA_NAMES:
        raise _refused(location)


def _refused(location: str) -> LocationRefused:
    return LocationRefused(
        f"{location!r} is on an address of the machine's own surroundings, where no table can be",
        location=location,
    )


def _host(location: str) -> tuple[str, str]:
    """The scheme and the host as a lenient client might read them."""
    plain = location
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    try:
        # As names of hosts are read: full-width digits are digits, an ideographic full stop is a dot.
        split = urlsplit(normalize("NFKC", plain).replace("\N{IDEOGRAPHIC FULL STOP}", "."))
        return split.scheme.lower(), (split.hostname or "").rstrip(".").lower()
    except ValueError as problem:
        raise LocationRefused(f"{location!r} is not a location: {problem}", location=location) from None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is, also as one number, in hexadecimal, octal or with parts left out."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host)) if host.isascii() and " " not in host else None
    except OSError:
        return None


def _ways_to(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """An address, and those that it wraps."""
    yield address
    if isinstance(address, IPv6Address):
        yield from filter(None, (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())))
        if address in NAT64 or int(address) < 2**32:
            yield IPv4Address(int(address) % 2**32)


def _is_forbidden(address: IPv4Address | IPv6Address) -> bool:
    return address.is_link_local or address in METADATA_ADDRESSES


def _as_root(location: str) -> str:
    """A location in the spelling that roots have: engines write ``s3a://`` and ``file:/``."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme.lower() == "file" and not rest.startswith("//"):
        return f"file://{rest}" if rest.startswith("/") else location
    return SAME_SCHEMES.get(scheme.lower(), scheme) + colon + rest if rest.startswith("//") else location
