#include "lower/rank_signature.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace strata {
namespace {

/// By rank: which of the shapes that data groups have is its group's. A shape says how many nodes hold how many
/// members.
std::vector<int> shapes_of_data_groups(const Mesh& mesh) {
  std::map<std::map<int, int>, int> known;
  return numbers_of_groups(
      mesh.num_ranks(), [&](int rank) { return group_along(mesh, "data", rank); },
      [&](const std::vector<int>& group) {
        std::map<int, int> members_of_node;
        for (const int member : group) ++members_of_node[member / mesh.ranks_per_node];
        std::map<int, int> nodes_with;  // so many members
        for (const auto& [_, members] : members_of_node) ++nodes_with[members];
        return known.try_emplace(std::move(nodes_with), static_cast<int>(known.size())).first->second;
      });
}

}  // namespace

std::vector<int> numbers_of_groups(int num_ranks, const std::function<std::vector<int>(int)>& members_of,
                                   const std::function<int(const std::vector<int>&)>& number_of) {
  constexpr int unknown = -1;
  std::vector<int> numbers(static_cast<std::size_t>(num_ranks), unknown);
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (numbers[static_cast<std::size_t>(rank)] != unknown) continue;
    const std::vector<int> members = members_of(rank);
    const int number = number_of(members);
    for (const int member : members) numbers[static_cast<std::size_t>(member)] = number;
  }
  return numbers;
}

AxesSignature::AxesSignature(const Mesh& mesh) : mesh_(mesh), data_shapes_(shapes_of_data_groups(mesh)) {}

void AxesSignature::append(int rank, Signature& signature) const {
  const auto node = [&](int r) { return r / mesh_.ranks_per_node; };
  for (const MeshAxis& axis : mesh_.axes) {
    if (axis.size == 1) continue;
    if (axis.name == "data") {
      signature.push_back(data_shapes_[static_cast<std::size_t>(rank)]);
      continue;
    }
    signature.push_back(coordinate(mesh_, axis.name, rank));
    for (const int member : group_along(mesh_, axis.name, rank)) signature.push_back(node(member) - node(rank));
  }
}

void append_leaves_of_neighbours(const Mesh& mesh, std::span<const int> leaf_of_node, int rank, Signature& signature) {
  const auto leaf = [&](int r) { return leaf_of_node[static_cast<std::size_t>(r / mesh.ranks_per_node)]; };
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.name == "data" || axis.size == 1) continue;
    for (const int member : group_along(mesh, axis.name, rank)) signature.push_back(leaf(member) == leaf(rank) ? 1 : 0);
  }
}

RankClasses classes_of(int num_ranks, const std::function<Signature(int)>& signature_of) {
  RankClasses classes;
  std::map<Signature, int> known;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto [found, is_new] =
        known.try_emplace(signature_of(rank), static_cast<int>(classes.representatives.size()));
    if (is_new) classes.representatives.push_back(rank);
    classes.class_of_rank.push_back(found->second);
  }
  return classes;
}

std::vector<Between> factors_with_groups(const Plan& plan, const Factor& all, std::span<const StateFactors> states) {
  std::vector<Between> pairs;
  const auto add = [&](const Factor& outer, const Factor& inner) {
    const Between pair{outer, inner};
    if (std::ranges::find(pairs, pair) == pairs.end()) pairs.push_back(pair);
  };
  constexpr Factor one{};
  for (const StateFactors& s : states) {
    add(s.p, one);
    if (plan.quantization.gradients != "none") {  // inside nodes first, then between them
      add({s.p.in_node, 1}, one);
      add(s.p, {s.p.in_node, 1});
    }
    add(s.os, s.p);
    add(s.os, one);
    add(all, s.p);
    add(all, s.os);
    if (s.p_backward) add(*s.p_backward, one);
  }
  return pairs;
}

RankClasses with_equal_partners(RankClasses classes, std::span<const MembersOf> groupings) {
  const int num_ranks = static_cast<int>(classes.class_of_rank.size());
  for (std::size_t before = 1; before < classes.representatives.size();) {
    before = classes.representatives.size();
    std::vector<std::vector<int>> partners;  // by way and rank: which set of classes its group has
    for (const MembersOf& members_of : groupings) {
      std::map<std::set<int>, int> known;
      partners.push_back(numbers_of_groups(num_ranks, members_of, [&](const std::vector<int>& group) {
        std::set<int> found;
        for (const int rank : group) found.insert(classes.class_of_rank[static_cast<std::size_t>(rank)]);
        return known.try_emplace(std::move(found), static_cast<int>(known.size())).first->second;
      }));
    }
    classes = classes_of(num_ranks, [&](int rank) {
      Signature signature = {classes.class_of_rank[static_cast<std::size_t>(rank)]};
      for (const std::vector<int>& of_rank : partners) signature.push_back(of_rank[static_cast<std::size_t>(rank)]);
      return signature;
    });
  }
  return classes;
}

}  // namespace strata
