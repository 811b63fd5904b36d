"""The words of a filter's expression: what it can cost, and how to put it for the library that evaluates it.

The library has read the expression before and found it well-formed. It does not show what it read, hence
the words are looked at once more here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

BRACKETS_MAX: Final = 32
"""How deeply brackets nest."""
LOOPS_MAX: Final = 2
"""How deeply ``exists`` and the like nest."""
SUMS_MAX: Final = 16
"""How many ``+`` there are. Inside of loops there is none, as values could grow there beyond measure."""

SIZE: Final = "penstock_size"
MATCHES: Final = "penstock_matches"
"""What stands in for the functions of the library that do not do what the language says."""

_REPLACED: Final = {"size": SIZE, "matches": MATCHES}
_LOOPS: Final = frozenset(("all", "exists", "exists_one", "existsOne", "filter", "map"))

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<raw>(?:[rR][bB]?|[bB][rR])(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"[^"\n]*"|'[^'\n]*'))
    |(?P<text>[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[uU]?)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


class TooCostly(Exception):
    """An expression could cost too much."""


class Token(msgspec.Struct, frozen=True, gc=False):
    """A word of an expression."""

    kind: str
    text: str
    space: str = ""
    """What stands before it and means nothing."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression can cost, as far as its words tell."""

    words: int
    loops: int
    """How deeply they nest."""
    longest: int
    """No list that is written out has more elements."""
    bound: frozenset[str]
    """Names that loops give to elements."""
    mentions: tuple[tuple[str, str], ...]
    """Variables and the fields of theirs that are asked for."""

    def work(self, large: int, small: int) -> int:
        """About how many steps an evaluation takes, with so many ``operations`` and other lists so long."""
        named = sum(1 for name, _ in self.mentions if name == "operations")
        over_large = min(named, self.loops)
        others = max(small, self.longest, 1)
        work: int = self.words * max(large, 1) ** over_large * others ** (self.loops - over_large)
        return work


def tokens_of(expression: str) -> Iterator[Token]:
    """The words of an expression."""
    space = ""
    for match in _TOKEN.finditer(expression):
        if match.lastgroup == "space":
            space += match.group()
        else:
            yield Token(match.lastgroup or "", match.group(), space)
            space = ""


def shape_of(tokens: Sequence[Token]) -> Shape:
    """What the words tell; ``TooCostly`` if that is enough to know."""
    open_loops: list[bool] = []
    loops, sums, bound, mentions = 0, 0, set(), []
    for index, token in enumerate(tokens):
        before, after, second = (_at(tokens, index + step).text for step in (-1, 1, 2))
        if token.kind == "sign" and token.text in "([{":
            is_loop = token.text == "(" and before in _LOOPS and _at(tokens, index - 2).text == "."
            open_loops.append(is_loop)
            loops = max(loops, sum(open_loops))
            if is_loop and second == ",":
                bound.add(after)
        elif token.kind == "sign" and token.text in ")]}" and open_loops:
            open_loops.pop()
        elif token.kind == "sign" and token.text == "+":
            sums += 1
            if any(open_loops):
                raise TooCostly("'+' is not possible inside of exists, all, map and filter")
        elif token.kind == "name" and before != ".":
            is_call = _at(tokens, index + 3).text == "("
            mentions.append((token.text, second if after == "." and not is_call else ""))
        if len(open_loops) > BRACKETS_MAX:
            raise TooCostly(f"its brackets nest more than {BRACKETS_MAX} deep")
    if loops > LOOPS_MAX or sums > SUMS_MAX:
        raise TooCostly(f"at most {LOOPS_MAX} loops within each other and {SUMS_MAX} '+' are possible")
    longest = 1 + sum(token.text == "," for token in tokens)
    return Shape(
        words=len(tokens), loops=loops, longest=longest, bound=frozenset(bound), mentions=tuple(mentions)
    )


def mended(tokens: Sequence[Token], *, within_has: bool = False) -> Iterable[str]:
    """The same expression in words that the library understands rightly.

    A ``has`` within a ``has`` stays as it is: what it asks for is written twice.
    """
    index = 0
    while index < len(tokens):
        token = tokens[index]
        is_call = token.kind == "name" and _at(tokens, index + 1).text == "("
        if is_call and token.text == "has" and not within_has and _at(tokens, index - 1).text != ".":
            end = _closing(tokens, index + 1)
            field = "".join(mended(tokens[index + 2 : end], within_has=True))
            yield f"{token.space}(has({field}) && ({field}) != null)"
            index = end
        elif is_call and token.text in _REPLACED:
            yield token.space + _REPLACED[token.text]
        else:
            yield token.space + token.text
        index += 1


def _closing(tokens: Sequence[Token], start: int) -> int:
    """Where the bracket that opens at ``start`` closes."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index].kind == "sign" and tokens[index].text in "([{":
            depth += 1
        elif tokens[index].kind == "sign" and tokens[index].text in ")]}":
            depth -= 1
            if depth == 0:
                return index
    return len(tokens)


def _at(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else Token("", "")
