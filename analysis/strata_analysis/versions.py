"""Older results files: one converter a major version, from it to the next. Nothing older than version 1 was written."""

from __future__ import annotations

from collections.abc import Callable

from strata_analysis.errors import UserError
from strata_analysis.schema import schema

# major version -> function from the raw content of that version ({"attributes", "tables", "summary"}) to the next one's
CONVERTERS: dict[int, Callable[[dict], dict]] = {}


class UnknownVersion(UserError):  # noqa: N818 - reads as the condition it names
    """The file's major version is newer than this reader, or has no converter."""


def is_current(attributes: dict, path: str) -> bool:
    """Whether a file with these attributes needs no converter."""
    return _major(attributes, path) == schema().major


def to_current(content: dict, path: str) -> dict:
    """`content` as the schema's present major version has it. Names added by a newer minor version are kept."""
    version = content["attributes"].get("schema_version", "")
    major = _major(content["attributes"], path)
    while major < schema().major:
        if major not in CONVERTERS:
            raise UnknownVersion(f"{path}: schema_version {version} has no converter to {schema().version}")
        content = CONVERTERS[major](content)
        major += 1
    return content


def _major(attributes: dict, path: str) -> int:
    """The major version of a results file that this reader may know."""
    name = attributes.get("schema_name", "")
    if name != schema().name:
        raise UnknownVersion(f"{path}: schema_name is {name!r}, expected {schema().name!r}: not a results file")
    version = str(attributes.get("schema_version", ""))
    try:
        major = int(version.split(".")[0])
    except ValueError:
        raise UnknownVersion(f"{path}: schema_version {version!r} is not major.minor") from None
    if major > schema().major:
        raise UnknownVersion(f"{path}: schema_version {version}, but this reader knows up to {schema().version}")
    return major
