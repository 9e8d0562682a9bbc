"""CDP's figures 1 to 4 (Fournier and Oyallon, 2024) from the results of experiments/cdp/.

One module a figure: `EXPERIMENT` names the experiment that it is drawn from, `draw` is as everywhere.
"""

from strata_analysis.figures.cdp import figure_1, figure_2, figure_3, figure_4

MODULES = (figure_1, figure_2, figure_3, figure_4)
