/// @file
/// An experiment file, its sweep and its points. What stands behind a NUL is an override, as behind `--set`.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "config/options.hpp"
#include "config/sweep.hpp"
#include "fuzz/fuzz_target.hpp"
#include "models/model.hpp"

namespace strata::fuzz::experiment_file {
namespace {

/// More points than this say nothing new, and take seconds under sanitizers.
constexpr double most_points = 100.0;
constexpr std::size_t most_looked_at = 4;

/// A point as a file is the same point.
void check_text_form(const Point& point) {
  const std::string text = to_text(point.experiment);
  ExperimentFile again = read_experiment(text, "text form");
  again.base.backend = point.experiment.backend;
  require(canonical_keys(again.base) == canonical_keys(point.experiment), "a point and its text differ:\n" + text);
  require(to_text(again.base) == text, "a text that does not print as it reads:\n" + text);
}

/// As strata makes it of a point; deep models are as these, and take longer.
void check_model(const ModelSection& m) {
  if (m.layers.value_or(1) > 50 || m.widths.size() > 50) return;
  const ModelOptions options{.name = m.name,
                             .layers = m.layers,
                             .hidden = m.hidden,
                             .heads = m.heads,
                             .kv_heads = m.kv_heads,
                             .ffn_hidden = m.ffn_hidden,
                             .vocabulary = m.vocabulary,
                             .sequence_length = m.sequence_length,
                             .dropout = m.dropout,
                             .tied_head = m.tied_head,
                             .image_size = m.image_size,
                             .patch_size = m.patch_size,
                             .num_classes = m.num_classes,
                             .widths = m.widths};
  const auto graph = unless_refused("model", [&] { return build_model(options); });
  if (graph) verify(*graph);
}

}  // namespace

STRATA_FUZZ_TARGET(experiment) {
  std::string text = text_of(bytes);
  std::vector<std::string> overrides;
  for (std::size_t at = text.rfind('\0'); at != std::string::npos; at = text.rfind('\0')) {
    overrides.insert(overrides.begin(), text.substr(at + 1));
    text.resize(at);
  }
  const auto file = unless_refused(overrides.empty() ? "input.toml" : "",
                                   [&] { return read_experiment(text, "input.toml", overrides); });
  if (!file) return;
  double num_points = 1.0;
  for (const SweepAxis& axis : file->axes) num_points *= static_cast<double>(axis.rows.size());
  if (num_points > most_points && num_points <= 1e5) return;
  const auto expansion =
      unless_refused(overrides.empty() ? "input.toml" : "", [&] { return expand(*file, device_backend); });
  if (!expansion) return;
  require(static_cast<double>(expansion->points.size() + expansion->excluded.size()) == num_points, "points are lost");
  to_table(*expansion);
  to_json(*expansion);
  const std::size_t num_looked_at = std::min(expansion->points.size(), most_looked_at);
  for (std::size_t p = 0; p < num_looked_at; ++p) {
    check_text_form(expansion->points[p]);
    check_model(expansion->points[p].experiment.model);
  }
}

}  // namespace strata::fuzz::experiment_file
