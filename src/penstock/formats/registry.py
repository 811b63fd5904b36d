"""The table formats that there are: each is a package that declares its parts by name.

What is shared asks here and never names a format. A part is given as an entry point is, by ``module:name``,
so that nothing of a format is loaded before it is needed: a command that needs no table imports none.

Formats of other packages are found by entry points of the group ``penstock.formats``, each of which leads to
a ``TableFormat``. To read entry points takes longer than a short command, so they are only looked for when no
format of Penstock's knows a name, a command, a type of content or a call, when help lists the commands, and
when a server starts. They are read only if an installed package may have some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.errors import FormatUnavailable
from penstock.formats.entry_points import may_have_entry_points

if TYPE_CHECKING:
    from penstock.metrics.table import Metric
    from penstock.model.content import Content

GROUP: Final = "penstock.formats"
"""The group of entry points by which packages bring formats."""
PACKAGE: Final = "penstock"
BUILT_IN: Final = (
    "penstock.formats.delta:FORMAT",
    "penstock.formats.files:FORMAT",
    "penstock.formats.lance:FORMAT",
)


class FormatCommand(NamedTuple):
    """A command of a format's, and a line about it for who has not loaded it."""

    path: str
    summary: str


class TableFormat(NamedTuple):
    """A table format as its package declares it. Every path is ``module:name``."""

    name: str
    """How changes and programs name the format."""
    plugin: str
    """What an open lake asks: a ``penstock.formats.plugin.FormatPlugin``."""
    content_type: str
    """The name of the type of content that its tables have."""
    access_rules: str
    """The rule of each of its calls: a mapping from the call's class, as in ``penstock.server.access``."""
    table_view: str
    """What a program does with a table: a ``penstock.formats.plugin.TableView``, made of a ``Table``."""
    row_formats: tuple[str, ...] = ()
    """What ``format`` may be where rows are written to a table of the format."""
    members: Mapping[str, str] = MappingProxyType({})
    """What a lake and its tables have that no other format answers, by names such as ``lake.delta``."""
    content: str = ""
    """The class of that content, if the type has a number of its own: only Penstock gives numbers. Tables of
    other formats are stored as ``penstock.model.content.Unknown``, with the name of the type."""
    spark: str | None = None
    """What Spark does with its tables: a ``penstock.spark.format.SparkFormat``."""
    sql: str | None = None
    """What an engine of SQL that has no Python is told of its tables: a ``SqlFormat`` of
    ``penstock.lake.sql_catalog.formats``."""
    cli: str = "penstock.cli.format_cli:FormatCli"
    """What the command line says of its tables: a ``penstock.cli.format_cli.FormatCli``."""
    commands: Mapping[str, FormatCommand] = MappingProxyType({})
    """Commands by name."""
    routes: str = ""
    """Routes beside those of its calls in the lake's own API: a tuple of ``penstock.server.routes.Route``."""
    server_imports: tuple[str, ...] = ()
    """Modules that a server imports before the first request needs them."""
    row_work_imports: tuple[str, ...] = ()
    """Modules that processes which read rows import before they are given work."""
    apis: tuple[str, ...] = ()
    """Further APIs by which a server offers tables of the format: each a ``penstock.server.routes.Api``."""
    metrics: str = ""
    """What is measured of its tables: a tuple of ``penstock.metrics.table.Metric``."""
    package: str = PACKAGE
    """The Python package that brings the format, with its version; filled in where it is found."""

    def load(self, path: str) -> Any:
        """A part of the format. ``FormatUnavailable`` names the package, if it is not Penstock's own."""
        if self.package == PACKAGE:
            return load_part(path)
        try:
            return load_part(path)
        except Exception as problem:
            raise FormatUnavailable(_describe_failure(self.name, self.package, problem)) from problem


class InstalledFormats(NamedTuple):
    """Formats of other packages, as they are installed here."""

    formats: tuple[TableFormat, ...] = ()
    problems: tuple[str, ...] = ()
    """A sentence for each that cannot be used. It names the package."""


