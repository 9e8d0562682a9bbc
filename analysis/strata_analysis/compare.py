"""Which of two strategies is faster, point by point: the same points paired, with the chance of a wrong claim bounded.

A run is the unit: steps of one run are correlated, so each run gives one number, the median of its measured steps. Runs
of one block of a head-to-head job are paired; where there are no blocks, the k-th good run of the one is paired with
the k-th of the other. The logarithms of the pairs' ratios go through Wilcoxon's signed-rank test: under "no difference"
the random order in a block makes each ratio as likely as its inverse, which is all that the test assumes, and exactness
at any number of pairs is what intervals from few runs need (a bootstrap of ten covers too rarely). Holm's correction is
over the points.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from strata_analysis.confidence import OF_VERDICTS as CONFIDENCE
from strata_analysis.errors import UserError
from strata_analysis.load import INDEX, Results, derived_once
from strata_analysis.series import DEFAULT, KEYS_THAT_NAME, keys_of, separating_axes
from strata_analysis.statistics import SignedRank, fewest_pairs, holm, median, signed_rank

BETTER, WORSE, UNDECIDED, INCOMPARABLE = "better", "worse", "undecided", "incomparable"
EXIT_CODES = {BETTER: 0, UNDECIDED: 0, WORSE: 1, INCOMPARABLE: 4}

# What must be equal for a difference in time to be the strategy's: attributes of an attempt.
PROVENANCE = (
    "simulated",
    "git_commit",
    "binary_hash",
    "host_names",
    "device_names",
    "num_ranks",
    "num_nodes",
    "ranks_per_node",
    "threads_per_rank",
    "dtype",
    "transport",
    "progress_mode",
    "emulated_link_alpha_seconds",
    "emulated_link_bytes_per_second",
    "emulated_inside_alpha_seconds",
    "emulated_inside_bytes_per_second",
    "flop_convention",
    "num_samples_per_step",
    "library_versions",
    "modules_loaded",
    "environment",
)
# Lists of one entry a rank, where which rank sits where may differ.
UNORDERED = {"host_names", "device_names"}
# The environment variables in which Slurm says which job a run belongs to: where it ran is told by its hosts, and the
# jobs of two submissions always differ.
JOB_VARIABLES = "SLURM_"
# Keys that say where a point runs. What they change stands in PROVENANCE.
PLACE_KEYS = {"backend", "cluster"}
# Keys that the table has columns for.
COLUMN_KEYS = {"model.name", "backend"}


class CompareError(UserError):
    """The question has no answer in these results: says which points there are."""


@dataclass(frozen=True)
class Selector:
    """A strategy and some of its options, as in `gpipe,stages=2`."""

    name: str
    options: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(text: str) -> Selector:
        name, *options = (word.strip() for word in text.split(","))
        if not name or not all("=" in option for option in options):
            raise CompareError(f"{text!r} is no strategy; a name, and options of it if needed: gpipe,stages=2")
        return Selector(name, dict(option.split("=", 1) for option in options))

    def selects(self, point: _Point) -> bool:
        return point.strategy == self.name and all(
            point.strategy_keys.get(f"strategy.{key}", "").strip('"') == value for key, value in self.options.items()
        )


@dataclass(frozen=True)
class Pair:
    """One point under two strategies. Seconds are medians over runs; ratio = candidate / baseline of the step time."""

    experiment: str
    model: str
    num_ranks: int
    keys: dict[str, str]  # what tells this point from the others that are compared
    baseline: str
    candidate: str
    baseline_point: str
    candidate_point: str
    simulated: bool
    verdict: str
    reason: str = ""  # of incomparable and undecided
    baseline_seconds: float = math.nan
    candidate_seconds: float = math.nan
    baseline_samples_per_second: float = math.nan
    sample_unit: str = ""
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan
    effect_size: float = math.nan
    p_value: float = math.nan
    p_value_holm: float = math.nan
    num_pairs: int = 0
    paired_by: str = ""  # block, run, or exact for the simulator without noise
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    pairs: list[Pair]
    alone: list[str]  # points that have no partner, in words
    confidence: float
    of_two_sets: bool = False  # the candidates are another set of results than the baselines

    @property
    def verdict(self) -> str:
        """Of all points: worse if any is; else incomparable if any is; else better if any is."""
        found = {pair.verdict for pair in self.pairs}
        return next((word for word in (WORSE, INCOMPARABLE, BETTER) if word in found), UNDECIDED)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def compare(
    baseline: Results,
    candidate: Results | None = None,
    baseline_strategy: str = "",
    candidate_strategy: str = "",
    confidence: float = CONFIDENCE,
    allow_different: tuple[str, ...] = (),
) -> Comparison:
    """Two strategies of one set of results (`candidate` None), or two sets.

    Strategies are texts of `Selector`; an empty candidate strategy means all others in one set, and the same
    strategy in two sets. `allow_different`: names of PROVENANCE that are meant to differ, and keys of points, such as
    train.micro_batches, over which they are paired all the same.
    """
    for name in allow_different:
        if "." not in name and name not in PROVENANCE:
            raise CompareError(f"{name!r} is neither a key nor one of {', '.join(PROVENANCE)}")
    if candidate is None and not baseline_strategy:
        raise CompareError("one set of results is compared by strategy: name the one to compare with (--baseline)")
    firsts = _points(baseline)
    seconds = None if candidate is None else _points(candidate)
    return _compared_by_strategy(
        firsts, seconds, baseline_strategy, candidate_strategy, confidence, set(allow_different)
    )


def _compared_by_strategy(
    firsts: list[_Point],
    seconds: list[_Point] | None,
    baseline_strategy: str,
    candidate_strategy: str,
    confidence: float,
    allow_different: set[str],
) -> Comparison:
    """As `compare`, of all points of one set of results (`seconds` None) or of two."""
    one_set = seconds is None
    first_selector = Selector.of(baseline_strategy) if baseline_strategy else None
    second_selector = Selector.of(candidate_strategy) if candidate_strategy else None
    if not one_set and second_selector is None:
        second_selector = first_selector
    if one_set:
        seconds = firsts
    firsts = _selected(firsts, first_selector, "baseline")
    if second_selector or not one_set:
        seconds = _selected(seconds, second_selector, "candidate")
    elif not (seconds := [point for point in seconds if not first_selector.selects(point)]):
        raise CompareError(f"no other strategy than {baseline_strategy} in these results")
    # Two strategies are paired over the strategy's keys, two sets of results with them.
    over_strategies = one_set or (first_selector != second_selector)
    return _compared(firsts, seconds, one_set, over_strategies, confidence, allow_different)


def compare_with_best(results: Results, confidence: float = CONFIDENCE) -> Comparison:
    """At each place of one set of results, all strategies there against the one whose median step is the shortest.

    That one is chosen by the same runs, so it may owe its place to luck: a pair that is decided says only that the
    candidate is slower than this baseline. Places where no strategy ended well have no pair.
    """
    places: dict[tuple, list[_Point]] = {}
    for point in _points(results):
        places.setdefault(_identity(point, point.keys, set(), True), []).append(point)
    several = [sorted(members, key=_Point.seconds) for members in places.values() if len(members) > 1]
    ended = [members for members in several if members[0].runs]
    varying = _varying_keys([members[0] for members in ended])
    pairs = [_pair(best, other, varying[best.kind], confidence, set()) for best, *others in ended for other in others]
    return Comparison(_with_verdicts(pairs, confidence), [], confidence)


def compare_with_most_shared(results: Results) -> Comparison | None:
    """All others against the strategy that has the most points in common with them, of equal ones ddp, then the first
    by name; None where no two strategies share a point."""
    points = _points(results)
    found = []
    for name in sorted(set(results.points["strategy_name"]), key=lambda name: (name != "ddp", name)):
        try:
            found.append(_compared_by_strategy(points, None, name, "", CONFIDENCE, set()))
        except CompareError:
            continue
    return max(found, key=lambda comparison: len(comparison.pairs), default=None)


def _selected(points: list[_Point], selector: Selector | None, side: str) -> list[_Point]:
    found = [point for point in points if selector is None or selector.selects(point)]
    if not found:
        known = ", ".join(sorted({point.label for point in points}))
        raise CompareError(f"{side}: no point of strategy {selector.name!r} with these options; there are {known}")
    return found


# ------------------------------------------------------------------------------------------------------- one point


@dataclass(frozen=True)
class _Run:
    """An attempt that ended well."""

    seconds: float  # median of its measured steps
    block: tuple[str, int]  # job and number; number -1: in no block
    provenance: tuple[tuple[str, ...], ...]  # the texts of each of PROVENANCE


@dataclass(frozen=True, eq=False)
class _Point:
    """All attempts of one point of one set of results."""

    facts: pd.Series  # of its last attempt that counts
    keys: dict[str, str]  # those that decide which point it is, the strategy's left out
    strategy_keys: dict[str, str]
    options: tuple[str, ...]  # those of strategy_keys without which two points could not be told apart
    runs: list[_Run]  # in order of start

    @property
    def strategy(self) -> str:
        return self.facts["strategy_name"]

    @property
    def label(self) -> str:
        """The strategy as `Selector` reads it."""
        options = {key: self.strategy_keys.get(key, DEFAULT).strip('"') for key in self.options}
        return ", ".join([self.strategy, *(f"{key.removeprefix('strategy.')}={v}" for key, v in options.items())])

    def seconds(self) -> float:
        """The median over its runs; infinite without any."""
        return median([run.seconds for run in self.runs]).value if self.runs else math.inf

    @property
    def kind(self) -> tuple[str, bool]:
        return self.facts["model_name"], bool(self.facts["simulated"])

    @property
    def words(self) -> str:
        ranks = "1 rank" if self.facts["num_ranks"] == 1 else f"{self.facts['num_ranks']} ranks"
        return f"{self.label} {self.facts['model_name']} on {ranks} [{self.facts['point']}]"


def _points(results: Results) -> list[_Point]:
    return derived_once(results, "points to compare", lambda: _points_with_runs(results))


def _points_with_runs(results: Results) -> list[_Point]:
    runs: dict[tuple, list[_Run]] = {}
    good = results.points[results.points["status"] == "ok"].sort_values(["start_time", "attempt"])
    facts = good[[*INDEX, "block_job", "block", *PROVENANCE]].itertuples(index=False, name=None)
    for row, steps in zip(facts, results.rows_of("steps", good, ("phase", "step_seconds_max")), strict=True):
        experiment, point, _, job, block, *provenance = row
        measured = steps["step_seconds_max"][steps["phase"] == "measured"]
        if len(measured):
            texts = (_provenance_texts(name, value) for name, value in zip(PROVENANCE, provenance, strict=True))
            run = _Run(median(measured).value, (job, int(block)), tuple(texts))
            runs.setdefault((experiment, point), []).append(run)
    points = []
    last = results.last()
    options = _separating_options(last)
    for _, facts in last.sort_values(["model_name", "num_ranks", "strategy_name", "point"]).iterrows():
        keys = keys_of(facts)
        points.append(
            _Point(
                facts,
                {k: v for k, v in keys.items() if not k.startswith("strategy.") and k not in KEYS_THAT_NAME},
                {k: v for k, v in keys.items() if k.startswith("strategy.")},
                options[facts["strategy_name"]],
                runs.get((facts["experiment_name"], facts["point"]), []),
            )
        )
    return points


def _separating_options(points: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Of each strategy the options that tell apart two of its points whose other keys are equal."""
    found = {}
    for strategy, members in points.groupby("strategy_name"):
        keys = [keys_of(point) for _, point in members.iterrows()]
        own = [{k: v for k, v in point.items() if k.startswith("strategy.")} for point in keys]
        others = [tuple(sorted((k, v) for k, v in point.items() if not k.startswith("strategy."))) for point in keys]
        places = list(zip(others, members["experiment_name"], strict=True))
        found[str(strategy)] = tuple(separating_axes(own, places))
    return found


