/// @file
/// The text of a Program: what is read is verified, and what is verified folds and gets addresses.

#include <algorithm>
#include <string>

#include "fuzz/fuzz_target.hpp"
#include "ir/program/program.hpp"

namespace strata::fuzz::program_text {
namespace {

/// "" or what verify() says: it is of Programs that we made, and what it finds is an InternalError that names the rank.
std::string complaint(const Program& program) {
  try {
    verify(program);
  } catch (const InternalError& error) {
    require(names(error.what(), "program of rank "), error.what());
    return error.what();
  }
  return "";
}

void fold(const Program& program) {
  require(memory_peak(program).total_bytes >= 0 && bytes_by_collective(program).total() >= 0,
          "a sum of what is not negative is negative");
  // Which attributes a kernel has is its lowering's concern, and is looked at where they are read.
  try {
    flops_per_step(program);
  } catch (const InternalError& error) {
    require(names(error.what(), "attribute `"), error.what());
  }
  require(body_dependencies(program).size() == program.body.size(), "dependencies of every instruction");
  try {
    check_capacity(program, 1);
  } catch (const OutOfMemory&) {
  }
  constexpr std::int64_t few_runs = 1000;
  for (const Buffer& buffer : program.buffers) {
    std::int64_t seen = 0;
    buffer.block.for_runs(buffer.parameter_begin, std::min(buffer.num_elements, few_runs),
                          [&](std::int64_t, std::int64_t at, std::int64_t count) {
                            require(at == seen && count > 0, "runs follow each other");
                            seen += count;
                          });
    require(seen == std::min(buffer.num_elements, few_runs), "runs are the whole");
  }
}

}  // namespace

STRATA_FUZZ_TARGET(program) {
  const std::string text = text_of(bytes);
  const auto program = unless_refused("line ", [&] { return parse_program(text); });
  if (!program) return;
  const std::string printed = to_text(*program);
  require(parse_program(printed) == *program, "a program and its text differ:\n" + printed);
  if (!complaint(*program).empty()) return;
  fold(*program);
  Program placed = *program;
  assign_addresses(placed);
  require(complaint(placed).empty(), "addresses that break a sound program: " + complaint(placed));
  require(memory_peak(placed).total_bytes <= placed.arena_bytes, "more live than the arena holds");
}

}  // namespace strata::fuzz::program_text