@cache
def list_table_formats() -> tuple[TableFormat, ...]:
    """The formats of Penstock. Nothing of them is loaded but their declarations."""
    return tuple(load_part(path) for path in BUILT_IN)


@cache
def load_other_formats() -> InstalledFormats:
    """The formats of other packages, with their plugins loaded. One that cannot be loaded stops no other."""
    if not may_have_entry_points(GROUP):
        return InstalledFormats()
    from importlib.metadata import entry_points

    formats: list[TableFormat] = []
    problems: list[str] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        package = entry.dist.name + " " + entry.dist.version if entry.dist is not None else entry.value
        try:
            declared = entry.load()._replace(package=package)
            _check_declaration(declared, (*list_table_formats(), *formats))
            declared.load(declared.plugin)
        except FormatUnavailable as problem:
            problems.append(problem.message)
        except Exception as problem:  # noqa: BLE001 - other people's code runs here, and any error is possible
            problems.append(_describe_failure(entry.name, package, problem))
        else:
            formats.append(declared)
    return InstalledFormats(tuple(formats), tuple(problems))


def list_usable_formats() -> InstalledFormats:
    """The formats of other packages of which a server can load every part that it needs."""
    formats, problems = [], list(load_other_formats().problems)
    for declared in load_other_formats().formats:
        try:
            for path in (declared.access_rules, declared.routes, *declared.apis):
                if path:
                    declared.load(path)
        except FormatUnavailable as problem:
            problems.append(problem.message)
        else:
            formats.append(declared)
    return InstalledFormats(tuple(formats), tuple(problems))


def find_declared(is_meant: Callable[[TableFormat], bool]) -> TableFormat | None:
    """The format that is meant. Those of other packages are looked for if it is none of Penstock's."""
    own = next(filter(is_meant, list_table_formats()), None)
    return own if own is not None else next(filter(is_meant, load_other_formats().formats), None)


def make_not_installed_error(subject: str) -> FormatUnavailable:
    """What is said where a format is needed that no installed package has. ``subject`` names the need."""
    problems = "".join(f"\n  {problem}" for problem in load_other_formats().problems)
    return FormatUnavailable(
        f"{subject}; no installed package provides that format\n  Install the Python package of the "
        "format in this environment. Behind a server, install it in the server's environment and restart "
        f"the server.{problems}"
    )


def _check_declaration(declared: TableFormat, others: Sequence[TableFormat]) -> None:
    """``FormatUnavailable`` if a package declares what another format has, or what only Penstock may."""
    if declared.content:
        raise FormatUnavailable(
            f"the table format '{declared.name}' of the package {declared.package} is ignored: it "
            "must store its contents as the type Unknown, because only Penstock itself may define "
            "content types"
        )
    for other in others:
        same = {declared.name, declared.content_type, *declared.commands} & {
            *(other.name, other.content_type),
            *other.commands,
        }
        if same:
            raise FormatUnavailable(
                f"the table format '{declared.name}' of the package {declared.package} is ignored: "
                f"the format '{other.name}' of {other.package} already uses the name '{min(same)}'"
            )


def _describe_failure(name: str, package: str, problem: Exception) -> str:
    why = f"{type(problem).__name__}: {problem}".replace("\n", " ")
    return f"the table format '{name}' of the package {package} cannot be loaded: {why}"


def list_content_types() -> tuple[type[Content], ...]:
    """The types of content that formats bring, in the order of their numbers."""
    brought = (load_part(declared.content) for declared in list_table_formats() if declared.content)
    return tuple(sorted(brought, key=lambda kind: kind.__struct_config__.tag))


def list_format_metrics() -> tuple[Metric, ...]:
    """What is measured of tables, by Penstock's formats."""
    return tuple(
        metric
        for declared in list_table_formats()
        if declared.metrics
        for metric in load_part(declared.metrics)
    )


def load_member(name: str) -> Any:
    """What a format declares for a member of a lake or a table, such as ``lake.delta``."""
    return load_part(
        next(
            table_format.members[name]
            for table_format in list_table_formats()
            if name in table_format.members
        )
    )


def load_part(path: str) -> Any:
    """The part of a format that ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
