"""The words of a filter's expression: what it can cost, and how to put it for the library that evaluates it.

The library has read the expression before and found it well-formed. It does not show what it read, hence
the words are looked at once more here.
"""

from __future__ import annotations

import re
from collections import Counter
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
LOOP: Final = "penstock_loop"
"""What stands in for a loop that is evaluated apart."""

_REPLACED: Final = {"size": SIZE, "matches": MATCHES}
_LOOPS: Final = frozenset(("all", "exists", "exists_one", "existsOne", "filter", "map"))
_COLLECTING: Final = frozenset(("filter", "map"))
_WRITTEN_OUT: Final = "[]"
_CONSTANTS: Final = frozenset(("true", "false", "null", "in"))

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


class CelToken(msgspec.Struct, frozen=True, gc=False):
    """A word of an expression."""

    kind: str
    text: str
    space: str = ""
    """What stands before it and means nothing."""


class ValueSizes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How large the values are that an expression is given, counted in parts and in 64 characters of text."""

    values: dict[str, int]
    longest: int = 1
    """No list or map has more elements."""
    largest: int = 1
    """No element of a list is larger."""


class WordShape(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression can cost, as far as its words tell."""

    words: tuple[int, ...]
    """How many there are outside of loops, inside of one, inside of two."""
    weights: dict[tuple[int, str], int]
    """How often each name stands inside of so many loops; once more for every bracket around it."""
    collects: int
    """How many loops put lists together, which are copied for every element."""
    carried: frozenset[str]
    """Names inside of ``map``, which may become elements."""
    sums: int
    longest: int
    """No list that is written out has more elements."""
    bound: frozenset[str]
    """Names that loops give to elements."""
    mentions: tuple[tuple[str, str], ...]
    """Variables and the fields of theirs that are asked for."""

    def estimate_steps(self, sizes: ValueSizes) -> int:
        """The most steps that an evaluation takes with values of such sizes; a step is about 50 ns.

        The library takes 20 steps to receive a part of a value, and 2 to copy it. No list is longer than
        those given or written out, as often as there are sums, and no element larger, apart from variables
        that ``map`` makes elements.
        """
        sums = 1 + self.sums
        length = max(sizes.longest, self.longest) * sums
        carried = (sizes.values.get(name, 0) for name in self.carried)
        element = max(sizes.largest, *carried, 1) * sums
        steps = 20 * sum(sizes.values.values()) + self.collects * length**2 * element
        for depth, words in enumerate(self.words):
            steps += length**depth * words
        for (depth, name), weight in self.weights.items():
            steps += length**depth * weight * max(sizes.values.get(name, 0) * sums, element)
        return steps


def split_tokens(expression: str) -> Iterator[CelToken]:
    """The words of an expression."""
    space = ""
    for match in _TOKEN.finditer(expression):
        if match.lastgroup == "space":
            space += match.group()
        else:
            yield CelToken(match.lastgroup or "", match.group(), space)
            space = ""


def measure_shape(tokens: Sequence[CelToken]) -> WordShape:
    """What the words tell; ``TooCostly`` if that is enough to know."""
    opened: list[str] = []
    words, weights, mentions = [0] * (LOOPS_MAX + 1), Counter[tuple[int, str]](), []
    bound, carried, collects, sums, lists_of_names = set(), set(), 0, 0, False
    for index, token in enumerate(tokens):
        before, after, second = (_get_token_at(tokens, index + step).text for step in (-1, 1, 2))
        loops = [bracket for bracket in opened if bracket in _LOOPS]
        words[len(loops)] += 1
        if token.kind == "sign" and token.text in "([{":
            opened.append(_find_bracket_kind(tokens, index))
            _check_nesting(opened)
            collects += opened[-1] in _COLLECTING
            if opened[-1] in _LOOPS and second == ",":
                bound.add(after)
        elif token.kind == "sign" and token.text in ")]}" and opened:
            opened.pop()
        elif token.kind == "sign" and token.text == "+":
            sums += 1
            if loops:
                raise TooCostly(
                    "'+' cannot be used inside 'exists', 'all', 'map' or 'filter' in a filter expression"
                )
        elif token.kind == "name" and before == "." and not _is_value(_get_token_at(tokens, index - 2)):
            raise TooCostly("a name cannot begin with '.'")
        elif token.kind == "name" and before != "." and token.text not in _CONSTANTS:
            is_call = _get_token_at(tokens, index + 3).text == "("
            mentions.append((token.text, second if after == "." and not is_call else ""))
            weights[len(loops), token.text] += 1 + len(opened)
            lists_of_names |= _WRITTEN_OUT in opened
            if "map" in loops:
                carried.add(token.text)
    if sums > SUMS_MAX:
        raise TooCostly(f"at most {SUMS_MAX} '+' are supported")
    if lists_of_names and bound:
        raise TooCostly(
            "in a filter with exists, all, map or filter, list literals can contain constants only"
        )
    longest = 1 + sum(token.text == "," for token in tokens)
    return WordShape(
        words=tuple(words),
        weights=dict(weights),
        collects=collects,
        carried=frozenset(carried),
        sums=sums,
        longest=longest,
        bound=frozenset(bound),
        mentions=tuple(mentions),
    )


