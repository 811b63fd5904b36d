"""A visit: one request for a page, and what its handler asks the lake for, with the visitor's rights."""

from __future__ import annotations

from functools import cached_property
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from penstock.errors import Denied, PenstockError, TimedOut
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.time_limits import limit_reads
from penstock.lake.answers import About, Figures, TableFigures
from penstock.lake.call import RetrySafety, find_retry_safety
from penstock.lake.calls import Call, FigureKind, GetAbout, GetFigures, ListReferences, Resolve
from penstock.lake.catalogue import Catalogue
from penstock.lake.worker_calls import CallAnswers
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.decoders import get_json_decoder
from penstock.model.references import Kind
from penstock.server.routes import RouteRequest
from penstock.server.ui.elements import Html, join_html, make_element
from penstock.server.ui.links import link_commit, pin_revision, shorten_revision
from penstock.server.ui.page_parts import show_field
from penstock.server.ui.row_requests import RowRequest
from penstock.wire import json

R = TypeVar("R")
A = TypeVar("A")

PAGE_SIZE: Final = 50
NAMES_MAX: Final = 100
"""How many branches and tags are offered where one is to be chosen, and looked for at commits."""
SOON_S: Final = 0.5
"""For all that a page shows beside what it is about."""
ROW_WORK: Final = "penstock.server.ui.row_work:run_row_request"


class ResolvedRef(NamedTuple):
    """A revision that was looked up: a commit, and the reference that led to it."""

    ref: str
    """As it was asked for."""
    commit: str
    via: str | None

    @property
    def pinned_ref(self) -> str:
        """The same commit for ever."""
        return pin_revision(self.commit, self.via)

    @property
    def is_empty(self) -> bool:
        return self.commit == EMPTY_COMMIT_ID


def show_place(place: ResolvedRef) -> Html:
    """A revision, with the commit that it is."""
    is_pinned = place.ref == place.pinned_ref
    name = (place.via or "") if is_pinned else shorten_revision(place.ref)
    return join_html(make_element("span", name, class_="ref"), " ", link_commit(place.commit, place.via))


def show_ref_field(label: str, ref: str | None, place: ResolvedRef) -> Html:
    """The field of a form for the revision that a page is about."""
    shown = shorten_revision(ref) if ref else ""
    return show_field("ref", label, shown, placeholder=shorten_revision(place.ref), list="names")


class PageRequest:
    """One request for a page."""

    def __init__(self, ask: RouteRequest) -> None:
        self.ask = ask
        self.query: Any = ask.query
        self.form: Any = ask.body
        self._used_s = 0.0

    def do(self, call: Call[R]) -> R:
        """Carry out a call as the visitor."""
        return self.ask.catalogue.do(call)

    def do_soon(self, call: Call[R]) -> R:
        """The same for what a page shows beside other things; ``TimedOut`` if all of it takes long."""
        left_s = SOON_S - self._used_s
        if left_s <= 0:
            raise TimedOut(
                "the time limit for the additional parts of this page was reached; reload it to try again"
            )
        began_s = monotonic()
        try:
            with limit_reads(left_s):
                return self.do(call)
        finally:
            self._used_s += monotonic() - began_s

    @cached_property
    def about(self) -> About:
        return self.do(GetAbout())

    def find_place(self, ref: str | None) -> ResolvedRef:
        """A revision, the default branch if none is given."""
        name = ref or self.about.default_branch
        resolved = self.do(Resolve(revision=name))
        return ResolvedRef(name, resolved.commit, resolved.name)

    @cached_property
    def names(self) -> dict[str, list[tuple[Kind, str]]]:
        """The branches and tags at each commit, the first of each kind."""
        heads: dict[str, list[tuple[Kind, str]]] = {}
        for kind in (Kind.BRANCH, Kind.TAG):
            for reference in self.do(ListReferences(kind=kind, limit=NAMES_MAX)):
                heads.setdefault(reference.id, []).append((kind, reference.name))
        return heads

    def list_names(self, *kinds: Kind) -> list[str]:
        """The names of the first branches, and tags, for forms to offer."""
        return sorted(
            name
            for named in self.names.values()
            for kind, name in named
            if kind in (kinds or (Kind.BRANCH, Kind.TAG))
        )

    def work_on_rows(self, request: RowRequest, kind: type[A]) -> A:
        """Have rows read in a process apart from this one, which asks for the lake as the visitor."""
        answer: A = get_json_decoder(kind).decode(work_on_rows(self.ask, request))
        return answer

    def try_rows(self, request: RowRequest, kind: type[A]) -> tuple[A | None, PenstockError | None]:
        """The same, where a page has something to show also if rows cannot be read."""
        try:
            return self.work_on_rows(request, kind), None
        except PenstockError as problem:
            return None, problem


class ReadOnlyCatalogue:
    """A catalogue that answers reads only: whatever a process does with rows, it changes nothing."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue, self.page_max = catalogue, catalogue.page_max

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        if find_retry_safety(call) is not RetrySafety.READ:
            raise Denied(
                f"a page that shows rows can only read; it cannot make the call {type(call).__name__}"
            )
        return self._catalogue.do(call, progress)

    def close(self) -> None:
        """The lake stays open: others use it too."""


def work_on_rows(ask: RouteRequest, request: RowRequest) -> bytes:
    """The answer of a row worker, which asks for the lake as the caller."""
    output = ask.pool.run_function(
        ROW_WORK,
        msgspec.json.encode(request),
        caller=ask.share,
        answer=CallAnswers(ReadOnlyCatalogue(ask.catalogue)),
        deadline_s=ask.deadline_s,
        is_cancelled=ask.is_cancelled,
    )
    return output.body if output.file is None else _read_file(output.file)


def find_figures(ask: RouteRequest, call: GetFigures) -> Figures:
    """Figures, of which those of a table are counted by a row worker."""
    call.check_sendable()
    others = tuple(kind for kind in FigureKind if kind is not FigureKind.SIZES and call.includes_kind(kind))
    figures = Figures()
    if others:
        figures = ask.catalogue.do(msgspec.structs.replace(call, about=others, table=None))
    if call.table is None or not call.includes_kind(FigureKind.SIZES):
        return figures
    name = call.ref if call.ref is not None else ask.catalogue.do(GetAbout()).default_branch
    request = RowRequest(
        kind="figures",
        who=ask.who,
        page_max=ask.catalogue.page_max,
        ref=name if call.via is None else f"{call.via}@{name}",
        key=str(call.table),
    )
    table: TableFigures = json.read_answer_json(work_on_rows(ask, request), TableFigures)
    return msgspec.structs.replace(figures, table=table)


def _read_file(file: Any) -> bytes:
    with file:
        data: bytes = file.read()
    return data
