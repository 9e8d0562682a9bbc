/// @file
/// The checks of a StepOrder: each item by itself, counts, and the ranks beside each other over several repetitions.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "ir/order/step_order.hpp"

namespace strata {
namespace {

[[noreturn]] void fail(std::size_t rank, std::size_t item, const OrderItem& what, const std::string& problem) {
  throw InternalError(fmt::format("order of rank {}, item {}, {}: {}", rank, item, describe(what), problem));
}

void check_items(std::span<const StepOrder> orders) {
  const StepOrder& first = orders.front();
  const StepShape& shape = first.shape;
  STRATA_INVARIANT(shape.micro_batches >= 1 && shape.sub_batches >= 1 && first.steps_per_body >= 1,
                   "an order has micro-batches, sub-batches and steps");
  for (std::size_t s = 0; s < shape.segments.size(); ++s) {
    const Segment& segment = shape.segments[s];
    const int stage = s == 0 ? 0 : shape.segments[s - 1].stage;
    const int begin = s == 0 ? 0 : shape.segments[s - 1].end();
    const bool goes_on = segment.stage == stage || (s > 0 && segment.stage == stage + 1);
    STRATA_INVARIANT(goes_on && segment.first_operator == begin && segment.num_operators > 0,
                     fmt::format("segment {} does not go on where the one before it ends", s));
    STRATA_INVARIANT(!segment.recomputed_with_previous || (s > 0 && segment.recomputed && goes_on &&
                                                           segment.stage == stage && shape.segments[s - 1].recomputed),
                     fmt::format("segment {} is not recomputed, or not the one before it", s));
    STRATA_INVARIANT(
        std::ranges::adjacent_find(segment.parameters, std::ranges::greater_equal{}) == segment.parameters.end(),
        fmt::format("parameters of segment {} do not rise", s));
  }
  for (std::size_t r = 0; r < orders.size(); ++r) {
    STRATA_INVARIANT(orders[r].shape == shape && orders[r].steps_per_body == first.steps_per_body,
                     fmt::format("rank {} has another shape of a step than rank 0", r));
    for (std::size_t i = 0; i < orders[r].items.size(); ++i) {
      const OrderItem& item = orders[r].items[i];
      if (item.micro_batch < 0 || item.micro_batch >= shape.micro_batches) fail(r, i, item, "no such micro-batch");
      if (item.sub_batch < 0 || item.sub_batch >= shape.sub_batches) fail(r, i, item, "no such sub-batch");
      if (item.version < 0) fail(r, i, item, "parameters of the future");
      if (item.pass == Pass::update) {
        if (item.parameters.empty()) fail(r, i, item, "it names no parameter");
        continue;
      }
      if (item.segment < 0 || item.segment >= static_cast<int>(shape.segments.size())) {
        fail(r, i, item, "no such segment");
      }
    }
  }
}

/// A pass of a segment in one training step.
struct Work {
  Pass pass = Pass::forward;
  int segment = 0;
  int micro_batch = 0;
  int sub_batch = 0;
  int step = 0;
  auto operator<=>(const Work&) const = default;
};

/// Who updates parameter @p parameter for rank @p rank, which reads it: the rank itself, or, where it never does,
/// another one that computes the same segment for other micro-batches. @return the rank if nobody does.
std::size_t updater_for(std::span<const StepOrder> orders, std::size_t rank, int parameter) {
  const auto updates = [&](std::size_t r) {
    return std::ranges::any_of(orders[r].items, [&](const OrderItem& item) {
      return item.pass == Pass::update && std::ranges::find(item.parameters, parameter) != item.parameters.end();
    });
  };
  if (updates(rank)) return rank;
  std::set<int> segments;
  for (const OrderItem& item : orders[rank].items) segments.insert(item.segment);
  for (std::size_t r = 0; r < orders.size(); ++r) {
    const bool is_replica = std::ranges::any_of(orders[r].items, [&](const OrderItem& item) {
      return item.pass != Pass::update && segments.contains(item.segment);
    });
    if (is_replica && updates(r)) return r;
  }
  return rank;
}

/// Of one repetition: its steps stand for those of all others.
class Counts {
 public:
  explicit Counts(std::span<const StepOrder> orders)
      : orders_(orders), shape_(orders.front().shape), steps_(orders.front().steps_per_body) {
    for (std::size_t r = 0; r < orders.size(); ++r) {
      for (std::size_t i = 0; i < orders[r].items.size(); ++i) count(r, i);
    }
  }

  void check() const {
    for (int step = 0; step < steps_; ++step) {
      for (int s = 0; s < static_cast<int>(shape_.segments.size()); ++s) {
        for (int m = 0; m < shape_.micro_batches; ++m) {
          for (int u = 0; u < shape_.sub_batches; ++u) check_work(s, m, u, step);
        }
      }
    }
    for (std::size_t r = 0; r < orders_.size(); ++r) check_updates(r);
  }

