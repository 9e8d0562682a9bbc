#include "harness/site.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/error.hpp"
#include "base/near_name.hpp"
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
      site.environment.emplace_back(entry.key, *value);
    }
  }
  reader.finish();
  return site;
}

std::vector<std::filesystem::path> site_files(std::span<const std::filesystem::path> folders) {
  namespace fs = std::filesystem;
  std::map<std::string, fs::path> by_name;
  for (const fs::path& folder : folders) {
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(folder, missing)) {
      if (entry.path().extension() == ".toml") by_name.emplace(entry.path().stem().string(), entry.path());
    }
  }
  std::vector<fs::path> files;
  for (auto& [name, file] : by_name) files.push_back(std::move(file));
  return files;
}

std::vector<std::filesystem::path> site_folders(const std::filesystem::path& start,
                                                const std::filesystem::path& shipped) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  const fs::path first = fs::absolute(start).lexically_normal();
  for (fs::path at = first;; at = at.parent_path()) {
    folders.push_back(at / "jobscripts" / "sites");
    if (at == at.parent_path()) break;
  }
  folders.push_back(shipped / "jobscripts" / "sites");
  return folders;
}

Site read_site(const std::filesystem::path& path) { return parse_site(read_file(path.string()), path.string()); }

Site find_site(const std::string& name_or_path, std::span<const std::filesystem::path> folders) {
  if (name_or_path.ends_with(".toml")) return read_site(name_or_path);
  std::vector<std::string> names;
  for (const std::filesystem::path& file : site_files(folders)) {
    names.push_back(file.stem().string());
    if (names.back() == name_or_path) return read_site(file);
  }
  throw UserError(fmt::format("--site {}: no such site{}; accepted: {}, or a path ending in .toml", name_or_path,
                              did_you_mean(name_or_path, names), fmt::join(names, ", ")));
}

}  // namespace strata::harness
