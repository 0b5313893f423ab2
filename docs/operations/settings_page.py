"""The pages of settings, and the JSON Schemas of YAML files, made from the models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from mildroute.configuration import json_schema
from mildroute.experts.kinds import (
    AnthropicKind,
    ClassifierKind,
    ExpertFileModel,
    LanguageModel,
    LiteLLMKind,
    OpenAIKind,
    PeopleKind,
    RecordedKind,
)
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.key_file import ClientSettings, KeyFile

GATEWAY = """# Settings: gateway.yaml

All settings of a gateway, with their defaults. Pass the file as `mildroute serve ROUTER \
--experts experts.yaml --settings gateway.yaml`. Settings that it does not name keep their \
defaults. An unknown name, a wrong type or a value out of range is rejected with file and line \
before a port is opened. Paths are relative to the file. The file is read once, at startup: a \
change needs a restart, unlike a new router or other client keys.

On the command line, `--keys`, `--log`, `--log-format`, `--exploration-rate`, `--admin-port` and \
`--admin-host` take precedence over `keys`, `log.folder`, `logging.format`, \
`routing.exploration.rate`, `admin_port` and `admin_host`. The address for clients can be set only \
there (`--host`, `--port`), as can traces (`--traces`). \
[Client keys](#client-keys-keysyaml) and [experts](experts.md) have their own files.

Editors that know YAML complete and check the three files with the JSON Schemas in \
`deploy/schemas/`; a first line names the schema: \
`# yaml-language-server: $schema=deploy/schemas/gateway.schema.json`."""
EXPERTS = """# Settings: experts.yaml

All settings of experts, by kind. `mildroute collect` calls every expert of the file; a gateway \
calls the language models and [uses some of their settings](../guide/serving.md\
#expert-settings-in-expertsyaml). [Collecting](../guide/collecting.md) explains them with \
examples. An unknown name, a wrong type or a value out of range is rejected with file and line \
before anything is called. Keys never stand in the file: `api_key_env` names an environment \
variable. Paths are relative to the file."""
KEYS = """## Client keys: keys.yaml

A mapping from the name of each client to these settings; `mildroute keys new` writes it."""
# The sections of the page of experts: the model of each kind, by its heading.
EXPERT_KINDS = {
    "openai": OpenAIKind,
    "anthropic": AnthropicKind,
    "litellm": LiteLLMKind,
    "classifier": ClassifierKind,
    "recorded": RecordedKind,
    "people": PeopleKind,
}
# Types that the schema cannot say in a user's words.
KINDS = {
    "sampling.judge_settings": "settings by name",
    "sampling.experts": "a list of names",
    "routing.presets": "names, each with a target",
    "routing.routes": "names, each with a target or nothing",
    "page.learning": "a path or a URL",
}
MODELS: dict[str, Any] = {
    "experts": ExpertFileModel,
    "gateway": GatewayConfig,
    "keys": KeyFile,
}


def schemas() -> dict[str, str]:
    """Return the JSON Schema of each file, by the file's name."""
    return {
        name: json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **json_schema(TypeAdapter(model)),
            },
            indent=2,
        )
        + "\n"
        for name, model in MODELS.items()
    }


def settings_page(warning: str) -> str:
    """Return the page: all defaults, then an entry for each setting.

    Args:
        warning: The sentence that says how the page is made.
    """
    schema = json_schema(TypeAdapter(GatewayConfig))
    sections = []
    others = []
    for name, node in schema["properties"].items():
        section = _section(schema, node)
        if section is None:
            others.append(_entry(name, node))
        else:
            entries = "\n\n".join(_entries(schema, name, section))
            sections.append(f"## {name}\n\n{section['description']}\n\n{entries}")
    defaults = f"## All defaults\n\nA file that changes nothing:\n\n```yaml\n{default_file()}```"
    last = "## Other settings\n\n" + "\n\n".join(others)
    keys = [KEYS, *_model_entries(ClientSettings)]
    return "\n\n".join([GATEWAY, warning, defaults, *sections, last, *keys]) + "\n"


