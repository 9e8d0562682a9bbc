"""AMSP's figures (arXiv 2311.00257) from the results of experiments/amsp/, with what the paper prints marked in them.

One module a figure: `EXPERIMENT` names the experiment that it is drawn from, `draw` is as everywhere.
"""

from strata_analysis.figures.amsp import (
    figure_2,
    figure_3,
    figure_11,
    figure_12,
    figure_13,
    figure_16,
    figure_17,
    figure_18,
    table_5,
)

MODULES = (figure_2, figure_3, figure_11, figure_12, figure_13, figure_16, figure_17, figure_18, table_5)
