"""Lance's own branches and tags, where every reader of Lance looks for them: a small file each.

They follow after what landed, as manifests do. But tags move and go, so that a file is made to say what the
table's branch says now, and it is looked once more whether that is still so. A file has a mark of the lake
in it, which Lance does not mind; only those with the mark are ever changed or removed, or what the table has
just lost. A client of Lance's that makes a branch writes the file itself, right after its first version, and
fails if it is there: it is given time to.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from penstock.errors import OutcomeUnknown
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.names import REFS_OF_BRANCHES, REFS_OF_TAGS, STAGING
from penstock.formats.lance.promotion_tasks import PromoteTask
from penstock.formats.lance.state import LanceVersionReader, OwnBranch, OwnTag, decode_state
from penstock.kernel.objects import Objects
from penstock.model.clock import Clock, now_us, to_utc_datetime
from penstock.model.encoding import hash_parts
from penstock.storage.places import Place, Places

MARK: Final = "penstock"
"""The field that is not Lance's; its value is the lake's id."""
SUFFIX: Final = ".json"
ROUNDS_MAX: Final = 8
"""How often a table may change while its files are made to follow, before it is left for later."""
KNOWN_MAX: Final = 10_000
CLIENT_US: Final = 60_000_000
"""How long a client has to write the file of a branch that it makes."""

logger = logging.getLogger("penstock")

Refs = tuple[Mapping[str, OwnBranch], Mapping[str, OwnTag]]


class RefFileWriter:
    """Has the files. May be used by many threads.

    ``current`` tells the table as its branch has it now; nothing if it is not there any more.
    """

    def __init__(
        self,
        places: Places,
        objects: Objects,
        lake: str,
        current: Callable[[PromoteTask], LanceTable | None],
        clock: Clock = now_us,
    ) -> None:
        self._places, self._objects, self._lake = places, objects, lake
        self._current, self._clock = current, clock
        self._done: OrderedDict[tuple[str, str], Refs] = OrderedDict()
        self._lock, self._turn = Lock(), Lock()

    def needs_update(self, task: PromoteTask) -> bool:
        """Whether there may be something to do. Of a chain that was never looked at that is always so."""
        with self._lock:
            written_refs = self._done.get(_get_chain(task))
        return written_refs is None or written_refs != self._read_refs(task.content)

    def update_files(self, task: PromoteTask) -> None:
        """Make the files of a chain say what its branch says now. Raises as storage does."""
        with self._turn:
            for _ in range(ROUNDS_MAX):
                content = self._current(task)
                if content is None or decode_state(content).chain != task.state.chain:
                    return
                refs = self._read_refs(content)
                is_whole = self._sync_ref_files(task, content, refs)
                after = self._current(task)
                if after is not None and self._read_refs(after) == refs:
                    if is_whole:
                        self._remember_written(task, refs)
                    return

    def _read_refs(self, content: LanceTable) -> Refs:
        versions = LanceVersionReader(self._objects, decode_state(content))
        return versions.list_branches(), versions.list_tags()

    def _remember_written(self, task: PromoteTask, refs: Refs) -> None:
        with self._lock:
            self._done[_get_chain(task)] = refs
            self._done.move_to_end(_get_chain(task))
            if len(self._done) > KNOWN_MAX:
                self._done.popitem(last=False)

    def _sync_ref_files(self, task: PromoteTask, content: LanceTable, refs: Refs) -> bool:
        """Write and remove files; whether nothing is left for later."""
        with self._lock:
            written_before = self._done.get(_get_chain(task), ({}, {}))
        versions = LanceVersionReader(self._objects, decode_state(content))
        place = self._places.open_place(content.location)
        following = _RefFilesUpdate(place, self._lake, content, task.state.chain, versions, refs)
        following.remove_files(written_before)
        following.write_tags()
        return following.write_branches(self._clock())


class _RefFilesUpdate:
    """The files of a chain, being made to say what the table says."""

    def __init__(
        self,
        place: Place,
        lake: str,
        content: LanceTable,
        chain: str,
        versions: LanceVersionReader,
        refs: Refs,
    ) -> None:
        self._place, self._lake, self._content, self._versions = place, lake, content, versions
        self._chain, (self._branches, self._tags) = chain, refs
        self._of_branches, self._of_tags = f"{chain}{REFS_OF_BRANCHES}", f"{chain}{REFS_OF_TAGS}"

    def remove_files(self, written_before: Refs) -> None:
        """What the table has no more, as far as it was the lake's."""
        for folder, now, before in (
            (self._of_branches, self._branches, written_before[0]),
            (self._of_tags, self._tags, written_before[1]),
        ):
            existing = dict(_read_ref_files(self._place, folder))
            gone = [
                name
                for name in existing
                if name not in now and (name in before or self._is_ours(existing[name]))
            ]
            self._place.delete([_make_ref_file_name(folder, name) for name in gone])

    def write_branches(self, now_us: int) -> bool:
        """Those that others come from first. Whether none is left for later: to a client that makes it, or
        until its versions are there."""
        is_whole = True
        for name, branch in sorted(
            self._branches.items(), key=lambda named_branch: named_branch[1].created_us
        ):
            first, newest = self._versions.get_version(name, branch.version), self._versions.find_newest(name)
            is_clients = first is not None and STAGING not in first.staged
            if is_clients and now_us < branch.created_us + CLIENT_US:
                is_whole = False
            elif (
                newest is not None and self._place.size(newest[1].promoted_path(name, newest[0])) is not None
            ):
                self._put_file(
                    _make_ref_file_name(self._of_branches, name), self._make_branch_file(name, branch)
                )
            else:
                # They are about to be promoted, and the branch is looked at again then. Or somebody has
                # removed it with plain Lance, which removes its versions too: then it does not come back.
                is_whole = False
        return is_whole

    def write_tags(self) -> None:
        for name, tag in self._tags.items():
            self._put_file(_make_ref_file_name(self._of_tags, name), self._make_tag_file(tag))

    def _put_file(self, name: str, fields: Mapping[str, Any]) -> None:
        """Have a file say something, unless it is another's that says something else."""
        new_fields = {**fields, MARK: self._lake}
        data = msgspec.json.encode(new_fields)
        (existing,) = self._place.read([name])
        if existing is None:
            with suppress(OutcomeUnknown):  # what is there tells
                if self._place.create(name, data):
                    return
            (existing,) = self._place.read([name])
        json = _parse_json(existing)
        if json == new_fields:
            return
        if existing is None or self._is_ours(json) or _has_same_meaning(json, fields):
            self._place.put(name, data)
        else:
            logger.warning(
                "%s/%s, a branch or tag of Lance, differs from what the lake recorded; another program "
                "wrote it, and it stays as it is",
                self._content.location,
                name,
            )

    def _is_ours(self, fields: Mapping[str, Any]) -> bool:
        return fields.get(MARK) == self._lake

    # -- what files say ------------------------------------------------------------------------------------

    def _make_branch_file(self, name: str, branch: OwnBranch) -> dict[str, Any]:
        fork = self._versions.get_version(branch.parent, branch.version)
        return {
            "parentBranch": branch.parent or None,
            "identifier": {"version_mapping": self._list_branch_lineage(name, branch)},
            "parentVersion": branch.version,
            "createAt": branch.created_us // 1_000_000,
            "manifestSize": 0 if fork is None else fork.size,
            "metadata": branch.metadata,
        }

    def _list_branch_lineage(self, name: str, branch: OwnBranch) -> list[list[Any]]:
        """By what Lance tells a branch from an earlier one of its name: where it and those it comes from
        forked, and what each was known by. A file that is there has the word."""
        (data,) = self._place.read([_make_ref_file_name(self._of_branches, name)])
        json = _parse_json(data)
        is_it = not self._is_ours(json) or json.get("createAt") == branch.created_us // 1_000_000
        if (
            is_it
            and isinstance(identifier := json.get("identifier"), dict)
            and identifier.get("version_mapping")
        ):
            return list(identifier["version_mapping"])
        parent = self._branches.get(branch.parent)
        above = [] if parent is None else self._list_branch_lineage(branch.parent, parent)
        assert self._content.id is not None
        known_by = self._content.id.bytes + f"{branch.created_us} {self._chain}{name}".encode()
        return [*above, [branch.version, hash_parts("lance own branch", known_by).hex()[:32]]]

    def _make_tag_file(self, tag: OwnTag) -> dict[str, Any]:
        tagged = self._versions.get_version(tag.branch, tag.version)
        return {
            "branch": tag.branch or None,
            "version": tag.version,
            "createdAt": _format_time(tag.created_us),
            "updatedAt": _format_time(tag.updated_us),
            "manifestSize": 0 if tagged is None else tagged.size,
            "metadata": tag.metadata,
        }


