"""The answer of a comparison in one sentence: who is fastest where, by how much, and what is undecided.

Only pairs whose verdict is better or worse are called faster or slower. Where there are more places than a sentence can
hold, they are counted by their answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from strata_analysis.compare import BETTER, INCOMPARABLE, UNDECIDED, WORSE, Comparison, Pair

MOST_PLACES = 3  # that are told one by one
MOST_NAMES = 6  # of a list
MOST_LEADERS = 3


def answer(comparison: Comparison) -> str:
    """One sentence, with a full stop."""
    places = places_of(comparison.pairs)
    baselines = {_baseline(pair, comparison) for pair in comparison.pairs}
    common = f"against {baselines.pop()} " if len(baselines) == 1 else ""
    if all(pair.simulated for pair in comparison.pairs):
        common = f"simulated, {common}"
    if len(places) > MOST_PLACES:
        return _sentence(common + _counted(places, comparison) + _shared_reason(comparison.pairs))
    clauses = []
    for pairs in places:
        own = "" if "against" in common else f"against {_baseline(pairs[0], comparison)} "
        fact, rest = _fact(pairs, comparison)
        tail = "; ".join(rest)
        if tail:
            tail = f" ({tail})" if len(places) > 1 else f"; {tail}"
        clauses.append(f"{own}{place_words(pairs[0], comparison.pairs)} {fact}{tail}")
    return _sentence(common + "; ".join(clauses) + _shared_reason(comparison.pairs))


def places_of(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs of each place, which share everything but the candidate; by model and number of ranks."""
    places: dict[tuple, list[Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: (pair.experiment, pair.model, pair.simulated, pair.num_ranks)):
        same = (pair.experiment, pair.model, pair.simulated, pair.num_ranks, *pair.keys.items(), pair.baseline_point)
        places.setdefault(same, []).append(pair)
    return list(places.values())


def place_words(pair: Pair, among: Sequence[Pair]) -> str:
    """Where a pair was compared, as `on 8 ranks`: with what tells its place from those of the others, and no more."""
    words = [f"of {pair.model}"] if len({other.model for other in among}) > 1 else []
    words.append("on 1 rank" if pair.num_ranks == 1 else f"on {pair.num_ranks} ranks")
    if pair.keys:
        words.append("with " + ", ".join(f"{key.split('.')[-1]} {value}" for key, value in pair.keys.items()))
    if len({other.experiment for other in among}) > 1:
        words.append(f"in {pair.experiment}")
    if len({other.simulated for other in among}) > 1:
        words.append("(simulated)" if pair.simulated else "(measured)")
    return " ".join(words)


def speed_words(pair: Pair) -> str:
    """How much faster the candidate is: the inverse of the ratio of step times, and of its interval."""
    interval = ""
    if pair.paired_by != "exact" and not math.isnan(pair.ratio_low):
        interval = f" [{_factor(1 / pair.ratio_high)}, {_factor(1 / pair.ratio_low)}]"
    return f"{_factor(1 / pair.ratio)} times as fast{interval}"


def _factor(value: float) -> str:
    """Two decimals, or as many as it takes to tell it from 1."""
    return next((text for text in (f"{value:.{digits}f}" for digits in (2, 3, 4, 5)) if float(text) != 1.0), "1")


def _leaders(pairs: list[Pair]) -> list[Pair]:
    """Of the decidedly faster ones, by ratio, those whose intervals reach the first one's: their order is open."""
    better = sorted((pair for pair in pairs if pair.verdict == BETTER), key=lambda pair: pair.ratio)
    return [pair for pair in better if pair is better[0] or pair.ratio_low <= better[0].ratio_high]


def _without_leader(pairs: list[Pair]) -> str:
    """What a place says where no candidate is decidedly faster; empty if its baseline is the fastest."""
    verdicts = {pair.verdict for pair in pairs}
    if verdicts == {INCOMPARABLE}:
        return "nothing can be compared"
    if WORSE not in verdicts:
        return "nothing is decided"
    return "nothing is decidedly faster" if UNDECIDED in verdicts else ""


def _fact(pairs: list[Pair], comparison: Comparison) -> tuple[str, list[str]]:
    """(who is fastest at one place, what else must be said of it)."""
    found = {word: [pair for pair in pairs if pair.verdict == word] for word in (WORSE, UNDECIDED, INCOMPARABLE)}
    leaders = _leaders(pairs)
    if len(leaders) == 1:
        fastest = "fastest, " if len(pairs) > 1 else ""
        fact = f"{_candidate(leaders[0], comparison)} is {fastest}{speed_words(leaders[0])}"
    elif leaders:
        shown = [f"{_candidate(pair, comparison)} is {speed_words(pair)}" for pair in leaders[:MOST_LEADERS]]
        fact = f"{_listed(shown, len(leaders))}, which of these is fastest is undecided"
    elif not (fact := _without_leader(pairs)):
        nearest = min(found[WORSE], key=lambda pair: pair.ratio)
        fact = f"{_baseline(nearest, comparison)} is fastest, {_candidate(nearest, comparison)} {speed_words(nearest)}"
    rest = []
    for word, members in found.items():
        # Who is slower than a fastest one goes without saying.
        if members and (word != WORSE or fact == "nothing is decidedly faster"):
            names = [_candidate(pair, comparison) for pair in members]
            label = "slower" if word == WORSE else word
            rest.append(f"{label}: {_listed(names[:MOST_NAMES], len(names))}")
    return fact, rest


def _shared_reason(pairs: list[Pair]) -> str:
    """Why nothing undecided is decided, if it is the same for all of it."""
    reasons = {pair.reason for pair in pairs if pair.verdict == UNDECIDED}
    return f"; {reasons.pop()}" if len(reasons) == 1 and "" not in reasons else ""


def _counted(places: list[list[Pair]], comparison: Comparison) -> str:
    """Over many places: who is fastest in how many of them."""
    counts: Counter = Counter()
    speeds: dict[str, list[float]] = {}
    for pairs in places:
        leaders = _leaders(pairs)
        if len(leaders) == 1:
            words = f"{_candidate(leaders[0], comparison)} is fastest"
            speeds.setdefault(words, []).append(1 / leaders[0].ratio)
        elif leaders:
            words = "several are faster and their order is undecided"
        else:
            words = _without_leader(pairs) or f"{_baseline(pairs[0], comparison)} is fastest"
        counts[words] += 1
    clauses = []
    for words, count in counts.most_common():
        ends = list(dict.fromkeys(_factor(end(speeds[words])) for end in (min, max))) if words in speeds else []
        by = f", {' to '.join(ends)} times as fast" if ends else ""
        clauses.append(f"{words} in {count}{by}")
    for verdict in (UNDECIDED, INCOMPARABLE):
        of_names = Counter(_candidate(pair, comparison) for pair in comparison.pairs if pair.verdict == verdict)
        if of_names:
            names = [f"{name} in {count}" for name, count in of_names.most_common()]
            clauses.append(f"{verdict}: {_listed(names[:MOST_NAMES], len(names))}")
    return f"in {len(places)} places: {'; '.join(clauses)}"


def _listed(shown: list[str], num_all: int) -> str:
    return ", ".join([*shown, f"{num_all - len(shown)} more"] if num_all > len(shown) else shown)


def _baseline(pair: Pair, comparison: Comparison) -> str:
    return _side(pair.baseline, "the first results", comparison)


def _candidate(pair: Pair, comparison: Comparison) -> str:
    return _side(pair.candidate, "the second results", comparison)


def _side(label: str, results: str, comparison: Comparison) -> str:
    """A strategy as the command line takes it, which needs no spaces: gpipe,stages=2."""
    name = label.replace(", ", ",")
    return f"{name} of {results}" if comparison.of_two_sets else name


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
