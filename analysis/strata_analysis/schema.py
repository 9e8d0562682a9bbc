"""The schema of results files, read from results-schema/schema-1.toml (or its copy in an installed package)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Schema:
    """Names and types of everything in an attempt's file. Columns include each table's dimension."""

    name: str
    version: str
    attributes: dict[str, str]  # name -> type
    tables: dict[str, dict[str, str]]  # group -> column -> type
    scalars: dict[str, str]  # of /summary
    enums: dict[str, dict[str, int]]
    defaults: dict[str, object]  # attribute -> its value in a file that is older than the attribute

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def schema_path() -> Path:
    installed = Path(__file__).parent / "schema-1.toml"
    return installed if installed.exists() else Path(__file__).parents[2] / "results-schema" / "schema-1.toml"


@cache
def schema() -> Schema:
    content = tomllib.loads(schema_path().read_text(encoding="utf-8"))
    return Schema(
        name=content["schema"]["name"],
        version=content["schema"]["version"],
        attributes={entry["name"]: entry["type"] for entry in content["attribute"]},
        tables={
            table["group"]: {column["name"]: column["type"] for column in table["column"]} for table in content["table"]
        },
        scalars={entry["name"]: entry["type"] for entry in content["scalar"]},
        enums={entry["name"]: entry["values"] for entry in content["enum"]},
        defaults={entry["name"]: entry["default"] for entry in content["attribute"] if "default" in entry},
    )


def dtype_name(type_name: str) -> str:
    """Of a column of that type in numpy."""
    return {"float64": "float64", "int64": "int64", "flag": "int64"}.get(type_name, "object")


def missing_value(type_name: str, name: str = ""):
    """What stands for a value that a file of an older minor version does not have: its default, else by its type."""
    if name in schema().defaults:
        return schema().defaults[name]
    if type_name == "float64":
        return float("nan")
    if type_name in ("int64", "flag"):
        return 0
    if type_name == "texts":
        return []
    enum = schema().enums.get(type_name)
    return min(enum, key=enum.get) if enum else ""
