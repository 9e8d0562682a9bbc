#include "partition/fresh_table.hpp"

#include <cstddef>
#include <iterator>
#include <sstream>

namespace strata {
namespace {

/// '1' wherever j·N >= @p passes · (N - 1 - i).
FreshTable fresh_behind(int num_micro_batches, int num_stages, int passes) {
  FreshTable table = never_fresh(num_micro_batches, num_stages);
  for (int i = 0; i < num_micro_batches; ++i) {
    for (int j = 0; j < num_stages; ++j) {
      const bool in_time = j * num_micro_batches >= passes * (num_micro_batches - 1 - i);
      if (in_time) table[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = '1';
    }
  }
  return table;
}

}  // namespace

FreshTable never_fresh(int num_micro_batches, int num_stages) {
  return FreshTable(static_cast<std::size_t>(num_micro_batches),
                    std::string(static_cast<std::size_t>(num_stages), '0'));
}

FreshTable freshest(int num_micro_batches, int num_stages) {
  return fresh_behind(num_micro_batches, num_stages, num_stages);
}

FreshTable freshest_behind_norm(int num_micro_batches, int num_stages) {
  return fresh_behind(num_micro_batches, num_stages, 2 * num_stages);
}

FreshTable fresh_table(const Schedule& schedule, int num_stages) {
  if (schedule.fresh == "none") return never_fresh(schedule.micro_batches, num_stages);
  if (schedule.fresh == "v2") return freshest(schedule.micro_batches, num_stages);
  std::istringstream rows(schedule.fresh);
  return {std::istream_iterator<std::string>(rows), {}};
}

}  // namespace strata
