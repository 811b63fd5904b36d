"""The modules of the package as syntax trees, and what imports what."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


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
    """What a module imports of its own package, but for the eyes of type checkers only."""

    def __init__(self, package: str, names: set[str]) -> None:
        self._package, self._names = package, names
        self._depth = 0
        self.at_top: set[str] = set()
        self.in_functions: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        head, _, module = (node.module or "").partition(".")
        if head != self._package:
            return
        for alias in node.names:
            whole = f"{module}.{alias.name}".lstrip(".")
            imported = whole if whole in self._names else module
            (self.in_functions if self._depth else self.at_top).add(imported)


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

    def cycles(self) -> list[list[str]]:
        """Groups of modules that import each other, in functions or not (Tarjan's algorithm)."""
        graph = {name: imports.at_top | imports.in_functions for name, imports in self.imports.items()}
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
