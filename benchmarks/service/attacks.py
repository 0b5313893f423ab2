"""Hostile requests, byte by byte; each with the statuses that a sound server may answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from attack import ANY, BODY, CLIENT_ERRORS, Attack, Target


def all_attacks(target: Target) -> Iterator[Attack]:
    """Every kind, one after the other."""
    families = (
        framing,
        chunks,
        injections,
        paths,
        methods,
        keys,
        sizes,
        encodings,
        shapes,
        pipelines,
        protocols,
        urls,
        weights,
    )
    return itertools.chain.from_iterable(family(target) for family in families)


def framing(target: Target) -> Iterator[Attack]:
    """Two lengths, so that two readers see two requests.

    Never more than one answer, and a refusal.
    """
    hidden = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    size = b"%d" % len(BODY)
    for name, headers in {
        "length and chunked": b"content-length: %b\r\ntransfer-encoding: chunked\r\n" % size,
        "chunked and length": b"transfer-encoding: chunked\r\ncontent-length: %b\r\n" % size,
        "two lengths": b"content-length: %b\r\ncontent-length: 5\r\n" % size,
        "the same length twice": b"content-length: %b\r\ncontent-length: %b\r\n" % (size, size),
        "a list of lengths": b"content-length: %b, 5\r\n" % size,
        "chunked twice": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "chunked before identity": b"transfer-encoding: chunked, identity\r\n",
        "xchunked": b"transfer-encoding: xchunked\r\n",
        "chunked with a tab": b"transfer-encoding:\tchunked\x0b\r\n",
        "chunked behind a colon with space": (
            b"transfer-encoding : chunked\r\ncontent-length: %b\r\n" % size
        ),
        "a length with a sign": b"content-length: +%b\r\n" % size,
        "a negative length": b"content-length: -1\r\n",
        "a length in hexadecimal": b"content-length: 0x10\r\n",
        "a length with a blank": b"content-length: 1 0\r\n",
        "a length beyond all measure": b"content-length: 99999999999999999999999\r\n",
        "a folded length": b"content-length:\r\n %b\r\n" % size,
        "a length with a letter": b"content-length: %bx\r\n" % size,
    }.items():
        yield Attack(
            f"framing: {name}",
            target.post(BODY + hidden, headers=headers, length=False),
            CLIENT_ERRORS,
            most=2,
        )


def chunks(target: Target) -> Iterator[Attack]:
    """Bodies in chunks that are none."""
    head, size = b"transfer-encoding: chunked\r\n", b"%x" % len(BODY)
    whole = size + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
    yield Attack("chunks: sound", target.post(whole, headers=head, length=False))
    yield Attack(
        "chunks: trailers",
        target.post(whole[:-2] + b"x-injected: 1\r\n\r\n", headers=head, length=False),
    )
    yield Attack(
        "chunks: an extension",
        target.post(size + b";a=b\r\n" + BODY + b"\r\n0\r\n\r\n", headers=head, length=False),
    )
    for name, first in {
        "negative": b"-5",
        "with a sign": b"+5",
        "with a prefix": b"0x5",
        "no number": b"zz",
        "empty": b"",
        "too large": b"f" * 17,
        "with a blank": b"5 ",
        "too small": b"3",
        "ended by a line feed": size + b"\n" + BODY + b"\n0\n\n" + b"#",
    }.items():
        yield Attack(
            f"chunks: {name}",
            target.post(first + b"\r\n" + BODY + b"\r\n0\r\n\r\n", headers=head, length=False),
            ANY,
            most=2,
        )


def injections(target: Target) -> Iterator[Attack]:
    """Line ends and their kin in values that go on to an expert or back to the client."""
    marks = (
        b"\r",
        b"\n",
        b"\r\n ",
        b"\r\n\t",
        b"\0",
        b"\x0b",
        b"\x1f",
        b"\x7f",
        b"\x85",
        b"%0d%0a",
        b"\xc4\x8d\xc4\x8a",
        b"\xe5\x98\x8a",
    )
    for name in (
        b"x-request-id",
        b"traceparent",
        b"tracestate",
        b"accept",
        b"openai-beta",
        b"content-type",
        b"x-mildroute-preset",
    ):
        for mark in marks:
            value = b"a%bX-Injected: 1" % mark
            yield Attack(
                f"injection: {mark!r} in {name.decode()}",
                target.post(headers=b"%b: %b\r\n" % (name, value)),
            )
    for line in (
        b": no name",
        b"no colon",
        b" x: leading",
        b"x y: 1",
        b"x\0y: 1",
        b"\xff: 1",
        b"x" * 300 + b": 1",
    ):
        yield Attack(f"injection: header {line[:12]!r}", target.post(headers=line + b"\r\n"))
    for model in (
        b"a\\r\\nX-Injected: 1",
        b"small\\u0000",
        b"\\u2028",
        b"../small",
        b"small/../large",
        b"{}",
        b"%s%n",
        b"x" * 257,
        b"",
    ):
        yield Attack(
            f"injection: model {model[:20]!r}",
            target.post(b'{"model":"%b","messages":[{"role":"user","content":"x"}]}' % model),
            CLIENT_ERRORS,
        )


def paths(target: Target) -> Iterator[Attack]:
    """Other ways to write a path."""
    key = b"authorization: Bearer %b\r\nconnection: close\r\n" % target.key.encode()
    for path in (
        b"//v1/models",
        b"/v1//models",
        b"/v1/./models",
        b"/v1/../admin/reload",
        b"/v1/%2e%2e/admin/reload",
        b"/%61dmin/reload",
        b"/admin/reload/",
        b"/admin%2freload",
        b"/v1/models%00",
        b"/v1/models/..;/x",
        b"/v1/chat/completions/../../../etc/passwd",
        b"/\xff\xfe",
        b"/%ff%fe",
        b"/%",
        b"/%zz",
        b"http://127.0.0.1:%d/v1/models" % target.canary,
        b"https://127.0.0.1:%d/v1/models" % target.canary,
        b"file:///etc/passwd",
        b"*",
        b"127.0.0.1:%d" % target.canary,
        b"",
        b"/v1/models?" + b"a" * 5000,
        b"/v1/models#x",
        b"/" + b"a/" * 5000,
        b"\\v1\\models",
        b"/metrics/../v1/models",
        b"/.env",
        b"/openapi.json%20",
    ):
        for method in (b"GET", b"POST", b"CONNECT", b"OPTIONS"):
            yield Attack(
                f"path: {method.decode()} {path[:24]!r}",
                b"%b %b HTTP/1.1\r\nhost: x\r\n%b\r\n" % (method, path, key),
            )


def methods(target: Target) -> Iterator[Attack]:
    """Every path with every method."""
    named = (
        b"GET",
        b"HEAD",
        b"PUT",
        b"DELETE",
        b"PATCH",
        b"OPTIONS",
        b"TRACE",
        b"PROPFIND",
        b"get",
        b"G\0T",
        b"FOO",
        b"POST" * 100,
        b"",
    )
    for path in (
        b"/v1/chat/completions",
        b"/v1/route",
        b"/v1/feedback",
        b"/v1/models",
        b"/admin/reload",
        b"/metrics",
        b"/healthz",
    ):
        for method in named:
            data = (
                b"%b %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer"
                b" %b\r\n\r\n" % (method, path, target.key.encode())
            )
            yield Attack(f"method: {method[:8]!r} {path.decode()}", data)


def keys(target: Target) -> Iterator[Attack]:
    """Keys that are none; an answer of 200 would be a way in."""
    good = target.key.encode()
    for key in (
        b"",
        b"Bearer",
        b"Bearer ",
        good,
        b"Basic " + good,
        b"Bearer  " + good,
        b"Bearer " + good[:-1],
        b"Bearer " + good + b"x",
        b"Bearer " + good.upper(),
        b"Bearer mr-" + b"W" * 43,
        b"Bearer sk-" + b"W" * 43,
        b"Bearer " + b"x" * 10_000,
        b"Bearer \xff\xfe",
        b"Bearer null",
        b"Bearer ' or 1=1 --",
        b"Bearer " + good + b", Bearer " + good,
    ):
        for path in (b"/v1/chat/completions", b"/v1/route", b"/v1/feedback", b"/admin/reload"):
            head = (
                b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization:"
                b" %b\r\ncontent-length: %d\r\n\r\n" % (path, key, len(BODY))
            )
            yield Attack(
                f"key: {key[:12]!r} {path.decode()}", head + BODY, frozenset({400, 401, 403})
            )


def sizes(target: Target) -> Iterator[Attack]:
    """Too much of everything; the limit of a body is 1 MB."""
    yield Attack(
        "size: a long line",
        b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n" % (b"a" * (1 << 20)),
        CLIENT_ERRORS,
    )
    yield Attack(
        "size: a large body",
        target.post(b'{"model":"mildroute","x":"' + b"a" * (2 << 20) + b'"}'),
        CLIENT_ERRORS,
    )
    huge = b"".join(b"%x\r\n%b\r\n" % (1 << 16, b"a" * (1 << 16)) for _ in range(32)) + b"0\r\n\r\n"
    yield Attack(
        "size: a large body in chunks",
        target.post(huge, headers=b"transfer-encoding: chunked\r\n", length=False),
        CLIENT_ERRORS,
    )
    tiny = b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n"
    yield Attack(
        "size: many small chunks",
        target.post(tiny, headers=b"transfer-encoding: chunked\r\n", length=False),
        CLIENT_ERRORS,
    )
    yield Attack("size: an empty body", target.post(b""), CLIENT_ERRORS)


def encodings(target: Target) -> Iterator[Attack]:
    """Bytes that are no UTF-8, or no text."""
    texts = (
        b"\xff\xfe",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf5\x80\x80\x80",
        b"\\ud800",
        b"\\udfff\\ud800",
        b"\x00",
        b"\\u0000",
        b"\xef\xbf\xbf",
    )
    for text in texts:
        yield Attack(f"encoding: {text!r}", target.post(BODY.replace(b"PROMPT", text)))
        yield Attack(
            f"encoding: {text!r} in a route", target.post(b'{"input":"%b"}' % text, b"/v1/route")
        )
        yield Attack(
            f"encoding: {text!r} in a name",
            target.post(
                b'{"model":"mildroute","%b":1,"messages":[{"role":"user","content":"x"}]}' % text
            ),
        )
        yield Attack(
            f"encoding: {text!r} in feedback",
            target.post(b'{"decision_id":"%b","score":1}' % text, b"/v1/feedback"),
        )
    for name, body in {
        "utf-16": BODY.decode().encode("utf-16"),
        "a mark": b"\xef\xbb\xbf" + BODY,
        "gzip": b"\x1f\x8b\x08" + BODY,
    }.items():
        yield Attack(
            f"encoding: {name}",
            target.post(body, headers=b"content-encoding: gzip\r\n"),
            CLIENT_ERRORS,
        )


def shapes(target: Target) -> Iterator[Attack]:
    """JSON that is too deep, too wide, or not what it seems."""
    bodies: dict[str, bytes] = {
        "deep lists": b'{"model":"mildroute","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "deep objects": b'{"model":' * 50_000,
        "many members": (
            b'{"model":"mildroute",'
            + b",".join(b'"a%d":1' % n for n in range(60_000))
            + b',"a0":1}'
        ),
        "many messages": b'{"model":"mildroute","messages":[' + b"{}," * 300_000 + b"{}]}",
        "many parts": (
            b'{"model":"mildroute","messages":[{"role":"user","content":['
            + b"{}," * 300_000
            + b"{}]}]}"
        ),
        "a long number": (
            b'{"model":"mildroute","max_tokens":'
            + b"9" * 5000
            + b',"messages":[{"role":"user","content":"x"}]}'
        ),
        "NaN": (
            b'{"model":"mildroute","temperature":NaN,"messages":[{"role":"user","content":"x"}]}'
        ),
        "the model twice": (
            b'{"model":"mildroute","model":"large","messages":[{"role":"user","content":"x"}]}'
        ),
        "another spelling of the model": (
            b'{"Model":"large","model":"mildroute","messages":[{"role":"user","content":"x"}]}'
        ),
        "two documents": BODY + BODY,
        "a comment": BODY + b"// x",
        "a list": b"[]",
        "null": b"null",
        "nothing but space": b" " * 10_000,
        "prototype": (
            b'{"__proto__":{"model":"x"},"model":"mildroute","messages":[{"role":"user","content":"x"}]}'
        ),
    }
    for name, body in bodies.items():
        for path in (
            b"/v1/chat/completions",
            b"/v1/responses",
            b"/v1/completions",
            b"/v1/embeddings",
            b"/v1/route",
            b"/v1/feedback",
        ):
            yield Attack(f"shape: {name} {path.decode()}", target.post(body, path))


def pipelines(target: Target) -> Iterator[Attack]:
    """Many requests in one breath."""
    one = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    yield Attack(
        "pipeline: 50 requests",
        one * 49 + one.replace(b"host: x", b"host: x\r\nconnection: close"),
        most=50,
    )
    yield Attack("pipeline: a bad one behind", one + b"\x16\x03\x01\r\n\r\n", most=2)
    yield Attack("pipeline: behind the end", target.post() + one * 5, most=2)
    yield Attack("pipeline: empty lines before", b"\r\n" * 1000 + target.post())


def protocols(target: Target) -> Iterator[Attack]:
    """What is no HTTP/1.1, or wants to be something else."""
    yield Attack("protocol: HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 30)
    yield Attack("protocol: TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 200)
    yield Attack("protocol: HTTP/0.9", b"GET /healthz\r\n\r\n")
    yield Attack("protocol: HTTP/1.0", b"GET /healthz HTTP/1.0\r\n\r\n")
    yield Attack(
        "protocol: a stream over HTTP/1.0",
        target.post(BODY[:-1] + b',"stream":true}').replace(b"HTTP/1.1", b"HTTP/1.0"),
    )
    yield Attack("protocol: HTTP/9.9", b"GET /healthz HTTP/9.9\r\nhost: x\r\n\r\n")
    yield Attack("protocol: noise", bytes(range(256)) * 20)
    for upgrade in (b"websocket", b"h2c", b"TLS/1.3", b"x" * 200):
        headers = b"upgrade: %b\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n" % upgrade
        data = target.post(headers=headers).replace(
            b"connection: close", b"connection: upgrade, close"
        )
        yield Attack(f"protocol: upgrade to {upgrade[:10]!r}", data, most=2)
    yield Attack(
        "protocol: expect", target.post(headers=b"expect: 100-continue\r\n"), ANY | {100}, most=2
    )
    yield Attack(
        "protocol: expect something else",
        target.post(headers=b"expect: the spanish inquisition\r\n"),
    )


def urls(target: Target) -> Iterator[Attack]:
    """Addresses of a server that nobody may call, wherever one can be written."""
    there = f"http://127.0.0.1:{target.canary}/v1"
    fields = (
        "base_url",
        "api_base",
        "url",
        "endpoint",
        "host",
        "proxy",
        "callback",
        "webhook_url",
        "previous_response_id",
        "user",
        "api_key",
    )
    message = [{"role": "user", "content": "x"}]
    for name in fields:
        yield Attack(
            f"url: {name}",
            target.post(
                json.dumps({"model": "mildroute", "messages": message, name: there}).encode()
            ),
        )
        nested = {
            "model": "mildroute",
            "messages": message,
            "metadata": {name: there},
            "extra_body": {name: there},
        }
        yield Attack(f"url: nested {name}", target.post(json.dumps(nested).encode()))
    for model in (there, f"openai/{there}", f"small@{there}", f"//127.0.0.1:{target.canary}/"):
        yield Attack(
            f"url: model {model[:16]}",
            target.post(json.dumps({"model": model, "messages": message}).encode()),
            CLIENT_ERRORS,
        )
    part = {"type": "image_url", "image_url": {"url": f"{there}/a.png"}}
    yield Attack(
        "url: image",
        target.post(
            json.dumps(
                {"model": "mildroute", "messages": [{"role": "user", "content": [part]}]}
            ).encode()
        ),
    )
    host = b"127.0.0.1:%d" % target.canary
    for name in (
        b"x-forwarded-host",
        b"x-forwarded-for",
        b"forwarded",
        b"x-original-url",
        b"x-rewrite-url",
        b"x-host",
        b"via",
        b"origin",
        b"referer",
    ):
        yield Attack(
            f"url: header {name.decode()}",
            target.post(headers=b"%b: %b\r\ncookie: a=b\r\n" % (name, host)),
        )
    yield Attack("url: another host", target.post().replace(b"host: x", b"host: " + host))
    yield Attack("url: two hosts", target.post(headers=b"host: %b\r\n" % host))


def weights(target: Target) -> Iterator[Attack]:
    """Numbers at the edge of what a router can take."""
    for weight in (
        "0",
        "-0.0",
        "1e308",
        "1.7976931348623157e308",
        "1e309",
        "-1",
        "nan",
        "inf",
        "1e-320",
        "0x10",
        "1_0",
        " 1",
        "",
        "\u0661",
        "9" * 400,
    ):
        for name in ("price-weight", "quality", "budget"):
            head = f"x-mildroute-{name}: {weight}\r\n".encode()
            yield Attack(f"{name}: {weight[:12]}", target.post(headers=head))
            yield Attack(
                f"{name}: {weight[:12]} in a route",
                target.post(b'{"input":"x"}', b"/v1/route", head),
            )
    for weight in ("1e400", "-1", "1e308", "true", '"5"', "[]", "9" * 400):
        for name in (b"price_weight", b"quality", b"budget", b"request_ids"):
            body = b'{"inputs":["x"],"%b":%b}' % (name, weight.encode())
            yield Attack(
                f"{name.decode()}: {weight[:12]} as a field", target.post(body, b"/v1/route")
            )
    for size in (256, 257, 8000):
        yield Attack(
            f"request id: {size} bytes",
            target.post(headers=b"x-request-id: %b\r\n" % (b"r" * size)),
        )
    yield Attack(
        "request id: bytes that are no text", target.post(headers=b"x-request-id: \xff\xfe\r\n")
    )
