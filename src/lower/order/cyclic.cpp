#include "lower/order/cyclic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "lower/order/sub_batches.hpp"

namespace strata {
namespace {

/// Something that happens once a training step.
struct Event {
  int time = 0;  ///< since micro-batch 0 of the step has begun: time steps times the number of micro-batches
  bool is_update = false;
  bool is_backward = false;
  int micro_batch = 0;
  int stage = 0;
  int end_stage = 0;  ///< of an update: behind its last one
};

class CyclicStep {
 public:
  CyclicStep(const StepShape& shape, const FreshTable& fresh, CyclicUpdates updates)
      : shape_(shape),
        fresh_(fresh),
        updates_(updates),
        num_stages_(shape.num_stages()),
        num_micro_batches_(shape.micro_batches) {}

  /// From one training step's beginning to the next one's.
  int period() const { return 2 * num_stages_ * num_micro_batches_; }

  /// A repetition begins with the part's first micro-batch.
  std::vector<Event> events_of(const StepPart& part) const {
    std::vector<Event> events;
    for (int j = part.first_stage; j < part.end_stage; ++j) {
      for (int i = part.first_micro_batch; i < part.end_micro_batch; ++i) {
        events.push_back({.time = at(i, j), .micro_batch = i, .stage = j});
        events.push_back({.time = at(i, 2 * num_stages_ - 1 - j), .is_backward = true, .micro_batch = i, .stage = j});
      }
    }
    if (updates_ == CyclicUpdates::by_first_user) {
      // In the middle of what runs before it.
      const int i = part.first_micro_batch, j = num_micro_batches_ - 1 - i;
      events.push_back({.time = period() + at(i, j) - 1, .is_update = true, .stage = j, .end_stage = j + 1});
    } else if (part.end_micro_batch == num_micro_batches_) {  // else another rank completes the gradients
      add_updates(part, events);
    }
    for (Event& e : events) e.time -= at(part.first_micro_batch, 0);
    put_in_order(events);
    return events;
  }

  std::vector<Event> events_of_owner(int rank, int own_stage) const {
    std::vector<Event> events;
    for (int j = 0; j < num_stages_; ++j) {
      events.push_back({.time = at(rank, j), .micro_batch = rank, .stage = j});
      events.push_back(
          {.time = at(rank, 2 * num_stages_ - 1 - j), .is_backward = true, .micro_batch = rank, .stage = j});
    }
    // The last micro-batch's backward is one time step before the owner's forward of the next training step.
    const Event update{.time = at(num_micro_batches_ - 1, 2 * num_stages_ - 1 - own_stage),
                       .is_update = true,
                       .micro_batch = rank,
                       .stage = own_stage,
                       .end_stage = own_stage + 1};
    events.push_back(update);
    if (!is_fresh(update)) events.back().time += num_micro_batches_;
    put_in_order(events);
    return events;
  }

  void append(const Event& event, std::vector<OrderItem>& items) const {
    const int step = -(event.time / period());
    if (event.is_update) {
      std::vector<int> parameters;
      for (int j = event.stage; j < event.end_stage; ++j) {
        std::ranges::copy(parameters_of_stage(shape_, j), std::back_inserter(parameters));
      }
      std::ranges::sort(parameters);
      if (parameters.empty()) return;  // a stage of pooling alone
      items.push_back({.pass = Pass::update, .step = step, .parameters = std::move(parameters)});
      return;
    }
    const SegmentRange segments = segments_of_stage(shape_, event.stage);
    std::vector<OrderItem> pass = event.is_backward ? backward_of_sub_batches(shape_, segments, event.micro_batch)
                                                    : forward_of_sub_batches(shape_, segments, event.micro_batch);
    for (OrderItem& item : pass) {
      item.step = step;
      item.version = is_fresh(event) ? 0 : 1;
    }
    std::ranges::move(pass, std::back_inserter(items));
  }

 private:
  /// As they stand in a repetition. What happens at one time is of different stages; updates come behind it.
  void put_in_order(std::vector<Event>& events) const {
    std::ranges::sort(
        events, {}, [&](const Event& e) { return std::tuple(e.time % period(), e.is_update, e.micro_batch, e.stage); });
  }
  void add_updates(const StepPart& part, std::vector<Event>& events) const {
    // Behind the backward of stage @p last_completed.
    const auto add = [&](int last_completed, int first, int end) {
      events.push_back({.time = at(num_micro_batches_ - 1, 2 * num_stages_ - 1 - last_completed),
                        .is_update = true,
                        .stage = first,
                        .end_stage = end});
    };
    if (updates_ == CyclicUpdates::at_once) {
      add(0, part.first_stage, part.end_stage);
      return;
    }
    for (int j = part.first_stage; j < part.end_stage; ++j) add(j, j, j + 1);
  }
  /// When micro-batch @p i is at @p phase: forward passes, then backward passes.
  int at(int i, int phase) const { return 2 * num_stages_ * i + num_micro_batches_ * phase; }
  bool is_fresh(const Event& event) const {
    return fresh_[static_cast<std::size_t>(event.micro_batch)][static_cast<std::size_t>(event.stage)] == '1';
  }

  const StepShape& shape_;
  const FreshTable& fresh_;
  CyclicUpdates updates_;
  int num_stages_, num_micro_batches_;
};

}  // namespace

void refuse_what_is_not_in_time(const FreshTable& fresh, const FreshTable& most) {
  STRATA_INVARIANT(fresh.size() == most.size(), fmt::format("a table of {} micro-batches", fresh.size()));
  for (std::size_t i = 0; i < most.size(); ++i) {
    STRATA_INVARIANT(fresh[i].size() == most[i].size(), fmt::format("a table of {} stages", fresh[i].size()));
    for (std::size_t j = 0; j < most[i].size(); ++j) {
      STRATA_INVARIANT(fresh[i][j] <= most[i][j],
                       fmt::format("micro-batch {} reads stage {} before it is updated", i, j));
    }
  }
}

StepOrder cyclic_order(const StepShape& shape, const FreshTable& fresh, const StepPart& part, CyclicUpdates updates) {
  const bool is_free = part.end_micro_batch - part.first_micro_batch == 1;
  const FreshTable any(static_cast<std::size_t>(shape.micro_batches),
                       std::string(static_cast<std::size_t>(shape.num_stages()), '1'));
  const FreshTable most = updates == CyclicUpdates::at_once
                              ? freshest_behind_norm(shape.micro_batches, shape.num_stages())
                              : freshest(shape.micro_batches, shape.num_stages());
  refuse_what_is_not_in_time(fresh, is_free ? any : most);
  const CyclicStep step(shape, fresh, updates);
  StepOrder order{.shape = shape};
  for (const Event& event : step.events_of(part)) step.append(event, order.items);
  return order;
}

StepOrder walking_order(const StepShape& shape, const FreshTable& fresh, int rank) {
  STRATA_INVARIANT(shape.micro_batches == shape.num_stages(),
                   fmt::format("{} micro-batches and {} stages", shape.micro_batches, shape.num_stages()));
  refuse_what_is_not_in_time(fresh, freshest(shape.micro_batches, shape.num_stages()));
  const CyclicStep step(shape, fresh, CyclicUpdates::stage_by_stage);
  StepOrder order{.shape = shape};
  for (const Event& event : step.events_of_owner(rank, shape.num_stages() - 1 - rank)) step.append(event, order.items);
  return order;
}

}  // namespace strata
