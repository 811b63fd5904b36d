"""The doctor: whether the installation, the lake and what it stands on are well, in one line each."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

import click
import msgspec

from penstock.cli.advice import MOVED_BEHIND_SERVER, RESTORE, suggest_next_step
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command
from penstock.cli.format_cli import DoctorCheck, DoctorFinding, format_clis
from penstock.cli.installation import DoctorLine, check_build, check_installation
from penstock.cli.reference_access import get_commit
from penstock.cli.rendering.screen import Screen
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age, format_count, format_iso_time, format_size
from penstock.errors import Denied, PenstockError
from penstock.formats.registry import load_other_formats
from penstock.kernel.description import read_description
from penstock.kernel.format import blob
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.references import Kind
from penstock.stores.lake_directory import find_exposed_files

DISK_LOW_BYTES = 1024**3
DISK_FULL_BYTES = 64 * 1024**2
NAMED_MAX = 3
_STYLES = {"ok": "good", "warning": "warning", "failed": "bad"}


class Doctor(msgspec.Struct, frozen=True, kw_only=True):
    """How the lake and its surroundings are."""

    healthy: bool
    """Whether nothing failed."""
    checks: tuple[DoctorLine, ...]
    """One for each thing that was looked at."""


@declare_command("doctor", prints=Doctor, examples="$ penstock doctor --lake ./other")
@pass_call
def doctor(call: CommandContext) -> None:
    """Check the installation and the lake, and show one line for each finding, with what to do.

    Of the installation, the command checks the versions of Python, of Penstock's libraries and of each extra,
    and whether Penstock was tested with them; if Spark is installed, also Penstock's jar for it, and Java.
    Without a lake (no --lake, no PENSTOCK_LAKE, and none in the current directory) it checks nothing else.

    Of a lake, it checks the store (readable, writable, sound, not readable by everyone), the disk, the clock
    and the default branch; whether the roots exist and their storage refuses to replace an existing file;
    whether tables have versions that the lake does not know; and, by format, which versions of Delta tables
    are published, which Delta tables 'penstock delta repair' would change, and whether branches and tags have
    the manifests of their Lance tables. Behind a server, it checks what a client can see. 'penstock fsck'
    checks the lake's objects one by one.

    The exit status is 1 if a check failed, and 0 otherwise, also after warnings.
    """
    checks = [*check_installation(), *_check_lake(call)]
    healthy = all(check.state != "failed" for check in checks)
    call.print_answer(
        lambda: Doctor(healthy=healthy, checks=tuple(checks)), lambda s: _format_checks(s, checks)
    )
    if not healthy:
        click.get_current_context().exit(1)


def _format_checks(screen: Screen, checks: list[DoctorLine]) -> Iterator[str]:
    rows: list[Row] = [
        [StyledText(check.state, _STYLES[check.state]), check.name, _format_line(check)] for check in checks
    ]
    return align_columns(screen, rows)


def _format_line(doctor_line: DoctorLine) -> str:
    return f"{doctor_line.finding}: {doctor_line.advice}" if doctor_line.advice else doctor_line.finding


def _check_lake(call: CommandContext) -> Iterator[DoctorLine]:
    if not call.has_target:
        yield check_build("lake", "ok", "none is given", "--lake PATH checks one as well")
        return
    try:
        lake = call.open_lake(create=False)
    except PenstockError as error:
        yield check_build("store", "failed", error.message, suggest_next_step(error, call.is_behind_server))
        return
    yield from check_lake(lake)


def check_lake(lake: Lake) -> Iterator[DoctorLine]:
    """A line for each thing that is looked at of a lake."""
    for name, look in _list_checks(lake):
        try:
            finding = look(lake)
        except Denied as error:
            finding = DoctorFinding("warning", f"cannot be looked at: {error.message}")
        except PenstockError as error:
            finding = DoctorFinding("failed", error.message)
        except OSError as error:
            finding = DoctorFinding("failed", f"{error.filename}: {error.strerror}")
        yield check_build(name, finding.state, finding.finding, finding.advice)


def _check_server(lake: Lake) -> DoctorFinding:
    if lake.moving_to:
        return DoctorFinding("warning", f"{lake.url} answers, but takes no writes", MOVED_BEHIND_SERVER)
    return DoctorFinding("ok", f"{lake.url} answers; what is behind it is looked at where it runs")


def _check_store(lake: Lake) -> DoctorFinding:
    """Store an object that nothing leads to; the sweep removes it."""
    if lake.kernel.store.is_read_only:
        return DoctorFinding("ok", f"{lake.url} can be read, and not be written by this process")
    object_id, data = blob(b"the doctor was here")
    lake.kernel.store.store({object_id: data})
    if lake.kernel.store.fetch([object_id]) != {object_id: data}:
        return DoctorFinding(
            "failed", "an object that was just stored cannot be found", "do not use this store"
        )
    return DoctorFinding("ok", f"{lake.url} can be read and written")


def _check_integrity(lake: Lake) -> DoctorFinding:
    problems = lake.kernel.store.check()
    if problems:
        return DoctorFinding("failed", "; ".join(problems), RESTORE)
    return DoctorFinding("ok", "the database finds nothing wrong with itself")


def _check_disk(lake: Lake) -> DoctorFinding:
    if not Path(lake.url).is_dir():
        return DoctorFinding("ok", "nothing to look at from here")
    free = shutil.disk_usage(lake.url).free
    free_text = f"{format_size(free)} free at {lake.url}"
    if free < DISK_FULL_BYTES:
        return DoctorFinding("failed", free_text, "make room before the next commit")
    return (
        DoctorFinding("warning", free_text, "make room soon")
        if free < DISK_LOW_BYTES
        else DoctorFinding("ok", free_text)
    )


def _check_file_permissions(lake: Lake) -> DoctorFinding:
    exposed = find_exposed_files(lake.kernel.store.url)
    if not exposed:
        return DoctorFinding("ok", "the store's files can be read by their owner and a group")
    paths = " ".join(shlex.quote(str(path)) + ("*" if path.is_file() else "") for path in exposed)
    return DoctorFinding(
        "warning",
        "everybody on this machine can read the lake's store: messages, names and hashes of tokens",
        f"unless that is meant: chmod o-rwx {paths}",
    )


def _check_clock(lake: Lake) -> DoctorFinding:
    now = datetime.now(UTC)
    heads = {branch.id: branch.name for branch in lake.references(Kind.BRANCH)}
    heads.pop(EMPTY_COMMIT_ID, None)
    newest = max((get_commit(lake, head, name).time for head, name in heads.items()), default=None)
    if newest is None:
        return DoctorFinding("ok", f"{format_iso_time(now)}, and no commits yet")
    if newest > now:
        return DoctorFinding(
            "failed",
            f"it is {format_iso_time(now)}, but the newest commit is from {format_iso_time(newest)}",
            "set this machine's clock, or the one that made the commit",
        )
    return DoctorFinding("ok", f"{format_iso_time(now)}, the newest commit is from {format_age(newest, now)}")


def _check_default_branch(lake: Lake) -> DoctorFinding:
    if not lake.branch().exists:
        return DoctorFinding(
            "failed",
            f"there is no branch '{lake.default_branch}'",
            f"create it: penstock branch create {lake.default_branch} --at COMMIT",
        )
    return DoctorFinding("ok", f"{lake.default_branch}")


def _check_formats(_: Lake) -> DoctorFinding:
    return DoctorFinding(
        "warning",
        "; ".join(load_other_formats().problems),
        "repair or remove the package; tables of other formats are not concerned",
    )


def _list_checks(lake: Lake) -> list[DoctorCheck]:
    """What to look at, and how."""
    tables = [check for format_cli in format_clis() for check in format_cli.doctor_checks(lake)]
    tables += [("formats", _check_formats)] if load_other_formats().problems else []
    if not lake.is_embedded:
        return [
            ("server", _check_server),
            ("clock", _check_clock),
            ("default branch", _check_default_branch),
            *tables,
        ]
    roots = [
        ("warehouse" if root == lake.warehouse else "root", partial(_check_root, root)) for root in lake.roots
    ]
    return [
        ("store", _check_store),
        ("integrity", _check_integrity),
        ("disk", _check_disk),
        *([("privacy", _check_file_permissions)] if find_exposed_files(lake.kernel.store.url) else []),
        ("clock", _check_clock),
        ("default branch", _check_default_branch),
        *roots,
        *([("versions", _check_sync)] if tables else []),
        *tables,
    ]


def _check_sync(lake: Lake) -> DoctorFinding:
    """Whether tables have what the lake knows, and no more. Tables of a lake that moved go on without it."""
    seal = read_description(lake.kernel.store).sealed
    if seal is not None:
        where = "has moved" if seal.is_final else "is moving"
        return DoctorFinding("warning", f"the lake {where} to {seal.target}; this location is read-only")
    resynced = lake.resync(dry_run=True)
    names = [str(table.key) for table in resynced.tables]
    if not names:
        return DoctorFinding(
            "ok", f"{format_count(resynced.in_sync, 'table')}, with the versions that the lake knows"
        )
    shown_names = ", ".join(names[:NAMED_MAX]) + (", …" if len(names) > NAMED_MAX else "")
    count = format_count(len(names), "table has", "tables have")
    return DoctorFinding(
        "failed",
        f"{count} versions that the lake does not know, or others: {shown_names}",
        "'penstock resync --all' takes over what they have",
    )


def _check_root(root: str, lake: Lake) -> DoctorFinding:
    if "://" in root:
        return _check_bucket(root, lake)
    place = Path(root)
    if not place.exists() and place.parent == Path(lake.url):
        return DoctorFinding("ok", f"{root} does not exist yet; the first table creates it")
    if not place.is_dir():
        return DoctorFinding("failed", f"{root} is not a directory", "make it, or mount what should be there")
    if lake.kernel.store.is_read_only and not os.access(place, os.W_OK):
        return DoctorFinding("ok", f"{place} can be read, and not be written by this process")
    return _check_put_if_absent(place)


def _check_bucket(root: str, lake: Lake) -> DoctorFinding:
    """Write to a bucket on conditions, as publishing does. What is written is removed again."""
    if lake.kernel.store.is_read_only:
        return DoctorFinding("ok", f"{root} is not tried: this process only reads the lake")
    assert isinstance(lake.catalogue, Embedded)
    try:
        keeps_conditions = lake.catalogue.places.open_place(root).keeps_conditions
    except Denied as error:
        return DoctorFinding("failed", f"{root} cannot be written: {error.message}", "ask for access to it")
    if keeps_conditions:
        return DoctorFinding("ok", f"{root} can be written, and put-if-absent works there")
    return DoctorFinding(
        "warning",
        f"{root} can be written, but allows an existing file to be replaced",
        "let nothing but this lake write there",
    )


def _check_put_if_absent(folder: Path) -> DoctorFinding:
    """Create a file twice: the second time must be refused and must not change it."""
    probe = folder / f".penstock-doctor-{uuid4().hex}"
    try:
        with probe.open("xb") as file:
            file.write(b"first")
    except OSError as error:
        return DoctorFinding(
            "failed", f"{folder} cannot be written: {error.strerror}", "ask for access to it"
        )
    try:
        with probe.open("xb") as file:
            file.write(b"second")
    except FileExistsError:
        is_first = probe.read_bytes() == b"first"
    else:
        is_first = False
    finally:
        probe.unlink()
    if not is_first:
        return DoctorFinding(
            "failed", f"{folder} allows an existing file to be replaced", "use a file system that does not"
        )
    return DoctorFinding("ok", f"{folder} can be written, and put-if-absent works there")
