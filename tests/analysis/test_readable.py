"""Figures of real sweeps can be read: no text over another or outside the figure, no panel with too many series."""

import pytest
from boxes import complaints, series_of_panels
from matplotlib import pyplot
from strata_analysis.derive import by_point
from strata_analysis.figures import MODULES, panels, style
from strata_analysis.load import load

# Fewer numbers of ranks than in the files, and a smaller batch, of which there are fewer micro-batches to simulate.
NODES = "[1, 2, 4, 8, 16, 32, 64, 128]"
MICRO_BATCHES = "[128, 64, 32, 16, 8, 4, 2, 1]"
FEWER = ((NODES, "[1, 8, 32]"), (MICRO_BATCHES, "[32, 4, 1]"), ("4_194_304", "1_048_576"))
SIMULATED = {
    "figure 2": ("amsp/figure_2", ()),
    "figure 3": ("amsp/figure_3", (("[2048, 4096], [4096, 8192], [8192, 16384], ", ""),)),
    "figure 11": ("amsp/figure_11", FEWER),
    "figure 16": ("amsp/figure_16", FEWER),
    "table 5": ("amsp/table_5", (("[1, 2, 4, 8]", "[1, 2]"), ("[64, 128, 256, 512]", "[64, 128]"))),
    "quickstart": ("quickstart_at_scale", ()),
}


def all_complaints(results):
    """Of every figure that is drawn of any sweep."""
    points = by_point(results)
    found = {}
    with style.applied():
        for module in MODULES:
            figures = module.draw(results, points)
            for name, figure in {} if isinstance(figures, str) else figures.items():
                where = f"{module.__name__.rsplit('.', 1)[-1]}-{name}"
                found[where] = complaints(figure)
                for labels in series_of_panels(figure):
                    if len(labels) > panels.MOST_SERIES:
                        found[where].append(f"{len(labels)} series in one panel")
                pyplot.close(figure)
    return found


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_sweeps_can_be_read(small_version, name):
    found = all_complaints(small_version(*SIMULATED[name]))
    assert len(found) >= 3
    assert {where: words for where, words in found.items() if words} == {}


def test_measured_sweeps_can_be_read(sample, head_to_head):
    for folder in (sample, head_to_head):
        found = all_complaints(load(folder))
        assert len(found) >= 3
        assert {where: words for where, words in found.items() if words} == {}


def test_overlaps_and_cut_texts_would_be_seen():
    figure, axes = pyplot.subplots()
    axes.text(0.5, 0.5, "one")
    axes.text(0.5, 0.51, "two")
    axes.text(0.98, 0.2, "a text that is too long for where it stands")
    for number in range(9):
        axes.plot([0, 1], [number, number], gid=f"rate/{number}")
    found = complaints(figure)
    assert "'one' lies over 'two'" in found
    assert "'a text that is too long for where it stands' leaves the figure" in found
    assert [len(labels) for labels in series_of_panels(figure)] == [9]
    pyplot.close(figure)


def labels(num_strategies, num_sizes):
    return [f"s{a}, size {2**b}" for a in range(num_strategies) for b in range(num_sizes)]


def test_many_series_are_grouped_by_what_takes_the_fewest_panels():
    by_strategy = panels.grouped(labels(5, 8))
    assert [panel.title for panel in by_strategy] == ["s0", "s1", "s2", "s3", "s4"]
    assert list(by_strategy[0].names.values())[:5] == ["size 1", "size 2", "size 4", "size 8", "size 16"]
    assert [panel.title for panel in panels.grouped(labels(8, 2))] == ["size 1", "size 2"]
    assert [panel.title for panel in panels.grouped(labels(2, 4))] == [""]
    of_ranks = [f"s{a}, {ranks}" for a in range(5) for ranks in ("1 rank", "2 ranks")]
    assert [panel.title for panel in panels.grouped(of_ranks)] == ["1 rank", "2 ranks"]


def test_what_has_nothing_in_common_is_cut_into_equal_parts():
    found = panels.grouped([f"s{number}" for number in range(14)])
    assert [len(panel.names) for panel in found] == [7, 7]
    assert [label for panel in found for label in panel.names] == [f"s{number}" for number in range(14)]
