"""SQL text: its tokens, and how conditions are put together from operands.

``or`` binds least, then ``and``, then ``not``, then comparisons. What an operand is, and what a comparison of
two of them means, is told by the readers that inherit from ``SqlReader``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar

from penstock.errors import InvalidRequest

DEPTH_MAX: Final = 64
"""How deeply conditions may be nested."""
MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
"""The comparison that means the same with its sides exchanged."""

_TOKENS: Final = re.compile(
    r"\s*(?:"
    r"(?P<text>'(?:[^']|'')*')"
    r"|(?P<quoted>`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\")"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[lLdD](?!\w))?(?![\w.]))"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<sign><=|>=|<>|!=|==|\|\||[=<>(),.+*%]|-(?!-)|/(?!\*))"
    r")"
)
"""Neither ``--`` nor ``/*`` is part of it: they begin comments."""
_OPERATORS: Final = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

Operand = TypeVar("Operand")
Condition = TypeVar("Condition")


class SqlToken(NamedTuple):
    """A word, a sign or a literal of SQL text."""

    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """In lower case if it may be a keyword: what is quoted is a name."""
        return self.text.lower() if self.kind == "word" else ""

    @property
    def content(self) -> str:
        """Without the quotes that it may have."""
        if self.kind not in ("text", "quoted"):
            return self.text
        mark = self.text[0]
        return self.text[1:-1].replace(mark * 2, mark)


class SqlReader(Generic[Operand, Condition]):
    """Reads a text from left to right. ``InvalidRequest`` says where it is wrong, and how."""

    subject: str
    """What the text is, for messages."""
    following: str
    """What may follow a whole condition, for messages."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._next, self._depth = 0, 0

    def parse(self) -> Condition:
        condition = self._parse_or()
        if self._peek().kind != "end":
            self._fail(self._peek(), self.following)
        return condition

    # -- what readers tell ---------------------------------------------------------------------------------

    def _parse_operand(self, first: Operand | None = None) -> Operand:
        """Read an operand: the first of a comparison, or one that ``first`` is compared with."""
        raise NotImplementedError

    def _make_comparison(self, first: Operand, operator: str, second: Operand) -> Condition:
        raise NotImplementedError

    def _is_null(self, first: Operand) -> Condition:
        raise NotImplementedError

    def _is_one_of(self, first: Operand, others: Sequence[Operand]) -> Condition:
        raise NotImplementedError

    def _is_like(self, first: Operand, pattern: Operand) -> Condition:
        raise NotImplementedError

    def _to_condition(self, first: Operand) -> Condition:
        """An operand that is compared with nothing."""
        raise NotImplementedError

    def _join_conditions(self, keyword: str, parts: Sequence[Condition]) -> Condition:
        raise NotImplementedError

    def _negate_condition(self, condition: Condition) -> Condition:
        raise NotImplementedError

    # -- conditions ----------------------------------------------------------------------------------------

    def _parse_or(self) -> Condition:
        return self._parse_chain("or", self._parse_and)

    def _parse_and(self) -> Condition:
        return self._parse_chain("and", self._parse_not)

    def _parse_chain(self, keyword: str, read: Callable[[], Condition]) -> Condition:
        parts = [read()]
        while self._skip_if_next(keyword):
            parts.append(read())
        return parts[0] if len(parts) == 1 else self._join_conditions(keyword, parts)

    def _parse_not(self) -> Condition:
        with self._limit_nesting():
            return (
                self._negate_condition(self._parse_not())
                if self._skip_if_next("not")
                else self._parse_comparison()
            )

    def _parse_comparison(self) -> Condition:
        first = self._parse_operand()
        token = self._peek()
        if token.kind == "sign" and token.text in _OPERATORS:
            self._take_token()
            return self._make_comparison(first, _OPERATORS[token.text], self._parse_operand(first))
        if self._skip_if_next("is"):
            is_negated = self._skip_if_next("not")
            self._expect("null")
            test = self._is_null(first)
            return self._negate_condition(test) if is_negated else test
        is_negated = self._skip_if_next("not")
        if self._skip_if_next("in"):
            self._expect("(")
            test = self._is_one_of(first, self._list(lambda: self._parse_operand(first)))
        elif self._skip_if_next("between"):
            low = self._make_comparison(first, ">=", self._parse_operand(first))
            self._expect("and")
            test = self._join_conditions(
                "and", [low, self._make_comparison(first, "<=", self._parse_operand(first))]
            )
        elif self._skip_if_next("like"):
            test = self._is_like(first, self._parse_operand(first))
        elif is_negated:
            self._fail(self._peek(), "'in', 'between' or 'like' after 'not'")
        else:
            return self._to_condition(first)
        return self._negate_condition(test) if is_negated else test

    @contextmanager
    def _limit_nesting(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidRequest(f"the {self.subject} is nested more than {DEPTH_MAX} deep")
        yield
        self._depth -= 1

    # -- tokens --------------------------------------------------------------------------------------------

    def _list(self, read: Callable[[], Operand]) -> list[Operand]:
        """What is between parentheses, of which the first is read already."""
        items = [read()]
        while self._skip_if_next(","):
            items.append(read())
        self._expect(")")
        return items

    def _skip_if_next(self, text: str) -> bool:
        token = self._peek()
        if token.word == text or (token.kind == "sign" and token.text == text):
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._skip_if_next(text):
            self._fail(self._peek(), f"'{text}'")

    def _peek(self, further: int = 0) -> SqlToken:
        return self._tokens[min(self._next + further, len(self._tokens) - 1)]

    def _take_token(self) -> SqlToken:
        token = self._peek()
        self._next += 1
        return token

    def _split(self, text: str) -> Iterator[SqlToken]:
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKENS.match(text, at)
            if match is None or match.lastgroup is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                self._fail(SqlToken("", text[at : at + 10], at), "a name, a literal or an operator")
            yield SqlToken(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
            at = match.end()
        yield SqlToken("end", "", end)

    def _fail(self, token: SqlToken, expected: str) -> NoReturn:
        place = f"has {token.text!r} at character {token.at + 1}," if token.text else "ends"
        raise InvalidRequest(f"the {self.subject} {self._text!r} {place} where {expected} should be")
