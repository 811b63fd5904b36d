"""The counts, each with its limit. A change that brings one down lowers the limit with it."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from itertools import zip_longest
from typing import Final, NamedTuple

from tests.tidy.path import find_append_path, find_commit_path, find_loaded
from tests.tidy.source import Module, Source

PARAMETERS_MAX: Final = 10
ALWAYS_LOADED: Final = frozenset(["msgspec"])
"""Libraries that every program loads that opens a lake."""
VAGUE: Final = frozenset(
    [
        "one",
        "found",
        "told",
        "said",
        "known",
        "wanted",
        "there",
        "asked",
        "taken",
        "given",
        "done",
        "left",
        "kept",
        "was",
    ]
)
"""Names of variables that do not say what they hold."""
UNPACKED: Final = re.compile(r"Unpack\[(\w+)\]")
PARTICIPLES: Final = frozenset(
    [
        "told",
        "said",
        "found",
        "known",
        "given",
        "taken",
        "kept",
        "left",
        "had",
        "seen",
        "made",
        "done",
        "written",
        "gone",
        "brought",
        "begun",
        "sent",
        "held",
        "meant",
    ]
)
NAMED_AFTER_A_FORMAT: Final = re.compile(r"(?:^|[._])(?:delta|lance)(?:[._]|$)|(?:^|\.)files(?:[._]|$)")
NAMES_A_FORMAT: Final = re.compile(r"\b(?:Delta|Files|Lance)Table\b|\bformats\.(?:delta|files|lance)\b")
MAY_NAME_FORMATS: Final = {
    "": "public names, loaded when a program asks for them",
    "cli.commands.demo": "it shows tables of the formats that come with Penstock",
    "cli.commands.demo_spark": "so does this",
    "model.nessie": "content types of Nessie's API are called so",
}
"""Modules outside of formats that name one, and why."""
IMPORTED_LATE: Final = (
    ("", "lake.notebook", "few programs run in a notebook"),
    ("cli.commands.demo_spark", "", "its functions are shown as programs of their own"),
    ("cli", "", "a command that needs no lake loads none"),
    ("formats.*.cli", "", "a command that opens no table loads nothing of it"),
    ("formats.*.plugin", "", "a lake is opened without what its formats do"),
    ("formats.*.lake.members", "", "says first that a library is missing"),
    ("formats.delta.lake.answers", "formats.delta.protocol.actions", "all programs load answers"),
    ("lake.embedded", "lake.handlers.maintenance", "few programs look after a lake"),
    ("lake.audits.engine", "lake.audits", "few lakes have expectations that are queries"),
    ("lake.lake", "lake.audits.publication", "few programs publish audited branches"),
    ("spark.driver", "spark.catalog", "few sessions use the catalog"),
    ("spark.source.data_source", "", "workers of Spark load the class alone"),
    ("storage.places", "storage.request_loop", "asyncio is loaded with the first table that is opened"),
    ("stores", "stores", "a lake has one kind of store"),
)
"""Imports in functions that spare no library: by whom, of what, and why. They spare time at a start."""
IMPORTED_BY_TEXT: Final = {
    (
        "lake.transactions.engines",
        "spark",
    ): "programs give a lake's transaction DataFrames; Spark is above it",
}
"""Modules that are loaded by their names, and why."""


class Count(NamedTuple):
    """Something that there should be little of, or none."""

    what: str
    limit: int
    find: Callable[[Source], Collection[str]]
    """Names each case, so that whoever exceeds the limit sees where to look."""


def find_format_modules(source: Source) -> list[str]:
    return [module.name for module in _outside(source) if NAMED_AFTER_A_FORMAT.search(module.name)]


def find_modules_that_name_formats(source: Source) -> list[str]:
    names = (module.name for module in _outside(source) if NAMES_A_FORMAT.search(module.text))
    return [name for name in names if name not in MAY_NAME_FORMATS]


def _outside(source: Source) -> list[Module]:
    """Modules that belong to no format. Nessie's API has content types of these names."""
    return [module for module in source.modules if not module.name.startswith(("formats.", "server.nessie"))]


def find_cycles(source: Source) -> list[str]:
    return [name for group in source.cycles() for name in group]


def find_inner_imports(source: Source) -> list[str]:
    return [
        f"{name} -> {imported}"
        for name, imports in source.imports.items()
        for imported in imports.in_functions
    ]


