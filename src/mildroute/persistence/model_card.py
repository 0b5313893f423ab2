"""The model card of a stored router, in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mildroute._format import pluralize

__all__ = ["escape", "render_model_card"]

_MARKUP = re.compile(r"[\\`*_{}\[\]<>|~&#$!@]|:(?=//)|(?<=www)\.", re.IGNORECASE)

_SETTINGS = {
    "encoder": "Encoder",
    "loss": "Loss",
    "reward": "Reward",
    "margins": "Margins",
    "alpha": "Penalty",
    "decision": "Decision",
    "features": "Features",
    "selection": "Reason for this method",
}
_LIMITS = (
    "This router chooses between the experts above for inputs like those it was trained on. With"
    " other inputs, other experts or changed prices, measure it again before you rely on it. Its"
    " digests detect damage; they do not prove who made it."
)


def render_model_card(manifest: Mapping[str, Any]) -> str:
    """Return the model card of a manifest as Markdown."""
    sections = [
        _opening(manifest),
        _section("Experts", _experts(manifest)),
        _section("Training data", _training(manifest)),
        _section("How it decides", _settings_table(manifest)),
        _section("Prices", _prices(manifest.get("prices"))),
        _section("Validation", _metrics(manifest.get("metrics"))),
        _section("Versions", _facts_table(manifest.get("versions") or {})),
        _section("Use", _use(manifest)),
        _section("Licence and limits", f"{_licence(manifest)} {_LIMITS}"),
        _section(
            "Notes", escape(manifest["notes"], longest=10_000) if manifest.get("notes") else ""
        ),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(value: object, *, longest: int = 300) -> str:
    r"""Return a value as one line of text that Markdown renders literally, even in a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    visible = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if len(visible) > longest:
        visible = visible[:longest] + "…"
    return _MARKUP.sub(r"\\\g<0>", visible) or "(empty)"


def _opening(manifest: Mapping[str, Any]) -> str:
    name = escape(manifest["router"].get("class", "Router"))
    experts = len(manifest["experts"])
    kind = "as its encoder reads it" if "encoder" in manifest else "a vector"
    return (
        f"# {name} between {pluralize(experts, 'expert')}\n\nA mildroute router: for each input,"
        f" {kind}, it chooses the expert that should answer."
    )


def _experts(manifest: Mapping[str, Any]) -> str:
    experts = manifest["experts"]
    margins = manifest.get("margins")
    if not isinstance(margins, list) or len(margins) != len(experts):
        return _table(
            ["Index", "Expert"], [[str(index), escape(name)] for index, name in enumerate(experts)]
        )
    rows = [
        [str(index), escape(name), _number(margin)]
        for index, (name, margin) in enumerate(zip(experts, margins, strict=True))
    ]
    return _table(["Index", "Expert", "Margin"], rows)


def _training(manifest: Mapping[str, Any]) -> str:
    rows = manifest.get("rows")
    facts = {
        "Rows": rows if rows is not None else "not recorded",
        "Data hash": manifest.get("data_hash") or "not recorded",
    }
    return _facts_table(
        facts
        if "encoder" in manifest
        else facts | {"Numbers per input": manifest.get("n_features_in")}
    )


def _settings_table(manifest: Mapping[str, Any]) -> str:
    facts = {title: manifest[name] for name, title in _SETTINGS.items() if name in manifest}
    if isinstance(facts.get("Margins"), list):
        facts["Margins"] = "one per expert, see above"
    return _facts_table(facts)


def _prices(prices: Mapping[str, Any] | None) -> str:
    if not prices:
        return "Not recorded: this router was stored without prices."
    experts = prices.get("experts")
    price_rows = (
        [[escape(name), _price(value)] for name, value in experts.items()]
        if isinstance(experts, dict)
        else []
    )
    about = {
        name.capitalize(): value
        for name, value in prices.items()
        if name != "experts" or not price_rows
    }
    return "\n\n".join(
        part
        for part in (
            _facts_table(about),
            _table(["Expert", "Price"], price_rows) if price_rows else "",
        )
        if part
    )


def _price(value: Any) -> str:
    return (
        ", ".join(f"{escape(name)} {_number(part)}" for name, part in value.items())
        if isinstance(value, dict)
        else _number(value)
    )


def _metrics(metrics: Mapping[str, Any] | None) -> str:
    if not metrics:
        return "Not recorded: this router was stored without validation metrics."
    rows = [[escape(name), *_value_and_interval(value)] for name, value in metrics.items()]
    return _table(["Metric", "Value", "Interval"], rows)


def _value_and_interval(metric: Any) -> tuple[str, str]:
    if not isinstance(metric, dict) or "value" not in metric:
        return _number(metric), "not recorded"
    limits = metric.get("interval", [metric.get("low"), metric.get("high")])
    has_interval = isinstance(limits, list) and len(limits) == 2 and None not in limits
    return _number(metric["value"]), (
        f"{_number(limits[0])} to {_number(limits[1])}" if has_interval else "not recorded"
    )


def _use(manifest: Mapping[str, Any]) -> str:
    width = manifest.get("n_features_in")
    shape = f"(n, {width})" if isinstance(width, int) else "(n, d)"
    inputs = "X is a list of n inputs" if "encoder" in manifest else f"X has shape {shape}"
    return f"""```python
from mildroute.persistence.artifact import load_router

router = load_router("path/to/this/folder")
choice = router.predict(X)  # {inputs}; choice holds indices of experts
names = router.experts_[choice]
```"""


def _licence(manifest: Mapping[str, Any]) -> str:
    if manifest.get("licence"):
        return f"Licence: {escape(manifest['licence'])}."
    return (
        "No licence was recorded: ask the router's author, and respect the licence of the training"
        " data; mildroute itself is Apache-2.0."
    )


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape(value)


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def _facts_table(facts: Mapping[str, Any]) -> str:
    return (
        _table(["Fact", "Value"], [[escape(name), _number(value)] for name, value in facts.items()])
        if facts
        else ""
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
