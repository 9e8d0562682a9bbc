"""A comparison as text: one sentence that answers, a table of pairs, JSON."""

from __future__ import annotations

import dataclasses
import json
import math

import pandas as pd

from strata_analysis.answer import answer
from strata_analysis.compare import EXIT_CODES, Comparison
from strata_analysis.table import with_filled_columns


def to_json(comparison: Comparison) -> str:
    """One object; a number that is not known is null."""

    def plain(value):
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return [*value] if isinstance(value, tuple) else value

    pairs = [{name: plain(value) for name, value in dataclasses.asdict(pair).items()} for pair in comparison.pairs]
    words = {
        "answer": answer(comparison),
        "verdict": comparison.verdict,
        "exit_code": comparison.exit_code,
        "confidence": comparison.confidence,
        "pairs": pairs,
        "without_partner": comparison.alone,
    }
    return json.dumps(words, indent=2, ensure_ascii=False)


def columns(comparison: Comparison) -> list[dict[str, str]]:
    """The table as text, one row a pair. Columns that are empty everywhere are left out."""
    percent = f"{100 * comparison.confidence:.4g} %"
    rows = []
    for pair in comparison.pairs:
        interval = "" if math.isnan(pair.ratio_low) else f" [{pair.ratio_low:.3f}, {pair.ratio_high:.3f}]"
        per_second = pair.baseline_samples_per_second
        rate = f" ({per_second:{'.0f' if per_second >= 100 else '.3g'}} {pair.sample_unit}s/s)"
        rows.append(
            {
                "model": pair.model,
                "ranks": str(pair.num_ranks),
                "point": ", ".join(f"{name.split('.')[-1]} {value}" for name, value in pair.keys.items()),
                "baseline": pair.baseline,
                "base ms": "" if math.isnan(pair.baseline_seconds) else f"{1e3 * pair.baseline_seconds:.2f}{rate}",
                "candidate": pair.candidate + (" (simulated)" if pair.simulated else ""),
                "its ms": "" if math.isnan(pair.candidate_seconds) else f"{1e3 * pair.candidate_seconds:.2f}",
                f"ratio [{percent}]": "" if math.isnan(pair.ratio) else f"{pair.ratio:.3f}{interval}",
                "pairs": f"{pair.num_pairs} by {pair.paired_by}" if pair.num_pairs else "",
                "effect": "" if math.isnan(pair.effect_size) else f"{pair.effect_size:+.2f}",
                "p (Holm)": "" if math.isnan(pair.p_value_holm) else f"{pair.p_value_holm:.2g}",
                "verdict": pair.verdict,
                "because": "; ".join([*([pair.reason] if pair.reason else []), *pair.notes]),
            }
        )
    return with_filled_columns(rows)


METHOD = (
    "ratio: step time of the candidate over the baseline's, Hodges-Lehmann estimate over pairs of runs with the exact "
    "signed-rank interval; effect: matched-pairs rank-biserial correlation, -1 (always faster) to 1 (always slower); "
    "p: signed-rank, corrected for the number of points (Holm). The interval is of the point alone."
)


def to_text(comparison: Comparison) -> str:
    lines = [answer(comparison), "", pd.DataFrame(columns(comparison)).to_string(index=False, justify="left"), ""]
    counts = {word: sum(pair.verdict == word for pair in comparison.pairs) for word in EXIT_CODES}
    lines.append(
        f"verdict: {comparison.verdict} ({', '.join(f'{count} {word}' for word, count in counts.items() if count)})"
    )
    lines += [f"without a partner: {words}" for words in comparison.alone]
    return "\n".join([*lines, f"# {METHOD}"])
