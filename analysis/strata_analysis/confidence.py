"""With which confidence things are said. Imports nothing: the command line's help says it, too."""

OF_MEDIANS = 0.99  # intervals of one point's numbers
OF_VERDICTS = 0.95  # of a comparison
