"""Real processes on loopback.

Experts that can be killed and revived, and the gateway by ``mildroute serve``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from loopback import COMMAND, ask, free_port, is_answering

# Dollars of a million tokens in and out.
PRICES = {"small": (0.1, 0.2), "middle": (0.5, 1.5), "large": (2.0, 8.0)}


@dataclass
class ExpertProcess:
    """An expert; it is revived on the same port."""

    name: str
    book: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = 0

    def start(self) -> None:
        command = [
            sys.executable,
            str(HERE / "expert.py"),
            self.name,
            str(self.book),
            str(self.port),
        ]
        environment = {**os.environ, **self.environment}
        for _ in range(50):
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            if line:
                self.port = int(line)
                return
            self.process.wait()  # the port is not free yet
            time.sleep(0.05)
        raise SystemExit(f"{self.name} does not start on port {self.port}")

    def kill(self) -> None:
        """Without a word."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def tell(self, mode: str, **further: Any) -> dict[str, Any]:
        return ask(self.port, "/control", {"mode": mode, **further})[1]  # type: ignore[no-any-return]

    def answered(self) -> list[int]:
        """Numbers of the prompts that it has answered to the end."""
        return _numbers_in(self.book)

    def called(self) -> list[int]:
        """Numbers of the prompts that it was asked."""
        return _numbers_in(self.book.with_name(f"{self.book.name}.calls"))


def _numbers_in(book: Path) -> list[int]:
    return [int(line) for line in book.read_text().split()] if book.exists() else []


@dataclass
class GatewayProcess:
    """``mildroute serve``; its output is kept."""

    folder: Path
    router: Path | str
    environment: Mapping[str, str]
    port: int = 0
    keys: str = "keys.yaml"
    options: tuple[str, ...] = ()

    def start(self, wait: bool = True) -> None:
        self.port = self.port or free_port()
        options = [
            "--experts",
            "experts.yaml",
            "--settings",
            "gateway.yaml",
            "--keys",
            self.keys,
            "--port",
            str(self.port),
            *self.options,
        ]
        command = [*COMMAND, "serve", str(self.router), *options]
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self, seconds: float = 180.0) -> None:
        until = time.monotonic() + seconds
        while not is_answering(self.port):
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the gateway did not start:\n{self.output()[-3000:]}")
            time.sleep(0.1)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, seconds: float = 60.0) -> float:
        """Ask it to end; the seconds that it took."""
        begun = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(seconds)
        return time.monotonic() - begun

    def end(self) -> None:
        """In any case."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def reload(self, key: str) -> int:
        """Status of ``POST /admin/reload``."""
        return ask(self.port, "/admin/reload", {}, {"authorization": f"Bearer {key}"}, seconds=60)[
            0
        ]

    def digest(self) -> str:
        """Of the router in use."""
        return str(ask(self.port, "/readyz")[1].get("router", ""))

    def metrics(self) -> str:
        return str(ask(self.port, "/metrics")[1])

    def resources(self) -> dict[str, float]:
        """Memory in MiB, file descriptors and threads, from the system's own books."""
        home = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (home / "status").read_text().splitlines())
        return {
            "memory": int(status["VmRSS"].split()[0]) / 1024,
            "descriptors": float(len(list((home / "fd").iterdir()))),
            "threads": float(status["Threads"]),
        }


@dataclass
class House:
    """A gateway and its experts."""

    folder: Path
    gateway: GatewayProcess
    experts: dict[str, ExpertProcess]
    keys: dict[str, str]
    admin_key: str
    cascade: bool = False

    @property
    def port(self) -> int:
        return self.gateway.port

    def further_gateway(self, name: str, settings: str = "") -> GatewayProcess:
        """Another gateway with the same files, and a log of its own; it is not started yet.

        Args:
            name: Of its folder.
            settings: Lines that gateway.yaml gets besides.
        """
        folder = self.folder / name
        folder.mkdir()
        for file in ("experts.yaml", "gateway.yaml", "keys.yaml"):
            shutil.copy2(self.folder / file, folder)
        with (folder / "gateway.yaml").open("a") as file:
            file.write(settings)
        return GatewayProcess(folder, self.gateway.router, self.gateway.environment)


@contextmanager
def house(
    folder: Path,
    settings: str = "",
    *,
    clients: int = 3,
    budgets: Mapping[str, float] | None = None,
    rates: Mapping[str, float] | None = None,
    environment: Mapping[str, str] | None = None,
    further: str = "",
    priced: bool = False,
    cascade: bool = False,
) -> Iterator[House]:
    """A gateway between three experts, with keys for so many clients and one for the operator.

    Args:
        folder: Where all files go.
        settings: Of gateway.yaml, besides log and operator's key.
        clients: Number of keys.
        budgets: Dollars a day of keys, by name.
        rates: Requests a minute of keys, by name.
        environment: Of the gateway and the experts, besides.
        further: Lines of experts.yaml for further experts.
        priced: Whether the router takes price weights, qualities and budgets.
        cascade: Whether the router looks at answers; it takes those, too.
    """
    from artifacts import make_router

    from mildroute.gateway.key_changes import add_client

    given = {
        "OMP_NUM_THREADS": "1",
        "EXPERT_KEY": "sk-upstream-0123456789",
        "ADMIN_KEY": "admin-0123456789",
        **(environment or {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    router = make_router(folder / "router", priced=priced, cascade=cascade)
    experts = {name: ExpertProcess(name, folder / f"{name}.book", given) for name in PRICES}
    with ExitStack() as stack:
        for expert in experts.values():
            expert.start()
            stack.callback(expert.kill)
        lines = "".join(
            f"  {name}: {{kind: openai, base_url: 'http://127.0.0.1:{expert.port}/v1', model:"
            f" {name}-1, api_key_env: EXPERT_KEY, price: {{input: {PRICES[name][0]}, output:"
            f" {PRICES[name][1]}}}, concurrency: 512}}\n"
            for name, expert in experts.items()
        )
        (folder / "experts.yaml").write_text(f"experts:\n{lines}{further}")
        (folder / "gateway.yaml").write_text(
            f"admin_key_env: ADMIN_KEY\nlog: {{folder: log}}\n{settings}"
        )
        keys = {
            name: add_client(
                folder / "keys.yaml",
                name,
                dollars_per_day=(budgets or {}).get(name),
                requests_per_minute=(rates or {}).get(name),
            )
            for name in (f"team-{number}" for number in range(clients))
        }
        gateway = GatewayProcess(folder, router, given)
        gateway.start()
        stack.callback(gateway.end)
        yield House(folder, gateway, experts, keys, given["ADMIN_KEY"], cascade)
