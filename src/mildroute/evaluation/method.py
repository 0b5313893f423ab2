"""What a fitted router is, in a few words: for reports and for who fits one."""

from __future__ import annotations

from typing import Any

from mildroute.encoders.text_router import TextRouter
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.own_loss import LossRouter
from mildroute.routers.storage.registry import name_of_class

__all__ = ["about_router", "method_of"]


def method_of(router: TextRouter) -> str:
    """The router over vectors by the name under which it is stored, its loss where it was told one, and whether it knows prices.

    Example:
        >>> from mildroute.routers.surrogates import TdefRouter
        >>> texts, costs = ["add 1 1", "sing a song"] * 10, [[0, 1], [1, 0]] * 10
        >>> method_of(TextRouter(router=TdefRouter()).fit(texts, costs)), method_of(TextRouter(router=LossRouter("gap")).fit(texts, costs))
        ('TdefRouter', "LossRouter with the loss 'gap'")
    """
    inner = router.router_
    is_frontier = isinstance(inner, FrontierRouter)
    learnt = inner.routers_[0] if is_frontier else inner
    loss = f" with the loss {learnt.loss!r}" if isinstance(learnt, LossRouter) else ""
    return f"{_name(learnt)}{loss}{', for any price' if is_frontier else ''}"


def about_router(router: TextRouter) -> dict[str, str]:
    """What a report tells of where a router's decisions come from, by title.

    Example:
        >>> from mildroute.routers.single import BestSingleRouter
        >>> about_router(TextRouter(router=BestSingleRouter()).fit(["add 1 1", "sing a song"] * 10, [[0, 1], [1, 0]] * 10))
        {'method': 'BestSingleRouter', 'encoder': 'ReducedEncoder'}
    """
    judged = {} if router.judge_ is None else {"learnt from scores of": router.judge_}
    parts = getattr(router.encoder_, "encoders_", [router.encoder_])
    return {"method": method_of(router), "encoder": " + ".join(map(_name, parts)), **judged}


def _name(estimator: Any) -> str:
    return name_of_class(type(estimator)) or type(estimator).__name__
