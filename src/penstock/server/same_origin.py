"""Same-origin check: pages of other sites cannot use a server that needs no token.

A browser on this machine can reach the server, and sends requests for any page that it shows. It names the
page's origin and the host name of the server in the headers of each request, and these are checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from penstock.errors import Denied
from penstock.server.access import AccessGate, Caller


class OwnPages(AccessGate):
    """A gate that refuses what a page from elsewhere asks; everything else is up to the gate behind it.

    Unless it may have ``any_name``, the server only answers to an address or ``localhost``: another site can
    let a name of its own lead here, and its pages would then be taken for ours.
    """

    def __init__(self, gate: AccessGate, *, any_name: bool) -> None:
        self._gate, self._any_name = gate, any_name

    def __call__(self, headers: Mapping[str, str], /) -> Caller:
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise Denied("this server needs no token, so it refuses requests from pages of other sites")
        if not self._any_name and not _is_here(host):
            raise Denied(
                f"this server needs no token, so it does not answer to the host name '{host}', "
                "which another site may have pointed here: use the name localhost, or an IP address"
            )
        return self._gate(headers)


def _is_here(host: str) -> bool:
    """Whether a ``Host`` header names an address or this machine; a client that sends none is no browser."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in ("", "localhost") or bool(ip_address(name))
    except ValueError:
        return False
