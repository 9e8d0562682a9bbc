#include "harness/whole_file.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <set>

#include "base/console.hpp"
#include "base/one_line.hpp"
#include "results/file_descriptor.hpp"

namespace strata::harness {

void write_whole(const std::filesystem::path& file, const std::string& text) {
  results::replace_file(file.string(), text, fmt::format("{}", ::getpid()));
}

void warn_of_damage(const UserError& error) {
  static std::set<std::string> told;
  if (told.insert(error.what()).second) say_error("strata: warning: left out: {}\n", printable(one_line(error.what())));
}

}  // namespace strata::harness
