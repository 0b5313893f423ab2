from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mildroute import TextRouter
from mildroute.persistence import save_router
from mildroute.persistence.remote import verify_signature
from mildroute.routers.baselines import BestSingleRouter

TEXTS = [f"add {place}" for place in range(16)]


@pytest.fixture
def routers(tmp_path: Path) -> list[Path]:
    """Two routers, and a key that signs."""
    command = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "signing.pem"]
    subprocess.run(command, check=True, capture_output=True)
    found = []
    for place, row in enumerate(([0.0, 1.0], [1.0, 0.0])):
        router = TextRouter(router=BestSingleRouter())
        router.fit(TEXTS, [row] * 16, experts=("small", "large"))
        found.append(save_router(router, tmp_path / f"router-{place}"))
    return found


def digest_of(router: Path) -> str:
    return str(json.loads((router / "router.json").read_bytes())["sha256"])


def test_a_router_is_published_tried_promoted_and_rolled_back(
    tmp_path: Path, routers: list[Path], mildroute: Callable[..., Any]
) -> None:
    pointer = tmp_path / "store" / "prod.json"
    first, second = map(digest_of, routers)
    key = tmp_path / "signing.pem"
    result = mildroute("rollout", "publish", routers[0], pointer, "--key", key)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{first[:16]} serves all requests.\n"
    assert result.stderr.splitlines() == [
        f"{name}: uploaded and verified"
        for name in ("router.json", "weights.safetensors", "CARD.md", "router.json.sig")
    ]
    result = mildroute("rollout", "publish", routers[1], pointer, "--key", key, "--canary", 0.1)
    assert result.stdout == (
        f"{first[:16]} serves, and the canary {second[:16]} gets 0.1 of the requests.\n"
    )
    assert (
        mildroute("rollout", "promote", pointer).stdout == f"{second[:16]} serves all requests.\n"
    )
    told = json.loads(mildroute("rollout", "rollback", pointer, "--json").stdout)
    assert told == json.loads(pointer.read_text()) == {"digest": first}
    result = mildroute("rollout", "rollback", pointer)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")


def test_a_folder_is_signed(
    tmp_path: Path, routers: list[Path], mildroute: Callable[..., Any]
) -> None:
    key = tmp_path / "signing.pem"
    result = mildroute("rollout", "sign", routers[0], "--key", key)
    assert result.stdout == f"{routers[0]} is signed: {digest_of(routers[0])}\n"
    told = json.loads(mildroute("rollout", "sign", routers[0], "--key", key, "--json").stdout)
    assert told == {"router": str(routers[0]), "digest": digest_of(routers[0])}
    public = ["openssl", "pkey", "-in", key, "-pubout", "-out", tmp_path / "keys.pem"]
    subprocess.run(public, check=True)
    signature = (routers[0] / "router.json.sig").read_bytes()
    verify_signature(digest_of(routers[0]), signature, tmp_path / "keys.pem")
