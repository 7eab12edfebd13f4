"""Documents as dataclasses, made from the JSON schemas that stand beside this file."""

import dataclasses
import functools
import json
import keyword
import pathlib

_SCHEMAS = pathlib.Path(__file__).parent / "schemas"
# What a table is made of: the first of these lists that a document has.
_TABLES = ("rows", "intervals", "runs", "points", "connections", "hops", "pairs", "members")


class Document:
    """An object of a document."""

    def to_dict(self):
        """As JSON has it, less the keys that are absent."""
        return _plain(self)

    def to_pandas(self, key=None):
        """The list `key` as a DataFrame, a row for each entry; a nested key has a dot in its column.

        Without `key` it is the document's main list, or its two directions. Needs pandas.
        """
        import pandas

        if key is None:
            key = next((name for name in _TABLES if getattr(self, name, None)), None)
        if key is not None:
            rows = [_plain(row) for row in getattr(self, key)]
        else:
            ways = [way for way in ("up", "down") if getattr(self, way, None) is not None]
            rows = [{"direction": way, **_plain(getattr(self, way))} for way in ways]
        if not rows:
            raise ValueError("there is no list to make a table of: name one, to_pandas(key)")
        return pandas.json_normalize(rows)


def _plain(value):
    if isinstance(value, Document):
        fields = ((field.metadata["key"], getattr(value, field.name)) for field in dataclasses.fields(value))
        return {key: _plain(item) for key, item in fields if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class _Schema:
    def __init__(self, name):
        self.root = json.loads((_SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
        self.types = {}

    def type_of(self, name, node):
        """The dataclass of an object; of one that may be several, with the keys of all."""
        if name not in self.types:
            fields = [
                (key + "_" * keyword.iskeyword(key), object, dataclasses.field(default=None, metadata={"key": key}))
                for key in self.properties(node)
            ]
            made = dataclasses.make_dataclass(name, fields, bases=(Document,))
            made.__doc__ = node.get("description", name)
            made.__module__ = __name__
            self.types[name] = made
        return self.types[name]

    def properties(self, node):
        """Of an object, whichever of its choices it is."""
        parts = dict(node.get("properties", {}))
        if "$ref" in node:
            parts.update(self.properties(self.root["$defs"][node["$ref"].rsplit("/", 1)[1]]))
        for choice in _choices(node):
            parts.update(self.properties(choice))
        return parts

    def resolved(self, node):
        """What a reference names, or the choice beside null; its name."""
        name = None
        while True:
            choices = [choice for choice in _choices(node) if choice.get("type") != "null"]
            if "$ref" in node:
                name = node["$ref"].rsplit("/", 1)[1]
                node = self.root["$defs"][name]
            elif len(choices) == 1 and "properties" not in node:
                node = choices[0]
            else:
                return name, node

    def read(self, value, node, name=None):
        """A value of JSON as the schema has it."""
        found, node = self.resolved(node if isinstance(node, dict) else {})
        name = found or name
        if isinstance(value, list):
            parts = node.get("prefixItems", [])
            parts = parts + [node.get("items", {})] * (len(value) - len(parts))
            return [self.read(item, part) for item, part in zip(value, parts)]
        if not isinstance(value, dict):
            return value
        parts = self.properties(node)
        if name is None or not parts:
            rest = node.get("additionalProperties")
            return {key: self.read(item, parts.get(key, rest)) for key, item in value.items()}
        made = self.type_of(name, node)
        given = [field for field in dataclasses.fields(made) if field.metadata["key"] in value]
        read = {f.name: self.read(value[f.metadata["key"]], parts[f.metadata["key"]]) for f in given}
        return made(**read)


def _choices(node):
    return node.get("anyOf") or node.get("oneOf") or node.get("allOf") or []


@functools.lru_cache(maxsize=None)
def _schema(name):
    return _Schema(name)


def document(value):
    """The dataclass of a document that was read as JSON.

    Raises ValueError where it is none of this version's.
    """
    kind = value.get("schema") if isinstance(value, dict) else None
    name = str(kind).rpartition("/")[0].rpartition(".")[2]
    if not (_SCHEMAS / f"{name}.json").is_file():
        raise ValueError(f"no document of this linerate: its schema is {kind!r}")
    schema = _schema(name)
    return schema.read(value, schema.root, schema.root["title"])
