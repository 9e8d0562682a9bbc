#!/usr/bin/env python3
"""Fail if a file under src/ includes something its folder may not include.

The table below is the architecture. Change it deliberately, in a commit of its own.
"""

import pathlib
import re
import sys

MAY_INCLUDE = {
    "base": set(),
    "ir": {"base"},
    "partition": {"base", "ir"},
    "interchange": {"base", "ir"},
    "config": {"base", "ir"},
    "models": {"base", "ir"},
    "data": {"base"},
    "cost": {"base", "ir"},
    "planners": {"base", "ir", "partition", "cost"},
    "lower": {"base", "ir", "partition"},
    "comm": {"base"},
    "exec": {"base", "ir", "comm"},
    "sim": {"base", "ir", "cost"},
    "results": {"base", "ir"},
    "harness": {"base", "ir", "config", "results"},
    "predict": {
        "base", "ir", "interchange", "config", "models", "data", "cost", "planners", "lower", "comm", "exec", "sim",
        "results",
    },
    # predict: what is timed are the Programs of prepared points, fed with the inputs that a run would have.
    "profile": {"base", "ir", "config", "cost", "comm", "exec", "results", "predict"},
    # predict: a run trains a prepared point and records what was predicted of it. profile: it records what the machine
    # can do beside what it did, and both are measured alike.
    "run": {"base", "ir", "config", "comm", "exec", "results", "predict", "profile"},
    "cli": {
        "base", "ir", "interchange", "config", "models", "data", "cost", "planners", "lower", "comm", "exec", "sim",
        "results", "predict", "profile", "run", "harness",
    },
}  # fmt: skip
# Transports do not know each other: what they share stands beside the engine, which chooses between them.
TRANSPORTS_MAY_INCLUDE = {
    "comm/mpi": {"comm/emulated"},  # the link stands in front of messages
    "comm/shm": set(),
    "comm/emulated": set(),
}
ONLY_IN = {  # pattern -> folders where it is allowed
    r"#include <mpi\.h>": {"comm"},
    r"#include <(cuda|nccl|cublas|cudnn)": {"exec"},
    r"#include <(oneapi/dnnl|dnnl)": {"exec"},
    r"#include <toml\+\+": {"config", "base"},
    r"#include <hdf5": {"results"},
    r"#include <(png|turbojpeg)": {"data"},
    r"#include <mimalloc": {"run"},
    r"#include <(google/protobuf|chakra)/": {"interchange"},
    r"#include <CLI/": {"cli"},
    r"\bgetenv\b": {"base"},
    r"\bfmt::print\(": set(),  # throws where the terminal's file is full: say() and say_error() of base/console.hpp
}


def problems(src: pathlib.Path):
    for file in sorted(p for p in src.rglob("*") if p.suffix in {".hpp", ".cpp", ".cu", ".cuh"}):
        folder = file.relative_to(src).parts[0]
        text = file.read_text()
        for used in re.findall(r'#include "(\w+)/', text):
            if used != folder and used not in MAY_INCLUDE[folder]:
                yield f"{file}: {folder}/ may not include {used}/"
        transport = file.relative_to(src).parent.as_posix()
        if transport in TRANSPORTS_MAY_INCLUDE:
            for used in re.findall(r'#include "(\w+/\w+)/', text):
                if used != transport and used in TRANSPORTS_MAY_INCLUDE.keys() - TRANSPORTS_MAY_INCLUDE[transport]:
                    yield f"{file}: {transport}/ may not include {used}/"
        for pattern, folders in ONLY_IN.items():
            if folder not in folders and re.search(pattern, text):
                yield f"{file}: {pattern!r} is allowed only in {sorted(folders)}"
        if "@file" not in text and file.suffix == ".hpp":
            yield f"{file}: the header does not say what it is (/// @file)"


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "layers: ok")
    sys.exit(1 if found else 0)
