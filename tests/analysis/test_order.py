"""Orders of steps, drawn: boxes where a hand count puts them."""

import pytest
from drawn import artists
from matplotlib import pyplot as plt
from strata_analysis.figures.schedule import Box
from strata_analysis.order import OrderError, draw, parse, timed, write
from strata_analysis.picture import PictureError

HEAD = "order micro_batches=2 sub_batches=1 steps_per_body=1\n"
SEGMENTS = """segment 0 stage=0 operators=0..1 parameters=0
segment 1 stage=0 operators=2..3 parameters=1 recomputed
segment 2 stage=1 operators=4..5 parameters=2
"""
FIRST = """forward 0..1 micro_batch=0
forward 0..1 micro_batch=1
recompute 1 micro_batch=0
backward 1..0 micro_batch=0
recompute 1 micro_batch=1
backward 1..0 micro_batch=1
update parameters=0..1
"""
SECOND = """forward 2 micro_batch=0
backward 2 micro_batch=0
forward 2 micro_batch=1
backward 2 micro_batch=1
update parameters=2
"""
BOTH = f"# ranks 0..1 of 4\n{HEAD}{SEGMENTS}{FIRST}# ranks 2..3 of 4\n{HEAD}{SEGMENTS}{SECOND}"


def boxes(row):
    return [(box.name, box.micro_batch, box.begin, box.end) for box in row]


def test_items_begin_as_early_as_their_rank_and_other_ranks_allow():
    (first, _), (second, no_collectives) = timed(parse(BOTH))
    assert no_collectives == []
    # Half of stage 0 is recomputed, for half a unit, before the gradients come.
    assert boxes(first) == [
        ("forward", 0, 0.0, 1.0),
        ("forward", 1, 1.0, 2.0),
        ("recompute", 0, 2.0, 2.5),
        ("backward", 0, 4.0, 6.0),
        ("recompute", 1, 6.0, 6.5),
        ("backward", 1, 7.0, 9.0),
        ("update", 0, 9.0, 9.25),
    ]
    assert boxes(second) == [
        ("forward", 0, 1.0, 2.0),
        ("backward", 0, 2.0, 4.0),
        ("forward", 1, 4.0, 5.0),
        ("backward", 1, 5.0, 7.0),
        ("update", 0, 7.0, 7.25),
    ]


IN_TURN = """order micro_batches=1 sub_batches=2 steps_per_body=1
segment 0 stage=0 operators=0..1 parameters=0 recomputed communicates=forward,backward
segment 1 stage=0 operators=2..3 parameters=1 recomputed communicates=forward,backward
forward 0 micro_batch=0
forward 0 micro_batch=0 sub_batch=1
forward 1 micro_batch=0
forward 1 micro_batch=0 sub_batch=1
"""
CROSSED = """recompute 1 micro_batch=0
backward 1 micro_batch=0
recompute 1 micro_batch=0 sub_batch=1
backward 1 micro_batch=0 sub_batch=1
recompute 0 micro_batch=0
backward 0 micro_batch=0
recompute 0 micro_batch=0 sub_batch=1
backward 0 micro_batch=0 sub_batch=1
"""
WITH_BARRIER = """recompute 1 micro_batch=0
recompute 1 micro_batch=0 sub_batch=1
backward 1 micro_batch=0 barrier
backward 1 micro_batch=0 sub_batch=1
recompute 0 micro_batch=0
recompute 0 micro_batch=0 sub_batch=1
backward 0 micro_batch=0 barrier
backward 0 micro_batch=0 sub_batch=1
"""


def test_collectives_run_under_the_other_sub_batch():
    ((computed, collectives),) = timed(parse(IN_TURN + CROSSED))
    # A sub-batch's forward of one of two segments, and each collective, takes a quarter.
    assert boxes(computed)[:4] == [("forward", 0, 0.0, 0.25), ("forward", 1, 0.25, 0.5), ("forward", 0, 0.5, 0.75),
                                   ("forward", 1, 0.75, 1.0)]  # fmt: skip
    assert boxes(collectives)[:4] == [("communication", 0, 0.25, 0.5), ("communication", 1, 0.5, 0.75),
                                      ("communication", 0, 0.75, 1.0), ("communication", 1, 1.0, 1.25)]  # fmt: skip
    assert computed[-1].end == 1.0 + 4 * 0.75  # backward of nothing waits
    ((computed, _),) = timed(parse(IN_TURN + WITH_BARRIER))
    assert computed[4:6] == [Box("recompute", 0, 1.0, 1.25), Box("recompute", 1, 1.25, 1.5)]
    assert computed[6].begin == 1.5  # the last sum of forward has come by 1.25


