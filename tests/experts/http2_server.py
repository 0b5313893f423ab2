"""A small HTTP/2 server over TLS on loopback, for what HTTP/1.1 cannot show."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from tests.experts.hostile_server import completion
from tests.experts.loopback import LoopbackServer


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that only its own holder vouches for, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    command += [
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


class Http2Server(LoopbackServer):
    """Answers every stream with its text after as many seconds as ``delay`` says for the number of
    the call.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        delay: Callable[[int], float] = lambda _: 0.0,
        size: int = 1,
    ) -> None:
        super().__init__()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        self.tls.set_alpn_protocols(["h2", "http/1.1"])
        self._delay, self._size = delay, size
        self.headers: list[dict[str, str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        tasks, numbers = set(), {}
        try:
            while data := await reader.read(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, RequestReceived):
                        numbers[event.stream_id] = len(self.headers)
                        self.headers.append(dict(event.headers))
                    elif isinstance(event, DataReceived):
                        connection.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                    elif isinstance(event, StreamEnded):
                        tasks.add(
                            asyncio.create_task(
                                self._reply(
                                    connection, writer, event.stream_id, numbers[event.stream_id]
                                )
                            )
                        )
                writer.write(connection.data_to_send())
        finally:
            for task in tasks:
                task.cancel()

    async def _reply(
        self, connection: H2Connection, writer: asyncio.StreamWriter, stream: int, number: int
    ) -> None:
        await asyncio.sleep(self._delay(number))
        body = json.dumps(completion("x" * self._size)).encode()
        # A server may say anything in its headers, the key too.
        echo = self.headers[number].get("authorization", "none")
        connection.send_headers(
            stream, [(":status", "200"), ("content-type", "application/json"), ("x-echo", echo)]
        )
        for start in range(0, len(body), 16_000):
            connection.send_data(stream, body[start : start + 16_000])
        connection.end_stream(stream)
        writer.write(connection.data_to_send())