def _get_chain(task: PromoteTask) -> tuple[str, str]:
    return task.content.location, task.state.chain


def _make_ref_file_name(folder: str, name: str) -> str:
    """Lance writes a slash in a branch's name so that it is none in a file's."""
    return f"{folder}{quote(name, safe='')}{SUFFIX}"


def _read_ref_files(place: Place, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The files of a folder, by the names that they stand for."""
    names = [entry.key for entry in place.list(folder) if entry.key.endswith(SUFFIX)]
    for name, data in zip(names, place.read(names), strict=True):
        yield unquote(name.removeprefix(folder).removesuffix(SUFFIX)), _parse_json(data)


def _parse_json(data: bytes | None) -> Mapping[str, Any]:
    """The JSON object in a file; empty if the file is missing or malformed."""
    try:
        parsed = msgspec.json.decode(data) if data else {}
    except msgspec.MsgspecError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _has_same_meaning(old_fields: Mapping[str, Any], new_fields: Mapping[str, Any]) -> bool:
    """Whether somebody else's file leads to the same version."""
    if "parentVersion" in new_fields:
        names = ("parentBranch", "parentVersion")
    else:
        names = ("branch", "version")
    return bool(old_fields) and all(old_fields.get(name) == new_fields[name] for name in names)


def _format_time(time_us: int) -> str:
    return to_utc_datetime(time_us).isoformat(timespec="microseconds").replace("+00:00", "Z")
