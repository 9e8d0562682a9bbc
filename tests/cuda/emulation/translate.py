#!/usr/bin/env python3
"""Translate a .cu file of ours to C++ for the emulation: launches become calls, shared arrays become the block's.

translate.py <file.cu> <file.cpp>
"""

import re
import sys


def end_of(text: str, begin: int) -> int:
    """The position behind the parenthesis that closes the one at begin."""
    depth = 0
    for at in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    raise ValueError("a parenthesis is not closed")


def translate(text: str) -> str:
    text = re.sub(r"extern __shared__ float (\w+)\[\];", r"float* const \1 = emulation::dynamic_shared();", text)
    launch = re.compile(r"(\w+(?:<[\w ,():]*>)?)\s*<<<(.*?)>>>\(", re.DOTALL)
    while match := launch.search(text):
        end = end_of(text, match.end() - 1)
        call = match.group(1) + text[match.end() - 1 : end]
        text = (
            text[: match.start()]
            + f"emulation::launch(emulation::LaunchShape({match.group(2)}), [=] {{ {call}; }})"
            + text[end:]
        )
    return '#include "cuda/emulation/emulation.hpp"\n' + text


if __name__ == "__main__":
    with open(sys.argv[1]) as source:
        translated = translate(source.read())
    with open(sys.argv[2], "w") as target:
        target.write(f'#line 1 "{sys.argv[1]}"\n{translated}')
