#include "lower/step/stage_messages.hpp"

#include <fmt/core.h>

#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace strata {

std::vector<std::string> link_streams(int num_stages, int stage) {
  std::vector<std::string> streams;
  for (const int peer : {stage - 1, stage + 1}) {
    if (peer < 0 || peer >= num_stages) continue;
    streams.push_back(fmt::format("stage{}to{}", stage, peer));
    streams.push_back(fmt::format("stage{}to{}", peer, stage));
  }
  return streams;
}

namespace {

/// Streams to the stage before and to the stage behind, as link_streams() has them; the one from it follows each.
constexpr int stream_before = 0;
int stream_behind(bool has_before) { return has_before ? 2 : 0; }

/// Where an order has which item.
class Places {
 public:
  explicit Places(const StepOrder& order) {
    for (std::size_t i = 0; i < order.items.size(); ++i) {
      const OrderItem& item = order.items[i];
      places_.emplace(std::tuple{item.pass, item.segment, item.micro_batch, item.sub_batch}, static_cast<int>(i));
    }
  }
  /// Of the samples of @p item.
  int of(Pass pass, int segment, const OrderItem& item) const {
    return places_.at({pass, segment, item.micro_batch, item.sub_batch});
  }

 private:
  std::map<std::tuple<Pass, int, int, int>, int> places_;
};

}  // namespace

StageMessages::StageMessages(const StepOrder& order, int stage, bool has_before, bool has_behind)
    : receives_(order.items.size()), sends_(order.items.size()) {
  const auto [first, end] = segments_of_stage(order.shape, stage);
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    const OrderItem& item = order.items[i];
    if (item.pass == Pass::forward && item.segment == end - 1 && has_behind) {
      sends_[i] = {stage + 1, stream_behind(has_before)};
    }
    if (item.pass == Pass::backward && item.segment == first && has_before) sends_[i] = {stage - 1, stream_before};
  }
}

StageMessages::StageMessages(const StepOrder& order, int stage, const StepOrder* before, const StepOrder* behind)
    : StageMessages(order, stage, before != nullptr, behind != nullptr) {
  const auto [first, end] = segments_of_stage(order.shape, stage);
  std::optional<Places> theirs_before, theirs_behind;
  if (before != nullptr) theirs_before.emplace(*before);
  if (behind != nullptr) theirs_behind.emplace(*behind);
  /// The last of our messages that was posted before item @p posted and that the peer needs before its @p cause.
  const auto taken_before = [&, first = first, end = end](const Run& run, int posted, int cause) {
    for (int i = posted; i-- > 0;) {
      if (sends_[static_cast<std::size_t>(i)].peer != stage + (run.backward ? 1 : -1)) continue;
      const OrderItem& sent = order.items[static_cast<std::size_t>(i)];
      const int reader = run.backward ? theirs_behind->of(Pass::forward, end, sent)
                                      : theirs_before->of(Pass::backward, first - 1, sent);
      if (reader < cause) return i;
    }
    return -1;
  };
  /// The first item of the run with samples of each sub-batch.
  const auto firsts_of = [&](const Run& run) {
    std::vector<int> firsts;
    for (int i = run.first; static_cast<int>(firsts.size()) < order.shape.sub_batches; ++i) {
      const OrderItem& item = order.items[static_cast<std::size_t>(i)];
      if (item.pass != Pass::update && item.sub_batch == static_cast<int>(firsts.size())) firsts.push_back(i);
    }
    return firsts;
  };
  const std::vector<Run> runs = runs_of(order);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Run& run = runs[r];
    if ((run.backward ? behind : before) == nullptr) continue;
    const bool ahead = r > 0 && (run.backward || !runs[r - 1].backward);
    const int posted = ahead ? runs[r - 1].first : run.first;
    for (const int reader : firsts_of(run)) {
      const OrderItem& item = order.items[static_cast<std::size_t>(reader)];
      const int cause = run.backward ? theirs_behind->of(Pass::backward, end, item)
                                     : theirs_before->of(Pass::forward, first - 1, item);
      receives_[static_cast<std::size_t>(posted)].push_back(
          {.item = reader,
           .peer = stage + (run.backward ? 1 : -1),
           .stream = (run.backward ? stream_behind(before != nullptr) : stream_before) + 1,
           .taken = taken_before(run, posted, cause)});
    }
  }
}

StageMessages StageMessages::of_replica(const StepOrder& order, int stage) {
  const bool has_before = stage > 0, has_behind = stage + 1 < order.shape.num_stages();
  StageMessages messages(order, stage, has_before, has_behind);
  std::set<std::tuple<bool, int, int>> seen;  // backward, micro-batch, sub-batch
  std::map<std::pair<int, int>, int> sent;    // micro-batch and sub-batch: the item behind which it goes on
  for (int i = 0; i < static_cast<int>(order.items.size()); ++i) {
    const OrderItem& item = order.items[static_cast<std::size_t>(i)];
    if (item.pass == Pass::update) continue;
    const bool backward = item.pass != Pass::forward;
    if (!backward && messages.after(i).peer >= 0) sent[{item.micro_batch, item.sub_batch}] = i;
    if (!seen.emplace(backward, item.micro_batch, item.sub_batch).second) continue;
    if (!(backward ? has_behind : has_before)) continue;
    messages.receives_[static_cast<std::size_t>(i)].push_back(
        {.item = i,
         .peer = stage + (backward ? 1 : -1),
         .stream = (backward ? stream_behind(has_before) : stream_before) + 1,
         .taken = backward ? sent.at({item.micro_batch, item.sub_batch}) : -1});
  }
  return messages;
}

}  // namespace strata
