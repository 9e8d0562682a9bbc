"""Values of HDF5 files as Python's and numpy's own.

An attempt's file has about two hundred small objects, and sweeps have thousands of attempts: h5py's low-level interface
is used, since its high-level one takes several times as long for each object, most of it to describe the type.
"""

from __future__ import annotations

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5s, h5t

TEXT = h5py.string_dtype()


def _with_type_in_memory(dtype: np.dtype) -> tuple[np.dtype, h5t.TypeID]:
    return dtype, h5t.py_create(dtype)


_TEXT, _FLOAT64, _INT64 = map(_with_type_in_memory, (TEXT, np.dtype(np.float64), np.dtype(np.int64)))


def attributes_of(file: h5py.File) -> dict:
    """All root attributes; texts are str, lists of texts are lists."""
    names: list[bytes] = []
    h5a.iterate(file.id, names.append)
    return {name.decode(): _attribute(h5a.open(file.id, name)) for name in names}


def group_of(file: h5py.File, name: str) -> h5g.GroupID | None:
    return h5g.open(file.id, name.encode()) if name.encode() in file.id else None


def scalars_of(group: h5g.GroupID | None) -> dict:
    """All datasets of a group of scalars."""
    return {name.decode(): _values(h5d.open(group, name)).item() for name in group or ()}


def names_in(group: h5g.GroupID | None) -> list[str]:
    return [name.decode() for name in group or ()]


def column_of(group: h5g.GroupID, name: str) -> np.ndarray:
    """All values of a dataset; text as str, enums by their word."""
    return _values(h5d.open(group, name.encode()))


def dtype_of(group: h5g.GroupID, name: str) -> np.dtype:
    """The one that `column_of` has."""
    dtype = h5d.open(group, name.encode()).dtype
    return np.dtype(object) if h5py.check_enum_dtype(dtype) or h5py.check_string_dtype(dtype) else dtype


def num_rows_written(group: h5g.GroupID, name: str) -> int:
    """Rows of a column up to the first chunk that the file does not have.

    A writer that is killed in the middle of a flush may have written how long a column is before its index names the
    newest chunk; HDF5 would give zeros for those rows.
    """
    column = h5d.open(group, name.encode())
    (num_rows,) = column.shape
    if num_rows == 0:
        return 0
    creation = column.get_create_plist()
    if creation.get_layout() != h5d.CHUNKED:
        return num_rows
    (rows_per_chunk,) = creation.get_chunk()
    if column.get_num_chunks() == -(-num_rows // rows_per_chunk):
        return num_rows
    for first in range(0, num_rows, rows_per_chunk):
        if column.get_chunk_info_by_coord((first,)).byte_offset is None:
            return first
    return num_rows


def _attribute(attribute: h5a.AttrID):
    space = attribute.get_space()
    if space.get_simple_extent_type() == h5s.NULL:
        return []
    dtype, in_memory = _in_memory(attribute.get_type())
    values = np.empty(space.get_simple_extent_dims(), dtype)
    attribute.read(values, in_memory)
    if values.ndim:
        return [_text(value) for value in values]
    value = values.item()
    return _text(value) if isinstance(value, bytes) else value


def _values(dataset: h5d.DatasetID) -> np.ndarray:
    stored = dataset.get_type()
    dtype, in_memory = _in_memory(stored)
    values = np.empty(dataset.shape, dtype)
    dataset.read(h5s.ALL, h5s.ALL, values, in_memory)
    if dtype.hasobject or dtype.kind == "S":
        return _words(values, {value: _text(value) for value in set(values.ravel().tolist())})
    if numbers := h5py.check_enum_dtype(dtype):
        return _words(values, {number: word for word, number in numbers.items()})
    return values


def _words(values: np.ndarray, word_of: dict) -> np.ndarray:
    """Many rows share few words: they share the objects, too."""
    words = np.empty(values.size, dtype=object)
    words[:] = [word_of[value] for value in values.ravel().tolist()]
    return words.reshape(values.shape)


def _in_memory(stored: h5t.TypeID) -> tuple[np.dtype, h5t.TypeID | None]:
    """The frequent types without h5py's description of them."""
    if stored.equal(h5t.IEEE_F64LE):
        return _FLOAT64
    if stored.equal(h5t.STD_I64LE):
        return _INT64
    if stored.get_class() == h5t.STRING and stored.is_variable_str():
        return _TEXT
    return stored.dtype, None


def _text(value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