def _provenance_texts(name: str, value) -> tuple[str, ...]:
    if not isinstance(value, list):
        return (str(value),)
    if name == "environment":
        value = [text for text in value if not text.startswith(JOB_VARIABLES)]
    return tuple(sorted(set(value)) if name in UNORDERED else value)


# ------------------------------------------------------------------------------------------------------ two points


def _compared(
    firsts: list[_Point],
    seconds: list[_Point],
    one_set: bool,
    over_strategies: bool,
    confidence: float,
    allow_different: set[str],
) -> Comparison:
    def identity(point: _Point, place: bool) -> tuple:
        keys = point.keys if over_strategies else point.keys | point.strategy_keys
        left_out = allow_different if place else allow_different | PLACE_KEYS
        return _identity(point, keys, left_out, one_set)

    bases: dict[tuple, _Point] = {}
    for point in firsts:
        if other := bases.get(identity(point, True)):
            raise CompareError(f"two baselines for one point: {other.words} and {point.words}; {_choice(other, point)}")
        bases[identity(point, True)] = point
    couples = [(bases[identity(point, True)], point) for point in seconds if identity(point, True) in bases]
    if not one_set:
        # What ran in another place is shown as incomparable, instead of as two points that are missing.
        partnered = {id(point) for couple in couples for point in couple}
        elsewhere = {identity(point, False): point for point in firsts if id(point) not in partnered}
        rest = [point for point in seconds if id(point) not in partnered]
        couples += [(elsewhere[identity(p, False)], p) for p in rest if identity(p, False) in elsewhere]
    if not couples:
        raise CompareError(f"no two points with the same keys: {_nearest(firsts, seconds)}")
    partnered = {id(point) for couple in couples for point in couple}
    alone = [point.words for point in [*firsts, *seconds] if id(point) not in partnered]
    varying = _varying_keys([first for first, _ in couples])
    pairs = [_pair(first, second, varying[first.kind], confidence, allow_different) for first, second in couples]
    pairs.sort(
        key=lambda p: (p.experiment, p.model, p.simulated, p.baseline, p.candidate, p.num_ranks, [*p.keys.values()])
    )
    return Comparison(_with_verdicts(pairs, confidence), alone, confidence, not one_set)


