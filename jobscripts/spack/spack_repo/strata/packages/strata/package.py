# Copyright strata's authors.
#
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

from spack.package import conflicts, depends_on, license, variant, version, when
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage


class Strata(CMakePackage, CudaPackage):
    """Plans, runs, simulates and records distributed-training strategies, and compares them head
    to head: same kernels, same data order, same timer."""

    # The checkout that this recipe lies in; `spack develop strata` builds it without a commit.
    git = f"file://{Path(__file__).resolve().parents[6]}"

    license("Apache-2.0")

    version("main", branch="main")

    variant("analysis", default=True, description="Python packages for collect, compare, report")
    variant("tests", default=False, description="Build the tests and benchmarks")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")

    depends_on("mpi")
    depends_on("fmt@9:")
    depends_on("tomlplusplus@3.3:")
    depends_on("nlohmann-json@3.11:")
    depends_on("cli11@2.1:")
    depends_on("onednn@2.6: cpu_runtime=omp")
    # One process writes each file, so that a rank that dies cannot take it along.
    depends_on("hdf5@1.10: +hl~mpi")
    depends_on("protobuf@3.21:")
    depends_on("libjpeg-turbo@2.1:")
    depends_on("libpng@1.6:")
    depends_on("mimalloc@2:")

    depends_on("googletest@1.12: +gmock", when="+tests")
    depends_on("benchmark@1.7:", when="+tests")

    with when("+analysis"):
        depends_on("python@3.11:", type="run")
        depends_on("py-numpy@1.24:", type="run")
        depends_on("py-pandas@1.5:", type="run")
        depends_on("py-h5py@3.7: ~mpi", type="run")
        depends_on("py-matplotlib@3.8:", type="run")
        depends_on("py-pyarrow@10:", type="run")
        depends_on("arrow +parquet", type="run")  # of pyarrow
        depends_on("py-jinja2@3.1:", type="run")

    conflicts("+cuda", msg="`strata run` does not use the CUDA executor yet")

    def cmake_args(self):
        return [
            self.define_from_variant("STRATA_CUDA", "cuda"),
            self.define_from_variant("BUILD_TESTING", "tests"),
            self.define("STRATA_WERROR", False),
        ]

    def setup_run_environment(self, env):
        env.set("STRATA_ROOT", self.prefix)
