"""OSDP's figure 7 from a small version of its experiment, simulated."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from drawn import artists
from matplotlib import pyplot
from strata_analysis.derive import by_point
from strata_analysis.figures import draw_all, figures_of
from strata_analysis.figures.osdp import figure_7_measured as figure_7
from strata_analysis.load import load
from strata_analysis.series import keys_of

ROOT = Path(__file__).parents[2]
SIZES = (64, 128)
SLICES = [0, 4, 6, 8, 16]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two sizes on OSDP's server, the larger out of memory until it is cut."""
    build = Path(os.environ.get("STRATA_BUILD", ROOT / "build" / "cpu"))
    folder = tmp_path_factory.mktemp("osdp")
    lines = (ROOT / "experiments" / "osdp" / "figure_7.toml").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(('"model.widths"', '"measure.max_steps"', "memory_gib"))]
    assert len(kept) == len(lines) - 3
    kept.insert(0, 'cluster = "titan-pcie"')
    kept.append(f'"model.widths" = {[[16, hidden, 4 * hidden] for hidden in SIZES]}')
    file = folder / "figure_7.toml"
    file.write_text("\n".join(kept).replace("ranks_per_node = 2", "ranks_per_node = 2\nmemory_gib = 0.001"))
    subprocess.run(
        [build / "strata", "simulate", file, "--results", folder / "results"],
        check=True,
        capture_output=True,
        timeout=400,
    )
    return load(folder / "results")


@pytest.fixture
def points(results):
    return by_point(results)


def values(points, hidden, link, column):
    """By slices, of the points that ended well."""
    return {
        int(keys_of(point).get("strategy.slices", "0")): point[column]
        for _, point in points.iterrows()
        if keys_of(point)["model.widths"].startswith(f"[16, {hidden},")
        and ("communication.emulated_link.gbit_per_s" in keys_of(point)) == (link != figure_7.WITHOUT_LINK)
        and point["status"] == "ok"
    }


def test_lines_hold_the_points(results, points):
    drawn = figure_7.draw(results, points)
    memory, seconds = artists(drawn, "memory"), artists(drawn, "seconds")
    links = {name.rsplit("/", 1)[0] for name in seconds}
    assert len(links) == 2 and figure_7.WITHOUT_LINK in links
    for hidden in SIZES:
        expected = values(points, hidden, figure_7.WITHOUT_LINK, "arena_peak_bytes")
        line = memory[str(hidden)]
        np.testing.assert_allclose(line.get_ydata(), [expected[slices] / 2**20 for slices in sorted(expected)])
        assert list(line.get_xdata()) == [SLICES.index(slices) for slices in sorted(expected)]
        for link in links:
            expected = values(points, hidden, link, "step_seconds")
            np.testing.assert_allclose(
                seconds[f"{link}/{hidden}"].get_ydata(), [expected[slices] for slices in sorted(expected)]
            )


def test_what_does_not_fit_is_a_cross_at_its_place(results, points):
    drawn = figure_7.draw(results, points)
    crosses = artists(drawn, "failed")
    assert {tuple(name.rsplit("/", 2)[1:]) for name in crosses} == {("128", "0")}
    assert len(crosses) == 2
    assert all(cross.get_xdata() == [0] for cross in crosses.values())


def test_the_papers_statement_stands_beside_ours(results, points):
    drawn = figure_7.draw(results, points)
    titles = [axes.get_title() for axes in drawn["splitting"].axes]
    memory = values(points, 64, figure_7.WITHOUT_LINK, "arena_peak_bytes")
    fall = 100 * (1 - min(memory.values()) / memory[0])
    assert f"peak falls by up to {fall:.0f} %\npaper: by up to 50 %\nh = 128 runs only in slices" == titles[0]
    for title, link in zip(titles[1:], (figure_7.WITHOUT_LINK, "emulated link, 10 Gbit/s"), strict=True):
        assert title.startswith(link)
        assert "16 slices over none: " in title
    assert "simulated" in drawn["splitting"].get_suptitle()


def test_it_is_drawn_with_the_results(results, tmp_path):
    assert "osdp-figure_7_measured-splitting" in dict(figures_of(results))
    assert "osdp-figure_7_measured-splitting.png" in {file.name for file in draw_all(results, tmp_path).files}


def test_without_results_there_is_a_reason(results, points):
    assert figure_7.draw(results, points[points["status"] == "oom"]) == "no point ended well"
