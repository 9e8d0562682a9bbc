#!/usr/bin/env bash
# From a fresh machine to figures: install, build, train, collect, draw.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: jobscripts/quickstart.sh [--results DIR] [--skip-setup] [--set key=value]...

Trains a GPT on real text and VGG-13 at 32 pixels with data parallelism on 1, 2 and 4 ranks (experiments/quickstart.toml),
and draws scaling, MFU, time, memory and loss. A quarter of an hour at most on two cores, most of it building.

  --results DIR     where results go (default: results)
  --skip-setup      do not install anything
  --set key=value   override an option of the experiment, as `strata run --set`

The launcher is $MPIEXEC, or mpiexec: inside a Slurm allocation, MPIEXEC=srun jobscripts/quickstart.sh.

On Debian 12, as root or with sudo, what is missing is installed from Debian's packages and PyPI.
On a cluster, load modules first; the names differ from site to site, the contents do not:
  a C++20 compiler (GCC 12 or later)      module load gcc
  CMake 3.25 or later, and Ninja          module load cmake ninja
  MPI                                     module load mpich        (or cray-mpich)
  oneDNN 2.6                              module load onednn
  HDF5 1.10 or later, with its C HL API   module load hdf5
  protobuf 3.21 or later, with protoc     module load protobuf
  libjpeg-turbo 2.1, libpng 1.6           module load libjpeg-turbo libpng
  mimalloc 2                              module load mimalloc
  fmt, toml++, CLI11, nlohmann-json       module load fmt tomlplusplus cli11 nlohmann-json
  Python 3.11 with venv                   module load python
TEXT
}

results=results
setup=yes
overrides=()
while (($#)); do
  case "$1" in
    --results) results=$2; shift 2 ;;
    --skip-setup) setup=no; shift ;;
    --set) overrides+=(--set "$2"); shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

[[ $setup == no ]] || jobscripts/setup.sh
# A build that has tests keeps them; a new one leaves them out.
mkdir -p build
[[ -f build/cpu/build.ninja ]] || cmake --preset cpu -DBUILD_TESTING=OFF >build/cpu.log 2>&1 || { cat build/cpu.log; exit 1; }
printf '== build\n'
cmake --build --preset cpu --target strata >build/cpu.log 2>&1 || { cat build/cpu.log; exit 1; }

# Ranks that outnumber the cores wait asleep.
export OMP_WAIT_POLICY=passive
for ranks in 1 2 4; do
  printf '\n== %d rank(s)\n' "$ranks"
  ${MPIEXEC:-mpiexec} -n "$ranks" build/cpu/strata run experiments/quickstart.toml --results "$results" "${overrides[@]}"
done

printf '\n== collect and draw\n'
build/cpu/strata collect "$results/quickstart"
build/cpu/strata figures "$results/quickstart" >"$results/quickstart/figures.txt"
grep '^not drawn' "$results/quickstart/figures.txt" || true
printf '\n'
build/cpu/strata table "$results/quickstart"
printf '\nfigures: %s\n' "$(realpath "$results/quickstart/figures")"
