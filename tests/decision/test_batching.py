"""Many requests, few batches, and nobody waits too long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mildroute.decision.batching import EncoderQueue
from mildroute.gateway.config import EncoderConfig

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
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5, max_batch_size=8))
    encoder.gate.clear()
    rows = [asyncio.ensure_future(queue.encode("x" * size)) for size in range(1, 13)]
    await asyncio.sleep(0)
    assert queue.waiting == 12
    encoder.gate.set()
    assert await asyncio.gather(*rows) == list(range(1, 13))
    assert [len(batch) for batch in encoder.batches] == [1, 8, 3]
    queue.close()


async def test_the_same_input_is_computed_once_and_remembered() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5, cache_size=2))
    assert await asyncio.gather(*(queue.encode("abc") for _ in range(5))) == [3] * 5
    assert await queue.encode("abc") == 3
    assert encoder.batches == [["abc"]]
    await queue.encode("d")
    await queue.encode("e")  # the oldest is forgotten
    await queue.encode("abc")
    assert [batch[0] for batch in encoder.batches] == ["abc", "d", "e", "abc"]
    queue.close()


async def test_who_waits_too_long_gets_nothing_and_the_result_is_kept_for_the_next() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=0.01))
    encoder.gate.clear()
    assert await queue.encode("abc") is None
    encoder.gate.set()
    assert await queue.encode("abc", seconds=5) == 3
    assert encoder.batches == [["abc"]]
    queue.close()


async def test_a_full_queue_refuses_at_once() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5, max_queue_size=2))
    encoder.gate.clear()
    waiting = [asyncio.ensure_future(queue.encode(text)) for text in ("a", "bb")]
    await asyncio.sleep(0)
    assert await queue.encode("ccc") is None
    encoder.gate.set()
    assert await asyncio.gather(*waiting) == [1, 2]
    queue.close()


async def test_an_encoder_that_fails_gives_nothing_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = EncoderQueue(Encoder(), EncoderConfig(timeout=5))
    assert await queue.encode("bad") is None
    assert await queue.encode("good") == 4
    assert queue.waiting == 0
    assert caplog.messages == ["the encoder failed on 1 inputs: ValueError"]
    queue.close()


async def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5))
    encoder.gate.clear()
    first, second = (asyncio.ensure_future(queue.encode("abc")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    encoder.gate.set()
    assert await second == 3
    queue.close()


async def test_long_inputs_are_read_at_both_ends() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5, max_chars=4))
    await queue.encode("ab" + "x" * 100 + "yz")
    assert encoder.batches == [["ab\nyz"]]
    queue.close()


async def test_closing_lets_go_of_those_who_wait() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5))
    encoder.gate.clear()
    waiting = asyncio.ensure_future(queue.encode("abc"))
    await asyncio.sleep(0)
    queue.close()
    assert await waiting is None
    encoder.gate.set()


async def test_many_inputs_are_encoded_in_small_batches_behind_those_of_requests() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5, max_batch_size=2))
    encoder.gate.clear()
    first = asyncio.ensure_future(queue.encode_batch(["a", "bb", "ccc", "dddd", "x" * 9000]))
    second = asyncio.ensure_future(queue.encode_batch(["yy"]))
    await asyncio.sleep(0)
    request = asyncio.ensure_future(queue.encode("request"))
    await asyncio.sleep(0)
    encoder.gate.set()
    assert await asyncio.gather(first, second, request) == [[1, 2, 3, 4, 8001], [2], 7]
    sizes = [[len(text) for text in batch] for batch in encoder.batches]
    assert sizes == [[1, 2], [7], [2], [3, 4], [8001]]
    queue.close()


async def test_many_inputs_that_fail_raise_and_those_of_a_caller_that_left_are_dropped() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5, max_batch_size=1))
    with pytest.raises(ValueError, match="bad"):
        await queue.encode_batch(["good", "bad", "never"])
    encoder.gate.clear()
    busy = asyncio.ensure_future(queue.encode("busy"))
    await asyncio.sleep(0)
    left = asyncio.ensure_future(queue.encode_batch(["left"]))
    await asyncio.sleep(0)
    left.cancel()
    encoder.gate.set()
    assert await busy == 4
    assert await queue.encode_batch(["last"]) == [4]
    assert encoder.batches == [["good"], ["bad"], ["busy"], ["last"]]
    queue.close()


async def test_closing_lets_go_of_those_who_wait_for_many() -> None:
    encoder = Encoder()
    queue = EncoderQueue(encoder, EncoderConfig(timeout=5))
    encoder.gate.clear()
    waiting = asyncio.ensure_future(queue.encode("abc"))
    many = asyncio.ensure_future(queue.encode_batch(["abc"]))
    await asyncio.sleep(0)
    queue.close()
    assert await waiting is None
    with pytest.raises(asyncio.CancelledError):
        await many
    encoder.gate.set()
