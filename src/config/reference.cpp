/// @file
/// Each text is one walk along the table of options.

#include "config/reference.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "config/options.hpp"

namespace strata {
namespace {

/// "" for keys outside of every table.
std::string section_of(const Option& option) {
  const std::size_t dot = option.key.find('.');
  return std::string(option.key.substr(0, dot == std::string_view::npos ? 0 : dot));
}

std::string_view key_in_section(const Option& option) {
  const std::size_t dot = option.key.find('.');
  return dot == std::string_view::npos ? option.key : option.key.substr(dot + 1);
}

std::string default_of(const Option& option) {
  if (option.required) {
    return "required";
  }
  const auto value = value_of(Experiment{}, option.key);
  return value ? toml_text(*value) : "unset";
}

/// A bar would end the table's cell.
std::string escaped(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') {
      cell += '\\';
    }
    cell += c;
  }
  return cell;
}

std::string meaning_of(const Option& option) {
  return option.unit.empty() ? std::string(option.help) : fmt::format("{} ({})", option.help, option.unit);
}

constexpr std::string_view sweep_text = R"(
## [sweep]

Points = `product` × each group of `zip`. A list anywhere else is data, not an axis.

```toml
[sweep]
product = { "strategy.name" = ["single", "ddp"], "resources.ranks_per_node" = [1, 2, 4] }
zip     = [ { "model.name" = ["gpt-nano", "vgg13-cifar"], "train.global_batch" = [8, 64] } ]
exclude = [ { when = 'strategy.name == "single" && resources.ranks_per_node > 1', reason = "one rank by definition" } ]
```

- `product`: a table of lists. The first key varies slowest.
- `zip`: a list of tables of equally long lists, whose values vary together.
- A key of either may be a section instead, its values tables of some of its options, where points differ in what they need:
  `strategy = [{ name = "ddp" }, { name = "mics", group = "8x1" }]`.
- `exclude`: a list of `{ when, reason }`. `when` knows `== != < <= > >= in && || ! ( )`, numbers, texts, `true`, `false`, lists
  and dotted keys. An exclude that matches no point is an error; excluded points stay listed with their reason.

## Overrides

`--set key=value` lays a value over the file: TOML, where a string may stand without quotes. It fixes an axis of `product`; an axis of `zip`
cannot be overridden. Paths are relative to the experiment file.
)";

}  // namespace

std::string reference_markdown() {
  std::string text =
      "# Experiment files\n\nGenerated from the table of options. An unknown key is an error. A key that is not given "
      "has its default; "
      "*unset* means: as the model's preset says.\n";
  std::string section = "none yet";
  for (const Option& option : all_options()) {
    if (section_of(option) != section) {
      section = section_of(option);
      text += fmt::format("\n## {}\n\n", section.empty() ? "Top level" : fmt::format("[{}]", section));
      if (section == "strategy") {
        text += "Besides `name`, the options that the mode declares: `strata list strategies` prints them.\n\n";
      }
      text += "| key | type | default | accepted | meaning |\n|---|---|---|---|---|\n";
    }
    text += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key_in_section(option), type_name(option),
                        default_of(option), escaped(option.accepted), escaped(meaning_of(option)));
  }
  text += sweep_text;
  return text;
}

}  // namespace strata
