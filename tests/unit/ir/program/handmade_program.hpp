#pragma once

/// @file
/// Programs written by hand, one call an instruction, for tests that need to know every field.

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ir/program/program.hpp"

namespace strata {

constexpr int compute = 0;
constexpr int communication = 1;

/// A rank with two streams; every instruction goes to the body.
struct Handmade {
  Program program;

  explicit Handmade(int rank = 0, int num_ranks = 1) {
    program.rank = rank;
    program.num_ranks = num_ranks;
    program.streams = {"compute", "communication"};
  }

  int buffer(const std::string& name, std::int64_t num_elements, bool persistent = false, DType dtype = DType::f32,
             Category category = Category::activation) {
    program.buffers.push_back(
        {.name = name, .num_elements = num_elements, .dtype = dtype, .category = category, .persistent = persistent});
    return static_cast<int>(program.buffers.size()) - 1;
  }
  int group(const std::string& name, std::vector<int> ranks) {
    program.groups.push_back({name, std::move(ranks)});
    return static_cast<int>(program.groups.size()) - 1;
  }
  Operand whole(int id) const { return {id, 0, program.buffers[static_cast<std::size_t>(id)].num_elements}; }

  /// Reads @p from (-1: nothing), writes @p to.
  Instruction& kernel(int stream, int from, int to, const std::string& name) {
    Instruction in{.kernel = from < 0 ? Kernel::fill : Kernel::copy, .stream = stream, .name = name};
    if (from >= 0) in.inputs = {whole(from)};
    in.outputs = {whole(to)};
    return append(std::move(in));
  }
  /// In place on @p id, on the communication stream. @p root: of a broadcast or reduce; the peer's index of a send or
  /// recv.
  Instruction& collective(Collective kind, int group, int id, const std::string& name, int root = 0) {
    Instruction in{.collective = kind, .group = group, .root = root, .stream = communication, .name = name};
    if (kind != Collective::recv) in.inputs = {whole(id)};
    const bool is_reduced_elsewhere =
        kind == Collective::reduce &&
        program.groups[static_cast<std::size_t>(group)].ranks[static_cast<std::size_t>(root)] != program.rank;
    if (kind != Collective::send && !is_reduced_elsewhere) in.outputs = {whole(id)};
    return append(std::move(in));
  }

  /// The prologue fills a persistent buffer.
  void initialize(int id) {
    program.prologue.push_back({.kernel = Kernel::fill, .stream = 0, .name = "initialize", .outputs = {whole(id)}});
  }

 private:
  Instruction& append(Instruction in) {
    program.body.push_back(std::move(in));
    return program.body.back();
  }
};

/// What verify has to say; "" if it is content.
template <class Programs>
std::string complaint(const Programs& programs) {
  try {
    verify(programs);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

}  // namespace strata