RING = """order micro_batches=2 sub_batches=1 steps_per_body=1
segment 0 stage=0 operators=0..1 parameters=0
segment 1 stage=1 operators=2..3 parameters=1..2
"""
RING_FIRST = """forward 0 micro_batch=0 version=1
forward 1 micro_batch=0
backward 1 micro_batch=0
backward 0 micro_batch=0 version=1
"""
RING_SECOND = """forward 0..1 micro_batch=1
backward 1 micro_batch=1
update parameters=1..2
backward 0 micro_batch=1
update parameters=0
"""


def test_steps_that_overlap_wait_for_the_versions_and_sums_that_they_read():
    first, second = (
        row for row, _ in timed(parse(f"# ranks 0 of 2\n{RING}{RING_FIRST}# ranks 1 of 2\n{RING}{RING_SECOND}"))
    )
    # The second rank adds to the sums of the first, and updates behind each: half a quarter long.
    assert boxes(second)[:5] == [
        ("forward", 1, 0.0, 2.0),
        ("backward", 1, 4.0, 6.0),
        ("update", 0, 6.0, 6.125),
        ("backward", 1, 6.125, 8.125),
        ("update", 0, 8.125, 8.25),
    ]
    # The first rank reads the second stage of its own step, which is updated when it comes to it.
    assert boxes(first)[:4] == [
        ("forward", 0, 0.0, 2.0),
        ("backward", 0, 2.0, 6.0),
        ("forward", 0, 6.0, 8.0),
        ("backward", 0, 8.0, 12.0),
    ]
    assert [box.step for box in first[:4]] == [0, 0, 1, 1]
    assert max(box.step for box in second) == 3


# Two replicas of stage 0, a micro-batch of every step each: the second one has the whole sum, the first one gets it.
PYRAMID = """order micro_batches=2 sub_batches=1 steps_per_body=1
segment 0 stage=0 operators=0 parameters=0
segment 1 stage=1 operators=1 parameters=1
"""
REPLICA_0 = """forward 0 micro_batch=0 version=1
backward 0 micro_batch=0 version=1
update parameters=0 step=-1
"""
REPLICA_1 = """forward 0 micro_batch=1
backward 0 micro_batch=1
update parameters=0
"""
STAGE_1 = """forward 1 micro_batch=0
backward 1 micro_batch=0
forward 1 micro_batch=1
backward 1 micro_batch=1
update parameters=1
"""


def test_a_replica_that_updates_itself_waits_for_no_other_ones_update():
    ranks = [f"# ranks {rank} of 3\n{PYRAMID}{text}" for rank, text in enumerate((REPLICA_0, REPLICA_1, STAGE_1))]
    first, second, last = (row for row, _ in timed(parse("".join(ranks))))
    assert boxes(last)[:6] == [
        ("forward", 0, 1.0, 2.0),
        ("backward", 0, 2.0, 4.0),
        ("forward", 1, 4.0, 5.0),
        ("backward", 1, 5.0, 7.0),
        ("update", 0, 7.0, 7.25),
        ("forward", 0, 7.25, 8.25),
    ]
    # The first replica has done micro-batch 0 of the next step when it updates.
    assert boxes(first)[:5] == [
        ("forward", 0, 0.0, 1.0),
        ("backward", 0, 4.0, 6.0),
        ("forward", 0, 6.0, 7.0),
        ("backward", 0, 10.25, 12.25),
        ("update", 0, 12.25, 12.5),
    ]
    # The second one goes on behind its own update, which comes long before.
    assert boxes(second)[:4] == [
        ("forward", 1, 0.0, 1.0),
        ("backward", 1, 7.0, 9.0),
        ("update", 0, 9.0, 9.25),
        ("forward", 1, 9.25, 10.25),
    ]


def test_what_a_step_leaves_to_the_next_repetition_is_drawn_behind_it():
    text = """# ranks 0 of 1
order micro_batches=1 sub_batches=1 steps_per_body=1
segment 0 stage=0 operators=0 parameters=0
backward 0 micro_batch=0 step=-1 version=1
update parameters=0 step=-1
forward 0 micro_batch=0 version=1
"""
    ((row, _),) = timed(parse(text))
    assert [(box.name, box.step) for box in row[:4]] == [("forward", 0), ("backward", 0), ("update", 0), ("forward", 1)]
    assert [(box.name, box.step) for box in row[-2:]] == [("backward", 3), ("update", 3)]
    figure = draw(parse(text), "late")
    assert set(artists({"": figure}, "forward")) == {"0/0", "0/0/1", "0/0/2", "0/0/3"}
    assert "paler" in figure.axes[0].get_xlabel()
    plt.close(figure)


