"""Lance tables, for an open lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.formats.plugin import Flaws, PublishingPlugin
from penstock.kernel.format import Format
from penstock.kernel.fsck import Damage
from penstock.kernel.objects import Objects
from penstock.lake.call import Call
from penstock.lake.lance.calls import CALLS
from penstock.lake.on_demand import lance_on_demand
from penstock.model.content import LanceTable

if TYPE_CHECKING:
    from penstock.lake.lance.embedded import LanceAnswers
    from penstock.lake.lance.parts import LanceParts


class LancePlugin(PublishingPlugin["LanceParts"]):
    """Versions that landed are promoted to where every reader of Lance looks."""

    name = "lance"
    content_type = LanceTable
    calls = CALLS

    @cached_property
    def rules(self) -> Format:
        return lance_on_demand(lambda: self.parts.format)

    def make_parts(self) -> LanceParts:
        from penstock.lake.lance.parts import LanceParts

        return LanceParts(self.lake.kernel, self.lake.places, self.lake.id)

    @cached_property
    def answers(self) -> LanceAnswers:
        from penstock.lake.lance.embedded import LanceAnswers

        return LanceAnswers(self.lake, self.parts)

    @property
    def handlers(self) -> Mapping[type[Call[Any]], Callable[[Any], Any]]:
        return self.answers.ways

    def content_check(self, objects: Objects) -> Flaws:
        from penstock.lake.lance.soundness import LanceCheck

        return LanceCheck(objects).flaws

    def unreadable_tables(self) -> Iterator[Damage]:
        from penstock.lake.lance.readability import LanceReadability

        readability = LanceReadability(self.lake.kernel, self.lake.places, with_files=True)
        return (Damage(one.where, str(one)) for one in readability.unreadable())
