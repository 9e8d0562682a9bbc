#!/usr/bin/env bash
# For a GPU machine without our packages: the built CUDA tests and benchmark, the shared libraries that they need beside
# the C library's and NVIDIA's, and MPI's launcher, in one folder that travels. Run where they build:
#
#   tests/cuda/pack.sh <folder>        also <folder>.tar.xz; there: tar xf …, then <folder>/run_on_gpu.sh
#
# The folder runs on every x86-64 with AVX2: kernels for wider instructions are chosen when a process starts.
set -euo pipefail
(($# == 1)) || { echo "usage: tests/cuda/pack.sh <folder>" >&2; exit 2; }
folder=$(realpath -m -- "$1")
[[ ! -e $folder ]] || { echo "$folder is there already" >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/cuda}
programs=("$build"/tests/cuda.test_{monitor,operators,modes,nccl} "$build"/tests/bench_cuda)
mkdir -p "$folder/lib" "$folder/bin"
cp "${programs[@]}" "$build"/tests/libfake{,_old}_nvml.so "$folder/bin"
strip --strip-debug "$folder"/bin/*
launcher=$(command -v mpiexec.hydra)
cp "$launcher" "$(command -v hydra_pmi_proxy)" "$folder/bin"
# ldd prints "name => path (address)". The loader and the C library must be the machine's own, as must what NVIDIA ships.
ldd "${programs[@]}" "$launcher" "$(command -v hydra_pmi_proxy)" | awk '/=> \//{print $3}' | sort -u |
  grep -Ev '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux-x86-64|libcuda|libcudart|libcublas|libcublasLt|libcudnn|libnccl)\.so' |
  xargs -I{} cp -L {} "$folder/lib"
cp tests/cuda/run_on_gpu.sh tests/cuda/bench_pytorch.py "$folder"
tar -C "$(dirname "$folder")" -c "$(basename "$folder")" | xz -T0 -2 >"$folder.tar.xz"
du -sh "$folder" "$folder.tar.xz"
