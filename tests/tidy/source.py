"""The modules of the package as syntax trees, and what imports what."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

LOADER: Final = re.compile(r"import_module|_?load(_\w+)?")
"""How functions are called that load what they are told the name of."""
TEXT: Final = re.compile(r"(\w+)\.(\w+(?:\.\w+)*)(?::\w+)?")
"""A module of a package, or a name in it, as ``penstock.formats.registry.load_part`` takes them."""


@dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    """With dots, without the name of the package in front."""
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def walk(self) -> Iterator[ast.AST]:
        return ast.walk(self.tree)


class Imports(ast.NodeVisitor):
    """What a module imports, but for the eyes of type checkers only."""

    def __init__(self, package: str, names: set[str]) -> None:
        self._package, self._names = package, names
        self._depth = 0
        self._texts: dict[str, str] = {}
        self.at_top: set[str] = set()
        self.in_functions: set[str] = set()
        self.by_text: set[str] = set()
        """What functions load that are told the module's name."""
        self.libraries: set[str] = set()
        """Other people's packages that are loaded with the module."""

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._note_library(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        head, _, module = (node.module or "").partition(".")
        if head != self._package:
            self._note_library(head)
            return
        for alias in node.names:
            whole = f"{module}.{alias.name}".lstrip(".")
            imported = whole if whole in self._names else module
            (self.in_functions if self._depth else self.at_top).add(imported)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and (named := self._named_module(node.value)):
            self._texts[node.target.id] = named
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if node.args and self._depth and LOADER.fullmatch(ast.unparse(node.func).rpartition(".")[2]):
            for part in ast.walk(node.args[0]):
                named = self._texts.get(part.id) if isinstance(part, ast.Name) else self._named_module(part)
                if named is not None:
                    self.by_text.add(named)
        self.generic_visit(node)

    def _named_module(self, node: ast.AST | None) -> str | None:
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        match = TEXT.fullmatch(text)
        return match[2] if match and match[1] == self._package and match[2] in self._names else None

    def _note_library(self, name: str) -> None:
        library = name.partition(".")[0]
        if not self._depth and library not in (self._package, "__future__", *sys.stdlib_module_names):
            self.libraries.add(library)


class Source:
    """A package: all of its modules, read once."""

    def __init__(self, root: Path) -> None:
        self.package = root.name
        files = sorted(root.rglob("*.py"))
        names = (".".join(file.relative_to(root).with_suffix("").parts) for file in files)
        self.modules = [
            Module(name.removesuffix("__init__").rstrip("."), file.read_text("utf-8"))
            for name, file in zip(names, files, strict=True)
        ]

    @cached_property
    def imports(self) -> Mapping[str, Imports]:
        names = {module.name for module in self.modules}
        collected = {}
        for module in self.modules:
            collected[module.name] = Imports(self.package, names)
            collected[module.name].visit(module.tree)
        return collected

    def find_loaded(self, name: str) -> set[str]:
        """The modules that are loaded with a module, itself among them."""
        loaded: set[str] = set()
        waiting = [name]
        while waiting:
            module = waiting.pop()
            if module in self.imports and module not in loaded:
                loaded.add(module)
                waiting += self.imports[module].at_top
                waiting.append(module.rpartition(".")[0])
        return loaded

    def find_libraries(self, name: str) -> set[str]:
        """Other people's packages that are loaded with a module."""
        return {library for module in self.find_loaded(name) for library in self.imports[module].libraries}

    def cycles(self) -> list[list[str]]:
        """Groups of modules that import each other, wherever they do (Tarjan's algorithm)."""
        graph = {
            name: imports.at_top | imports.in_functions | imports.by_text
            for name, imports in self.imports.items()
        }
        numbers: dict[str, int] = {}
        lowest: dict[str, int] = {}
        stack: list[str] = []
        groups: list[list[str]] = []

        def visit(name: str) -> None:
            numbers[name] = lowest[name] = len(numbers)
            stack.append(name)
            for imported in sorted(graph[name] - {name}):
                if imported not in graph:
                    continue
                if imported not in numbers:
                    visit(imported)
                    lowest[name] = min(lowest[name], lowest[imported])
                elif imported in stack:
                    lowest[name] = min(lowest[name], numbers[imported])
            if lowest[name] == numbers[name]:
                at = stack.index(name)
                groups.append(stack[at:])
                del stack[at:]

        for name in graph:
            if name not in numbers:
                visit(name)
        return [sorted(group) for group in groups if len(group) > 1]
