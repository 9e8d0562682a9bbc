/// @file
/// Runs a target over files and folders of files, without libFuzzer: `fuzz_replay <target> <path>…`. The last name
/// that it prints is the input that ended it.

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.hpp"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  const auto& targets = strata::fuzz::targets();
  const auto target = argc < 2 ? targets.end() : targets.find(argv[1]);
  if (target == targets.end()) {
    fmt::print(stderr, "fuzz_replay <target> <path>...; targets:");
    for (const auto& [name, function] : targets) fmt::print(stderr, " {}", name);
    fmt::print(stderr, "\n");
    return 2;
  }
  int num_inputs = 0;
  for (int i = 2; i < argc; ++i) {
    for (const fs::path& file : files_of(argv[i])) {
      fmt::print("{}\n", file.string());
      std::fflush(stdout);
      std::ifstream stream(file, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(stream), {}};
      if (!stream) {
        fmt::print(stderr, "{}: cannot be read\n", file.string());
        return 2;
      }
      // Bytes of their own on the heap, without the terminator of a string: reading past the end is seen.
      const std::vector<std::uint8_t> bytes(text.begin(), text.end());
      try {
        target->second(bytes);
      } catch (const std::exception& error) {
        strata::fuzz::found(error.what());
      }
      ++num_inputs;
    }
  }
  fmt::print("{} inputs\n", num_inputs);
  return num_inputs == 0 ? 1 : 0;
}
