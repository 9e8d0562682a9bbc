"""OSDP's figures 5 to 9 (IJCAI 2023) from the results of experiments/osdp/.

One module a figure: `EXPERIMENT` names the experiment that it is drawn from, `draw` is as everywhere.
"""

from strata_analysis.figures.osdp import (
    figure_5,
    figure_5_equal_batch,
    figure_5_one_sample,
    figure_6,
    figure_6_equal_batch,
    figure_7,
    figure_7_measured,
    figure_8,
    figure_9,
    figure_9_equal_batch,
    figure_9_one_sample,
)

MODULES = (
    figure_5,
    figure_5_equal_batch,
    figure_5_one_sample,
    figure_6,
    figure_6_equal_batch,
    figure_7,
    figure_7_measured,
    figure_8,
    figure_9,
    figure_9_equal_batch,
    figure_9_one_sample,
)
