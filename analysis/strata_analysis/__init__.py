"""Results of strata: one reader, one table, one module a figure. What every number means stands in results-schema/."""
