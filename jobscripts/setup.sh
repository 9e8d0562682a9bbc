#!/usr/bin/env bash
# Install what strata needs on Debian 12 (root or sudo) and make the Python environment of the analysis. Safe to repeat.
# On a cluster without apt-get: load the modules named in quickstart.sh --help first; then only the Python environment is made.
#
#   jobscripts/setup.sh            what building and running needs
#   jobscripts/setup.sh --slurm    also what jobscripts/testbed.py and the slurm tests need
#   jobscripts/setup.sh --fuzz     also what tests/fuzz/run.sh needs
#   jobscripts/setup.sh --checks   also what linting, sanitizers and the tests of reports in a browser, of zsh and of modules need
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Debian's libdnnl-dev only recommends the OpenCL that its CMake package insists on.
packages=(g++ cmake ninja-build ccache git mpich libmpich-dev libdnnl-dev ocl-icd-opencl-dev libfmt-dev libtomlplusplus-dev libcli11-dev
          nlohmann-json3-dev libhdf5-dev hdf5-tools libturbojpeg0-dev libjpeg62-turbo-dev libpng-dev libmimalloc-dev
          libprotobuf-dev protobuf-compiler libgtest-dev libgmock-dev libbenchmark-dev iproute2)
# The machine's own python3 may come without venv; Debian's is asked for only then.
python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
for option in "$@"; do
  case $option in
    --slurm) packages+=(slurm-wlm munge) ;;
    --checks) packages+=(clang-format-14 clang-tidy-19 libomp-19-dev chromium-headless-shell zsh lmod tcl) ;;
    --fuzz) packages+=(clang-19 libclang-rt-19-dev llvm) ;;
    *) echo "setup: no option $option; there are --slurm, --checks and --fuzz" >&2; exit 2 ;;
  esac
done

if command -v apt-get >/dev/null; then
  missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  if ((${#missing[@]})); then
    as_root=()
    if ((EUID != 0)); then
      command -v sudo >/dev/null || { echo "setup: not root and no sudo; ask for: ${missing[*]}" >&2; exit 2; }
      as_root=(sudo)
    fi
    echo "setup: installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
else
  for tool in cmake ninja mpicxx mpiexec; do
    command -v "$tool" >/dev/null || { echo "setup: no $tool and no apt-get; load the modules that quickstart.sh --help names" >&2; exit 2; }
  done
fi

if [[ ! -x .venv/bin/python || analysis/pyproject.toml -nt .venv/.installed ]]; then
  echo "setup: making the Python environment .venv"
  python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --editable 'analysis[test]'
  touch .venv/.installed
fi