def experts_page(warning: str) -> str:
    """Return the page: the file itself, what language models share, and each kind.

    Args:
        warning: The sentence that says how the page is made.
    """
    top = [*_model_entries(ExpertFileModel)]
    shared = _model_entries(LanguageModel)
    kinds = []
    for name, model in EXPERT_KINDS.items():
        own = _model_entries(model)
        heading = f"## kind: {name}\n\n{model.__doc__}"
        if issubclass(model, LanguageModel):
            own = [entry for entry in own if entry not in shared]
            heading += " It has the settings of [all language models](#language-models), and:"
        kinds.append("\n\n".join([heading, *own]))
    models = "## Language models\n\nSettings of the kinds `openai`, `anthropic` and `litellm`."
    return "\n\n".join([EXPERTS, warning, "## The file", *top, models, *shared, *kinds]) + "\n"


def _model_entries(model: Any) -> list[str]:
    """Return an entry for each setting of a model, except for the kind, which is in the heading."""
    schema = json_schema(TypeAdapter(model))
    entries = []
    for name, node in schema["properties"].items():
        if name != "kind":
            is_required = name in schema.get("required", ())
            entries.append(_entry(name, node, is_required=is_required))
            prompt = schema["$defs"]["PromptSettings"] if name == "prompt" else None
            entries += [] if prompt is None else _entries(schema, name, prompt)
    return entries


def default_file() -> str:
    """Return gateway.yaml with every default; settings without one are comments."""
    adapter = TypeAdapter(GatewayConfig)
    return "".join(_default_lines(adapter.dump_python(GatewayConfig(), mode="json"), ""))


def _default_lines(section: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in section.items():
        if value is None:
            yield f"{indent}# {name}:\n"
        elif isinstance(value, dict) and value:
            yield f"{indent}{name}:\n"
            yield from _default_lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {json.dumps(value)}\n"


def _section(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the section that a setting is, or ``None`` for a single value."""
    for each in [node, *node.get("anyOf", ())]:
        if "$ref" in each:
            section: Mapping[str, Any] = schema["$defs"][each["$ref"].removeprefix("#/$defs/")]
            return section
    return None


def _entries(schema: Mapping[str, Any], name: str, section: Mapping[str, Any]) -> Iterator[str]:
    """Yield an entry for each setting of a section and of its subsections."""
    for inner, node in section["properties"].items():
        full_name = f"{name}.{inner}"
        subsection = _section(schema, node)
        if subsection is None:
            yield _entry(full_name, node)
        else:
            yield f"`{full_name}`\n: {node['description']}"
            yield from _entries(schema, full_name, subsection)


def _entry(name: str, node: Mapping[str, Any], *, is_required: bool = False) -> str:
    default = node.get("default")
    shown = f"default `{json.dumps(default)}`{_in_mebibytes(default)}"
    if is_required or default in (None, "", {}) or isinstance(default, dict):
        shown = "required" if is_required else "default none"
    kind = _kind(name, node)
    return f"`{name}`\n: {kind[:1].upper()}{kind[1:]}; {shown}. {node['description']}"


def _kind(name: str, node: Mapping[str, Any]) -> str:
    """Return the type of a setting in words."""
    if name in KINDS:
        return KINDS[name]
    if name.endswith("_env"):
        return "the name of an environment variable"
    alternatives = [each for each in node.get("anyOf", [node]) if each.get("type") != "null"]
    return " or ".join(map(_type_in_words, alternatives))


def _type_in_words(value: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(map(_type_in_words, value["anyOf"]))
    if "enum" in value:
        return "one of " + ", ".join(f"`{word}`" for word in value["enum"])
    if value.get("type") in ("integer", "number"):
        return _number_in_words(value)
    if value.get("type") == "string":
        return "a path" if value.get("format") == "path" else "text"
    return {"boolean": "true or false", "array": "a list"}.get(value.get("type", ""), "a mapping")


def _number_in_words(value: Mapping[str, Any]) -> str:
    number = "a whole number" if value["type"] == "integer" else "a number"
    maximum = value.get("maximum")
    has_maximum = maximum is not None and maximum < 1e15
    if "exclusiveMinimum" in value:
        return f"{number} above 0" + (f", up to {maximum:g}" if has_maximum else "")
    if "minimum" not in value:
        return number
    return f"{number} from 0 to {maximum:g}" if has_maximum else f"{number}, 0 or more"


def _in_mebibytes(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 << 16 or value % 1024:
        return ""
    return f" ({value >> 20} MiB)" if value >= 1 << 20 else f" ({value >> 10} KiB)"
