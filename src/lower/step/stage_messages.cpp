#include "lower/step/stage_messages.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace strata {

namespace {

/// Whether a link leads from @p place to the place before it.
bool has_before(const StagePlaces& pipeline, int place) { return pipeline.is_ring() || place > 0; }
bool has_behind(const StagePlaces& pipeline, int place) {
  return pipeline.is_ring() || place + 1 < pipeline.num_places();
}

/// Whether there is a stage @p stage, and ranks at another place than @p place hold it.
bool is_elsewhere(const StepShape& shape, const StagePlaces& pipeline, int stage, int place) {
  return stage >= 0 && stage < shape.num_stages() && pipeline.place_of(stage) != place;
}

}  // namespace

std::vector<std::string> link_streams(const StagePlaces& pipeline, int place) {
  const int num = pipeline.num_places();
  std::vector<std::string> streams;
  const auto add = [&](int peer, bool goes_around) {
    const char* name = goes_around ? "around" : "stage";
    streams.push_back(fmt::format("{}{}to{}", name, place, peer));
    streams.push_back(fmt::format("{}{}to{}", name, peer, place));
  };
  if (has_before(pipeline, place)) add((place + num - 1) % num, place == 0);
  if (has_behind(pipeline, place)) add((place + 1) % num, place + 1 == num);
  return streams;
}

namespace {

/// Streams to the place before and to the place behind, as link_streams() has them; the one from it follows each.
constexpr int stream_before = 0;
int stream_behind(const StagePlaces& pipeline, int place) { return has_before(pipeline, place) ? 2 : 0; }

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

StageMessages::StageMessages(const StepOrder& order, const StagePlaces& pipeline, int place)
    : receives_(order.items.size()), sends_(order.items.size()) {
  const StepShape& shape = order.shape;
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    const OrderItem& item = order.items[i];
    if (item.pass != Pass::forward && item.pass != Pass::backward) continue;
    const int stage = shape.segments[static_cast<std::size_t>(item.segment)].stage;
    const auto [first, end] = segments_of_stage(shape, stage);
    const int next = stage + (item.pass == Pass::forward ? 1 : -1);
    const bool is_last_of_pass = item.segment == (item.pass == Pass::forward ? end - 1 : first);
    if (!is_last_of_pass || !is_elsewhere(shape, pipeline, next, place)) continue;
    sends_[i] = {.peer = pipeline.place_of(next),
                 .cut = std::max(stage, next),
                 .stream = next > stage ? stream_behind(pipeline, place) : stream_before};
  }
}

StageMessages::StageMessages(const StepOrder& order, const StagePlaces& pipeline, int place, const StepOrder* before,
                             const StepOrder* behind)
    : StageMessages(order, pipeline, place) {
  const StepShape& shape = order.shape;
  std::optional<Places> theirs_before, theirs_behind;
  if (before != nullptr) theirs_before.emplace(*before);
  if (behind != nullptr) theirs_behind.emplace(*behind);
  /// The last of our messages over the link on which @p run is received that was posted before item @p posted and that
  /// the peer needs before its @p cause.
  const auto taken_before = [&](const Run& run, int posted, int cause) {
    for (int i = posted; i-- > 0;) {
      const OrderItem& sent = order.items[static_cast<std::size_t>(i)];
      const bool goes_there =
          sends_[static_cast<std::size_t>(i)].peer >= 0 && (sent.pass == Pass::forward) == run.backward;
      if (!goes_there) continue;
      const int reader = run.backward ? theirs_behind->of(Pass::forward, sent.segment + 1, sent)
                                      : theirs_before->of(Pass::backward, sent.segment - 1, sent);
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
    const int segment = order.items[static_cast<std::size_t>(run.first)].segment;
    const int stage = shape.segments[static_cast<std::size_t>(segment)].stage;
    const int from = stage + (run.backward ? 1 : -1);
    if (!is_elsewhere(shape, pipeline, from, place)) continue;
    const auto [first, end] = segments_of_stage(shape, stage);
    const bool ahead = r > 0 && (run.backward || !runs[r - 1].backward);
    const int posted = ahead ? runs[r - 1].first : run.first;
    for (const int reader : firsts_of(run)) {
      const OrderItem& item = order.items[static_cast<std::size_t>(reader)];
      const int cause = run.backward ? theirs_behind->of(Pass::backward, end, item)
                                     : theirs_before->of(Pass::forward, first - 1, item);
      receives_[static_cast<std::size_t>(posted)].push_back(
          {.item = reader,
           .peer = pipeline.place_of(from),
           .cut = std::max(stage, from),
           .stream = (run.backward ? stream_behind(pipeline, place) : stream_before) + 1,
           .taken = taken_before(run, posted, cause)});
    }
  }
}

StageMessages StageMessages::of_replica(const StepOrder& order, const StagePlaces& pipeline, int stage) {
  StageMessages messages(order, pipeline, stage);
  std::set<std::tuple<bool, int, int>> seen;  // backward, micro-batch, sub-batch
  std::map<std::pair<int, int>, int> sent;    // micro-batch and sub-batch: the item behind which it goes on
  for (int i = 0; i < static_cast<int>(order.items.size()); ++i) {
    const OrderItem& item = order.items[static_cast<std::size_t>(i)];
    if (item.pass == Pass::update) continue;
    const bool backward = item.pass != Pass::forward;
    if (!backward && messages.after(i).peer >= 0) sent[{item.micro_batch, item.sub_batch}] = i;
    if (!seen.emplace(backward, item.micro_batch, item.sub_batch).second) continue;
    if (!(backward ? has_behind(pipeline, stage) : has_before(pipeline, stage))) continue;
    messages.receives_[static_cast<std::size_t>(i)].push_back(
        {.item = i,
         .peer = stage + (backward ? 1 : -1),
         .cut = stage + (backward ? 1 : 0),
         .stream = (backward ? stream_behind(pipeline, stage) : stream_before) + 1,
         .taken = backward ? sent.at({item.micro_batch, item.sub_batch}) : -1});
  }
  return messages;
}

}  // namespace strata
