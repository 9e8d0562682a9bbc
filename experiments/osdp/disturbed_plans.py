"""How well OSDP's plans bear a machine that is not what its description says.

    PYTHONPATH=analysis .venv/bin/python experiments/osdp/disturbed_plans.py results [--csv FILE]

Of each cell of figure_5_equal_batch.toml, whose results lie in the folder, takes the plans of FSDP, of OSDP and of
OSDP's own search at the batch at which FSDP is fastest. All were made for the cluster as described; they are simulated
again on clusters whose compute and whose links are each 0.8, 1 or 1.2 times as fast. Prints a table: in which share of
the cells and clusters OSDP is ahead of FSDP, or as fast within 0.1 %, and its throughput over that of FSDP.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from strata_analysis.derive import by_point
from strata_analysis.load import load
from strata_analysis.published import osdp
from strata_analysis.published.sweeps import Sweeps
from strata_analysis.series import keys_of

FOLDER = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FOLDER / "auto"))
from disturbed import disturbed  # noqa: E402

EXPERIMENT = "osdp_figure_5_equal_batch"
FACTORS = (0.8, 1.0, 1.2)
STRATEGIES = ("zero3", "osdp", "osdp-search")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder that has results of figure_5_equal_batch.toml")
    parser.add_argument("--csv", type=Path, help="a row a cell, strategy and cluster")
    parser.add_argument("--strata", default="build/cpu/strata")
    words = parser.parse_args()
    points = Sweeps(words.results).points(EXPERIMENT)
    rows = simulated_again(points, Path(words.strata).resolve())
    if words.csv:
        rows.to_csv(words.csv, index=False)
    print(table(rows))
    return 0


def simulated_again(points: pd.DataFrame, strata: Path) -> pd.DataFrame:
    """A row a cell, strategy and cluster: osdp.CELL, strategy, compute, links, seconds of a step."""
    tried = osdp.tried(points, EXPERIMENT).assign(place=points.index)
    chosen = osdp.at_equal_batch(tried)
    chosen = chosen[chosen["strategy"].isin(STRATEGIES) & (chosen["ended"] == "ok")]
    rows = []
    for row in chosen.itertuples(index=False):
        for compute, links in itertools.product(FACTORS, FACTORS):
            seconds = seconds_of(points.loc[row.place], compute, links, strata)
            cell = {key: getattr(row, key) for key in osdp.CELL}
            rows.append(cell | {"strategy": row.strategy, "compute": compute, "links": links, "seconds": seconds})
    return pd.DataFrame(rows)


def seconds_of(point: pd.Series, compute: float, links: float, strata: Path) -> float:
    """Of a step of the point's plan on its cluster with other rates."""
    keys = keys_of(point)
    cluster = (FOLDER / "clusters" / (keys["cluster"].strip('"') + ".toml")).read_text(encoding="utf-8")
    keys |= {"name": '"again"', "cluster": '"disturbed.toml"'}
    del keys["backend"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "disturbed.toml").write_text(disturbed(cluster, compute, links, links), encoding="utf-8")
        (folder / "again.plan").write_text(point["plan_text"], encoding="utf-8")
        text = "\n".join(f"{key} = {value}" for key, value in keys.items())
        (folder / "again.toml").write_text(text + "\n", encoding="utf-8")
        words = [strata, "simulate", "again.toml", "--plan", "again.plan", "--results", "results"]
        subprocess.run(words, cwd=folder, capture_output=True, check=True)
        return by_point(load(folder / "results" / "again"))["step_seconds"].item()


def table(rows: pd.DataFrame) -> str:
    """Markdown, a row a strategy and kind of cluster."""
    lines = [
        "| plan | clusters | ahead of FSDP or as fast | ahead by more than 0.1 % | least | mean | most |",
        "|---|---|---|---|---|---|---|",
    ]
    seconds = rows.pivot(index=[*osdp.CELL, "compute", "links"], columns="strategy", values="seconds")
    as_described = (seconds.reset_index()[["compute", "links"]] == 1.0).all(axis="columns").to_numpy()
    for strategy in STRATEGIES[1:]:
        for kind, members in (("as described", as_described), ("disturbed", ~as_described)):
            ratios = (seconds["zero3"] / seconds[strategy])[members].dropna()
            kept, ahead = (ratios > 1.0 - osdp.EQUAL).mean(), (ratios > 1.0 + osdp.EQUAL).mean()
            lines.append(
                f"| {osdp.NAMES[strategy]} | {kind}: {len(ratios)} | {100 * kept:.0f} % | {100 * ahead:.0f} % | "
                f"{ratios.min():.3f} | {ratios.mean():.3f} | {ratios.max():.3f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
