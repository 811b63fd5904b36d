"""Clients whose patience changes: they hear what they are to hear, however slow the machine is, and then wait
for as long as a test has time for."""

from __future__ import annotations

from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts

IMPATIENT = RemoteTimeouts(connect_timeout_s=0.2, answer_timeout_s=0.2, total_s=0.4, wait_max_s=0.02)


def set_patience(lake: Lake, patience: RemoteTimeouts = IMPATIENT) -> None:
    """Have a client wait so long from its next call on."""
    assert isinstance(lake.catalogue, RemoteCatalogue)
    lake.catalogue._patience = patience
