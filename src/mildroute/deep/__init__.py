"""Deep routers: any Hugging Face sequence or image classifier, trained end to end with the deferral loss; its labels are the experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mildroute._optional import lazy_names
from mildroute.deep._transformers import need

if TYPE_CHECKING:
    from mildroute.deep.config import DeferralConfig, config_of, write_config
    from mildroute.deep.models import resnet18_32
    from mildroute.deep.router import DeepRouter
    from mildroute.deep.trainer import DeferralTrainer

__all__ = ["DeepRouter", "DeferralConfig", "DeferralTrainer", "config_of", "resnet18_32", "write_config"]

_WITH_TORCH = ("DeferralTrainer", "resnet18_32")
_get, __dir__ = lazy_names(
    __name__,
    {
        "config": (
            "DeferralConfig",
            "config_of",
            "write_config",
        ),
        "models": ("resnet18_32",),
        "router": ("DeepRouter",),
        "trainer": ("DeferralTrainer",),
    },
)


def __getattr__(name: str) -> Any:
    if name in _WITH_TORCH:
        need("torch")
    return _get(name)
