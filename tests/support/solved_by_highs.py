"""Optima of linear programs by HiGHS, a solver that shares nothing with strata."""

import highspy


def solved(file):
    """What the optimum of an .mps file costs; None where nothing is feasible."""
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("mip_rel_gap", 0.0)
    assert solver.readModel(str(file)) == highspy.HighsStatus.kOk
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    assert status == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value
