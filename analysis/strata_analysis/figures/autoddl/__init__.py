"""AutoDDL's figures (arXiv 2301.06813) from the results of experiments/autoddl/.

One module a figure: `EXPERIMENT` names the experiment that it is drawn from, `draw` is as everywhere.
"""

from strata_analysis.figures.autoddl import (
    figure_3,
    figure_4_daint,
    figure_4_gcp,
    figure_8,
    figure_9_transformer,
    figure_9_vgg13,
    figure_10_transformer,
    figure_10_vgg13,
    table_3,
    testbed_figure_4,
)

MODULES = (
    figure_3,
    figure_4_daint,
    figure_4_gcp,
    figure_8,
    figure_9_vgg13,
    figure_9_transformer,
    figure_10_vgg13,
    figure_10_transformer,
    table_3,
    testbed_figure_4,
)
