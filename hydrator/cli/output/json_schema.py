"""JSON Schemas of the ``--json`` output by command, derived from the models in ``json_models/``."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import get_original_bases

from hydrator.diagnostics.units import BySchedd, BySite, Count

from .json_models.cycle import ActionJson, OnceJson
from .json_models.facts import (
    DatasetJson,
    DatasetSourceJson,
    FindingJson,
    SiteJson,
)
from .json_models.network import NetworkJson
from .json_models.outcomes import JobAdJson, OutlookJson, ReportJson, TokenJson
from .json_models.staging import StagingCommandJson, StagingJson
from .json_models.status import StatusJson
from .json_models.why import WhyJson

JsonSchema = Mapping[str, Any]
"""A JSON Schema."""

_MODELS: Mapping[str, Any] = {
    "once": OnceJson,
    "plan": list[ActionJson],
    "status": StatusJson,
    "sites": list[SiteJson],
    "datasets": list[DatasetJson],
    "datasets --why": list[DatasetSourceJson],
    "network": NetworkJson,
    "approve": BySite[Count],
    "check": list[FindingJson],
    "why": WhyJson,
    "report": ReportJson,
    "run-anywhere": BySchedd[Count],
    "submit rapthor --dry-run": OutlookJson,
    "submit rapthor --as ad": JobAdJson,
    "token list": list[TokenJson],
    "staging list": StagingJson,
    **{f"staging {name}": StagingCommandJson for name in ("approve", "reject", "cancel", "stop", "resume")},
}
"""The model by command, with the option that changes the output, if any."""


class _ModelSchema(GenerateJsonSchema):
    """A JSON Schema generator that takes titles and the meanings of keys only from the models."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's own
        return False

    def dict_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        """Keep the title that pydantic would drop from a dictionary's values."""
        return {
            **super().dict_schema(schema),
            "additionalProperties": self.generate_inner(schema["values_schema"]),
        }

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        return _with_meanings(super().typed_dict_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        return _with_meanings(super().dataclass_schema(schema), schema["cls"])

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401 - pydantic's own
        """Return whether the output always has the key; the output has every field of a dataclass."""
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)

    def default_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        """Leave out the default, which a reader of the output does not need."""
        return self.generate_inner(schema["schema"])

    def enum_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401, ARG002 - pydantic's own
        """Describe a member of an enumeration as text, as ``hydrator why --json`` prints it."""
        return {"type": "string"}

    def int_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        """Set the minimum to 0: the output has no negative numbers."""
        return {"minimum": 0, **super().int_schema(schema)}

    def datetime_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401, ARG002 - pydantic's own
        """Describe a time as a Unix time, as ``hydrator why --json`` prints it."""
        return {"minimum": 0, "title": "Unix s", "type": "integer"}


def _with_meanings(json_schema: dict[str, Any], model: Any) -> dict[str, Any]:  # noqa: ANN401 - a class
    """Add the meaning of each key of *model*."""
    for name, meaning in _attribute_docstrings(model).items():
        json_schema["properties"][name]["description"] = meaning
    return json_schema


def _attribute_docstrings(model: Any) -> dict[str, str]:  # noqa: ANN401 - a class
    """Return the text below each attribute of *model* and of its bases."""
    texts: dict[str, str] = {}
    for base in get_original_bases(model):
        if hasattr(base, "__annotations__"):
            texts |= _attribute_docstrings(base)
    definition: Any = ast.parse(inspect.getsource(model)).body[0]
    for attribute, text in pairwise(definition.body):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                texts[name] = meaning
    return texts


def _build_schema(model: Any) -> JsonSchema:  # noqa: ANN401 - any type
    schema = TypeAdapter(model).json_schema(schema_generator=_ModelSchema)
    definitions = schema.pop("$defs", {})
    return dict(_inline(schema, definitions))


def _inline(value: Any, definitions: JsonSchema) -> Any:  # noqa: ANN401 - JSON
    """Replace each ``$ref`` by its definition; forbid keys that the model does not have."""
    if isinstance(value, list):
        return [_inline(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if name := value.get("$ref"):
        definition = definitions[name.rpartition("/")[2]]
        if definition["type"] == "string":  # leave out the Python name of an enumeration
            definition = {"type": "string"}
        return _inline({**definition, **{key: value[key] for key in value if key != "$ref"}}, definitions)
    limit = {"additionalProperties": False} if "properties" in value else {}
    return {key: _inline(item, definitions) for key, item in value.items()} | limit


SCHEMAS: Mapping[str, JsonSchema] = {name: _build_schema(model) for name, model in _MODELS.items()}


def find_schema(command: str, options: list[str]) -> JsonSchema:
    """Return the schema of *command* with ``--json`` and these other *options*.

    Raises:
        KeyError: the command prints no JSON.
    """
    special = [name for name in SCHEMAS if name.startswith(f"{command} -")]
    matching_names = (name for name in special if name.removeprefix(f"{command} ").split()[0] in options)
    return SCHEMAS[next(matching_names, command)]


def walk_keys(schema: JsonSchema, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield every key below *schema*: its path (``sites[].site``, ``trust.SITE.false``), type and meaning."""
    inner = next((part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"), schema)
    if "items" in inner:
        yield from walk_keys(inner["items"], f"{path}[]")
    elif "properties" in inner:
        for key, value in inner["properties"].items():
            suffix = "" if key in inner.get("required", ()) else ", or left out"
            key_path = f"{path}.{key}" if path else key
            yield key_path, type_text(value) + suffix, value["description"]
            yield from walk_keys(value, key_path)
    elif "additionalProperties" in inner:
        entry_path = f"{path}.{inner['title']}" if path else str(inner["title"])
        yield from walk_keys(inner["additionalProperties"], entry_path)


def type_text(schema: JsonSchema) -> str:
    """Return the type of *schema* in words, such as ``list of text``."""
    if "anyOf" in schema:
        return f"{type_text(schema['anyOf'][0])}, or null"
    if "items" in schema:
        return f"list of {type_text(schema['items'])}"
    if "properties" in schema:
        return "object"
    if "additionalProperties" in schema:
        return f"{type_text(schema['additionalProperties'])} by {schema['title']}"
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return str(schema.get("title") or words[schema["type"]] if schema else "any value")