def _identity(point: _Point, keys: dict[str, str], left_out: set[str], one_set: bool) -> tuple:
    """What is equal between two points that are compared."""
    kept = {name: value for name, value in keys.items() if name not in left_out}
    return (*sorted(kept.items()), point.facts["experiment_name"] if one_set else "")


def _varying_keys(points: list[_Point]) -> dict[tuple[str, bool], list[str]]:
    """What tells points of a model at equal ranks from each other, simulated and measured ones apart."""
    kinds: dict[tuple[str, bool], list[_Point]] = {}
    for point in points:
        kinds.setdefault(point.kind, []).append(point)
    return {
        kind: separating_axes(
            [{name: value for name, value in point.keys.items() if name not in COLUMN_KEYS} for point in members],
            [(point.label, point.facts["num_ranks"], point.facts["experiment_name"]) for point in members],
        )
        for kind, members in kinds.items()
    }


def _choice(a: _Point, b: _Point) -> str:
    for name in sorted(set(a.strategy_keys) | set(b.strategy_keys)):
        if name in b.strategy_keys and a.strategy_keys.get(name) != b.strategy_keys[name]:
            return f"choose by an option: {b.strategy},{name.removeprefix('strategy.')}={b.strategy_keys[name]}"
    return "compare the folders of single experiments"


