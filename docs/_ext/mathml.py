"""Formulas as MathML, which browsers draw themselves: no script, no font, nothing from outside."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

__all__ = ["setup"]


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(
        '<div class="math-block" tabindex="0" role="group"'
        f' aria-label="formula">{convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Make ``mathml`` a renderer that ``html_math_renderer`` may name."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
