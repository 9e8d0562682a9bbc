"""The one sentence of a comparison: who is fastest where, and nothing that was not decided."""

import pytest
from strata_analysis.answer import answer, speed_words
from strata_analysis.compare import Comparison, Pair


def pair(candidate, verdict, ratio=float("nan"), width=0.02, **changes):
    facts = {
        "experiment": "x",
        "model": "gpt",
        "num_ranks": 8,
        "keys": {},
        "baseline": "ddp",
        "candidate": candidate,
        "baseline_point": f"base{changes.get('num_ranks', 8)}",
        "candidate_point": candidate,
        "simulated": False,
        "verdict": verdict,
        "ratio": ratio,
        "ratio_low": ratio - width,
        "ratio_high": ratio + width,
        "paired_by": "block",
    }
    return Pair(**(facts | changes))


def said(*pairs, **changes):
    return answer(Comparison(list(pairs), [], 0.95, **changes))


def test_the_fastest_by_how_much_and_what_is_undecided():
    assert (
        said(
            pair("zero1", "better", 0.8),
            pair("zero3", "better", 0.9),
            pair("amsp", "undecided", 0.7),
            pair("mics", "worse", 1.2),
        )
        == "Against ddp on 8 ranks zero1 is fastest, 1.25 times as fast [1.22, 1.28]; undecided: amsp."
    )


def test_intervals_that_touch_leave_the_first_place_open():
    text = said(pair("zero1", "better", 0.80), pair("zero3", "better", 0.82), pair("mics", "better", 0.9))
    assert text.endswith("which of these is fastest is undecided.")
    assert "zero1 is 1.25 times" in text and "zero3 is 1.22 times" in text and "mics" not in text


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (("worse", "worse"), "ddp is fastest, a 0.83 times as fast"),
        (("worse", "undecided"), "nothing is decidedly faster; slower: a; undecided: b"),
        (("undecided", "undecided"), "nothing is decided; undecided: a, b"),
        (("incomparable", "incomparable"), "nothing can be compared; incomparable: a, b"),
    ],
)
def test_without_a_decision_nobody_is_called_faster(verdicts, words):
    ratios = {"worse": 1.2, "undecided": 0.5, "incomparable": float("nan")}
    pairs = [pair(name, verdict, ratios[verdict]) for name, verdict in zip("ab", verdicts, strict=True)]
    text = said(*pairs)
    assert f"Against ddp on 8 ranks {words}" in text
    assert "is fastest" not in text or verdicts == ("worse", "worse")


def test_a_reason_that_all_undecided_ones_share_is_said_once():
    text = said(*(pair(name, "undecided", 0.9, reason="fewer than 7 pairs cannot decide") for name in "ab"))
    assert text.endswith("undecided: a, b; fewer than 7 pairs cannot decide.")


def test_few_places_are_told_and_many_counted():
    places = [pair("zero1", "better", 0.8, num_ranks=n) for n in (16, 8)]
    assert said(*places) == (
        "Against ddp on 8 ranks zero1 is 1.25 times as fast [1.22, 1.28]; "
        "on 16 ranks zero1 is 1.25 times as fast [1.22, 1.28]."
    )
    places += [pair("zero1", "better", 0.5, num_ranks=32), pair("zero1", "worse", 1.1, num_ranks=64)]
    places += [pair("zero1", "undecided", 0.9, num_ranks=128)]
    assert said(*places) == (
        "Against ddp in 5 places: zero1 is fastest in 3, 1.25 to 2.00 times as fast; ddp is fastest in 1; "
        "nothing is decided in 1; undecided: zero1 in 1."
    )


def test_simulated_results_and_two_sets_say_so():
    exact = pair("zero1", "better", 0.5, simulated=True, paired_by="exact")
    assert said(exact) == "Simulated, against ddp on 8 ranks zero1 is 2.00 times as fast."
    text = said(pair("ddp", "better", 0.5), of_two_sets=True)
    assert text.startswith(
        "Against ddp of the first results on 8 ranks ddp of the second results is 2.00 times as fast ["
    )
    mixed = said(exact, pair("zero1", "better", 0.5, baseline_point="measured"))
    assert "(simulated)" in mixed and "(measured)" in mixed


def test_what_is_faster_is_never_once_as_fast():
    assert speed_words(pair("zero1", "better", 0.9999, paired_by="exact")) == "1.0001 times as fast"
