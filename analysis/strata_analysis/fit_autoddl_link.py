"""Fit latency and bandwidth of the link of a cluster file to what AutoDDL prints of VGG-13, so that everything else it
prints is predicted.

    python -m strata_analysis.fit_autoddl_link --cluster experiments/clusters/daint-p100.toml [--write]

Minimised are the squared differences of the share of communication in the step of the second best strategy, on 16, 32
and 64 nodes (figure 9): `strata simulate` runs the figure's VGG-13 part once for each pair of values. Shares, not
seconds, are all that is printed, so that devices stay at the rate that the cluster file says.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from strata_analysis.derive import by_point
from strata_analysis.load import load
from strata_analysis.published.autoddl import figure_9_vgg13_shares

ROOT = Path(__file__).parents[2]
EXPERIMENT = ROOT / "experiments" / "autoddl" / "figure_9_vgg13.toml"
LATENCY, BANDWIDTH = "latency_seconds", "effective_bandwidth_bytes_per_second"
START = {LATENCY: 2e-5, BANDWIDTH: 3e9}
SMALLEST_LATENCY = 1e-6


def with_link(text: str, values: dict[str, float]) -> str:
    """@p text, a cluster file, whose inter_node link has these values; the rest stays."""
    for key, value in values.items():
        text, found = re.subn(rf"(?m)^(inter_node = {{.*?\b{key} = )[^ ,}}]+", rf"\g<1>{value:.3g}", text)
        if found != 1:
            raise SystemExit(f"inter_node.{key}: {found} lines in the cluster file where one is needed")
    return text


def shares(strata: Path, cluster_text: str, experiment: Path = EXPERIMENT) -> pd.DataFrame:
    """Printed and simulated shares of communication on the cluster, a row a count of nodes."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "fitted.toml"
        cluster.write_text(cluster_text)
        command = [strata, "simulate", experiment, "--set", f"cluster={cluster}", "--results", Path(folder) / "results"]
        ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}\n{ended.stderr}")
        return figure_9_vgg13_shares(by_point(load(Path(folder) / "results"))).rows


def fit(strata: Path, text: str) -> dict[str, float]:
    """The values that come nearest to the printed shares."""

    def values(z: np.ndarray) -> dict[str, float]:
        return dict(zip(START, np.exp(z), strict=True))

    def differences(z: np.ndarray) -> np.ndarray:
        rows = shares(strata, with_link(text, values(z)))
        return (rows["simulated"] - rows["paper"]).to_numpy()

    lowest = np.array([np.log(SMALLEST_LATENCY), -np.inf])
    found = least_squares(
        differences, np.log(list(START.values())), bounds=(lowest, np.inf), diff_step=0.02, xtol=1e-4, max_nfev=20
    )
    return values(found.x)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fit a cluster's link to AutoDDL's shares of communication of VGG-13.")
    parser.add_argument("--cluster", required=True, type=Path, help="its file; the link's present values do not matter")
    parser.add_argument("--strata", type=Path, default=ROOT / "build" / "cpu" / "strata", help="the binary")
    parser.add_argument("--write", action="store_true", help="put the values into the file")
    words = parser.parse_args()
    text = words.cluster.read_text()
    found = fit(words.strata, text)
    fitted = with_link(text, found)
    print(", ".join(f"{key} = {value:.3g}" for key, value in found.items()))
    print(shares(words.strata, fitted).to_string(index=False))
    if words.write:
        words.cluster.write_text(fitted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
