"""`python -m strata_analysis`."""

import os
import sys

from strata_analysis.cli import main


def run() -> int:
    """The exit code of main(); 2 with a message where not all of its output could be written."""
    try:
        code = main()
    except SystemExit as end:  # argparse has printed help, or what is wrong with the command line
        code = end.code
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not code:
            print(f"strata: standard output cannot be written: {error.strerror}", file=sys.stderr)
            code = 2
    return code


sys.exit(run())
