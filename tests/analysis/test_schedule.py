"""A step's kernels as boxes: what is merged, what is idle."""

import pandas as pd
from strata_analysis.figures.schedule import boxes


def events(*rows):
    columns = ["stream", "phase", "micro_batch", "begin_seconds", "end_seconds"]
    return pd.DataFrame(rows, columns=columns)


def test_kernels_of_one_pass_are_one_box_unless_they_wait():
    row = boxes(
        events(
            (0, "forward", 0, 0.000, 0.010),
            (0, "forward", 0, 0.0101, 0.020),  # a tenth of a millisecond later: the same box
            (1, "forward", 0, 0.000, 0.100),  # a message
            (0, "metrics", 0, 0.020, 0.021),
            (0, "forward", 1, 0.021, 0.030),
            (0, "backward", 0, 0.050, 0.060),
            (0, "backward", 0, 0.070, 0.090),  # waited for its message
            (0, "reduce", 0, 0.090, 0.091),
            (0, "update", 0, 0.095, 0.100),
        )
    )
    assert [(box.name, box.micro_batch, round(box.begin, 6), round(box.end, 6)) for box in row] == [
        ("forward", 0, 0.0, 20.0),
        ("forward", 1, 21.0, 30.0),
        ("backward", 0, 50.0, 60.0),
        ("backward", 0, 70.0, 90.0),
        ("update", 0, 95.0, 100.0),
    ]


def test_a_file_of_an_older_version_has_no_boxes():
    assert boxes(events((0, "", 0, 0.0, 1.0))) == []
