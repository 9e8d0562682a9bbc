#include "harness/site.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "base/one_line.hpp"
#include "base/read_file.hpp"
#include "base/toml_value.hpp"

namespace strata::harness {
namespace {

void read_texts(TomlReader& reader, std::string_view key, std::vector<std::string>& texts) {
  const TomlValue* list = reader.find(key);
  if (list == nullptr) return;
  if (!list->is_array()) reader.fail(key, fmt::format("{} where a list of strings is accepted", list->kind()));
  for (const TomlValue& element : list->array()) {
    const auto* text = std::get_if<std::string>(&element.data);
    if (text == nullptr) reader.fail(key, fmt::format("{} in a list of strings", element.kind()));
    texts.push_back(*text);
  }
}

}  // namespace

Site parse_site(std::string_view text, const std::string& file_name) {
  const TomlValue root = parse_toml(text, file_name);
  TomlReader reader(root, "", file_name);
  Site site;
  site.name = std::filesystem::path(file_name).stem().string();
  reader.read_word("scheduler", site.scheduler, "slurm | none");
  reader.read("partition", site.partition);
  reader.read("account", site.account);
  reader.read("qos", site.qos);
  reader.read("constraint", site.constraint);
  read_texts(reader, "directives", site.directives);
  read_texts(reader, "modules", site.modules);
  read_texts(reader, "setup", site.setup);
  site.launcher = site.has_slurm() ? "srun --mpi=pmi2 --kill-on-bad-exit=1 --unbuffered" : "mpiexec";
  reader.read("launcher", site.launcher);
  reader.read("cpu_bind", site.cpu_bind);
  reader.read("exclusive", site.exclusive);
  reader.read("gpus_per_node", site.gpus_per_node);
  reader.read("time_limit_margin_seconds", site.time_limit_margin_seconds, 1);
  if (const TomlValue* table = reader.table("environment")) {
    for (const TomlEntry& entry : table->table()) {
      const auto* value = std::get_if<std::string>(&entry.value.data);
      if (value == nullptr) {
        reader.fail("environment", fmt::format("{}: {} where a string is accepted", entry.key, entry.value.kind()));
      }
      const auto is_of_names = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
      if (entry.key.empty() || std::isdigit(static_cast<unsigned char>(entry.key.front())) != 0 ||
          !std::ranges::all_of(entry.key, is_of_names)) {
        reader.fail("environment",
                    fmt::format("\"{}\" is no name of a variable: letters, digits and _ are accepted, no "
                                "digit first",
                                one_line(entry.key)));
      }
      site.environment.emplace_back(entry.key, *value);
    }
  }
  reader.finish();
  return site;
}

LookUp site_folders(const std::filesystem::path& start, const std::filesystem::path& shipped) {
  const std::array own = {std::filesystem::absolute(start).lexically_normal() / "jobscripts" / "sites"};
  return look_up_in(own, shipped / "jobscripts" / "sites");
}

Site read_site(const std::filesystem::path& path) {
  Site site = parse_site(read_file(path.string()), path.string());
  site.file = std::filesystem::absolute(path).lexically_normal().string();
  return site;
}

Site find_site(const std::string& name_or_path, const LookUp& look_up) {
  if (name_or_path.ends_with(".toml")) return read_site(name_or_path);
  const auto found = look_up.files.find(name_or_path);
  if (found != look_up.files.end()) return read_site(found->second);
  std::vector<std::string> names;
  for (const auto& [name, file] : look_up.files) names.push_back(name);
  throw UserError(fmt::format("--site {}: no such site{}; accepted: {}, or a path ending in .toml{}{}", name_or_path,
                              did_you_mean(name_or_path, names), fmt::join(names, ", "),
                              look_up.left_out.empty() ? "" : "; ", not_used(look_up)));
}

}  // namespace strata::harness
