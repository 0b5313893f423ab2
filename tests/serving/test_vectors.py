"""Many requests, few batches, and nobody waits too long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mildroute.serving.config import EncoderConfig
from mildroute.serving.routing.batching import EncoderQueue

pytestmark = pytest.mark.anyio


class Encoder:
    """Lengths of texts; waits for a signal where it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, texts: list[str]) -> list[int]:
        self.gate.wait(5)
        self.batches.append(texts)
        if "bad" in texts:
            raise ValueError("bad")
        return [len(text) for text in texts]


async def test_what_arrives_during_a_batch_becomes_the_next_one() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(budget=5, batch=8))
    encoder.gate.clear()
    rows = [asyncio.ensure_future(queue.row("x" * size)) for size in range(1, 13)]
    await asyncio.sleep(0)
    assert queue.waiting == 12
    encoder.gate.set()
    assert await asyncio.gather(*rows) == list(range(1, 13))
    assert [len(batch) for batch in encoder.batches] == [1, 8, 3]
    queue.close()


async def test_the_same_input_is_computed_once_and_remembered() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(budget=5, remembered=2))
    assert await asyncio.gather(*(queue.row("abc") for _ in range(5))) == [3] * 5
    assert await queue.row("abc") == 3
    assert encoder.batches == [["abc"]]
    await queue.row("d")
    await queue.row("e")  # the oldest is forgotten
    await queue.row("abc")
    assert [batch[0] for batch in encoder.batches] == ["abc", "d", "e", "abc"]
    queue.close()


async def test_who_waits_too_long_gets_nothing_and_the_result_is_kept_for_the_next() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(budget=0.01))
    encoder.gate.clear()
    assert await queue.row("abc") is None
    encoder.gate.set()
    assert await queue.row("abc", seconds=5) == 3
    assert encoder.batches == [["abc"]]
    queue.close()


async def test_a_full_queue_refuses_at_once() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(budget=5, queue=2))
    encoder.gate.clear()
    waiting = [asyncio.ensure_future(queue.row(text)) for text in ("a", "bb")]
    await asyncio.sleep(0)
    assert await queue.row("ccc") is None
    encoder.gate.set()
    assert await asyncio.gather(*waiting) == [1, 2]
    queue.close()


async def test_an_encoder_that_fails_gives_nothing_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    queue = EncoderQueue(Encoder(), EncoderConfig(budget=5))
    assert await queue.row("bad") is None
    assert await queue.row("good") == 4
    assert queue.waiting == 0
    assert caplog.messages == ["the encoder failed on 1 inputs: ValueError"]
    queue.close()


async def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(budget=5))
    encoder.gate.clear()
    first, second = (asyncio.ensure_future(queue.row("abc")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    encoder.gate.set()
    assert await second == 3
    queue.close()


async def test_long_inputs_are_read_at_both_ends() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(budget=5, characters=4))
    await queue.row("ab" + "x" * 100 + "yz")
    assert encoder.batches == [["ab\nyz"]]
    queue.close()


async def test_closing_lets_go_of_those_who_wait() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(budget=5))
    encoder.gate.clear()
    waiting = asyncio.ensure_future(queue.row("abc"))
    await asyncio.sleep(0)
    queue.close()
    assert await waiting is None
    encoder.gate.set()
