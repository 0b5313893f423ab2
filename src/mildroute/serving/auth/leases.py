"""Limits that several gateways share: each spends slices that it has borrowed from the store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mildroute.serving.auth.limits import (
    DAY,
    PERIODS,
    ROUNDING,
    LimitExceeded,
    PeriodBudget,
    TokenBucket,
    UsageBudget,
)
from mildroute.serving.store import RedisStore, Script, StoreError, StoreWait

__all__ = ["SCRIPTS", "LeasedBudgets"]


_Checked = TypeVar("_Checked")


# How a limit is shared without a call for each request.
#
# A gateway counts what it has spent of a limit since the period began, and the most that it may
# have spent: its lease. The store knows both of each gateway, and lends at most an eighth of what
# is in no lease. Everything that is said is absolute ("I have spent 3, I may spend up to 5"), so
# that a call whose reply was lost can be repeated: the store may believe that a gateway holds more
# than it does, never less. A gateway lowers its lease before it tells the store, and raises it
# after the store has agreed. Calls carry a sequence number, as those of a lost connection may be
# run after those of the next one.
#
# Time is that of the store. A gateway learns how many seconds its period has left, and counts them
# on a clock that only grows, so a wrong wall clock changes nothing.
#
# A lease that is not renewed within `lease_ttl` goes back. What its gateway had spent was settled
# each second, and after a tenth of one if it is more than a thousandth of the limit, and of 20
# requests or the last ones for now: so much is lost by a kill -9.
#
# A store that was flushed, or killed, gets its sums back from the first gateway that knew them
# (`life` tells one life of an entry from the next), and lends nothing for 2.5 s, in which all
# gateways report what they know: one needs up to 1.25 s to find a store that is back. A
# gateway that knew nothing of the limit may come before them. While the store itself is younger
# than that (`epoch`), such a gateway gets at most a sixteenth of the limit. A store that comes back
# from an older snapshot is found out by a sum that is smaller than a gateway knows, and treated
# alike; so that they find out, all gateways tell what they know on each new connection. A server
# that was restarted, or that another one replaced, is found out by its run id, see store.py, and
# begins a new `epoch`: it may lack what was spent last.


_COUNT = """
local clock = redis.call('TIME')
redis.call('ZADD', KEYS[1], clock[1], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', clock[1] - 10)
redis.call('EXPIRE', KEYS[1], 60)
redis.call('SET', KEYS[2], clock[1], 'NX')
return {redis.call('ZCARD', KEYS[1]), redis.call('GET', KEYS[2])}
"""
LEND = Script("lend", Path(__file__).with_name("lend.lua"))
_COUNT_GATEWAYS = Script("count_gateways", _COUNT)
SCRIPTS = (LEND, _COUNT_GATEWAYS)

# Seconds between two settlements, which also is the idle time after which a slice that another
# gateway needs goes back.
_INTERVAL = 1.0
# Seconds until much spending is settled, the part of a limit that is much, and the settlements of
# requests that a call must be for: of two limits each, 20 requests.
_SHORT_INTERVAL = 0.1
_MUCH = 0.001
_SPENDS_PER_CALL = 40
# Seconds after which an idle slice goes back unasked.
_IDLE = 10.0
# Seconds for which a refusal of the store stands.
_REFUSAL = 0.25
_MIN_WAIT = 0.02
# Limits settled in one call; each takes the store about 10 us.
_BATCH = 64


class Lease(UsageBudget):
    """What a gateway may spend of a shared limit.

    Attributes:
        owner: Whose limit it is, as the store's entries name it.
        key: Its entry in the store.
        total: What this gateway has spent.
        lease: The most that it may have spent.
        used_at: When a request last took some, on the lender's clock.
        refused_until: Until when the store need not be asked again ...
        refused: ... for so much, or more.
        asked: What its latest call asked for.
        call: In flight for it, or none: a lease has one call at a time.
    """

    def __init__(
        self, lender: LeasedBudgets, owner: str, name: str, limit: float, unit: str, until: str
    ) -> None:
        UsageBudget.__init__(self, limit, unit, until)
        self._lender = lender
        self.owner = owner
        # The lease as the latest call said it, and as the store knows it.
        self._sent_lease = 0.0
        self._stored_lease = 0.0
        self.key = lender.store.key(f"{{{owner}}}", name)
        self.total = 0.0
        self.lease = 0.0
        self.used_at = -math.inf
        self.refused_until = -math.inf
        self.refused = math.inf
        self.asked = 0.0
        self.call: asyncio.Task[bool] | None = None

    @property
    def on_failure(self) -> str:
        """What becomes of the limit while the store is away."""
        return self._lender.on_failure(self.owner)

    def usable(self) -> float:
        """What requests may take now, reservations taken off."""
        raise NotImplementedError

    def terms(self, sequence: int, amount: float, *, is_bounded: bool) -> tuple[Any, ...]:
        """Twelve arguments of the script: what was spent, is held, and is wanted."""
        raise NotImplementedError

    def accept(self, reply: Sequence[Any]) -> None:
        """Take what the store has lent."""
        raise NotImplementedError

    def release_idle(self, idle: float) -> bool:
        """Lower the lease after so many idle seconds; whether the store is to be told."""
        raise NotImplementedError

    def _all_reserved(self, owner: str) -> LimitExceeded:
        if not self._lender.is_away:
            return super()._all_reserved(owner)
        message = (
            "The store of the limits is away, and the part that this gateway has of the"
            f" {self.limit:g} {self.unit} of {owner.lower()} is used up; wait."
        )
        return LimitExceeded(429, message, "rate_limit_exceeded", 1.0)

    def change_limit(self, limit: float) -> None:
        if limit < self.limit:
            self.release()  # it was lent of more than there is now
        self.limit = limit
        self.refused_until = -math.inf

    def release(self) -> None:
        """Give up all that is neither spent nor reserved."""
        self.lease = min(self.lease, self.total + self.reserved)

    def has_any(self, now: float) -> bool:  # noqa: ARG002 - the store's clock counts
        return self.usable() + self.reserved > ROUNDING

    def covers(self, amount: float, is_bounded: bool, now: float) -> bool:  # noqa: ARG002
        # What is not bounded must be covered, too, by a lease that may go over the limit: if each
        # gateway let one such request through, they would go over it by more than one.
        usable = self.usable()
        return usable > ROUNDING and amount <= usable + ROUNDING

    def reserve(self, amount: float) -> None:
        super().reserve(amount)
        self._touch()

    def spend(self, amount: float, now: float = 0.0) -> None:  # noqa: ARG002
        self.total += amount
        self._touch()

    def refuse(self, seconds: float) -> None:
        """Do not ask the store again for so long."""
        self.refused_until = self._lender.clock() + seconds
        self.refused = self.asked

    def _touch(self) -> None:
        if self.limit < math.inf:
            self.used_at = self._lender.clock()
            self._lender.active.add(self)


class LeasedPeriod(Lease, PeriodBudget):
    """Dollars of a day or a month that gateways share."""

    def __init__(
        self, lender: LeasedBudgets, owner: str, period: str, spent: float, at: float
    ) -> None:
        unit, until, _ = PERIODS[period]
        super().__init__(lender, owner, period, math.inf, unit, until)
        self._period = period
        # Of the latest reply: the period's start and end, the life of the entry, what all gateways
        # had spent, this one's part of it, what was in no lease, and how many use the limit.
        self._start = 0.0
        # By the wall clock, until the store has told; the lender's clock counts the seconds.
        self._end = _end_of(period, at)
        self._ends_at = lender.clock() + self._end - at
        self._life = ""
        self._known = spent
        self._settled = 0.0
        self._free = math.inf
        self._gateways = 1
        self._is_needed = False
        # What the latest call said was spent here.
        self._sent_total = 0.0
        # Part of the lease that is left alone while the store is there: the share without it.
        self._spare = 0.0
        # Whether nothing was lent since the start, the period's, or an idle time.
        self._is_unused = True
        # Whether the lease is a share that was taken while the store was away.
        self._is_share = False

    @property
    def has_history(self) -> bool:
        """Whether the store has told of the current period."""
        self._roll()
        return self._start != 0.0 and self.limit < math.inf

    def spent(self, now: float) -> float:  # noqa: ARG002
        self._roll()
        return self._known + self.total - self._settled

    def left(self, now: float) -> float:
        return self.limit - self.spent(now)

    def spend(self, amount: float, now: float = 0.0) -> None:
        super().spend(amount, now)
        if self.limit < math.inf:
            is_much = self.total - self._settled > _MUCH * self.limit
            self._lender.count_spend(self, is_much=is_much)

    def settle(self, amount: float, reserved: float, now: float) -> None:
        super().settle(amount, reserved, now)
        if self._free < 0 and not self.reserved:
            # More than the limit was lent, for a request that named no most: now others may.
            self._lender.release_soon(self)

    def seconds_until(self, amount: float, now: float) -> float:  # noqa: ARG002
        return max(0.0, self._ends_at - self._lender.clock())

    def usable(self) -> float:
        if self.limit == math.inf:
            return math.inf
        self._roll()
        if not self._lender.is_away:
            return self.lease - self._spare - self.total - self.reserved
        if self.on_failure == "open":
            return math.inf
        # A request that is late takes no share: the store may have lent it to others.
        if not self._lender.store.is_available:
            self._take_share()
        return self.lease - self.total - self.reserved

    def _take_share(self) -> None:
        """Take a part of what was left if nothing was lent."""
        if self._is_unused and self.on_failure == "share":
            left = max(0.0, min(self._free, self.left(0.0)))
            self.lease = self.total + self.reserved + left / self._lender.gateways
            self._is_unused = False
            self._is_share = True

    def terms(self, sequence: int, amount: float, *, is_bounded: bool) -> tuple[Any, ...]:
        self._roll()
        taken = self.total + self.reserved
        # A share that the store does not know of ends with its return.
        self.lease = taken if self._is_share else max(self.lease, taken)
        self._is_share = False
        self._spare = min(self._spare, self.lease - taken)
        wanted = max(0.0, amount - (self.lease - taken - self._spare))
        self._sent_total = self.total
        self._sent_lease = self.lease
        return (
            self._period,
            min(self.limit, 1e300),
            sequence,
            self._start,
            self._life,
            self._known,
            self._settled,
            self.total,
            self.lease,
            wanted,
            self._missing_spare() if wanted > 0 or self.lease > taken else 0.0,
            int(is_bounded),
        )

    def accept(self, reply: Sequence[Any]) -> None:
        places = (0, 2, 3, 4, 7, 9)
        start, total, free, grant, ends_in, extra = (float(reply[place]) for place in places)
        if self._start not in (0.0, start):
            # The store's period ended before ours did; it has counted nothing of the old one.
            self.total -= self._sent_total
            self._sent_total = 0.0
            self.lease = 0.0
            self._sent_lease = 0.0
        self.lease += grant + extra
        self._stored_lease = self._sent_lease + grant + extra
        self._spare += extra
        self._start = start
        self._life = reply[1].decode()
        self._known = total
        self._settled = self._sent_total
        self._free = free
        self._gateways = int(reply[5])
        self._is_needed = bool(reply[6])
        self._ends_at = self._lender.clock() + ends_in
        self._end = _end_of(self._period, start)
        if grant > 0:
            self._is_unused = False
        if reply[8]:
            self._accept_refusal()

    def _accept_refusal(self) -> None:
        """Use what was left alone; if there is nothing, let another gateway have the rest."""
        if self._spare > 0:
            self._spare = 0.0
        else:
            self.refuse(_REFUSAL)
            self._lender.release_soon(self)

    def release(self) -> None:
        super().release()
        self._spare = 0.0

    def release_idle(self, idle: float) -> bool:
        if idle >= _IDLE or (self._is_needed and idle >= _INTERVAL):
            self.release()
            self._is_unused = idle >= _IDLE
        else:
            excess = self._spare if self._is_needed else self._spare - self._spare_target()
            if excess > 0:
                self._spare -= excess
                self.lease -= excess
        taken = self.total + self.reserved
        return taken > self._settled or self.lease != self._stored_lease or self.lease > taken

    def _spare_target(self) -> float:
        """With n gateways that each do so, half of what is left lies in their shares."""
        if self.on_failure != "share":
            return 0.0
        gateways = max(self._gateways, self._lender.gateways)
        return max(0.0, min(self.limit, self._free) + self._spare) / (gateways + 1)

    def _missing_spare(self) -> float:
        if self._lender.clock() < self.refused_until:
            return 0.0
        return max(0.0, self._spare_target() - self._spare)

    def _roll(self) -> None:
        """Begin at zero when the period is over."""
        while self._lender.clock() >= self._ends_at:
            self._start = 0.0
            self._life = ""
            end = _end_of(self._period, self._end)
            self._ends_at += end - self._end
            self._end = end
            self._known = 0.0
            self._settled = 0.0
            self._sent_total = 0.0
            self._free = math.inf
            self.total = 0.0
            self.lease = 0.0
            self._spare = 0.0
            self._is_unused = True


def _end_of(period: str, at: float) -> float:
    """When the period ends in which a time lies, both in seconds since 1970."""
    start_of = PERIODS[period][2]
    end = start = start_of(at)
    while end == start:
        at += DAY
        end = start_of(at)
    return end


class LeasedFlow(Lease):
    """Tokens or requests a minute that gateways share."""

    def __init__(
        self, lender: LeasedBudgets, owner: str, name: str, rate: float, burst: float
    ) -> None:
        super().__init__(lender, owner, name, burst, "tokens a minute", "more to flow in")
        self.rate = rate
        self._level = burst  # of the store, by the latest reply ...
        self._level_at = lender.clock()  # ... which came then
        self._share: TokenBucket | None = None

    @property
    def burst(self) -> float:
        """The most at once."""
        return self.limit

    def has(self, amount: float = 1.0) -> bool:
        """Whether so much could be taken now."""
        return amount <= self.usable() + ROUNDING

    def left(self, now: float) -> float:  # noqa: ARG002
        if self._lender.is_away:
            return self.usable() + self.reserved
        return self._level + self.lease - self.total

    def seconds_until(self, amount: float = 1.0, now: float = 0.0) -> float:  # noqa: ARG002
        if amount > self.limit:
            return math.inf
        until = self.refused_until - self._lender.clock()
        return max(0.0, until, (amount - max(0.0, self.left(0.0))) / self.rate)

    def usable(self) -> float:
        slack = self.lease - self.total - self.reserved
        if not self._lender.is_away or self.on_failure == "closed":
            return slack
        if self.on_failure == "open":
            return math.inf
        return max(0.0, slack) + self._shared().level()

    def reserve(self, amount: float) -> None:
        self._charge_share(amount)
        super().reserve(amount)

    def spend(self, amount: float, now: float = 0.0) -> None:
        self._charge_share(amount)
        super().spend(amount, now)

    def settle(self, amount: float, reserved: float, now: float) -> None:
        # What was reserved has been charged to the share already.
        self._charge_share(max(0.0, amount - reserved))
        self.reserved = max(0.0, self.reserved - reserved)
        Lease.spend(self, amount, now)

    def terms(self, sequence: int, amount: float, *, is_bounded: bool) -> tuple[Any, ...]:
        taken = self.total + self.reserved
        self.lease = max(self.lease, taken)
        wanted = max(0.0, amount - (self.lease - taken))
        self._sent_lease = self.lease
        bounded = int(is_bounded)
        return "flow", self.limit, self.rate, sequence, "", self.lease, wanted, bounded, *_PADDING

    def accept(self, reply: Sequence[Any]) -> None:
        grant, level, wait = map(float, reply)
        self.lease += grant
        self._stored_lease = self._sent_lease + grant
        self._level = level
        self._level_at = self._lender.clock()
        self._share = None
        if wait > 0:
            self.refuse(min(max(wait, _MIN_WAIT), _INTERVAL))

    def release_idle(self, idle: float) -> bool:
        if idle >= _INTERVAL:
            self.release()
        return self.lease != self._stored_lease or self.total + self.reserved > self.lease

    def _shared(self) -> TokenBucket:
        """This gateway's part of what flows in while the store is away.

        It starts with its part of what was left, at most a slice: other gateways may have borrowed
        since the store last replied.
        """
        if self._share is None:
            gateways = self._lender.gateways
            share = TokenBucket(self.rate / gateways, self.limit / gateways, self._lender.clock)
            left = self._level + (self._lender.clock() - self._level_at) * self.rate
            begin = min(self.rate / 4, max(0.0, left) / gateways)
            share.spend(max(0.0, share.burst - begin))
            self._share = share
        return self._share

    def _charge_share(self, amount: float) -> None:
        if self._lender.is_away and self.on_failure == "share":
            excess = amount - max(0.0, self.lease - self.total - self.reserved)
            if excess > 0:
                self._shared().spend(excess)


_PADDING = (0,) * 4


class LeasedSlots(Lease):
    """Calls of one expert at the same time, over all gateways.

    While the store is away each gateway has its part of them.

    Attributes:
        on_change: Called when there may be more slots than before.
    """

    def __init__(self, lender: LeasedBudgets, expert: str, limit: int) -> None:
        super().__init__(lender, f"expert:{expert}", "slots", limit, "", "")
        self.on_change: Callable[[], None] | None = None
        # Whether another gateway waits for some, and how many gateways call the expert.
        self._is_needed = False
        self._gateways = 1
        self._timer: asyncio.TimerHandle | None = None

    def usable(self) -> float:
        if self._lender.store.is_available:
            return self.lease - self.reserved
        share = max(1.0, self.limit // self._lender.gateways)
        return (self.limit if self.on_failure == "open" else share) - self.reserved

    def take(self) -> bool:
        """Count one more call, if there may be one."""
        if self.usable() < 1:
            return False
        self.reserve(1)
        return True

    def give_back(self) -> None:
        """A call has ended."""
        self.reserved -= 1
        self._trim()

    def want(self, calls: int) -> None:
        """So many calls wait: borrow slots for them, or look again soon."""
        self._touch()
        if self.call is not None or self._timer is not None:
            return
        if not self._lender.store.is_available or self._lender.clock() < self.refused_until:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_REFUSAL, self._look_again)
        else:
            self._lender.exchange([(self, float(calls))]).add_done_callback(self._look_again)

    def _look_again(self, _: object = None) -> None:
        self._timer = None
        if self.on_change is not None:
            self.on_change()

    def _trim(self) -> None:
        """Leave the slots beyond a fair share to a gateway that waits for some."""
        if self._is_needed:
            self.lease = min(self.lease, max(self.reserved, self.limit // self._gateways))

    def terms(self, sequence: int, amount: float, *, is_bounded: bool) -> tuple[Any, ...]:  # noqa: ARG002
        self.lease = max(self.lease, self.reserved)
        self._sent_lease = self.lease
        gateways = self._lender.gateways
        return "slots", self.limit, gateways, sequence, "", self.lease, amount, 1, *_PADDING

    def accept(self, reply: Sequence[Any]) -> None:
        grant = float(reply[0])
        self.lease += grant
        self._stored_lease = self._sent_lease + grant
        self._is_needed = bool(reply[1])
        self._gateways = int(reply[2])
        if grant < self.asked:
            self.refuse(_REFUSAL)

    def release_idle(self, idle: float) -> bool:
        if idle >= (_INTERVAL if self._is_needed else _IDLE):
            self.release()
        self._trim()
        return self.lease > 0 or self.lease != self._stored_lease


class LeasedBudgets:
    """Makes budgets that gateways share through a store, and borrows for them.

    Attributes:
        gateways: That share it, this one included.
        active: Budgets of which something was taken lately.
    """

    is_shared = True

    def __init__(self, store: RedisStore, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.clock = clock
        # Of owners whose limits have a mode of their own while the store is away.
        self._on_failure: dict[str, str] = {}
        self._is_late = False
        self.gateways = store.config.replicas
        self._counted_at = -math.inf
        self.active: set[Lease] = set()
        # Budgets of which much was spent since they were settled, and spends of all.
        self._urgent: set[Lease] = set()
        self._spends = 0
        # All of them, and the life of the store in which they were settled.
        self._periods: list[LeasedPeriod] = []
        self._epoch = ""
        self._connections = 0
        self._ttl = store.config.lease_ttl
        self._sequence = itertools.count(1)
        self._flows: dict[tuple[str, str], LeasedFlow] = {}
        self._slots: dict[str, LeasedSlots] = {}
        self._task: asyncio.Task[None] | None = None
        self._releases: set[asyncio.Task[bool]] = set()

    async def start(self) -> None:
        """Settle each second until :meth:`close`."""
        await self._count_gateways()
        self._task = asyncio.get_running_loop().create_task(self._settle_forever())

    async def close(self) -> None:
        """Settle, and give everything back."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        for lease in self.active:
            lease.release()
        await self._exchange_all(list(self.active), ttl=0.0)

    def period(self, owner: str, period: str, spent: float, at: float) -> PeriodBudget:
        """Dollars of a ``"day"`` or ``"month"``."""
        budget = LeasedPeriod(self, owner, period, spent, at)
        self._periods.append(budget)
        return budget

    def tokens(self, owner: str, limit: float) -> UsageBudget:
        """Tokens a minute."""
        return self._flow(owner, "tokens", limit / 60.0, limit)

    def requests(self, owner: str, rate_per_second: float, burst: float) -> LeasedFlow:
        """A bucket of requests."""
        return self._flow(owner, "requests", rate_per_second, burst)

    def slots(self, expert: str, limit: int) -> LeasedSlots:
        """Calls of an expert at the same time."""
        slots = self._slots.get(expert)
        if slots is None:
            slots = self._slots[expert] = LeasedSlots(self, expert, limit)
        slots.change_limit(limit)
        return slots

    def _flow(self, owner: str, name: str, rate: float, burst: float) -> LeasedFlow:
        flow = self._flows.get((owner, name))
        if flow is None:
            flow = self._flows[owner, name] = LeasedFlow(self, owner, name, rate, burst)
        # New limits continue from where the old ones are.
        flow.rate = rate
        flow.change_limit(burst)
        return flow

    @property
    def is_away(self) -> bool:
        """Whether limits are kept without the store, at least for the request in hand."""
        return self._is_late or not self.store.is_available

    def on_failure(self, owner: str) -> str:
        """What becomes of an owner's limits while the store is away."""
        return self._on_failure.get(owner, self.store.config.on_failure)

    def set_on_failure(self, owner: str, mode: str | None) -> None:
        """The same of one owner; none for the setting of the store."""
        if mode is None:
            self._on_failure.pop(owner, None)
        else:
            self._on_failure[owner] = mode

    def check_late(self, check: Callable[[], _Checked]) -> _Checked:
        """Check a request that has waited for the store long enough, as if that were away."""
        self._is_late = True
        try:
            return check()
        finally:
            self._is_late = False

    async def borrow(
        self, wanted: Sequence[tuple[Lease, float]], wait: StoreWait, *, is_bounded: bool
    ) -> bool:
        """Whether a check that failed may succeed now.

        Args:
            wanted: Budgets, each with what must be free.
            wait: What the request may still wait.
            is_bounded: Whether all of that must be left of each limit, or anything.
        """
        now = self.clock()
        short = [
            (lease, max(amount, 2 * ROUNDING))
            for lease, amount in wanted
            if not lease.covers(amount, is_bounded, now)
        ]
        if not short or wait.is_over or not self.store.is_available:
            return False
        if any(lease.refused_until > now and amount >= lease.refused for lease, amount in short):
            return False
        # One call at a time: this request may profit from the one in flight.
        calls = {lease.call for lease, _ in short if lease.call is not None}
        if not calls:
            calls = {self.exchange(short, is_bounded=is_bounded)}
        if await wait.wait(calls):
            self.store.mark_away()
        return True

    def borrow_soon(self, budget: Lease, amount: float) -> None:
        """Borrow so much for later requests; none waits for it."""
        is_due = budget.call is None and self.clock() >= budget.refused_until
        if is_due and self.store.is_available:
            self.exchange([(budget, max(amount, 2 * ROUNDING))])

    def refusal(self, owners: Iterable[str]) -> LimitExceeded | None:
        """Why requests are refused that nothing is known of, or none."""
        if self.store.is_available or all(self.on_failure(each) != "closed" for each in owners):
            return None
        message = "The store of this key's limits is away, and what was borrowed is spent; wait."
        return LimitExceeded(503, message, "limits_unavailable", 1.0)

    def release_soon(self, lease: Lease) -> None:
        """Give back what is not used, beside the request."""
        task = asyncio.get_running_loop().create_task(self._release(lease))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release(self, lease: Lease) -> bool:
        if lease.call is not None:
            return False
        lease.release()
        return await self.exchange([(lease, 0.0)])

    def count_spend(self, lease: Lease, *, is_much: bool) -> None:
        """Something was spent; whether it is much since the latest settlement."""
        self._spends += 1
        if is_much:
            self._urgent.add(lease)

    async def _settle_forever(self) -> None:
        recovered = self.store.recovered
        settled_at = self.clock()
        before = 0
        while True:
            # A store that comes back may have forgotten everything: tell it at once.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SHORT_INTERVAL):
                    await recovered.wait()
            if recovered.is_set() or self.clock() - settled_at >= _INTERVAL:
                recovered.clear()
                settled_at = self.clock()
                await self.settle()
            elif self._urgent and (self._spends >= _SPENDS_PER_CALL or self._spends == before):
                await self._settle_urgent()
            before = self._spends

    async def _settle_urgent(self) -> None:
        """Tell the store what was spent of the limits of which it was most; one call."""
        due = [lease for lease in self._urgent if lease.call is None][:_BATCH]
        self._urgent.difference_update(due)
        self._spends = 0
        if self.store.is_available:
            await self._exchange_all(due)

    async def settle(self) -> None:
        """Tell the store what was spent, renew what is in use, return what is not."""
        if not self.store.is_available:
            return
        now = self.clock()
        due = []
        for lease in [lease for lease in self.active if lease.call is None]:
            if lease.release_idle(now - lease.used_at):
                due.append(lease)
            elif now - lease.used_at > _INTERVAL:
                self.active.discard(lease)
        await self._exchange_all(due)
        await self._count_gateways()

    async def _count_gateways(self) -> None:
        with contextlib.suppress(StoreError):
            keys = [self.store.key("gateways"), self.store.key("epoch")]
            reply = await self.store.run(
                _COUNT_GATEWAYS, keys, [self.store.gateway], in_background=True
            )
            with self.store.reading():
                found, epoch = int(reply[0]), reply[1].decode()
            # A store that has forgotten some gateways must not make the shares of others larger.
            is_old = self.clock() - self._counted_at > _IDLE
            if found >= self.gateways or is_old:
                self.gateways = found
                self._counted_at = self.clock()
            connections = self.store.connections
            is_new = self._epoch not in ("", epoch) or self._connections != connections
            # Limits, too, of which nothing is held here: another gateway may be asked for them.
            known = [lease for lease in self._periods if lease.has_history] if is_new else []
            if await self._exchange_all(known):
                self._epoch = epoch
                self._connections = connections

    async def _exchange_all(self, leases: Sequence[Lease], ttl: float | None = None) -> bool:
        """Settle leases; false if the store went away before it was told of all."""
        for start in range(0, len(leases), _BATCH):
            free = [lease for lease in leases[start : start + _BATCH] if lease.call is None]
            is_done = not free or await self.exchange([(lease, 0.0) for lease in free], ttl=ttl)
            if is_done:
                continue
            # One entry that the script cannot read must not stop the others.
            for lease in free:
                if not self.store.is_available:
                    return False
                if lease.call is None:
                    await self.exchange([(lease, 0.0)], ttl=ttl)
        return True

    def exchange(
        self,
        wanted: Sequence[tuple[Lease, float]],
        *,
        is_bounded: bool = True,
        ttl: float | None = None,
    ) -> asyncio.Task[bool]:
        """Start a call of the script, for leases without one; tells whether there was a reply.

        It is a task: it continues if the request that has started it waits no longer.
        """
        values: list[Any] = [self.store.gateway, self._ttl if ttl is None else ttl]
        for lease, amount in wanted:
            lease.asked = amount
            values += lease.terms(next(self._sequence), amount, is_bounded=is_bounded)
        call = asyncio.get_running_loop().create_task(self._run(wanted, values))
        for lease, _ in wanted:
            lease.call = call
        return call

    async def _run(self, wanted: Sequence[tuple[Lease, float]], values: Sequence[Any]) -> bool:
        try:
            keys = [lease.key for lease, _ in wanted] + [self.store.key("epoch")]
            # Never in the background: a request may wait for it.
            replies = await self.store.run(LEND, keys, values, in_background=False)
            with self.store.reading():
                for (lease, _), reply in zip(wanted, replies, strict=True):
                    if reply:
                        lease.accept(reply)
        except StoreError:
            if self.store.is_available:
                # It has rejected the call, and would again.
                for lease, amount in wanted:
                    if amount:
                        lease.refuse(_REFUSAL)
            return False
        finally:
            for lease, _ in wanted:
                lease.call = None
        return True
