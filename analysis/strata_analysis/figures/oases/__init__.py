"""Oases' figures (arXiv 2305.16121) from the results of experiments/oases/.

One module a figure: `EXPERIMENT` names the experiment that it is drawn from, `draw` is as everywhere.
"""

from strata_analysis.figures.oases import figure_4

MODULES = (figure_4,)