def _nearest(firsts: list[_Point], seconds: list[_Point]) -> str:
    """What stands between the two points that are most alike."""

    def differences(a: _Point, b: _Point) -> list[str]:
        return [name for name in sorted(set(a.keys) | set(b.keys)) if a.keys.get(name) != b.keys.get(name)]

    a, b = min(itertools.product(firsts, seconds), key=lambda couple: len(differences(*couple)))
    words = [f"{n} ({a.keys.get(n, 'default')} and {b.keys.get(n, 'default')})" for n in differences(a, b)]
    return f"the nearest, {a.words} and {b.words}, differ in {', '.join(words) or 'strategy or experiment'}"


def _pair(first: _Point, second: _Point, varying: list[str], confidence: float, allow_different: set[str]) -> Pair:
    def seconds(runs) -> float:
        return median([run.seconds for run in runs]).value

    facts = {
        "experiment": first.facts["experiment_name"],
        "model": first.facts["model_name"],
        "num_ranks": int(first.facts["num_ranks"]),
        "keys": {name: first.keys.get(name, DEFAULT) for name in varying},
        "baseline": first.label,
        "candidate": second.label,
        "baseline_point": first.facts["point"],
        "candidate_point": second.facts["point"],
        "simulated": bool(first.facts["simulated"]) and bool(second.facts["simulated"]),
        "sample_unit": first.facts["sample_unit"],
    }
    couples, paired_by, notes = _coupled(first, second)
    # In absolute terms: of the runs that are paired, or of one side where the other has none.
    bases = [run for run, _ in couples] or first.runs
    facts["baseline_seconds"] = seconds(bases)
    facts["baseline_samples_per_second"] = first.facts["num_samples_per_step"] / facts["baseline_seconds"]
    facts["candidate_seconds"] = seconds([run for _, run in couples] or second.runs)
    for point in (first, second):
        if not point.runs:
            status, message = point.facts["status"], point.facts["message"]
            message = "no measured step" if status == "ok" else message
            reason = f"{point.label}: {status}{': ' + message if message else ''}"
            return Pair(**facts, verdict=INCOMPARABLE, reason=reason)
    facts |= {"num_pairs": len(couples), "paired_by": paired_by, "notes": tuple(notes)}
    if differences := _differences(couples, allow_different):
        return Pair(**facts, verdict=INCOMPARABLE, reason="; ".join(differences))
    log_ratios = [math.log(candidate.seconds / base.seconds) for base, candidate in couples]
    if paired_by == "exact":
        test = SignedRank(*(3 * log_ratios), math.nan, float(np.sign(log_ratios[0])), 1)
    else:
        test = signed_rank(log_ratios, confidence)
    return Pair(
        **facts,
        verdict=UNDECIDED,
        ratio=math.exp(test.estimate),
        ratio_low=math.exp(test.low),
        ratio_high=math.exp(test.high),
        effect_size=test.effect_size,
        p_value=test.p_value,
    )


