"""Plotted values, read back from the figures, equal what stands in the HDF5 files."""

import h5py
import matplotlib.colors
import numpy as np
import pytest
from drawn import artists
from matplotlib import pyplot
from strata_analysis.derive import by_point
from strata_analysis.figures import (
    FORMATS,
    draw_all,
    loss_curves,
    memory_by_category,
    mfu,
    strong_scaling,
    style,
    time_breakdown,
    weak_scaling,
)
from strata_analysis.load import load


@pytest.fixture
def results(sample):
    return load(sample)


@pytest.fixture
def points(results):
    return by_point(results)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def measured(file, column):
    """The measured steps of one column, straight from HDF5."""
    steps = file["steps"]
    return steps[column][:][steps["phase"][:] == 1]


def rates_by_ranks(points, series):
    """(ranks, samples a second) from the HDF5 files of one series."""
    rows = []
    for _, point in series.iterrows():
        with h5py.File(point["path"]) as file:
            rate = file.attrs["num_samples_per_step"] / np.median(measured(file, "step_seconds_max"))
            rows.append((file.attrs["num_ranks"], rate))
    return np.array(sorted(rows))


@pytest.mark.parametrize(("module", "model"), [(strong_scaling, "gpt2-small"), (weak_scaling, "vgg13")])
def test_scaling_shows_the_rates_of_the_files(module, model, results, points):
    figures = module.draw(results, points)
    assert model in figures
    series = points[
        (points["model_name"] == model)
        & (points["strategy_name"] == "ddp")
        & (points["link"] == "")
        & (points["simulated"] == 0)
    ]
    expected = rates_by_ranks(points, series)
    lines = artists({model: figures[model]}, "rate")
    np.testing.assert_allclose(lines["ddp"].get_xydata(), expected, rtol=1e-12)
    ideal = artists({model: figures[model]}, "ideal")["ddp"].get_ydata()
    np.testing.assert_allclose(ideal, expected[0, 1] * expected[:, 0] / expected[0, 0], rtol=1e-12)


def test_mfu_is_flops_over_the_best_peak_of_the_same_devices(results, points):
    figures = mfu.draw(results, points)
    assert set(figures) == {"gpt2-small-megatron", "vgg13-operators"}
    lines = artists({"f": figures["vgg13-operators"]}, "mfu")
    expected = []
    for _, point in points[points["model_name"] == "vgg13"].sort_values("num_ranks").iterrows():
        with h5py.File(point["path"]) as file:
            a = file.attrs
            rate = a["num_samples_per_step"] / np.median(measured(file, "step_seconds_max"))
            expected.append(100 * rate * a["flops_per_sample"] / (a["num_ranks"] * point["best_peak_flops_per_second"]))
            assert point["best_peak_flops_per_second"] >= a["peak_flops_per_second"]
    np.testing.assert_allclose(lines["ddp"].get_xydata()[:, 1], expected, rtol=1e-12)
    assert "operators convention" in figures["vgg13-operators"].axes[0].get_ylabel()


def test_time_bars_are_of_the_slowest_rank_and_add_up_to_the_median_step(results, points):
    figures = time_breakdown.draw(results, points)
    bars = {part: artists(figures, part) for part in time_breakdown.PARTS}
    for _, point in points[points["status"] == "ok"].iterrows():
        with h5py.File(point["path"]) as file:
            compute = measured(file, "slowest_rank_compute_seconds")
            exposed = measured(file, "slowest_rank_exposed_seconds")
            step = 1e3 * np.median(measured(file, "step_seconds_max"))
        ends = [1e3 * np.median(compute), 1e3 * np.median(compute + exposed), step]
        for part, expected in zip(("compute", "exposed", "other"), np.diff([0.0, *ends]), strict=True):
            assert bars[part][point["point"]].get_width() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert sum(bars[part][point["point"]].get_width() for part in bars) == pytest.approx(step, rel=1e-12)


def test_memory_bars_are_bytes_by_category(results, points):
    figures = memory_by_category.draw(results, points)
    for column in memory_by_category.PARTS:
        bars = artists(figures, column)
        for _, point in points[points["status"] == "ok"].iterrows():
            unit = 2**30 if point["model_name"] == "gpt2-small" else 2**20
            with h5py.File(point["path"]) as file:
                assert bars[point["point"]].get_width() == pytest.approx(file["steps"][column][:].max() / unit)


def test_loss_curves_hold_every_step(results, points):
    lines = artists(loss_curves.draw(results, points), "loss")
    for _, point in points[points["simulated"] == 0].iterrows():
        if point["status"] == "oom":
            continue
        with h5py.File(point["path"]) as file:
            np.testing.assert_array_equal(lines[point["point"]].get_ydata(), file["steps"]["loss"][:])


def test_failed_points_are_drawn_with_their_reason(results, points):
    oom = points[points["status"] == "oom"].iloc[0]
    for module in (strong_scaling, mfu, time_breakdown, memory_by_category):
        figures = module.draw(results, points)
        assert oom["point"] in artists(figures, "failed")
        texts = [text.get_text() for text in figures[next(iter(figures))].findobj(lambda a: hasattr(a, "get_text"))]
        assert any("oom" in text for text in texts)


def test_simulated_and_emulated_are_said_and_seen(results, points):
    figures = strong_scaling.draw(results, points)
    lines = artists(figures, "rate")
    assert lines["ddp, simulated"].get_linestyle() == "--"
    assert any("emulated link" in label for label in lines)


def test_a_strategy_has_one_colour_in_all_figures(results, points):
    expected = matplotlib.colors.to_rgba(style.colour("ddp"))
    for module, prefix in ((strong_scaling, "rate"), (mfu, "mfu")):
        assert matplotlib.colors.to_rgba(artists(module.draw(results, points), prefix)["ddp"].get_color()) == expected


def test_all_formats_are_written_and_equal_each_time(results, tmp_path):
    drawn = draw_all(results, tmp_path / "a")
    again = draw_all(results, tmp_path / "b")
    assert {file.suffix[1:] for file in drawn.files} == set(FORMATS)
    assert drawn.left_out == {}
    for first, second in zip(drawn.files, again.files, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_what_is_not_drawn_says_why(results, tmp_path):
    results.points = results.points[results.points["num_ranks"] == 1]
    drawn = draw_all(results, tmp_path)
    assert set(drawn.left_out) == {"strong_scaling", "weak_scaling"}
    assert "different numbers of ranks" in drawn.left_out["strong_scaling"]