 private:
  struct Place {
    std::size_t rank = 0;
    std::size_t item = 0;
  };
  const OrderItem& at(const Place& place) const { return orders_[place.rank].items[place.item]; }
  int in_body(int step) const { return (step % steps_ + steps_) % steps_; }

  void count(std::size_t rank, std::size_t index) {
    const OrderItem& item = orders_[rank].items[index];
    const int step = in_body(item.step);
    if (item.pass == Pass::update) {
      for (const int p : item.parameters) {
        if (!updates_.emplace(std::tuple{rank, p, step}).second) {
          fail(rank, index, item, fmt::format("parameter {} is updated a second time in the step", p));
        }
      }
      return;
    }
    const Work work{item.pass, item.segment, item.micro_batch, item.sub_batch, step};
    const auto [place, is_new] = places_.try_emplace(work, Place{rank, index});
    if (!is_new) {
      fail(rank, index, item, fmt::format("it is done a second time in the step, as on rank {}", place->second.rank));
    }
  }

  const Place* find(Pass pass, int segment, int micro_batch, int sub_batch, int step) const {
    const auto found = places_.find({pass, segment, micro_batch, sub_batch, step});
    return found == places_.end() ? nullptr : &found->second;
  }

  void check_work(int segment, int m, int u, int step) const {
    const Place* forward = find(Pass::forward, segment, m, u, step);
    for (const Pass pass : {Pass::forward, Pass::recompute, Pass::backward}) {
      const Place* place = find(pass, segment, m, u, step);
      const bool recomputed = shape_.segments[static_cast<std::size_t>(segment)].recomputed;
      const bool expected = pass != Pass::recompute || recomputed;
      if (place == nullptr) {
        STRATA_INVARIANT(!expected, "missing in the order of every rank: " +
                                        describe({.pass = pass, .segment = segment, .micro_batch = m, .sub_batch = u}));
        continue;
      }
      if (!expected) fail(place->rank, place->item, at(*place), "the segment is not recomputed");
      if (place->rank != forward->rank) {
        fail(place->rank, place->item, at(*place), fmt::format("its forward is on rank {}", forward->rank));
      }
      if (at(*place).version != at(*forward).version) {
        fail(place->rank, place->item, at(*place), "its forward reads another version");
      }
    }
  }

  void check_updates(std::size_t rank) const {
    std::set<int> read;
    for (const OrderItem& item : orders_[rank].items) {
      if (item.pass == Pass::update) continue;
      const auto& parameters = shape_.segments[static_cast<std::size_t>(item.segment)].parameters;
      read.insert(parameters.begin(), parameters.end());
    }
    for (int step = 0; step < steps_; ++step) {
      for (const int p : read) {
        STRATA_INVARIANT(updates_.contains({updater_for(orders_, rank, p), p, step}),
                         fmt::format("order of rank {}: parameter {} is read and never updated", rank, p));
      }
    }
    for (const auto& [of_rank, p, step] : updates_) {
      STRATA_INVARIANT(of_rank != rank || read.contains(p),
                       fmt::format("order of rank {}: parameter {} is updated and never read", rank, p));
    }
  }

  std::span<const StepOrder> orders_;
  const StepShape& shape_;
  int steps_;
  std::map<Work, Place> places_;
  std::set<std::tuple<std::size_t, int, int>> updates_;  ///< rank, parameter, step in the body
};

/// All ranks beside each other, each item as soon as what it needs is there: in a training of so many repetitions that
/// its first and last steps, and a steady state between them, are in it.
class Walk {
 public:
  explicit Walk(std::span<const StepOrder> orders)
      : orders_(orders), shape_(orders.front().shape), next_(orders.size(), 0), updaters_(orders.size()) {
    for (std::size_t r = 0; r < orders.size(); ++r) {
      for (const Segment& segment : shape_.segments) {
        for (const int p : segment.parameters) updaters_[r].try_emplace(p, updater_for(orders, r, p));
      }
    }
    int reach = 0;
    for (const StepOrder& order : orders) {
      for (const OrderItem& item : order.items) reach = std::max(reach, std::abs(item.step));
    }
    const int steps = orders.front().steps_per_body;
    repetitions_ = (reach + steps - 1) / steps + 2;
    num_steps_ = steps * repetitions_;
    repetitions_ += (reach + steps - 1) / steps;  // to drain
    backwards_left_.resize(static_cast<std::size_t>(num_steps_));
    for (int step = 0; step < num_steps_; ++step) {
      for (const Segment& segment : shape_.segments) {
        for (const int p : segment.parameters) {
          backwards_left_[static_cast<std::size_t>(step)][p] += shape_.micro_batches * shape_.sub_batches;
        }
      }
    }
  }

