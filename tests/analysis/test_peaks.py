"""The peak that MFU is of: the best that any launch of a sweep saw of the same devices."""

import math

import pandas as pd
from matplotlib import pyplot
from strata_analysis import peaks
from strata_analysis.derive import by_point
from strata_analysis.figures import style
from strata_analysis.load import load
from strata_analysis.table import notes_of, table_of

LAUNCH = {
    "device_names": ["EPYC", "EPYC"],
    "backend": "cpu",
    "dtype": "fp32",
    "threads_per_rank": 1,
    "ranks_per_node": 2,
    "peak_source": "measured",
    "peak_flops_per_second": 100e9,
    "simulated": 0,
    "sustained_flops_per_second": math.nan,
    "nameplate_flops_per_second": math.nan,
}


def launches(*changes):
    return pd.DataFrame([LAUNCH | change for change in changes])


def test_the_best_of_the_same_devices_counts_for_all():
    found = peaks.with_best_peaks(
        launches({}, {"peak_flops_per_second": 91e9}, {"peak_flops_per_second": 146e9, "device_names": ["EPYC"] * 4})
    )
    assert list(found["best_peak_flops_per_second"]) == [146e9] * 3
    assert list(found["disturbed"]) == [True, True, False]
    found = peaks.with_best_peaks(launches({}, {"peak_flops_per_second": 91e9}, {"peak_flops_per_second": 89e9}))
    assert list(found["disturbed"]) == [False, False, True], "a tenth is allowed"


def test_other_devices_have_peaks_of_their_own():
    other = [{"dtype": "bf16"}, {"threads_per_rank": 2}, {"ranks_per_node": 4}, {"device_names": ["Xeon", "Xeon"]}]
    found = peaks.with_best_peaks(launches({"peak_flops_per_second": 10e9}, *other))
    assert list(found["best_peak_flops_per_second"]) == [10e9] + [100e9] * 4
    assert not found["disturbed"].any()


def test_simulated_and_unknown_peaks_disturb_nobody():
    found = peaks.with_best_peaks(
        launches(
            {},
            {"simulated": 1, "peak_flops_per_second": 312e12},
            {"simulated": 1, "peak_flops_per_second": 1e9},
            {"peak_flops_per_second": math.nan, "peak_source": ""},
        )
    )
    assert list(found["best_peak_flops_per_second"].iloc[:3]) == [100e9, 312e12, 1e9]
    assert math.isnan(found["best_peak_flops_per_second"].iloc[3])
    assert not found["disturbed"].any()


def test_what_launches_saw_is_said():
    found = peaks.with_best_peaks(launches({}, {"peak_flops_per_second": 146e9}))
    assert peaks.in_words(found) == ["146 GFLOP/s a rank (launches saw 100 to 146), measured"]
    assert peaks.in_words(found.iloc[1:]) == ["146 GFLOP/s a rank, measured"]


def test_the_peak_stands_beside_what_is_sustained_and_the_nameplate():
    rates = {"sustained_flops_per_second": 90e9, "nameplate_flops_per_second": 120e9}
    found = peaks.with_best_peaks(launches(rates))
    assert peaks.in_words(found) == ["100 GFLOP/s a rank (sustained 90, nameplate 120), measured"]
    found = peaks.with_best_peaks(launches(rates | {"nameplate_flops_per_second": math.nan}))
    assert peaks.in_words(found) == ["100 GFLOP/s a rank (sustained 90), measured"]


def test_more_than_the_peak_is_marked_and_never_printed_bare(sample):
    assert peaks.share_in_words(0.4321) == "43.2 %"
    assert peaks.share_in_words(1.0) == "100.0 %"
    assert peaks.share_in_words(1.214) == "121.4 % (> peak)"
    assert peaks.share_in_words(math.nan) == ""
    results = load(sample)
    low = results.points.assign(peak_flops_per_second=results.points["peak_flops_per_second"] * 1e-6)
    points = by_point(results.__class__(**(vars(results) | {"points": low})))
    cells = table_of(points)["MFU"]
    assert all(cell.endswith("(> peak)") for cell in cells if cell)
    assert any(note.startswith("(> peak): faster than the measured peak") for note in notes_of(points))
    high = results.points.assign(peak_flops_per_second=results.points["peak_flops_per_second"] * 10)
    points = by_point(results.__class__(**(vars(results) | {"points": high})))
    assert not any("(> peak)" in text for text in [*notes_of(points), *table_of(points)["MFU"]])


def test_the_rate_by_the_clock_has_what_passes_between_steps(sample):
    results = load(sample)
    rows = results.steps
    clock = by_point(results).set_index("point")["samples_per_second_by_clock"]
    for (point, _), steps in rows[rows["phase"] == "measured"].groupby(["point", "attempt"]):
        if len(steps) < 2 or point not in clock or len(rows[rows["point"] == point]["attempt"].unique()) > 1:
            continue
        elapsed = steps["unix_seconds"].max() - steps["unix_seconds"].min()
        if elapsed > 0:
            assert clock[point] == steps["num_samples"].iloc[1:].sum() / elapsed
    slower = rows.assign(unix_seconds=rows["unix_seconds"] * 2)
    doubled = by_point(results.__class__(**(vars(results) | {"steps": slower}))).set_index("point")
    known = clock[clock.notna()]
    assert len(known) and (doubled["samples_per_second_by_clock"][known.index] * 2).equals(known)


def test_tables_and_figures_mark_disturbed_launches(sample):
    results = load(sample)
    good = results.points[results.points["status"] == "ok"]
    calm = by_point(results)
    assert not calm["num_disturbed"].any() and "disturbed" not in table_of(calm)
    changed = results.points.copy()
    place = good[good["simulated"] == 0].index[0]
    changed.loc[place, "peak_flops_per_second"] *= 0.5
    points = by_point(results.__class__(**(vars(results) | {"points": changed})))
    assert points["num_disturbed"].sum() == 1
    cells = table_of(points)["disturbed"]
    assert sorted(cells[cells != ""]) in (["50 % of peak"], ["1 of 2 runs"], ["1 of 3 runs"])
    assert any(note.startswith("disturbed:") for note in notes_of(points))
    disturbed = points[points["num_disturbed"] > 0].iloc[0]
    assert disturbed["mfu"] <= calm.set_index("point")["mfu"][disturbed["point"]] * (1 + 1e-12), "of the sweep's peak"
    figure, axes = pyplot.subplots()
    style.mark_disturbed(axes, points, "mfu", 100.0)
    (ring,) = axes.lines
    assert list(ring.get_ydata()) == [100.0 * disturbed["mfu"]]
    pyplot.close(figure)
