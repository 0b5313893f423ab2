"""Clients that mean harm.

benchmarks/service/hostile.py sends thousands more; tests/test_benchmarks.py runs it.
"""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from mildroute.gateway.http.body import BadRequest, parse_request, read_object
from tests.experts.hostile_server import HostileServer, answers, completion, hangs, sends
from tests.gateway.running import running
from tests.gateway.streams import DONE, event, streams

SERVICE = Path(__file__).parents[2] / "benchmarks" / "service"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m",' + b",".join(b'"a%d":1' % number for number in range(9_000)) + b',"a0":2}',
        b'{"model":"m",' + b",".join(b'"a%d":1' % number for number in range(200_000)) + b"}",
        b'{"model":"m",' + b",".join(b'"\\n%d":1' % number for number in range(200_000)) + b"}",
        b'{"model":"m","messages":[' + b"{}," * 300_000 + b"{}]}",
        b'{"model":"m","messages":[{"role":"user","content":[' + b"{}," * 300_000 + b"{}]}]}",
    ],
    ids=["a name twice among many", "many members", "many escapes", "many messages", "many parts"],
)
def test_a_wide_body_does_not_keep_all_others_waiting(body: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(BadRequest) as caught:
        parse_request("chat/completions", read_object(body))
    assert caught.value.status == 400
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_number_of_tokens_that_cannot_be_true_is_not_believed(is_stream: bool) -> None:
    absurd = completion("4", (10**400, 2))
    told = streams(
        event("4"),
        b"data: " + httpx.Request("POST", "http://x", json=absurd).content + b"\n\n",
        DONE,
    )
    with HostileServer([told if is_stream else answers(absurd)]) as expert:
        priced = {"base_url": expert.url, "price": {"input": 1, "output": 1}}
        with running(small=priced) as gateway:
            assert gateway.chat("Hi", stream=is_stream).status_code == 200
            record = gateway.records()[0]
    assert (record.status, record.served_by) == (200, "small")
    assert 0 < record.cost_usd < 0.001


def test_a_judge_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SERVICE))
    from attack import CLIENT_ERRORS, Attack
    from judge import Judge, drip

    told = (
        b"HTTP/1.1 500 Oops\r\ncontent-type: application/json\r\nX-Injected: 1\r\n\r\n{NaN}"
        b" SK-secret"
    )
    twice = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{NaN}"
    with HostileServer([sends(told), sends(twice), sends(twice + twice), hangs()]) as server:
        judge = Judge(server.port, {"a key": b"sk-secret"}, seconds=0.2)
        for _ in range(4):
            judge.try_one(Attack("x", b"GET / HTTP/1.1\r\n\r\n", CLIENT_ERRORS))
        assert drip(server.port, b"G", b"", seconds=0.1, pause=0.02) == float("inf")
    assert judge.faults == {
        "answers with 500": 1,
        "headers that were injected": 1,
        "secrets in answers": 1,
        "answers with a status that should not be": 2,
        "answers that are called JSON and are none": 1,
        "more answers than requests": 1,
        "connections that hang": 1,
    }
