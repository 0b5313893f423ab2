"""A pydantic rule that accepts a single value in place of a section, without importing pydantic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ShortForm:
    """A rule that expands one value into a section's settings, such as ``store: redis://host``.

    Args:
        type: Type of the value, for the JSON Schema.
        settings: Names of the settings that get the value, such as ``url``.
    """

    type: Any
    settings: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return a schema that turns the value into the section before it is checked."""
        from pydantic_core import core_schema

        section = handler(source)
        return core_schema.no_info_before_validator_function(
            self._expand,
            section,
            json_schema_input_schema=core_schema.union_schema(
                [handler.generate_schema(self.type), section]
            ),
        )

    def _expand(self, value: Any) -> Any:
        is_short = isinstance(value, (str, int, float, bool))
        return dict.fromkeys(self.settings, value) if is_short else value
