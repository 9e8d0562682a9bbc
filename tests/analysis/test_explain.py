"""A plan's reasons in words and as a page: what the plan's text says, and places where its numbers put them."""

import re

import pytest
from drawn import artists
from matplotlib import pyplot as plt
from strata_analysis.explain import ExplainError, draw, parse, to_text, write_page

PLAN = """strategy = "auto"
seed = 1
device_capacity_bytes = 2147483648
mesh = { nodes = 2, ranks_per_node = 4, axes = { stage = 1, data = 8 }, placement = "block" }
batch = { global = 64 }

[why]
predicted_seconds = 0.25
predicted_peak_bytes = 1610612736
binding = "data 8; of 40 plans 30 were simulated"
runner_up = "data 4 x stage 2: 0.3 s, 1.25 GiB"
frontier = [
  "0.25 s, 1.50 GiB: data 8",
  "0.3 s, 1.25 GiB: data 4 x stage 2",
  "0.5 s, 0.50 GiB: p 8x1, g 8x1, os 8x1; recompute <block>",
]
decisions = ["stages: next data 4 x stage 2: 0.3 s, 1.25 GiB, 1.2 times as long; 1 others fit, 0 do not"]
singles = [
  "ddp: a rank needs 4.000 GiB of 2.000 GiB (4294967296 of 2147483648 bytes)",
  "zero1: 0.75 s, 1.75 GiB, 3 times as long",
]
ablation = ["states: 0.5 s, 1.00 GiB, 2 times as long: data 2 x stage 4", "slices: nothing fits into a device memory"]
"""


def place_of(marker):
    return marker.get_xdata()[0], marker.get_ydata()[0]


def test_every_reason_is_told_in_words():
    text = to_text(parse(PLAN))
    assert text.splitlines()[:2] == [
        "auto on 2 nodes x 4 ranks, 64 samples a step",
        "predicted: 0.25 s a step, 1.50 GiB of 2.00 GiB on the fullest rank",
    ]
    for words in ("of 40 plans 30 were simulated", "a rank needs 4.000 GiB of 2.000 GiB", "3 times as long"):
        assert words in text
    assert (
        "  states  0.5 s, 1.00 GiB, 2 times as long: data 2 x stage 4\n  slices  nothing fits into a device memory\n"
        in text
    )
    assert "  0.5 s, 0.50 GiB   p 8x1, g 8x1, os 8x1; recompute <block>" in text
    assert max(map(len, text.splitlines())) <= 110


def test_plans_stand_at_their_memory_and_time():
    figure = draw(parse(PLAN))
    plans = artists({"page": figure}, "plan")
    assert list(plans["frontier"].get_xdata()) == [0.5, 1.25, 1.5]
    assert list(plans["frontier"].get_ydata()) == [0.5, 0.3, 0.25]
    assert place_of(plans["chosen"]) == (1.5, 0.25)
    assert plans["capacity"].get_xdata()[0] == 2.0
    singles = artists({"page": figure}, "single")
    assert {mode: place_of(marker) for mode, marker in singles.items()} == {"zero1": (1.75, 0.75)}
    plt.close(figure)


def test_the_page_has_all_of_it_and_fetches_nothing(tmp_path):
    page = tmp_path / "plan.html"
    write_page(parse(PLAN), page)
    text = page.read_text()
    assert "<svg " in text and "recompute &lt;block&gt;" in text
    assert "2 times as long: data 2 x stage 4" in text
    assert "none is measured" in text and "strategy = &#34;auto&#34;" in text
    assert not re.search(r'(src|href)="http', text)
    write_page(parse(PLAN), tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == text


def test_a_plan_that_nobody_predicted_has_no_picture(tmp_path):
    why = '[why]\npredicted_seconds = 0.0\npredicted_peak_bytes = 0\nbinding = "one rank"\n'
    explanation = parse(PLAN[: PLAN.index("[why]")] + why)
    assert draw(explanation) is None
    assert "nothing predicted" in to_text(explanation)
    write_page(explanation, tmp_path / "plan.html")
    assert "<svg" not in (tmp_path / "plan.html").read_text()


@pytest.mark.parametrize("text", ["", "strategy = ", PLAN.replace("[why]", "[because]")])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(ExplainError, match="no plan that says why"):
        parse(text)
