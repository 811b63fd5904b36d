"""Leases of those who are gone, for which no test has the time to wait."""

from __future__ import annotations

from penstock.kernel.leases import Leases, LeaseTerm

LEFT_AFTER_S = 0.3


class HastyLeases(Leases):
    """Its own are good for as long as ever, however slow the machine is; those of others are soon taken."""

    def _is_left(self, id: str, term: LeaseTerm) -> bool:  # noqa: A002
        return super()._is_left(id, term._replace(good_s=LEFT_AFTER_S))
