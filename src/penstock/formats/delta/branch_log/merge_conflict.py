"""A clash: changes of two sides of a merge to a Delta table that conflict."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.formats.delta.branch_log.net_change import NetChange, NetStep
from penstock.formats.delta.branch_log.next_versions import WAY_OUT
from penstock.formats.delta.protocol.actions import CommitInfo
from penstock.formats.delta.protocol.commit_summary import describe_commit
from penstock.formats.delta.protocol.conflicts import DeltaConflict
from penstock.formats.delta.protocol.transaction import find_last_action
from penstock.kernel.format import FormatRefused


class NetChangeConflict(Exception):
    """A commit of the line that stays does not go with the net change of the other."""

    def __init__(self, conflict: DeltaConflict, winner: NetStep) -> None:
        super().__init__(str(conflict))
        self._conflict, self._winner = conflict, winner

    def refusal(self, net: NetChange, steps: Sequence[NetStep], *, is_here: bool) -> FormatRefused:
        """The refusal of a merge: what conflicts, what each side did, and what the user can do.

        The other side is always the source; ``is_here`` tells whether the line that stays is the target's.
        ``steps`` are what the net change comes from, as far as that is known.
        """
        conflict = self._conflict
        mine, whose = ("the other side", "") if is_here else ("this branch", " of the other side")
        version = f"version {conflict.winner}{whose}"
        did, does = (
            describe_commit(self._winner.actions),
            describe_commit((*_find_common_operation(steps), *net.actions)),
        )
        return FormatRefused(
            f"was changed on both sides: {conflict.describe_clash(mine, whose)} (rule {conflict.rule});"
            f" {version} {did}, and since version {conflict.read_version} {mine} {does}; {WAY_OUT}",
            expected=f"version {conflict.read_version}",
            found=version,
            found_version=conflict.winner if is_here else None,
        )


def _find_common_operation(steps: Sequence[NetStep]) -> list[CommitInfo]:
    """The operation of the commits as a ``commitInfo``, if it is the same for all of them."""
    infos = [find_last_action(step.actions, CommitInfo) for step in steps]
    operations = {None if info is None else info.operation for info in infos}
    return [CommitInfo({"operation": operation}) for operation in operations] if len(operations) == 1 else []
