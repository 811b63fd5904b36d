"""What is checked of rows and values before a table changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_rules import Constraint
from penstock.formats.delta.rows.filled_columns import check_default
from penstock.formats.delta.rows.row_checks import RowChecks

__all__ = ["check_constraint", "check_default"]


def check_constraint(
    metadata: Metadata, constraint: Constraint, read: Callable[[Sequence[str] | None], Any]
) -> None:
    """Check all rows of a table against a new constraint; ``read`` gives batches of some columns of them.

    ``InvalidRequest`` shows a row for which it is not true, ``UnsupportedFeature`` says that it cannot be
    evaluated.
    """
    try:
        checks = RowChecks(metadata, (constraint,))
    except UnsupportedFeature as problem:
        why = problem.message.partition("\n")[0]
        raise UnsupportedFeature(
            f"{why}\n  Compare columns with literals, or add the constraint with Delta Spark while the table"
            " is released.",
            feature=constraint.feature,
            constraint=constraint.name,
        ) from None
    for batch in read(list(checks.columns) or None):
        checks.check_rows(batch)
