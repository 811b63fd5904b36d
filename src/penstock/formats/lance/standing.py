"""Whose versions a branch's are: which chain a table goes on in when somebody writes to it there.

Lance's writers look into a folder to see what others did. So every branch must have a folder of its own, or
one would take another's versions for what came before its own. The default branch has the table's folder,
and whatever else writes to a table begins a line (``names.line_folder``). A transaction goes on in the chain
of the branch that it lands on: it has names of its own there, which nobody else looks at.

A branch can be moved back, and its folder cannot: that has newer versions then, which are nobody's any more.
So it begins another line, the first in which nothing comes after the versions that it goes on from, also on
Lance's own branches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.formats.lance.names import MAIN, line_folder, manifest_name
from penstock.formats.lance.state import LanceState, Versions
from penstock.kernel.format import Table
from penstock.model.content import LanceTable
from penstock.storage.places import Place

LINES_MAX: Final = 64
"""How many lines a branch may begin from one version, each after the one before was given up."""


class Standing(NamedTuple):
    """For whom a table is written."""

    owner: bytes
    """The incarnation of the branch that the versions are for; nothing for the default branch."""
    transaction: str | None = None
    """The id of the transaction in which they are kept until it lands."""

    @staticmethod
    def of(table: Table) -> Standing:
        if (open_one := table.transaction) is not None:
            return Standing(b"" if open_one.is_default else open_one.incarnation, open_one.id)
        return Standing(b"" if table.is_default else table.incarnation)


class Chain(NamedTuple):
    """A chain, and whose it is."""

    folder: str
    owner: bytes


def chain_for(standing: Standing, content: LanceTable, state: LanceState, versions: Versions) -> Chain:
    """The chain in which a table goes on, as far as its state tells."""
    if state.owner == standing.owner:
        return Chain(state.chain, state.owner)
    return new_line(standing, content, versions)


def new_line(standing: Standing, content: LanceTable, versions: Versions, turn: int = 0) -> Chain:
    """The chain that begins with the table as it is. The default branch has the table's own folder."""
    if not standing.owner:
        return Chain("", b"")
    assert content.id is not None
    newest = versions.newest(MAIN)
    head = b"" if newest is None else newest[1].id(newest[0])
    return Chain(line_folder(standing.owner, content.id.bytes, head, turn), standing.owner)


def chains(standing: Standing, content: LanceTable, state: LanceState, versions: Versions) -> Iterator[Chain]:
    """The chains in which a table may go on, those that are to be tried first first."""
    first = chain_for(standing, content, state, versions)
    yield first
    if standing.owner:
        for turn in range(LINES_MAX):
            if (line := new_line(standing, content, versions, turn)) != first:
                yield line


def free_chain(
    place: Place, standing: Standing, content: LanceTable, state: LanceState, versions: Versions
) -> Chain:
    """The chain in which a table goes on: of those that it may the first one where nothing comes after it.

    It looks into table storage. What is found is the same for everybody until somebody has gone on there.
    """
    found = chain_for(standing, content, state, versions)
    if not standing.owner:
        return found
    newest = {branch: versions.newest(branch) for branch in (MAIN, *versions.branches())}
    following = {branch: 1 if one is None else one[0] + 1 for branch, one in newest.items()}
    for found in chains(standing, content, state, versions):
        names = (manifest_name(found.folder, branch, number) for branch, number in following.items())
        if all(place.size(name) is None for name in names):
            break
    return found
