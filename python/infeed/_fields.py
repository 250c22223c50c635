"""Options of the fields of a source: their name in the data, kind, type and shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from infeed import _check, _code

Kind = Literal["image", "mask", "tensor", "bytes", "text", "ragged"]


@dataclass(frozen=True, repr=False)
class Field:
    """Options of one field of a source.

    Options that are not set are found from the first records.

    Args:
        source: Name in the data: an extension, a feature or a column. None: the name of
            the field.
        kind: ``"image"``, ``"mask"``, ``"tensor"``, ``"bytes"``, ``"text"`` or
            ``"ragged"`` (lists of numbers).
        dtype: Type of the elements of a tensor, a list, or stored pixels, such as
            ``"int64"``.
        shape: Shape of a record's tensor or pixels; ``()`` is a scalar.
    """

    source: str | None = None
    kind: Kind | None = None
    dtype: str | None = None
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.source is not None:
            _check.field(self, "source", self.source)
        if self.kind is not None:
            _check.choice(self, "kind", self.kind, get_args(Kind))
        if self.dtype is not None:
            # NumPy types and dtypes are accepted too.
            name = getattr(self.dtype, "__name__", None) or str(self.dtype)
            object.__setattr__(self, "dtype", name)
        shape = tuple(_check.integer(self, "shape", axis) for axis in self.shape)
        object.__setattr__(self, "shape", shape)

    def __repr__(self) -> str:
        return _code.call("sources.Field", self)

    def _code(self) -> str:
        plain = self == Field(self.source)
        return _code.value(self.source) if plain else repr(self)

    def _to_dict(self, name: str) -> dict[str, Any]:
        table: dict[str, Any] = {"name": name}
        if self.source is not None:
            table["from"] = self.source
        if self.kind is not None:
            table["kind"] = self.kind
        if self.dtype is not None:
            table["dtype"] = self.dtype
        if self.shape:
            table["shape"] = list(self.shape)
        return table

    @classmethod
    def _from_tables(cls, tables: Sequence[dict[str, Any]]) -> dict[str, "Field"]:
        return {
            table["name"]: cls(
                table.get("from"),
                table.get("kind"),
                table.get("dtype"),
                tuple(table.get("shape", ())),
            )
            for table in tables
        }


# Name in the data, or options, by field name; or field names alone.
Fields = Mapping[str, str | Field | None] | Sequence[str]


def fields_from(owner: object, given: Fields | None) -> tuple[tuple[str, Field], ...]:
    """Returns `given` with a `Field` for every name."""
    given = {} if given is None else given
    if isinstance(given, list | tuple):
        given = dict.fromkeys(given)
    if not isinstance(given, Mapping):
        expected = 'names, or a mapping such as {"image": "jpg"}'
        raise _check.error(owner, "fields", expected, given)
    named = []
    for name, value in given.items():
        _check.field(owner, "fields", name)
        if value is None or isinstance(value, str):
            value = Field(value)
        if not isinstance(value, Field):
            raise _check.error(owner, f"fields[{name!r}]", "a name or a Field", value)
        named.append((name, value))
    return tuple(named)


def fields_code(fields: tuple[tuple[str, Field], ...]) -> str:
    """Formats the argument of a call; empty without fields."""
    pairs = (f"{_code.value(name)}: {field._code()}" for name, field in fields)
    return f", fields={{{', '.join(pairs)}}}" if fields else ""


def links_code(follow_links: bool) -> str:
    """Formats the argument of a call; empty for the default."""
    return "" if follow_links else ", follow_links=False"


def links_table(follow_links: bool) -> dict[str, Any]:
    """Returns the entry of a description; empty for the default."""
    return {} if follow_links else {"follow_links": False}


def fields_table(fields: tuple[tuple[str, Field], ...]) -> dict[str, Any]:
    """Returns the entry of a description; empty without fields."""
    tables = [field._to_dict(name) for name, field in fields]
    return {"fields": tables} if tables else {}
