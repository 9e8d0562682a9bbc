"""A file that HDF5 writes through Python holds what it would have written itself; a full disk is one error."""

import errno
import io
import random

import h5py
import numpy as np
import pytest
from strata_analysis.hdf5_output import LARGE_BYTES, PAGE_BYTES, Hdf5Output


def test_pieces_of_all_sizes_stand_where_they_were_written(tmp_path):
    chance = random.Random(1)
    expected = io.BytesIO()
    with Hdf5Output(tmp_path / "file") as output:
        end = 0
        for _ in range(200):
            begin = chance.choice([end, end + chance.randrange(2 * PAGE_BYTES), chance.randrange(end + 1)])
            data = chance.randbytes(chance.choice([1, 100, PAGE_BYTES, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES]))
            for file in (output, expected):
                file.seek(begin)
                assert file.write(memoryview(data)) == len(data)
            end = max(end, begin + len(data))
            output.seek(begin)
            assert output.read(len(data)) == data
        assert output.seek(0, io.SEEK_END) == end
    assert (tmp_path / "file").read_bytes() == expected.getvalue()


class FullDisk(io.FileIO):
    """Takes so many bytes and no more."""

    room = 0

    def write(self, data):
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = super().write(memoryview(data)[: self.room])
        self.room -= count
        return count


@pytest.mark.parametrize("room", [0, 1000, 10 * LARGE_BYTES + 1])
def test_a_full_disk_is_one_error_when_hdf5_has_closed(tmp_path, monkeypatch, capfd, room):
    values = np.arange(20 * LARGE_BYTES // 8)
    monkeypatch.setattr(FullDisk, "room", room)
    output = Hdf5Output(tmp_path / "file.h5")
    output._file.close()
    output._file = FullDisk(tmp_path / "file.h5", "w+b")
    with pytest.raises(OSError, match="No space left on device"), output, h5py.File(output, "w") as file:
        for name in ("first", "second"):
            file.create_dataset(name, data=values)
        file.create_dataset("text", data=["a", "b"], dtype=h5py.string_dtype())
    assert capfd.readouterr().err == ""
