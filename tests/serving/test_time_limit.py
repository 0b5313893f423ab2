from __future__ import annotations

import asyncio
import sys
import time

import pytest

from mildroute.serving.http.request import Timeout

pytestmark = pytest.mark.anyio


async def test_a_block_that_ends_in_time_is_left_alone() -> None:
    with Timeout(0.01):
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)


async def test_a_block_that_takes_too_long_is_ended_and_the_task_goes_on() -> None:
    with pytest.raises(TimeoutError), Timeout(0.005):
        await asyncio.sleep(5)
    await asyncio.sleep(0)


async def test_a_cancellation_from_outside_is_no_timeout() -> None:
    async def wait() -> None:
        with Timeout(5):
            await asyncio.sleep(5)

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_block_is_raised_as_it_is() -> None:
    with pytest.raises(KeyError), Timeout(1):
        raise KeyError


async def test_the_inner_limit_does_not_take_the_outer_ones_cancellation_for_its_own() -> None:
    with pytest.raises(TimeoutError), Timeout(0.005), Timeout(5):
        await asyncio.sleep(5)
    await asyncio.sleep(0)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks do not count who wants to cancel them before")
async def test_a_cancellation_from_outside_is_heeded_even_when_the_time_is_over_in_the_same_turn() -> None:
    loop = asyncio.get_running_loop()

    async def wait() -> None:
        with Timeout(0.005):
            loop.call_later(0.005, asyncio.current_task(loop).cancel)  # type: ignore[union-attr]
            await asyncio.sleep(5)

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    # Both are due when the loop looks again.
    time.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await task
