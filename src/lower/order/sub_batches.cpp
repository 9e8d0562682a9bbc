#include "lower/order/sub_batches.hpp"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

/// Items that every sub-batch takes in one go: the last of them communicates, or nothing follows in the pass.
using Turn = std::vector<OrderItem>;

const Segment& segment_of(const StepShape& shape, const OrderItem& item) {
  return shape.segments[static_cast<std::size_t>(item.segment)];
}

bool communicates(const StepShape& shape, const OrderItem& item) {
  const Segment& segment = segment_of(shape, item);
  switch (item.pass) {
    case Pass::forward: return segment.communicates_forward;
    case Pass::recompute: return segment.communicates_recompute;
    case Pass::backward: return segment.communicates_backward;
    case Pass::update: break;
  }
  return false;
}

std::vector<Turn> turns(const StepShape& shape, const std::vector<OrderItem>& items) {
  std::vector<Turn> result(1);
  for (const OrderItem& item : items) {
    result.back().push_back(item);
    if (communicates(shape, item)) result.emplace_back();
  }
  return result;
}

/// Segments that are recomputed together, or one that is not recomputed. Stages are taken from their end.
SegmentRange recomputed_together(const StepShape& shape, SegmentRange segments, int end) {
  int first = end - 1;
  while (first > segments.first && shape.segments[static_cast<std::size_t>(first)].recomputed_with_previous) --first;
  return {first, end};
}

class Writer {
 public:
  Writer(const StepShape& shape, int micro_batch) : shape_(shape), micro_batch_(micro_batch) {}

  OrderItem item(Pass pass, int segment) const {
    return {.pass = pass, .segment = segment, .micro_batch = micro_batch_};
  }
  std::vector<OrderItem> recompute(SegmentRange segments) const {
    std::vector<OrderItem> items;
    if (!shape_.segments[static_cast<std::size_t>(segments.first)].recomputed) return items;
    for (int s = segments.first; s < segments.end; ++s) items.push_back(item(Pass::recompute, s));
    return items;
  }
  void take_turns(const std::vector<Turn>& all) {
    for (const Turn& turn : all) {
      for (int u = 0; u < shape_.sub_batches; ++u) {
        for (OrderItem next : turn) {
          next.sub_batch = u;
          next.barrier = next.barrier && u == 0;
          items_.push_back(next);
        }
      }
    }
  }
  std::vector<OrderItem> take() && { return std::move(items_); }

 private:
  const StepShape& shape_;
  int micro_batch_;
  std::vector<OrderItem> items_;
};

/// Recomputation and backward in one sequence.
std::vector<Turn> crossed_passes(const StepShape& shape, SegmentRange segments, const Writer& writer) {
  std::vector<OrderItem> sequence;
  for (int end = segments.end; end > segments.first;) {
    const SegmentRange together = recomputed_together(shape, segments, end);
    std::ranges::copy(writer.recompute(together), std::back_inserter(sequence));
    for (int s = together.end; s-- > together.first;) sequence.push_back(writer.item(Pass::backward, s));
    end = together.first;
  }
  std::vector<Turn> result = turns(shape, sequence);
  for (Turn& turn : result) {
    const auto is_again = [](const OrderItem& item) { return item.pass == Pass::recompute; };
    const auto first = std::ranges::find_if(turn, is_again);
    std::rotate(turn.begin(), first, std::find_if_not(first, turn.end(), is_again));
  }
  return result;
}

}  // namespace

std::vector<OrderItem> forward_of_sub_batches(const StepShape& shape, SegmentRange segments, int micro_batch) {
  Writer writer(shape, micro_batch);
  std::vector<OrderItem> sequence;
  for (int s = segments.first; s < segments.end; ++s) sequence.push_back(writer.item(Pass::forward, s));
  writer.take_turns(turns(shape, sequence));
  return std::move(writer).take();
}

std::vector<OrderItem> backward_of_sub_batches(const StepShape& shape, SegmentRange segments, int micro_batch) {
  Writer writer(shape, micro_batch);
  if (shape.cross_pass) {
    writer.take_turns(crossed_passes(shape, segments, writer));
    return std::move(writer).take();
  }
  std::vector<OrderItem> backward;  // since the last recomputation
  for (int end = segments.end; end > segments.first;) {
    const SegmentRange together = recomputed_together(shape, segments, end);
    const std::vector<OrderItem> again = writer.recompute(together);
    if (!again.empty()) {
      writer.take_turns(turns(shape, std::exchange(backward, {})));
      writer.take_turns(turns(shape, again));
    }
    for (int s = together.end; s-- > together.first;) {
      backward.push_back(writer.item(Pass::backward, s));
      backward.back().barrier = !again.empty() && s + 1 == together.end;
    }
    end = together.first;
  }
  writer.take_turns(turns(shape, backward));
  return std::move(writer).take();
}

}  // namespace strata
