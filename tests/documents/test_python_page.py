"""The Python interface can be read from its signatures: no ``**kwargs``, and everything has a text."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

from docs.generate_python import CLASSES, is_property, public_functions, public_members

OPTIONS_OF_OTHERS = {
    "Table.to_lance": "options of pylance's, which another version may have more of",
    "Transaction.read": "those of penstock.spark.read, which the lake may not import",
    "Transaction.write": "those of penstock.spark.write or Table.write, by the data",
}


def callables() -> Iterator[tuple[str, ast.FunctionDef]]:
    for package, functions in public_functions().items():
        yield from ((f"{package}.{name}", function) for name, function in functions.items())
    for title, (module, name) in CLASSES.items():
        yield from ((f"{title}.{member.name}", member) for member in public_members(module, name))


def test_every_keyword_argument_has_a_name_and_a_type() -> None:
    open_ended = {
        name
        for name, function in callables()
        if (taken := function.args.kwarg) is not None
        and not ast.unparse(taken.annotation or ast.Constant("")).startswith("Unpack[")
    }
    assert open_ended == set(OPTIONS_OF_OTHERS)


def test_everything_has_a_text() -> None:
    assert not [name for name, function in callables() if not ast.get_docstring(function)]


def test_the_page_names_no_option_without_a_text() -> None:
    from docs.generate_python import python_page

    assert not [line for line in python_page() if line.startswith("| `") and "` |  | " in line]


def test_what_is_read_from_the_source_is_what_a_program_gets() -> None:
    for title, (module, name) in CLASSES.items():
        kind = getattr(importlib.import_module(f"penstock.{module}"), name)
        for member in public_members(module, name):
            found = getattr(kind, member.name)
            assert callable(found) is not is_property(member), f"{title}.{member.name}"
