"""The Spack recipe asks for what the build and the analysis package need. Spack itself is played by a stand-in that
keeps what the recipe's directives were given."""

import contextlib
import importlib.util
import re
import sys
import tomllib
import types

import pytest
from conftest import ROOT

REPO = ROOT / "jobscripts" / "spack" / "spack_repo" / "strata"

# find_package name -> Spack's; those of the compiler and of the C library have none.
PACKAGES = {
    "MPI": "mpi",
    "fmt": "fmt",
    "tomlplusplus": "tomlplusplus",
    "nlohmann_json": "nlohmann-json",
    "CLI11": "cli11",
    "dnnl": "onednn",
    "HDF5": "hdf5",
    "Protobuf": "protobuf",
    "libjpeg-turbo": "libjpeg-turbo",
    "PNG": "libpng",
    "mimalloc": "mimalloc",
    "OpenMP": None,
    "Threads": None,
    "GTest": "googletest",
    "benchmark": "benchmark",
}


@pytest.fixture(scope="module")
def recipe():
    """The recipe's class, and (directive, arguments, keywords, condition) of every directive."""
    given = []
    conditions = []

    def directive(name):
        return lambda *words, **keys: given.append((name, words, keys, keys.get("when") or " ".join(conditions)))

    @contextlib.contextmanager
    def when(condition):
        conditions.append(condition)
        yield
        conditions.pop()

    class CMakePackage:
        variants = ("cuda", "tests", "analysis")

        def define(self, name, value):
            return f"-D{name}={value}"

        def define_from_variant(self, name, variant):
            assert variant in self.variants
            return f"-D{name}=<{variant}>"

    class CudaPackage:
        pass

    modules = {name: types.ModuleType(name) for name in (
        "spack", "spack.package", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems",
        "spack_repo.builtin.build_systems.cmake", "spack_repo.builtin.build_systems.cuda",
    )}  # fmt: skip
    for name in ("depends_on", "variant", "version", "license", "conflicts"):
        setattr(modules["spack.package"], name, directive(name))
    modules["spack.package"].when = when
    modules["spack_repo.builtin.build_systems.cmake"].CMakePackage = CMakePackage
    modules["spack_repo.builtin.build_systems.cmake"].generator = directive("generator")
    modules["spack_repo.builtin.build_systems.cuda"].CudaPackage = CudaPackage
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        spec = importlib.util.spec_from_file_location("strata_recipe", REPO / "packages" / "strata" / "package.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old
    return module.Strata, given


def dependencies(given):
    """package -> (lowest version, condition, types)"""
    found = {}
    for name, words, keys, condition in given:
        if name == "depends_on":
            package, _, rest = words[0].partition(" ")
            package, _, version = package.partition("@")
            found[package] = (version.rstrip(":"), condition, keys.get("type", ("build", "link")), rest)
    return found


def found_packages(text):
    return set(re.findall(r"^\s*find_package\(([\w-]+)", text, re.MULTILINE))


def test_everything_that_cmake_looks_for_is_a_dependency(recipe):
    needed = dependencies(recipe[1])
    always = found_packages((ROOT / "CMakeLists.txt").read_text())
    for_tests = set()
    for file in (ROOT / "tests").rglob("*"):
        if file.name == "CMakeLists.txt" or file.suffix == ".cmake":
            for_tests |= found_packages(file.read_text())
    assert len(always) >= 8
    assert "GTest" in for_tests
    for package in always | for_tests:
        spack = PACKAGES[package]
        if spack is not None:
            assert needed[spack][1] == ("+tests" if package not in always else ""), package
    known = {spack for spack in PACKAGES.values() if spack}
    built = {name for name, (_, condition, _, _) in needed.items() if condition != "+analysis"}
    assert built - known == {"c", "cxx", "cmake"}, "what nothing looks for"


def test_versions_are_those_of_the_build_files(recipe):
    needed = dependencies(recipe[1])
    (cmake,) = re.findall(r"cmake_minimum_required\(VERSION ([\d.]+)\)", (ROOT / "CMakeLists.txt").read_text())
    assert needed["cmake"][0] == cmake
    project = tomllib.loads((ROOT / "analysis" / "pyproject.toml").read_text())["project"]
    assert "python@" + needed["python"][0] == project["requires-python"].replace(">=", "python@")
    for requirement in project["dependencies"]:
        name, version = requirement.split(">=")
        assert needed[f"py-{name}"] == (version, "+analysis", "run", needed[f"py-{name}"][3])


def test_what_is_passed_to_cmake_exists_there(recipe):
    strata, given = recipe
    text = "".join(file.read_text() for file in (ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")))
    for argument in strata().cmake_args():
        name = re.match(r"-D(\w+)=", argument)[1]
        assert name == "BUILD_TESTING" or re.search(rf"(option|set)\({name}\b", text), argument
    variants = {words[0] for name, words, _, _ in given if name == "variant"}
    assert variants == {"analysis", "tests"}  # cuda comes from CudaPackage
    # As long as the command does not use it, the recipe refuses it.
    is_used = re.search(r"target_link_libraries\(strata(_app)? [^)]*strata_exec_cuda", text) is not None
    assert is_used != any(name == "conflicts" and words[0] == "+cuda" for name, words, _, _ in given)


def test_the_source_is_this_checkout(recipe):
    assert recipe[0].git == f"file://{ROOT}"
    assert "namespace: strata" in (REPO / "repo.yaml").read_text()
    assert REPO.parent.name == "spack_repo"  # what the API v2 asks of a repository's folder
