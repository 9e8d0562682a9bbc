"""OSDP's figures (arXiv 2209.13258) from the results of experiments/osdp/, with what the paper says beside them.

One module a figure: `EXPERIMENT` names the experiment that it is drawn from, `draw` is as everywhere.
"""

from strata_analysis.figures.osdp import figure_7_measured

MODULES = (figure_7_measured,)