def separate_loops(tokens: Sequence[CelToken], name: str) -> tuple[list[CelToken], list[Sequence[CelToken]]]:
    """The expression with calls in place of the loops that can go through a list in pieces, and these loops.

    They are ``name.exists(…)`` and ``name.all(…)`` that stand inside of no loop and do not mention the list
    again. The n-th becomes ``penstock_loop(n)``.
    """
    rest: list[CelToken] = []
    apart: list[Sequence[CelToken]] = []
    index = 0
    while index < len(tokens):
        end = _find_end_of_loop(tokens, index, name)
        if end:
            call = (CelToken("name", LOOP, tokens[index].space), CelToken("sign", "("))
            rest += (*call, CelToken("number", str(len(apart))), CelToken("sign", ")"))
            apart.append(tokens[index:end])
        else:
            is_loop = tokens[index].text == "(" and _find_bracket_kind(tokens, index) in _LOOPS
            end = _find_closing(tokens, index) + 1 if is_loop else index + 1
            rest += tokens[index:end]
        index = end
    return rest, apart


def rewrite_tokens(tokens: Sequence[CelToken], *, within_has: bool = False) -> Iterable[str]:
    """The same expression in words that the library understands rightly.

    A ``has`` within a ``has`` stays as it is: what it asks for is written twice.
    """
    index = 0
    while index < len(tokens):
        token = tokens[index]
        is_call = token.kind == "name" and _get_token_at(tokens, index + 1).text == "("
        if (
            is_call
            and token.text == "has"
            and not within_has
            and _get_token_at(tokens, index - 1).text != "."
        ):
            end = _find_closing(tokens, index + 1)
            field = "".join(rewrite_tokens(tokens[index + 2 : end], within_has=True))
            yield f"{token.space}(has({field}) && ({field}) != null)"
            index = end
        elif is_call and token.text in _REPLACED:
            yield token.space + _REPLACED[token.text]
        else:
            yield token.space + token.text
        index += 1


def _find_end_of_loop(tokens: Sequence[CelToken], start: int, name: str) -> int:
    """Where a loop ends that begins at ``start`` and can go through the list in pieces; 0 if none does."""
    texts = [token.text for token in tokens[start : start + 4]]
    if (
        texts not in ([name, ".", "exists", "("], [name, ".", "all", "("])
        or _get_token_at(tokens, start - 1).text == "."
    ):
        return 0
    end = _find_closing(tokens, start + 3)
    again = any(token.text == name for token in tokens[start + 4 : end])
    return 0 if again else end + 1


def _find_bracket_kind(tokens: Sequence[CelToken], index: int) -> str:
    """What a bracket opens: a loop by its name, a list or map that is written out, or something else."""
    before = _get_token_at(tokens, index - 1)
    if tokens[index].text == "(":
        is_loop = before.text in _LOOPS and _get_token_at(tokens, index - 2).text == "."
        return before.text if is_loop else ""
    return "" if tokens[index].text == "[" and _is_value(before) else _WRITTEN_OUT


def _is_value(token: CelToken) -> bool:
    """Whether a value can end with this word, so that a field or an index of it may follow."""
    return token.text in (")", "]", "}") if token.kind in ("sign", "") else token.text != "in"


def _check_nesting(opened: Sequence[str]) -> None:
    loops = [bracket for bracket in opened if bracket in _LOOPS]
    if len(opened) > BRACKETS_MAX:
        raise TooCostly(f"its brackets nest more than {BRACKETS_MAX} deep")
    if len(loops) > LOOPS_MAX:
        raise TooCostly(f"at most {LOOPS_MAX} nested loops are supported")
    if opened[-1] in _COLLECTING and len(loops) > 1:
        raise TooCostly("'map' and 'filter' are not supported inside exists, all, map and filter")


def _find_closing(tokens: Sequence[CelToken], start: int) -> int:
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


def _get_token_at(tokens: Sequence[CelToken], index: int) -> CelToken:
    return tokens[index] if 0 <= index < len(tokens) else CelToken("", "")
