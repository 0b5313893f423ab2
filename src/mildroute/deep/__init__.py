"""Deep routers: any Hugging Face sequence or image classifier, trained end to end with the deferral loss; its labels are the experts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mildroute.deep.libraries import need

if TYPE_CHECKING:
    from mildroute.deep.config import DeferralConfig, config_of, write_config
    from mildroute.deep.resnet import resnet18_32
    from mildroute.deep.router import DeepRouter
    from mildroute.deep.trainer import DeferralTrainer

__all__ = ["DeepRouter", "DeferralConfig", "DeferralTrainer", "config_of", "resnet18_32", "write_config"]

_HOMES = {
    "DeepRouter": "router",
    "DeferralConfig": "config",
    "DeferralTrainer": "trainer",
    "config_of": "config",
    "resnet18_32": "resnet",
    "write_config": "config",
}
_WITH_TORCH = ("resnet", "trainer")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOMES[name] in _WITH_TORCH:
        need("torch")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
