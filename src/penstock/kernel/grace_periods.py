"""The grace periods of a lake: how long a sweep leaves alone what nothing leads to.

They are the lake's, and not a process's: a writer relies on them, and a sweep keeps to them. Whoever writes
a file, or finds a commit that no reference is at, must have committed within half of the period; a sweep
removes what is older than all of it. The other half is what clocks may differ by.

A change takes effect so that nobody is caught out. A longer period holds for sweeps at once; writers who
rely on what references left behind do so only once no earlier sweep can be under way. A shorter one holds for
writers at once, and for sweeps when all who relied on the longer one are done, which is that period later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.kernel.settings import DAY_US, IDEMPOTENCY_DAYS, WRITE_MAX_S, Settings

GRACE_S: Final = 24 * 3600.0
"""How long objects stay that nothing leads to, unless a lake says otherwise."""
GRACE_MIN_S: Final = 3600.0
"""The least that a lake may say: well beyond what a write may take, with all its tries."""
DATA_GRACE_DAYS: Final = 7.0
"""How long data files stay that no commit names, unless a lake says otherwise."""
DATA_GRACE_MIN_DAYS: Final = 4.0
"""The least that a lake may say. Of files of a pool only the day is known on which they were written: within
half of the period and two days more they are committed or refused."""
GRACE_MAX_DAYS: Final = 10_000.0
GRACES_MAX: Final = 50
"""How many graces are remembered with a lake, of those that somebody may still go by."""
SECOND_US: Final = 1_000_000
FOREVER_US: Final = 2**63


class GracePeriods(msgspec.Struct, frozen=True, array_like=True):
    """How long a lake keeps what nothing leads to, from a time on."""

    grace_s: float = GRACE_S
    """Objects that no reference leads to."""
    data_grace_days: float = DATA_GRACE_DAYS
    """Data files of tables that no kept commit names."""
    since_us: int = 0

    @property
    def objects_us(self) -> int:
        return int(self.grace_s * SECOND_US)

    @property
    def data_us(self) -> int:
        return int(self.data_grace_days * DAY_US)


def make_grace_periods(
    before: GracePeriods, grace_s: float | None, data_grace_days: float | None, now_us: int
) -> GracePeriods:
    """A new grace of a lake; what is not given stays. ``InvalidRequest`` for less than a lake may say."""
    new = GracePeriods(
        before.grace_s if grace_s is None else grace_s,
        before.data_grace_days if data_grace_days is None else data_grace_days,
        now_us,
    )
    longest_s = GRACE_MAX_DAYS * DAY_US / SECOND_US
    if type(new.grace_s) not in (int, float) or not GRACE_MIN_S <= new.grace_s <= longest_s:
        raise InvalidRequest(
            f"grace_s must be between {GRACE_MIN_S:g} and {longest_s:.0f} seconds, got {new.grace_s!r}\n  A "
            "single sweep while nobody writes can use a shorter time: penstock sweep --nobody-writes"
        )
    is_number = type(new.data_grace_days) in (int, float)
    if not is_number or not DATA_GRACE_MIN_DAYS <= new.data_grace_days <= GRACE_MAX_DAYS:
        raise InvalidRequest(
            f"data_grace_days must be between {DATA_GRACE_MIN_DAYS:g} and {GRACE_MAX_DAYS:g} days, got "
            f"{new.data_grace_days!r}\n  A single sweep while nobody writes can use a shorter time: penstock "
            "sweep --nobody-writes"
        )
    return new


def add_grace_periods(graces: tuple[GracePeriods, ...], new: GracePeriods) -> tuple[GracePeriods, ...]:
    """The graces of a lake once a new one holds; those are left out that nobody has to heed any more.

    ``InvalidRequest`` if it was changed too often for all of them to be remembered.
    """
    known_graces = graces or (GracePeriods(),)
    if (new.grace_s, new.data_grace_days) == (known_graces[-1].grace_s, known_graces[-1].data_grace_days):
        return graces
    longest_us = max(length for grace in (*known_graces, new) for length in (grace.objects_us, grace.data_us))
    ends_us = [grace.since_us for grace in (*known_graces[1:], new)]
    heeded = [
        grace
        for grace, end_us in zip(known_graces, ends_us, strict=True)
        if end_us + longest_us > new.since_us
    ]
    if len(heeded) >= GRACES_MAX:
        raise InvalidRequest(
            f"the lake's grace period was already changed {len(heeded)} times within {longest_us / DAY_US:g} "
            "days; wait before you change it again"
        )
    return (*heeded, new)


class GracePeriodRules:
    """The graces that this process keeps to, which sweeps and writers see from either side.

    What the process was opened with counts as well, so far as it is safe: it may keep more than the lake
    says, and rely on less. With ``nobody_writes`` it counts alone.
    """

    def __init__(
        self, find: Callable[[], tuple[GracePeriods, ...]], settings: Settings, clock: Callable[[], int]
    ) -> None:
        """``find`` looks up the graces of the lake as they are now. ``InvalidRequest`` if a write may take
        longer than writers can rely on any lake."""
        if settings.write_timeout_s > WRITE_MAX_S:
            raise InvalidRequest(
                f"write_timeout_s must be at most {WRITE_MAX_S:g}, got {settings.write_timeout_s:g}"
            )
        self._find, self._settings, self._clock = find, settings, clock

    def require_agreed(self) -> None:
        """``InvalidRequest`` if this process was to sweep by shorter periods than the lake's."""
        lake, settings = self._find_sweep_grace(), self._settings
        if settings.idempotency_days < IDEMPOTENCY_DAYS and not settings.nobody_writes:
            raise InvalidRequest(
                f"idempotency_days must be at least {IDEMPOTENCY_DAYS:g}, got {settings.idempotency_days:g}: "
                "a sweep that forgets idempotency keys earlier lets a repeated request be applied twice\n  "
                "If nobody repeats a request from before the sweep, use --nobody-writes, or "
                "Settings(nobody_writes=True)"
            )
        for name in ("grace_s", "data_grace_days"):
            setting, lake_setting = getattr(settings, name), getattr(lake, name)
            if setting is not None and setting < lake_setting and not settings.nobody_writes:
                raise InvalidRequest(
                    f"{name} of the lake is {lake_setting:g}, and writers rely on it; a sweep with "
                    f"{setting:g} may remove files of a write in progress\n  If nobody writes to the lake "
                    "until the sweep has ended, use --nobody-writes, or Settings(nobody_writes=True). To "
                    "shorten the period from now on: penstock grace"
                )

    def find_sweep_grace(self, data_min_days: float = 0.0) -> GracePeriods:
        """How long a sweep leaves alone what nothing leads to.

        ``data_min_days`` is what writers of a format rely on without asking the lake.
        """
        lake = self._find_sweep_grace()
        lake = GracePeriods(lake.grace_s, max(lake.data_grace_days, data_min_days))
        return self._choose_grace(lake, max)

    def find_writer_grace(self) -> GracePeriods:
        """What a writer relies on for what it writes from now on."""
        return self._choose_grace((self._find() or (GracePeriods(),))[-1], min)

    def find_past_grace(self) -> GracePeriods:
        """What a writer relies on for what was written, or left behind, before it asks."""
        *former, current = self._list_grace_periods_with_ends()
        now_us = self._clock()
        grace = current[0]
        objects = [past_grace.grace_s for past_grace, end_us in former if end_us + grace.objects_us > now_us]
        data = [
            past_grace.data_grace_days for past_grace, end_us in former if end_us + grace.data_us > now_us
        ]
        return self._choose_grace(
            GracePeriods(min([grace.grace_s, *objects]), min([grace.data_grace_days, *data])), min
        )

    def _find_sweep_grace(self) -> GracePeriods:
        heeded, now_us = self._list_grace_periods_with_ends(), self._clock()
        return GracePeriods(
            max(grace.grace_s for grace, end_us in heeded if end_us + grace.objects_us > now_us),
            max(grace.data_grace_days for grace, end_us in heeded if end_us + grace.data_us > now_us),
        )

    def _list_grace_periods_with_ends(self) -> list[tuple[GracePeriods, int]]:
        """The graces of the lake, each with the time until when it holds, or held."""
        graces = self._find() or (GracePeriods(),)
        return [*zip(graces, [*(grace.since_us for grace in graces[1:]), FOREVER_US], strict=True)]

    def _choose_grace(self, lake: GracePeriods, safe: Callable[[float, float], float]) -> GracePeriods:
        settings = self._settings
        choose = (lambda setting, _: setting) if settings.nobody_writes else safe
        return GracePeriods(
            lake.grace_s if settings.grace_s is None else choose(settings.grace_s, lake.grace_s),
            lake.data_grace_days
            if settings.data_grace_days is None
            else choose(settings.data_grace_days, lake.data_grace_days),
        )
