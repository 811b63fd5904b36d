"""Hosts where no table can be: a machine's own surroundings, where some addresses hand out secrets."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

from penstock.errors import LocationRefused
from penstock.storage.locations import hide_secrets

METADATA_ADDRESSES: Final = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
"""Of clouds that do not use a link-local one."""

METADATA_NAMES: Final = frozenset(
    ("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal")
)

NAT64: Final = IPv6Network("64:ff9b::/96")


def check_host(location: str) -> None:
    """``LocationRefused`` if a location is on a host that no lake has a root on, in whatever spelling."""
    scheme, host = _parse_scheme_and_host(location)
    address = _parse_ip_address(host)
    if address is not None and any(map(_is_forbidden, _list_embedded_addresses(address))):
        raise _refused_error(location)
    if scheme in ("http", "https") and host in METADATA_NAMES:
        raise _refused_error(location)


def _refused_error(location: str) -> LocationRefused:
    shown = hide_secrets(location)
    return LocationRefused(
        f"{shown!r} is on a private or local network address, where tables are not allowed", location=shown
    )


def _parse_scheme_and_host(location: str) -> tuple[str, str]:
    """The scheme and the host as a lenient client might read them."""
    plain = location
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    try:
        # As names of hosts are read: full-width digits are digits, an ideographic full stop is a dot.
        split = urlsplit(normalize("NFKC", plain).replace("\N{IDEOGRAPHIC FULL STOP}", "."))
        return split.scheme.lower(), (split.hostname or "").rstrip(".").lower()
    except ValueError as problem:
        shown = hide_secrets(location)
        raise LocationRefused(f"{shown!r} is not a location: {problem}", location=shown) from None


def _parse_ip_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is, also as one number, in hexadecimal, octal or with parts left out."""
    if not host:
        return None
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    import socket

    try:
        return IPv4Address(socket.inet_aton(host)) if host.isascii() and " " not in host else None
    except OSError:
        return None


def _list_embedded_addresses(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """An address, and the IPv4 addresses that it embeds: mapped, 6to4 and Teredo."""
    yield address
    if isinstance(address, IPv6Address):
        yield from filter(None, (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())))
        if address in NAT64 or int(address) < 2**32:
            yield IPv4Address(int(address) % 2**32)


def _is_forbidden(address: IPv4Address | IPv6Address) -> bool:
    return address.is_link_local or address in METADATA_ADDRESSES