  void check() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < orders_.size(); ++r) {
        while (next_[r] < num_items(r) && (skipped(r) || missing(r).empty())) {
          if (!skipped(r)) finish(r);
          ++next_[r];
          moved = true;
        }
      }
    }
    std::string waiting;
    for (std::size_t r = 0; r < orders_.size(); ++r) {
      if (next_[r] == num_items(r)) continue;
      waiting += fmt::format("\n  rank {}, item {}, {}, step {}: waits for {}", r, next_[r] % orders_[r].items.size(),
                             describe(item(r)), step(r), missing(r));
    }
    STRATA_INVARIANT(waiting.empty(), "nothing can go on:" + waiting);
  }

 private:
  std::size_t num_items(std::size_t r) const {
    return orders_[r].items.size() * static_cast<std::size_t>(repetitions_);
  }
  /// The next of rank @p r, and its training step.
  const OrderItem& item(std::size_t r) const { return orders_[r].items[next_[r] % orders_[r].items.size()]; }
  int step(std::size_t r) const {
    return static_cast<int>(next_[r] / orders_[r].items.size()) * orders_[r].steps_per_body + item(r).step;
  }
  bool skipped(std::size_t r) const { return step(r) < 0 || step(r) >= num_steps_; }
  Work work(std::size_t r) const {
    return {item(r).pass, item(r).segment, item(r).micro_batch, item(r).sub_batch, step(r)};
  }

  /// What the next item of rank @p r waits for; empty: nothing.
  std::string missing(std::size_t r) const {
    const OrderItem& now = item(r);
    return now.pass == Pass::update ? missing_for_update(r) : missing_for_pass(r);
  }

  std::string missing_for_pass(std::size_t r) const {
    const Work now = work(r);
    const auto needs = [&](Pass pass, int segment) -> std::string {
      Work before = now;
      before.pass = pass;
      before.segment = segment;
      if (done_.contains(before)) return "";
      return describe({.pass = pass, .segment = segment, .micro_batch = now.micro_batch, .sub_batch = now.sub_batch});
    };
    std::vector<std::string> needed;
    const Segment& segment = shape_.segments[static_cast<std::size_t>(now.segment)];
    switch (now.pass) {
      case Pass::forward:
        if (now.segment > 0) needed = {needs(Pass::forward, now.segment - 1)};
        break;
      case Pass::recompute:
        needed = {needs(Pass::forward, now.segment)};
        if (segment.recomputed_with_previous) needed.push_back(needs(Pass::recompute, now.segment - 1));
        break;
      case Pass::backward:
        needed = {needs(segment.recomputed ? Pass::recompute : Pass::forward, now.segment)};
        if (now.segment + 1 < static_cast<int>(shape_.segments.size())) {
          needed.push_back(needs(Pass::backward, now.segment + 1));
        }
        break;
      case Pass::update: break;
    }
    const int version = now.step - item(r).version;  // θ of this number: as many updates have made it
    for (const int p : segment.parameters) {
      if (version > 0 && !updated_.contains({updaters_[r].at(p), p, version - 1})) {
        needed.push_back(fmt::format("the update of parameter {} of step {}", p, version - 1));
      }
    }
    for (std::string& what : needed) {
      if (!what.empty()) return std::move(what);
    }
    return "";
  }

  std::string missing_for_update(std::size_t r) const {
    const int now = step(r);
    for (const int p : item(r).parameters) {
      const auto& left = backwards_left_[static_cast<std::size_t>(now)];
      if (const auto found = left.find(p); found != left.end() && found->second > 0) {
        return fmt::format("{} more gradients of parameter {}", found->second, p);
      }
      if (now > 0 && !updated_.contains({r, p, now - 1})) {
        return fmt::format("the update of parameter {} of step {}", p, now - 1);
      }
    }
    return "";
  }

  void finish(std::size_t r) {
    const OrderItem& now = item(r);
    if (now.pass == Pass::update) {
      for (const int p : now.parameters) updated_.emplace(r, p, step(r));
      return;
    }
    done_.insert(work(r));
    if (now.pass != Pass::backward) return;
    for (const int p : shape_.segments[static_cast<std::size_t>(now.segment)].parameters) {
      --backwards_left_[static_cast<std::size_t>(step(r))][p];
    }
  }

  std::span<const StepOrder> orders_;
  const StepShape& shape_;
  std::vector<std::size_t> next_;                     ///< by rank: the next item, counted over all repetitions
  std::vector<std::map<int, std::size_t>> updaters_;  ///< by rank and parameter: who updates it for that rank
  int repetitions_ = 0;
  int num_steps_ = 0;
  std::set<Work> done_;
  std::set<std::tuple<std::size_t, int, int>> updated_;  ///< rank, parameter, training step
  std::vector<std::map<int, int>> backwards_left_;       ///< by training step and parameter, over all ranks
};

}  // namespace

void verify(std::span<const StepOrder> orders) {
  STRATA_INVARIANT(!orders.empty(), "no order");
  check_items(orders);
  Counts(orders).check();
  Walk(orders).check();
}

}  // namespace strata
