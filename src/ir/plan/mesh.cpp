/// @file
/// Where ranks stand. A rank's coordinates are the digits of its number in the mixed radix of the mesh axes, the last
/// axis fastest.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "ir/plan/plan.hpp"
#include "ir/plan/stage_pyramid.hpp"

namespace strata {
namespace {

/// Ranks between neighbours on the axis, and its size; {1, 1} for an axis the mesh does not have.
struct Stride {
  int step = 1;
  int size = 1;
};
Stride stride_of(const Mesh& mesh, std::string_view axis) {
  int named = 1;
  for (const MeshAxis& a : mesh.axes) named *= a.size;
  int step = std::max(1, mesh.num_ranks() / named);  // what layouts use is fastest
  for (auto it = mesh.axes.rbegin(); it != mesh.axes.rend(); ++it) {
    if (it->name == axis) {
      return {step, it->size};
    }
    step *= it->size;
  }
  return {};
}

}  // namespace

int axis_size(const Mesh& mesh, std::string_view axis) { return stride_of(mesh, axis).size; }

int axis_stride(const Mesh& mesh, std::string_view axis) { return stride_of(mesh, axis).step; }

bool has_layouts(const Mesh& mesh) {
  if (mesh.placement == "pyramid") return false;
  const bool stages_alone = mesh.axes.empty() || (mesh.axes.size() == 1 && mesh.axes.front().name == "stage");
  return stages_alone && mesh.num_ranks() > axis_size(mesh, "stage");
}

bool cuts_evenly(const Mesh& mesh, int stages) {
  return mesh.nodes % stages == 0 || (stages % mesh.nodes == 0 && mesh.ranks_per_node % (stages / mesh.nodes) == 0);
}

Mesh mesh_of_stage(const Mesh& mesh) {
  const int stages = axis_size(mesh, "stage");
  if (mesh.nodes % stages == 0)
    return {.nodes = mesh.nodes / stages, .ranks_per_node = mesh.ranks_per_node, .axes = {}};
  if (!cuts_evenly(mesh, stages)) {
    throw UserError(fmt::format(
        "plan: mesh.axes.stage: {} stages are neither whole nodes nor an even part of one, of {} nodes x {} ranks",
        stages, mesh.nodes, mesh.ranks_per_node));
  }
  return {.nodes = 1, .ranks_per_node = mesh.ranks_per_node / (stages / mesh.nodes), .axes = {}};
}

int coordinate(const Mesh& mesh, std::string_view axis, int rank) {
  if (const auto pyramid = pyramid_of(mesh)) return axis == "stage" ? pyramid->stage_of(rank) : 0;
  const Stride stride = stride_of(mesh, axis);
  return rank / stride.step % stride.size;
}

std::vector<int> group_along(const Mesh& mesh, std::string_view axis, int rank) {
  if (mesh.placement == "pyramid") {
    if (axis != "stage") return {rank};
    std::vector<int> all(static_cast<std::size_t>(mesh.num_ranks()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const Stride stride = stride_of(mesh, axis);
  const int first = rank - rank / stride.step % stride.size * stride.step;
  std::vector<int> ranks;
  for (int i = 0; i < stride.size; ++i) {
    ranks.push_back(first + i * stride.step);
  }
  return ranks;
}

}  // namespace strata
