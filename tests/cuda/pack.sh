#!/usr/bin/env bash
# For a GPU machine without our packages: an installation of strata, the device's tests and benchmark, the shared
# libraries that they need beside the C library's and NVIDIA's, and MPI's launcher, in one folder that travels. Run
# where they were built (cmake --preset cuda -DBUILD_TESTING=ON; targets strata and tier_cuda):
#
#   tests/cuda/pack.sh <folder>        also <folder>.tar.xz; there: tar xf …, then <folder>/run_on_gpu.sh --list
#
# BUILD names the build folder, build/cuda by default; MOST_MIB how large the archive may be, 64 MiB by default. The folder runs on every x86-64 with AVX2: kernels for wider
# instructions are chosen when a process starts. Exits 2 where there is nothing that could be packed, 1 where what was
# packed is larger than what may travel.
set -euo pipefail
(($# == 1)) || { echo "usage: tests/cuda/pack.sh <folder>" >&2; exit 2; }
folder=$(realpath -m -- "$1")
[[ ! -e $folder && ! -e $folder.tar.xz ]] || { echo "$folder or $folder.tar.xz is there already" >&2; exit 2; }
build=$(realpath -m -- "${BUILD:-$(dirname "${BASH_SOURCE[0]}")/../../build/cuda}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
most_mib=${MOST_MIB:-64}

programs=("$build"/tests/cuda.test_{monitor,operators,real_shapes,modes,nccl} "$build"/tests/{bench_cuda,library_versions})
stand_ins=("$build"/tests/lib{fake,fake_old}_nvml.so)
for file in "$build/strata" "${programs[@]}" "${stand_ins[@]}"; do
  [[ -f $file ]] || { echo "no $file: cmake --build $build --target strata tier_cuda" >&2; exit 2; }
done
# One that was compiled for the processor here ends with an illegal instruction on another, without a word.
native=$(grep -cE -- '-m(arch|cpu)=native' "$build/compile_commands.json" || true)
if ((native > 0)); then
  echo "$native sources of $build are compiled with -march=native: what they make runs on processors like this one" \
    "alone; pack a build for x86-64-v3" >&2
  exit 2
fi
launchers=()
for name in mpiexec.hydra hydra_pmi_proxy; do
  launchers+=("$(command -v "$name")") || { echo "no $name here: MPICH's launcher" >&2; exit 2; }
done

cmake --install "$build" --prefix "$folder" >/dev/null
mkdir -p "$folder/lib"
cp "${programs[@]}" "${stand_ins[@]}" "${launchers[@]}" "$folder/bin"
strip --strip-debug "$folder"/bin/*
# ldd prints "name => path (address)". The loader and the C library must be the machine's own, as must what NVIDIA ships.
theirs='/(ld-linux-x86-64|lib(c|m|dl|pthread|rt|resolv|cuda|cudart|cublas|cublasLt|cudnn|nccl))\.so'
ldd "$folder"/bin/* | awk '/=> \//{print $3}' | sort -u | { grep -Ev "$theirs" || true; } | xargs -r cp -L -t "$folder/lib"
cp tests/cuda/{run_on_gpu.sh,bench_pytorch.py,equal_to_pytorch.py,table_of_runs.py} tests/support/synthetic_images.py "$folder"
# The programs hold the same kernels and code: a dictionary over all of them keeps each once.
XZ_OPT='--lzma2=preset=4,dict=256MiB' tar -C "$(dirname "$folder")" -cJf "$folder.tar.xz" "$(basename "$folder")"

bytes=$(stat -c %s "$folder.tar.xz")
printf '%s: %d.%d MiB in %d files, unpacked %s\n' "$folder.tar.xz" $((bytes >> 20)) $(((bytes & 0xfffff) * 10 >> 20)) \
  "$(find "$folder" -type f | wc -l)" "$(du -sh "$folder" | cut -f1)"
if ((bytes > most_mib << 20)); then
  echo "that is more than $most_mib MiB, which is what may travel" >&2
  exit 1
fi
