"""The claims table: every printed number once, and what is said of it."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from strata_analysis import readme_tables
from strata_analysis.cli import main
from strata_analysis.published import FOLDER, published
from strata_analysis.published.claims import (
    COLUMNS,
    VERDICTS,
    Claim,
    counts,
    judged,
    ranks_as_printed,
    rows_of,
    same_side,
    table,
)
from strata_analysis.published.oases import layers_by_degree
from strata_analysis.published.sweeps import NotRun, Sweeps
from strata_analysis.table import PAPERS_BY_NAME

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(small_version) -> Path:
    """A folder of results that has AMSP's table V of one layer and nothing else."""
    results = small_version("amsp/table_5", (), ("--set", "model.layers=1"))
    return Path(results.points["path"].iloc[0]).parents[2]


# ------------------------------------------------------------------------------------------------- what is judged


@pytest.mark.parametrize("paper", PAPERS_BY_NAME)
def test_every_printed_number_is_judged_once(paper):
    lists = {
        name: published(paper, name)
        for name, records in tomllib.loads((FOLDER / f"{paper}.toml").read_text(encoding="utf-8")).items()
        if isinstance(records, list)
    }
    claims = PAPERS_BY_NAME[paper].CLAIMS
    assert {claim.what for claim in claims} == set(lists)
    judged_columns = [(claim.what, claim.value) for claim in claims]
    assert len(judged_columns) == len(set(judged_columns))
    for claim in claims:
        assert claim.value in lists[claim.what]
        assert (claim.ours is None) <= bool(claim.not_comparable)
        for name in claim.without:
            # Text beside the numbers, or a number that has a claim of its own.
            number = pd.api.types.is_numeric_dtype(lists[claim.what][name])
            assert not number or (claim.what, name) in judged_columns
    # A row is told from the others by what is no number of a claim.
    for claim in claims:
        keys = lists[claim.what].drop(columns=["where", claim.value, *claim.without])
        where = lists[claim.what]["where"] if claim.how == "input" else ""
        assert not keys.assign(where=where).duplicated().any(), claim.what


def test_without_results_no_number_is_judged(tmp_path):
    rows = table({name: module.CLAIMS for name, module in PAPERS_BY_NAME.items()}, Sweeps(tmp_path))
    # One is counted by the schedule alone.
    assert set(rows.loc[rows["ours"].str.fullmatch(r"[-+.\de]+"), "table"]) == {"figure_4_limit"}
    assert set(rows["verdict"]) == {"reproduced", "not comparable", "not run"}
    for name in set(rows.columns) - {"error", "experiments", "commit"}:
        assert (rows[name].astype(str).str.len() > 0).all(), name
    assert rows.loc[rows["verdict"] == "not run", "why"].str.startswith("There are no results of ").all()


def test_table_5_is_judged_by_its_results(folder):
    rows = table({"amsp": PAPERS_BY_NAME["amsp"].CLAIMS}, Sweeps(folder))
    of_table = rows[rows["table"] == "table_5"]
    assert len(of_table) == 96
    fitted = of_table["row"].str.contains("llama-7b") & of_table["row"].str.contains("next_forward")
    assert set(of_table.loc[fitted, "verdict"]) == {"not comparable"}
    # One layer is far faster than all of them; levels rank as printed.
    assert set(of_table.loc[~fitted, "verdict"]) <= {"direction only", "not reproduced"}
    assert (of_table.loc[~fitted, "verdict"] == "direction only").any()
    assert of_table["commit"].str.len().min() > 0
    assert set(rows.loc[rows["table"] == "figure_16_ratio", "verdict"]) == {"not run"}
    assert counts(rows).loc["amsp"].sum() == len(rows)


# ------------------------------------------------------------------------------------------------------- verdicts


def claim(**others) -> Claim:
    return Claim("t", "x", "simulated", **others)


@pytest.mark.parametrize(
    ("others", "paper", "ours", "stands", "verdict"),
    [
        ({}, 2.0, 2.19, None, "reproduced"),
        ({}, 2.0, 2.21, None, "not reproduced"),
        ({}, 2.0, 1.79, True, "direction only"),
        ({}, 2.0, 1.79, False, "not reproduced"),
        ({"is_share": True, "tolerance": 0.05}, 0.1, 0.14, None, "reproduced"),
        ({"is_share": True, "tolerance": 0.05}, 0.0, 0.06, None, "not reproduced"),
        ({}, 2.0, np.nan, None, "not run"),
        ({"not_comparable": "Seconds."}, 2.0, 2.0, True, "not comparable"),
        ({"fitted_to": ({"model": "m"},)}, 2.0, 2.0, True, "not comparable"),
        ({"fitted_to": ({"model": "n"},)}, 2.0, 2.0, True, "reproduced"),
    ],
)
def test_verdicts(others, paper, ours, stands, verdict):
    found, why = judged(claim(**others), pd.Series({"model": "m", "paper": paper, "ours": ours}), stands, "None.")
    assert found == verdict
    assert found in VERDICTS
    assert why.endswith(".")


def test_a_note_says_why_only_where_something_is_off():
    noted = claim(notes=(({"model": "m"}, "Host."), ({}, "Other.")))
    assert judged(noted, pd.Series({"model": "m", "paper": 1.0, "ours": 2.0}), None, "")[1] == "Host."
    assert judged(noted, pd.Series({"model": "n", "paper": 1.0, "ours": 2.0}), None, "")[1] == "Other."
    assert "Host" not in judged(noted, pd.Series({"model": "m", "paper": 1.0, "ours": 1.0}), None, "")[1]


