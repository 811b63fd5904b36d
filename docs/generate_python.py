"""The reference page of the Python interface, made from the signatures and docstrings in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import penstock
from penstock import spark
from penstock.wire.descriptions import to_markdown

SOURCE = Path(penstock.__file__).parent
WIDTH = 96

INTRODUCTION = """
# Python

What a program can use: the functions of `penstock` and `penstock.spark`, and the objects that they return. By
task, with programs that run: [the guides](../README.md). What can go wrong: [errors](errors.md).
"""

CLASSES = {
    "Lake": ("lake.lake", "Lake"),
    "Branch": ("lake.views", "Branch"),
    "Tag": ("lake.views", "Tag"),
    "Snapshot": ("lake.views", "Snapshot"),
    "Table": ("lake.table", "Table"),
    "Transaction": ("lake.transactions.transaction", "Transaction"),
    "lake.delta": ("formats.delta.lake.tables", "DeltaTables"),
    "table.snapshot()": ("formats.delta.lake.snapshot", "TableSnapshot"),
    "table.files": ("formats.files.lake.table", "Files"),
}
"""By the titles of their sections: where classes are defined that a program holds."""


def python_page() -> Iterator[str]:
    yield from INTRODUCTION.strip().splitlines()
    for package, functions in public_functions().items():
        yield from ("", f"## {package}")
        for name, function in functions.items():
            yield from _function_section(f"{package}.{name}", name, function)
    for title, (module, name) in CLASSES.items():
        yield from _class_section(title, module, name)


def public_functions() -> dict[str, dict[str, ast.FunctionDef]]:
    """The functions of the packages that a program imports, by package and name."""
    homes = {
        "penstock": {name: home.removeprefix("penstock.") for name, home in penstock._HOMES.items()},
        "penstock.spark": {name: f"spark.{home}" for name, home in spark._HOME.items()},
    }
    return {
        package: {name: _find_function(home, name) for name, home in sorted(names.items()) if name.islower()}
        for package, names in homes.items()
    }


def _class_section(title: str, module: str, name: str) -> Iterator[str]:
    """A class with its properties as a table, and its methods."""
    text = ast.get_docstring(_find_class(module, name)) or ""
    yield from ("", f"## {title}", "", *to_markdown(text).splitlines())
    members = list(public_members(module, name))
    properties = [member for member in members if is_property(member)]
    if properties:
        yield from ("", "| property | is | type |", "|---|---|---|")
        for member in properties:
            text = " ".join(to_markdown(ast.get_docstring(member) or "").split())
            yield f"| `{member.name}` | {_cell(text)} | {_type(member.returns)} |"
    owner = title.removesuffix("()") if title[0].isupper() else title
    for member in members:
        if not is_property(member):
            yield from _function_section(f"{owner}.{member.name}", member.name, member)


def public_members(module: str, name: str) -> Iterator[ast.FunctionDef]:
    """What a class defines for programs, and the classes that it is made of: private ones of its module, and
    others of its package."""
    kind = _find_class(module, name)
    homes = _imported_from(module)
    bases = [ast.unparse(base) for base in kind.bases]
    parts = [(homes.get(base, module), base) for base in bases if base.startswith("_") or base in homes]
    names: set[str] = set()
    for member in (*kind.body, *(member for part in parts for member in _find_class(*part).body)):
        is_public = isinstance(member, ast.FunctionDef) and member.name[0] != "_"
        if isinstance(member, ast.FunctionDef) and is_public and not _is_overload(member, names):
            names.add(member.name)
            yield member


def _function_section(title: str, name: str, function: ast.FunctionDef) -> Iterator[str]:
    yield from ("", f"### {title}", "", "```text", *_signature(name, function), "```", "")
    yield from to_markdown(ast.get_docstring(function) or "").splitlines()
    options = list(_options(function))
    if options:
        yield from ("", "| option | means | type |", "|---|---|---|")
        yield from (f"| `{option}` | {_cell(text)} | {_type(kind)} |" for option, kind, text in options)


def _signature(name: str, function: ast.FunctionDef) -> Iterator[str]:
    """A call as its caller writes it, over several lines if it is long."""
    parameters = [
        *_parameters(function.args),
        *(f"{option}: {ast.unparse(kind)} = …" for option, kind, _ in _options(function)),
    ]
    returned = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
    line = f"{name}({', '.join(parameters)}){returned}"
    if len(line) <= WIDTH:
        yield line
    else:
        yield f"{name}("
        yield from (f"    {parameter}," for parameter in parameters)
        yield f"){returned}"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    placed = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(placed) - len(arguments.defaults)) + list(arguments.defaults)
    for argument, default in zip(placed, defaults, strict=True):
        if argument.arg != "self":
            yield _parameter(argument, default)
    if arguments.vararg is not None:
        yield f"*{_parameter(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, default)
    if arguments.kwarg is not None and not _unpacked(arguments.kwarg):
        yield f"**{_parameter(arguments.kwarg, None)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation is not None else ""
    return f"{argument.arg}{kind}" + (f" = {ast.unparse(default)}" if default is not None else "")


def _options(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr, str]]:
    """The keyword arguments that a function takes as a ``TypedDict``, with their types and texts."""
    if function.args.kwarg is not None and (name := _unpacked(function.args.kwarg)):
        yield from _typed_fields(name)


def _unpacked(argument: ast.arg) -> str:
    """The name of the ``TypedDict`` whose fields are taken; empty for any other keyword arguments."""
    annotation = argument.annotation
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Unpack":
        return ast.unparse(annotation.slice)
    return ""


def _typed_fields(name: str) -> Iterator[tuple[str, ast.expr, str]]:
    """The fields of a ``TypedDict``, those that it inherits last."""
    kind = _typed_dicts()[name]
    for statement, after in zip(kind.body, [*kind.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            has_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = ast.literal_eval(after.value) if isinstance(after, ast.Expr) and has_text else ""
            yield statement.target.id, statement.annotation, " ".join(to_markdown(text).split())
    for base in kind.bases:
        if ast.unparse(base) != "TypedDict":
            yield from _typed_fields(ast.unparse(base))


@cache
def _typed_dicts() -> dict[str, ast.ClassDef]:
    """The classes of the package whose fields may be left out, as only a ``TypedDict`` declares them."""
    return {
        node.name: node
        for path in SOURCE.rglob("*.py")
        if "total=False" in (text := path.read_text("utf-8"))
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and any(keyword.arg == "total" for keyword in node.keywords)
    }


@cache
def _parse(module: str) -> ast.Module:
    return ast.parse(SOURCE.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8"))


def _find_function(home: str, name: str) -> ast.FunctionDef:
    """A function by where it is defined: a module, or a module and its name there."""
    module, _, other = home.partition(":")
    return next(
        node
        for node in _parse(module).body
        if isinstance(node, ast.FunctionDef) and node.name == (other or name)
    )


def _find_class(module: str, name: str) -> ast.ClassDef:
    return next(node for node in _parse(module).body if isinstance(node, ast.ClassDef) and node.name == name)


def _imported_from(module: str) -> dict[str, str]:
    """The modules of the same package from which a module has its names."""
    package = module.rpartition(".")[0]
    return {
        alias.name: home
        for node in _parse(module).body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if (home := node.module.removeprefix("penstock.")).rpartition(".")[0] == package
    }


def _is_overload(member: ast.FunctionDef, names: set[str]) -> bool:
    """Whether another definition of the same name tells more, or came before."""
    return member.name in names or any(ast.unparse(one) == "overload" for one in member.decorator_list)


def is_property(member: ast.FunctionDef) -> bool:
    return any(ast.unparse(one) in ("property", "cached_property") for one in member.decorator_list)


def _type(annotation: ast.expr | None) -> str:
    return f"`{_cell(ast.unparse(annotation))}`" if annotation is not None else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
