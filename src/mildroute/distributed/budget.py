"""One cap for workers on many machines: a server leases money to blocks, some calls at a time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from mildroute.collection.runner import Budget

__all__ = ["BudgetServer", "LeasedBudget", "RemoteCall"]


# Calls a method of a budget server by name; the call is made even if its result is not awaited.
RemoteCall: TypeAlias = Callable[..., Awaitable[Any]]
# Calls that a lease is for, so that few cells wait for a message.
_CALLS = 24
# Of what is left, one lease takes at most this part beyond its first call: near the cap leases are
# small.
_SHARE = 0.25
# Seconds after which a budget server that has nothing to give looks for leases of the dead.
_LOOK = 1.0


class BudgetServer:
    """Holds the budget of a run.

    A lease is money that an attempt at a block may spend; what is leased counts as spent until it
    is given back. If an attempt dies, its lease is written off for what its journals say it spent.

    Args:
        cap: At most, in dollars.
        audit: What the attempts at a block have spent, if none of them lives; none if one does.
    """

    def __init__(self, cap: float, spent: float, audit: Callable[[str], float | None]) -> None:
        self._budget, self._audit = Budget(cap, spent), audit
        self._attempts: dict[str, str] = {}
        self._leases: dict[str, float] = {}
        self._reported: dict[str, float] = {}
        self._looked = 0.0

    async def begin(self, block: str, attempt: str, spent: float) -> None:
        """An attempt begins; those before it are dead and have spent so much altogether."""
        self._write_off(block, spent)
        self._attempts[block] = attempt

    async def give(self, block: str, attempt: str, spent: float, back: float) -> None:
        """Count what an attempt spent since its last word, and take back what it does not need."""
        if self._attempts.get(block) == attempt:
            lease = self._leases.get(block, 0.0)
            self._leases[block] = max(0.0, lease - spent - back)
            self._reported[block] = self._reported.get(block, 0.0) + spent
            self._budget.settle(lease - self._leases[block], spent)

    async def lease(
        self, block: str, attempt: str, spent: float, back: float, least: float, wanted: float
    ) -> float:
        """First as :meth:`give`; then at least so much, or 0 if that can never be had."""
        await self.give(block, attempt, spent, back)
        if self._attempts.get(block) != attempt or not await self._had(least):
            return 0.0
        if self._attempts.get(block) != attempt:
            # It died while it waited.
            self._budget.settle(least, 0.0)
            return 0.0
        cap = self._budget.cap or 0.0
        more = max(
            0.0, min(wanted - least, _SHARE * (cap - self._budget.spent - self._budget.reserved))
        )
        await self._budget.reserve(more)
        self._leases[block] = self._leases.get(block, 0.0) + least + more
        return least + more

    async def end(self, block: str, attempt: str, spent: float) -> None:
        """An attempt is done and needs nothing more."""
        if self._attempts.get(block) == attempt:
            self._write_off(block, self._reported.get(block, 0.0) + spent)

    async def spent(self) -> float:
        """Dollars spent so far, as far as they were reported."""
        return self._budget.spent

    async def _had(self, dollars: float) -> bool:
        waiting = asyncio.ensure_future(self._budget.reserve(dollars))
        while not (await asyncio.wait({waiting}, timeout=_LOOK))[0]:
            self._look_for_the_dead()
        return waiting.result()

    def _look_for_the_dead(self) -> None:
        """A dead attempt's block may stand in line behind the blocks that wait for its lease."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        for block in [block for block, lease in self._leases.items() if lease > 0]:
            spent = self._audit(block)
            if spent is not None:
                self._write_off(block, spent)

    def _write_off(self, block: str, spent: float) -> None:
        """Drop the lease of a block and count all that it spent, told before or not."""
        told = self._reported.get(block, 0.0)
        # The journals of a machine that was lost as a whole may lack what was told before.
        self._reported[block] = max(told, spent)
        self._attempts.pop(block, None)
        self._budget.settle(self._leases.pop(block, 0.0), self._reported[block] - told)


class LeasedBudget:
    """The budget of one attempt at a block.

    It lasts for some calls, then the server is called again.

    What a call did not need pays for the next one. While the budget server lets this attempt wait,
    everything goes back at once.
    """

    def __init__(self, remote_call: RemoteCall, block: str) -> None:
        self.spent, self.is_exhausted = 0.0, False
        self._remote_call, self._names = remote_call, (block, secrets.token_hex(8))
        self._free = self._untold = 0.0
        self._turn, self._is_waiting = asyncio.Lock(), False

    async def begin(self, spent_by_the_dead: float) -> None:
        """Open the account, and close those of earlier attempts."""
        await self._remote_call("begin", *self._names, spent_by_the_dead)

    async def reserve(self, worst: float, *, rank: int = 0, wait: bool = True) -> bool:  # noqa: ARG002 - blocks know no order
        """Set dollars aside; false if the budget server can never lease them."""
        if self._took(worst):
            return True
        if not wait:
            return False
        async with self._turn:
            return self._took(worst) or await self._leased(worst)

    def settle(self, worst: float, dollars: float) -> None:
        """Give back what was set aside, and count what was spent."""
        self.spent += dollars
        self._untold += dollars
        self._free += worst - dollars
        if self._is_waiting:
            self._remote_call("give", *self._names, *self._emptied())

    async def end(self) -> None:
        """Give back what is left."""
        untold, _ = self._emptied()
        await self._remote_call("end", *self._names, untold)

    def _took(self, worst: float) -> bool:
        if worst > 0 and worst > self._free:
            return False
        self._free -= worst
        return True

    async def _leased(self, worst: float) -> bool:
        self._is_waiting = True
        try:
            lease = await self._remote_call(
                "lease", *self._names, *self._emptied(), worst, _CALLS * worst
            )
        finally:
            self._is_waiting = False
        self.is_exhausted = lease < worst
        if not self.is_exhausted:
            self._free += lease - worst
        return not self.is_exhausted

    def _emptied(self) -> tuple[float, float]:
        """What was spent and not reported yet, and what is free; both are nothing from now on."""
        told = self._untold, self._free
        self._untold = self._free = 0.0
        return told