def test_a_picture_has_a_row_of_sums():
    figure = draw(parse("# ranks 0..3 of 4\n" + IN_TURN + CROSSED), "sub-batches")
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0..3", "0..3, sums"]
    assert set(artists({"": figure}, "communication")) == {"1/0", "1/1"}
    plt.close(figure)


INTERLEAVED = """order micro_batches=2 sub_batches=1 steps_per_body=1
segment 0 stage=0 operators=0 parameters=0
segment 1 stage=1 operators=1 parameters=1
segment 2 stage=2 operators=2 parameters=2
segment 3 stage=3 operators=3 parameters=3
"""
ROUND = [
    "forward {0} micro_batch=0",
    "forward {0} micro_batch=1",
    "forward {1} micro_batch=0",
    "forward {1} micro_batch=1",
    "backward {1} micro_batch=0",
    "backward {1} micro_batch=1",
    "backward {0} micro_batch=0",
    "backward {0} micro_batch=1",
    "update parameters={0},{1}",
]


def test_every_other_stage_of_a_rank_is_paler():
    text = "".join(
        f"# ranks {rank} of 2\n{INTERLEAVED}" + "\n".join(ROUND).format(rank, rank + 2) + "\n" for rank in (0, 1)
    )
    (first, _), (second, _) = timed(parse(text))
    # A stage's pass takes 1 forward and 2 backward: the last stage's backwards begin at 5, behind both forwards.
    assert boxes(first)[:4] == [("forward", 0, 0, 1), ("forward", 1, 1, 2), ("forward", 0, 2, 3), ("forward", 1, 3, 4)]
    assert [(box.turn, box.begin) for box in second if box.name == "backward"] == [(1, 5), (1, 7), (0, 9), (0, 11)]
    figure = draw(parse(text), "interleaved")
    forward = artists({"": figure}, "forward")
    assert forward.keys() == {f"{row}/{m}{turn}" for row in "01" for m in "01" for turn in ("", ".1")}
    assert forward["0/0"].get_facecolor() != forward["0/0.1"].get_facecolor()
    assert "every other stage of a rank is paler" in figure.axes[0].get_xlabel()
    plt.close(figure)


def test_boxes_stand_in_their_rows():
    figure = draw(parse(BOTH), "two stages")
    drawn = artists({"": figure}, "backward")
    assert {name: (box.get_x(), box.get_width(), box.get_y()) for name, box in drawn.items()} == {
        "0/0": (4.0, 2.0, 0),
        "0/1": (7.0, 2.0, 0),
        "1/0": (2.0, 2.0, 1),
        "1/1": (5.0, 2.0, 1),
    }
    idle = artists({"": figure}, "idle")
    assert {box.get_width() for box in idle.values()} == {9.25}
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0..1", "2..3"]
    plt.close(figure)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no order"),
        (HEAD + "forward 0..1\n", "line 2: no line of an order"),
        (HEAD + SEGMENTS + "sideways 0 micro_batch=0\n", "line 5: no line of an order"),
        (HEAD.replace("body=1", "body=two"), "line 1: no line of an order"),
        (HEAD + SEGMENTS + "update parameters=0..\n", "line 5: no line of an order"),
        (HEAD + SEGMENTS + "forward 0 micro_batch=0 step=-\n", "line 5: no line of an order"),
    ],
)
def test_what_is_no_order_is_refused_with_its_line(text, message):
    with pytest.raises(OrderError, match=message):
        parse(text)


def test_ranks_that_wait_for_each_other_are_no_picture():
    with pytest.raises(OrderError, match="wait for each other"):
        timed(parse(HEAD + SEGMENTS + "backward 1..0 micro_batch=0\nforward 0..1 micro_batch=0\n"))


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_files_are_written(tmp_path, kind):
    file = tmp_path / f"order.{kind}"
    write(BOTH, file, "two stages")
    assert file.stat().st_size > 1000
    with pytest.raises(PictureError, match=r"accepted: \.png, \.svg, \.pdf"):
        write(BOTH, tmp_path / "order.txt", "")