def _coupled(first: _Point, second: _Point) -> tuple[list[tuple[_Run, _Run]], str, list[str]]:
    """Runs side by side, baseline first; how they were paired; remarks."""
    # What was tried again counts once: the last run of a block replaces those before.
    blocks = [{run.block: run for run in point.runs if run.block[1] >= 0} for point in (first, second)]
    if shared := [block for block in blocks[0] if block in blocks[1]]:
        num_lacking = len(blocks[0].keys() | blocks[1].keys()) - len(shared)
        notes = [f"{num_lacking} blocks lack a good run of one side"] if num_lacking else []
        return [(blocks[0][block], blocks[1][block]) for block in shared], "block", notes
    # Runs made as the last one was: an older build is not mixed in.
    runs, notes = [], []
    for point in (first, second):
        alike = [run for run in point.runs if run.provenance == point.runs[-1].provenance]
        if num_older := len(point.runs) - len(alike):
            notes.append(f"{num_older} older runs of {point.label} have another provenance and are left out")
        runs.append(alike)
    couples = list(zip(*runs, strict=False))
    if all(point.facts["simulated"] and "simulate.noise" not in point.keys for point in (first, second)):
        return couples[-1:], "exact", notes
    if surplus := abs(len(runs[0]) - len(runs[1])):
        notes.append(f"{surplus} runs of one side have no partner")
    return couples, "run", notes


def _differences(couples: list[tuple[_Run, _Run]], allow_different: set[str]) -> list[str]:
    """Names of PROVENANCE in which some pair differs, with what only one of both has."""
    found = {}
    for base, candidate in couples:
        for name, a, b in zip(PROVENANCE, base.provenance, candidate.provenance, strict=True):
            if a != b and name not in allow_different:
                found.setdefault(name, f"{name} differs ({_texts_without(a, b)} and {_texts_without(b, a)})")
    return [found[name] for name in PROVENANCE if name in found]


def _texts_without(texts: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Those of `texts` that are none of `others`; all where nothing but their order or number differs."""
    if set(texts) != set(others):
        texts = tuple(text for text in texts if text not in others)
    text = ", ".join(texts) or "nothing"
    return text if len(text) <= 60 else text[:57] + "..."


def _with_verdicts(pairs: list[Pair], confidence: float) -> list[Pair]:
    tested = [i for i, pair in enumerate(pairs) if pair.verdict != INCOMPARABLE and not math.isnan(pair.p_value)]
    corrected = dict(zip(tested, holm([pairs[i].p_value for i in tested]), strict=True))
    return [_decided(pair, corrected.get(i, math.nan), len(tested), confidence) for i, pair in enumerate(pairs)]


def _decided(pair: Pair, p_value_holm: float, num_tests: int, confidence: float) -> Pair:
    if pair.verdict == INCOMPARABLE:
        return pair
    direction = WORSE if pair.ratio > 1.0 else BETTER
    if pair.paired_by == "exact":
        return dataclasses.replace(pair, verdict=UNDECIDED if pair.ratio == 1.0 else direction)
    if p_value_holm <= 1.0 - confidence:
        return dataclasses.replace(pair, p_value_holm=float(p_value_holm), verdict=direction)
    needed = fewest_pairs(confidence, num_tests)
    reason = f"fewer than {needed} pairs cannot decide" if pair.num_pairs < needed else ""
    return dataclasses.replace(pair, p_value_holm=float(p_value_holm), reason=reason)