def find_needless_inner_imports(source: Source) -> list[str]:
    """Those that neither spare a program somebody else's library nor are in ``IMPORTED_LATE``."""
    return [
        f"{name} -> {imported}"
        for name, imports in source.imports.items()
        for imported in imports.in_functions
        if not source.find_libraries(imported) - source.find_libraries(name) - ALWAYS_LOADED
        and not any(_is_in(name, module) and _is_in(imported, part) for module, part, _ in IMPORTED_LATE)
    ]


def _is_in(name: str, pattern: str) -> bool:
    """Whether a module is that of a pattern, or a part of it. In the pattern, ``*`` is any package."""
    parts = pattern.split(".") if pattern else []
    return all(part in ("*", given) for part, given in zip_longest(parts, name.split(".")[: len(parts)]))


def find_text_imports(source: Source) -> list[str]:
    """Names of what is above, or a format's parts, belong where they are declared (``formats/registry``)."""
    return [
        f"{name} -> {imported}"
        for name, imports in source.imports.items()
        for imported in imports.by_text
        if (name, imported) not in IMPORTED_BY_TEXT
    ]


def find_repeated_classes(source: Source) -> list[str]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in source.modules:
        for node in module.walk():
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
    return [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]


def find_long_signatures(source: Source) -> list[str]:
    return [
        f"{module.name}.{node.name}"
        for module in source.modules
        for node in module.walk()
        if isinstance(node, ast.FunctionDef)
        and len(node.args.args) + len(node.args.kwonlyargs) > PARAMETERS_MAX
    ]


def find_long_signatures_with_options(source: Source) -> list[str]:
    """Those of which callers can give as much, counting what is in the type of their ``**options``."""
    types = {
        node.name: node
        for module in source.modules
        for node in module.walk()
        if isinstance(node, ast.ClassDef)
    }
    return [
        f"{module.name}.{node.name}"
        for module in source.modules
        for node in module.walk()
        if isinstance(node, ast.FunctionDef)
        and (match := UNPACKED.fullmatch(_annotation(node.args.kwarg))) is not None
        and len(node.args.args) + len(node.args.kwonlyargs) + _count_fields(match[1], types) > PARAMETERS_MAX
    ]


def _annotation(parameter: ast.arg | None) -> str:
    return ast.unparse(parameter.annotation) if parameter is not None and parameter.annotation else ""


def _count_fields(name: str, types: Mapping[str, ast.ClassDef]) -> int:
    if name not in types:
        return 0
    own = sum(isinstance(node, ast.AnnAssign) for node in types[name].body)
    return own + sum(_count_fields(ast.unparse(base), types) for base in types[name].bases)


def find_participles(source: Source) -> list[str]:
    return [
        f"{module.name}.{node.name}"
        for module in source.modules
        for node in module.walk()
        if isinstance(node, ast.FunctionDef) and _is_participle(node.name)
    ]


def _is_participle(name: str) -> bool:
    bare = name.strip("_")
    return not name.startswith("__") and (bare in PARTICIPLES or re.fullmatch("[a-z]+ed", bare) is not None)


def find_vague_names(source: Source) -> list[str]:
    counts = Counter(
        node.id
        for module in source.modules
        for node in module.walk()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE
    )
    return [name for name, times in counts.items() for _ in range(times)]


def find_gerunds(source: Source) -> list[str]:
    return [module.name for module in source.modules if module.name.endswith("ing")]


COUNTS: Final = (
    Count("modules outside of formats that are named after one", 0, find_format_modules),
    Count("modules outside of formats that name one", 0, find_modules_that_name_formats),
    Count("modules in import cycles", 0, find_cycles),
    Count("imports of own modules inside of functions", 113, find_inner_imports),
    Count("of these, imports that spare neither a library nor a start", 0, find_needless_inner_imports),
    Count("imports of own modules by text", 0, find_text_imports),
    Count("class names defined more than once", 3, find_repeated_classes),
    Count(f"functions with more than {PARAMETERS_MAX} parameters", 2, find_long_signatures),
    Count("further ones with the fields of their options", 24, find_long_signatures_with_options),
    Count("functions named by a participle", 11, find_participles),
    Count("variables whose names say nothing", 79, find_vague_names),
    Count("modules named by a gerund", 10, find_gerunds),
    Count("modules that a commit of one table passes", 27, find_commit_path),
    Count("modules that an append of rows passes", 83, find_append_path),
    Count("modules that a program loads for its first commit", 192, find_loaded),
)
