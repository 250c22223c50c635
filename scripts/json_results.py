"""The tables of docs/reference/json.md: keys of the results that infeed prints as JSON.

The schemas of commands come from `infeed schema`, those of results in Python from their
dataclasses.
"""

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any

from infeed.experiments.result import Result
from infeed.watching.figures import Figures

Schema = dict[str, Any]

# The type that the section of another result describes.
RESULTS = {"Explanation": "infeed explain --json"}

PLAIN = ("object", "string", "integer", "number", "boolean")
OR_NULL = " or null"
# Maximum number of values that are listed in the table of a key.
INLINE = 6

SHARED = "Objects of several results"


def python_schemas(types: Mapping[str, Schema]) -> dict[str, Schema]:
    """Returns the schemas of results that Python makes, by heading.

    Args:
        types: Schemas of the types that the engine makes.
    """
    number, text = {"type": "number"}, {"type": "string"}
    version = {
        "type": "integer",
        "description": "Version of the format: another number if a key was removed or "
        "has another meaning. A new key does not change it.",
    }
    infeed = text | {"description": "Version of infeed."}
    shares = {
        "waiting": number
        | {"description": "Share of the loop's time in which it waited for data."},
        "interference": number
        | {"description": "Share in which the loader slowed the step down."},
        "step": number | {"description": "Share of the step itself."},
    }
    rates = {
        "unit": text | {"description": "`samples/s` or `batches/s`."},
        "loop": number | {"description": "Rate of the loop."},
        "step": number
        | {"description": "Rate of the step if it never waited for batches."},
    }
    defs = {name: types[name] for name in ("Verdict", "Limit")}
    watch = dataclass_schema(Figures, defs)
    experiment_defs: dict[str, Schema] = {}
    experiment = dataclass_schema(Result, experiment_defs)
    return {
        "WatchReport.to_dict": closed(
            {
                "version": version,
                "infeed": infeed,
                "verdict": {
                    "$ref": "#/$defs/Verdict",
                    "description": "The limit with its evidence.",
                },
                "shares": closed(shares)
                | {"description": "Parts of the loop's time, which sum to 1."},
                "rates": closed(rates) | {"description": "Rates of loop and step."},
                **watch["properties"],
            }
        )
        | {"description": "Result of `infeed.watch`.", "$defs": defs},
        "infeed experiment --json": closed(
            {"version": version, "infeed": infeed, **experiment["properties"]}
        )
        | {
            "description": "Result of `infeed experiment`.",
            "$defs": experiment_defs,
        },
    }


def closed(properties: Mapping[str, Schema]) -> Schema:
    """Returns the schema of an object that has all of these keys."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
    }


def dataclass_schema(kind: type, defs: dict[str, Schema]) -> Schema:
    """Returns the schema of a dataclass, and adds those of its fields to `defs`."""
    hints = typing.get_type_hints(kind)
    meanings = attributes(kind)
    properties = {
        field.name: type_schema(hints[field.name], defs)
        | {"description": meanings[field.name]}
        for field in dataclasses.fields(kind)
    }
    return closed(properties) | {"description": (kind.__doc__ or "").split("\n")[0]}


def type_schema(hint: Any, defs: dict[str, Schema]) -> Schema:
    """Returns the schema of a type."""
    plain = {bool: "boolean", int: "integer", float: "number", str: "string"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in plain:
        return {"type": plain[hint]}
    if origin is UnionType or origin is typing.Union:
        parts = [type_schema(part, defs) for part in arguments if part is not NoneType]
        return {"anyOf": [*parts, {"type": "null"}]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (list, tuple):
        return {"type": "array", "items": type_schema(arguments[0], defs)}
    if origin is dict or hint is dict:
        return {"type": "object"}
    defs[hint.__name__] = dataclass_schema(hint, defs)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def attributes(kind: type) -> dict[str, str]:
    """Returns the meaning of each attribute, from the docstring."""
    _, _, listed = (kind.__doc__ or "").partition("Attributes:\n")
    entries = re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", listed, re.M)
    return {name: " ".join(text.split()) for name, text in entries}


def tables(results: Mapping[str, Schema]) -> str:
    """Returns a table for each result, and for each type that several of them use."""
    types: dict[str, Schema] = {}
    for result in results.values():
        for name, schema in result.get("$defs", {}).items():
            if keys(types.setdefault(name, schema)) != keys(schema):
                raise ValueError(f"two types {name} have different keys")
    uses: dict[str, set[tuple[str, str]]] = {}
    for owner, schema in [*results.items(), *types.items()]:
        for key, part in schema.get("properties", {}).items():
            for name in references(part):
                uses.setdefault(name, set()).add((owner, key))
    shared = {
        name
        for name, places in uses.items()
        if len(places) > 1
        and name not in RESULTS
        and not 0 < len(choices(types[name])) <= INLINE
    }
    page = Page(types, shared)
    headings: dict[str, list[str]] = {}
    for name, schema in results.items():
        headings.setdefault(str(schema | {"title": ""}), []).append(name)
    parts = [
        page.section("##", " and ".join(map(heading, names)), results[names[0]])
        for names in headings.values()
    ]
    parts.append(f"## {SHARED}\n")
    parts += [page.section("###", name, types[name]) for name in sorted(shared)]
    return "\n".join(parts)


def keys(schema: Schema) -> set[str]:
    """Returns the keys of an object."""
    return set(schema.get("properties", {}))


def references(schema: Any) -> Iterator[str]:
    """Yields the names of the types that a schema refers to."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for part in schema.values():
            yield from references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from references(part)


