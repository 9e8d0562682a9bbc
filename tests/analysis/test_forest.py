"""The forest plot: each pair's ratio and interval at its place, hollow where nothing is decided."""

import pytest
from drawn import artists
from matplotlib import pyplot
from strata_analysis.cli import main
from strata_analysis.compare import Comparison, compare
from strata_analysis.figures import forest, style
from strata_analysis.load import load
from test_answer import pair


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def test_ratios_and_intervals_are_those_of_the_comparison(head_to_head):
    comparison = compare(load(head_to_head), None, "ddp")
    figures = {"f": forest.figure_of(comparison)}
    (known,) = comparison.pairs
    name = f"{known.candidate_point}/{known.baseline_point}"
    marker, interval = artists(figures, "ratio")[name], artists(figures, "interval")[name]
    assert list(marker.get_xdata()) == [known.ratio]
    assert list(interval.get_xdata()) == [known.ratio_low, known.ratio_high]
    assert marker.get_color() == style.colour("zero1")


def test_undecided_is_hollow_and_incomparable_is_words():
    pairs = [
        pair("zero1", "better", 0.8),
        pair("zero3", "undecided", 1.0),
        pair("mics", "incomparable", reason="mics: oom: block[3] needs 5.25 GiB of 4 GiB"),
    ]
    figures = {"f": forest.figure_of(Comparison(pairs, [], 0.95))}
    markers = artists(figures, "ratio")
    assert markers["zero1/base8"].get_markerfacecolor() == style.colour("zero1")
    assert markers["zero3/base8"].get_markerfacecolor() == "white"
    assert "mics/base8" not in markers
    assert artists(figures, "incomparable")["mics/base8"].get_text() == "incomparable: oom: block[3] needs 5.25 …"


def test_names_that_would_be_cut_to_the_same_are_whole():
    names = [f"oases, cross_pass=default, fine_recompute={word}" for word in ("default", "false")]
    figure = forest.figure_of(Comparison([pair(name, "better", 0.8) for name in names], [], 0.95))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()][1:] == names


@pytest.mark.parametrize("num_places", [1, 20])
def test_no_panel_has_more_rows_than_can_be_read(num_places):
    pairs = [pair(f"s{n:02}", "better", 0.8, num_ranks=2**place) for place in range(num_places) for n in range(35)]
    figure = forest.figure_of(Comparison(pairs, [], 0.95))
    assert max(len(axes.get_yticks()) for axes in figure.axes) <= forest.MOST_ROWS
    assert len(artists({"f": figure}, "ratio")) == len({(p.candidate, p.num_ranks) for p in pairs})


def test_the_command_draws_a_picture(head_to_head, tmp_path, capsys):
    for ending in ("png", "svg", "pdf"):
        file = tmp_path / f"ratios.{ending}"
        assert main(["compare", str(head_to_head), "--baseline", "ddp", "--picture", str(file)]) == 1
        assert file.stat().st_size > 1000
    assert main(["compare", str(head_to_head), "--baseline", "ddp", "--picture", str(tmp_path / "x.gif")]) == 2
    assert "accepted: .png, .svg, .pdf" in capsys.readouterr().err
