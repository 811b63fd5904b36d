"""What stands for a format until it is loaded says the same as the format."""

from __future__ import annotations

from inspect import isfunction

import penstock
from penstock.kernel.format import Format
from penstock.lake.embedded import Embedded
from penstock.lake.lazy_formats import LazyFormat

FOLLOW: frozenset[str] = frozenset({"manages", "drop_erased"})
"""Methods that follow from the others, or are called by the format itself."""


def test_whatever_a_kernel_asks_is_asked_of_the_loaded_format() -> None:
    methods = {name for name, member in vars(Format).items() if isfunction(member) and name[0] != "_"}
    assert methods - vars(LazyFormat).keys() == FOLLOW


def test_what_is_known_without_the_format_is_as_the_format_has_it() -> None:
    facts = [name for name in Format.__annotations__ if isinstance(getattr(Format, name, None), bool)]
    assert "takes_any_base" in facts
    with penstock.open("memory:") as lake:
        catalogue = lake.catalogue
        assert isinstance(catalogue, Embedded)
        compared = 0
        for plugin in catalogue.plugins:
            rules = plugin.rules
            if isinstance(rules, LazyFormat):
                real = rules._load_format()
                assert {fact: getattr(rules, fact) for fact in facts} == {
                    fact: getattr(real, fact) for fact in facts
                }
                assert (rules.name, rules.content_type) == (real.name, real.content_type)
                compared += 1
        assert compared == 2