def choices(schema: Schema) -> list[str]:
    """Returns the values of a type that lists them."""
    if "enum" in schema:
        return list(schema["enum"])
    return [part["const"] for part in schema.get("oneOf", []) if "const" in part]


class Page:
    """Writes sections about types.

    Attributes:
        types: Schemas by name.
        shared: Names of the types with a section.
    """

    def __init__(self, types: Mapping[str, Schema], shared: set[str]):
        self.types = types
        self.shared = shared

    def section(self, level: str, name: str, schema: Schema) -> str:
        """Returns a heading, the meaning, and a row for each key or value."""
        if choices(schema):
            rows = ["| value | meaning |", "|---|---|"]
            rows += [
                f"| `{part['const']}` | {text(part['description'])} |"
                for part in schema["oneOf"]
            ]
        else:
            rows = ["| key | type | meaning |", "|---|---|---|", *self.rows("", schema)]
        meaning = text(schema.get("description", ""))
        return f"{level} {heading(name)}\n\n{meaning}\n\n" + "\n".join(rows) + "\n"

    def rows(self, prefix: str, schema: Schema) -> Iterator[str]:
        """Yields a row for each key, and for the keys of objects below it."""
        required = schema.get("required", [])
        for key, part in schema["properties"].items():
            kind, inner, suffix = self.kind(part)
            # A key with an unknown value is null, or is left out.
            unknown = "Null"
            if key not in required:
                kind, unknown = f"{kind.removesuffix(OR_NULL)}, may be absent", "Absent"
            meaning = re.sub(r"\bNone\b", unknown, text(part.get("description", "")))
            yield f"| `{prefix}{key}` | {kind} | {meaning} |"
            if inner is not None:
                yield from self.rows(f"{prefix}{key}{suffix}.", inner)

    def kind(self, schema: Schema) -> tuple[str, Schema | None, str]:
        """Returns the name of a type, and the object in it with its place."""
        if "anyOf" in schema:
            part = next(part for part in schema["anyOf"] if part != {"type": "null"})
            kind, inner, suffix = self.kind(part)
            return kind + OR_NULL, inner, suffix
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name in RESULTS:
                return link(RESULTS[name]), None, ""
            if name in self.shared:
                return link(name), None, ""
            return self.kind(self.types[name])
        if values := choices(schema):
            return "one of " + ", ".join(f"`{value}`" for value in values), None, ""
        kinds = schema.get("type", "any value")
        if isinstance(kinds, list):
            kind, inner, suffix = self.kind(schema | {"type": kinds[0]})
            return kind + OR_NULL, inner, suffix
        if kinds == "array":
            return self.array(schema)
        if isinstance(schema.get("additionalProperties"), dict):
            kind, inner, suffix = self.kind(schema["additionalProperties"])
            return f"object: {kind} by name", inner, suffix
        return kinds, schema if "properties" in schema else None, ""

    def array(self, schema: Schema) -> tuple[str, Schema | None, str]:
        """Returns the name of a type of lists, and the object in them."""
        if "prefixItems" in schema:
            kinds = [self.kind(part)[0] for part in schema["prefixItems"]]
            return f"list of {' and '.join(kinds)}", None, ""
        kind, inner, suffix = self.kind(schema["items"])
        if kind in PLAIN:
            kind += "s"
        if "minItems" in schema:
            kind = f"{schema['minItems']} {kind}"
        return f"list of {kind}", inner, f"[]{suffix}"


def heading(name: str) -> str:
    """Returns the heading for a result or a type."""
    return name.removesuffix(" --json").removesuffix("Json")


def link(name: str) -> str:
    """Returns a link to the section about a result or a type."""
    title = heading(name)
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def text(description: str) -> str:
    """Returns a description without line breaks and links of Rust."""
    joined = " ".join(description.split()).replace("|", "\\|")
    return re.sub(r"\[(`[^`]+`)\](?:\([^)]*\))?", r"\1", joined)


def all_schemas(commands: Mapping[str, Schema]) -> dict[str, Schema]:
    """Returns the schemas of all results by heading, from those of commands."""
    found = {schema["title"]: schema for schema in commands.values()}
    return found | python_schemas(found["infeed explain --json"]["$defs"])