def test_further_numbers_stand_behind_the_reason(tmp_path):
    """Column `also` of ours, by key and not by place."""

    def ours(_):
        rows = pd.DataFrame({"hidden": 12288, "quantity": ["GiB in fp32", "billion parameters"], "amount": [2.24, 9.0]})
        return rows.assign(also=["Of W.", ""])

    rows = rows_of("osdp", Claim("largest_product", "amount", "simulated", ours), Sweeps(tmp_path))
    assert rows["why"].tolist() == ["Why is not known.", "Within the tolerance. Of W."]


def test_directions():
    rows = pd.DataFrame({"of": ["a", "a", "a", "b"], "paper": [1.2, 0.9, 1.2, 1.0], "ours": [1.1, 1.05, 1.06, np.nan]})
    assert same_side(1.0)(rows) == [True, False, True, None]
    assert ranks_as_printed("of")(rows) == [True, True, True, None]
    assert ranks_as_printed("of")(rows.assign(ours=[1.0, 1.05, 1.06, 1.0])) == [False, False, True, None]


def test_results_that_are_missing_are_named(tmp_path):
    with pytest.raises(NotRun, match="amsp_table_5"):
        Sweeps(tmp_path).results("amsp_table_5")
    setting = rows_of("amsp", PAPERS_BY_NAME["amsp"].CLAIMS[-1], Sweeps(tmp_path))
    assert set(setting["ours"]) == {"input"}
    assert list(setting.columns) == [*COLUMNS, "verdict", "why"]


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ('binding = "degrees 2*8+4*16 of layers; binds"', [8, 16]),
        ('binding = "degrees 4*16+2*4+4*4"', [4, 20]),
        ('binding = "degrees 2*12+1*35+4*1 of attentions and MLPs; binds"', [6, 0.5]),
        ('binding = "tensor 4x1; binds nothing"', [0, 24]),
        ('binding = "tensor 2x2"', [0, 24]),
        ("", [np.nan, np.nan]),
    ],
)
def test_layers_by_degree(text, layers):
    np.testing.assert_equal(layers_by_degree(text, [2, 4], 24), layers)


# ---------------------------------------------------------------------------------------------------------- files


def test_the_command_writes_pages_and_a_table(folder, tmp_path, capsys):
    (tmp_path / "amsp_table_5").symlink_to(folder / "amsp_table_5")
    assert main(["claims", str(tmp_path), "amsp", "cdp"]) == 0
    said = capsys.readouterr().out
    assert "not reproduced" in said
    rows = pd.read_csv(tmp_path / "claims.csv")
    assert set(rows["paper"]) == {"amsp", "cdp"}
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="amsp/report.html"' in index
    assert index.count("<tr>") >= len(rows)
    page = (tmp_path / "amsp" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 1  # table V
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert main(["claims", str(tmp_path), "alpa"]) == 2
    assert "no paper alpa" in capsys.readouterr().err


TEMPLATE = "# Title\n\n<!-- strata: amsp table_5_lines -->\nold\n<!-- end -->\n\nBehind.\n"


def test_tables_of_a_readme_are_written_and_checked(folder, tmp_path, capsys):
    file = tmp_path / "README.md"
    file.write_text(TEMPLATE, encoding="utf-8")
    words = ["tables", str(file), "--results", str(folder)]
    assert main([*words, "--check"]) == 1
    assert "table_5_lines" in capsys.readouterr().out
    assert main(words) == 0
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\n<!-- strata: amsp table_5_lines -->\nSimulated at commit ")
    assert text.endswith("<!-- end -->\n\nBehind.\n")
    assert text.count("| llama-7b | ") == 4
    assert main([*words, "--check"]) == 0
    number = re.search(r"\| (\d+\.\d+) \|", text)[1]
    file.write_text(text.replace(f"| {number} |", f"| {1.5 * float(number):.3f} |"), encoding="utf-8")
    assert main([*words, "--check"]) == 1
    for wrong in ("amsp table_9", "alpa table_5", ""):
        file.write_text(TEMPLATE.replace("amsp table_5_lines", wrong), encoding="utf-8")
        assert main(words) == 2
    file.write_text(TEMPLATE.replace("table_5_lines", "figure_16"), encoding="utf-8")
    assert main(words) == 2
    assert "no results of amsp_figure_16" in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted((ROOT / "experiments").glob("*/README.md")), ids=lambda file: file.parent.name)
def test_every_table_of_a_readme_is_one_that_a_paper_has(file):
    text = file.read_text(encoding="utf-8")
    blocks = list(readme_tables.BLOCK.finditer(text))
    assert len(blocks) == text.count("<!-- strata:") == text.count("<!-- end -->")
    for block in blocks:
        of_paper = PAPERS_BY_NAME[block["paper"]].COMPARISONS.values()
        assert block["name"] in {compare.__name__ for all_of in of_paper for compare in all_of}
        assert " at commit " in block["body"]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("| llama-7b | 3525 | 4301 |", "| llama-7b | 3525 | 4320 |", True),
        ("| llama-7b | 3525 | 4301 |", "| llama-7b | 3525 | 4501 |", False),
        ("| llama-7b | 0.04 | +9 % |", "| llama-7b | 0.05 | +10 % |", True),
        ("| llama-7b | 1 |", "| llama-13b | 1 |", False),
        ("Simulated at commit 0123abc.", "Simulated at commit fedcba9, 1234567.", True),
        ("same ranking", "another ranking", False),
    ],
)
def test_what_counts_as_the_same_line(before, after, same):
    assert readme_tables.same(before, after) is same
