"""`python -m strata_analysis`."""

import gc
import os
import sys

from strata_analysis.cli import main


def run() -> int:
    """The exit code of main(); 2 with a message where not all of its output could be written."""
    # A verb makes many objects that stay, and a figure few rings of them: at the thresholds that Python begins with, an
    # eighth of the time goes into looking for those.
    gc.set_threshold(50_000, 20, 50)
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
