"""Deep routers.

A deep router is any Hugging Face sequence or image classifier, trained end to end with the deferral
loss. Its labels are the experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mildroute._lazy import lazy_exports
from mildroute._transformers import need

if TYPE_CHECKING:
    from mildroute.deep.config import (
        DeferralConfig as DeferralConfig,
        config_of as config_of,
        write_config as write_config,
    )
    from mildroute.deep.resnet import resnet18_32 as resnet18_32
    from mildroute.deep.router import DeepRouter as DeepRouter
    from mildroute.deep.trainer import DeferralTrainer as DeferralTrainer

_WITH_TORCH = ("DeferralTrainer", "resnet18_32")
__all__, _get, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.deep.config": ("DeferralConfig", "config_of", "write_config"),
        "mildroute.deep.resnet": ("resnet18_32",),
        "mildroute.deep.router": ("DeepRouter",),
        "mildroute.deep.trainer": ("DeferralTrainer",),
    },
)


def __getattr__(name: str) -> Any:
    if name in _WITH_TORCH:
        need("torch")
    return _get(name)
