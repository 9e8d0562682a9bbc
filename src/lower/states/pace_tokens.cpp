#include "lower/states/pace_tokens.hpp"

#include <cstddef>
#include <utility>

#include "lower/step/streams.hpp"

namespace strata {
namespace {

/// By item: its pass, counted in the order of a training step: the forward of each stage, then the backward, from the
/// last one up; -1: an update.
std::vector<int> passes_of_items(const StepOrder& order) {
  std::vector<int> passes;
  for (const OrderItem& item : order.items) {
    if (item.pass == Pass::update) {
      passes.push_back(-1);
      continue;
    }
    const int stage = order.shape.segments[static_cast<std::size_t>(item.segment)].stage;
    passes.push_back(item.pass == Pass::forward ? stage : 2 * order.shape.num_stages() - 1 - stage);
  }
  return passes;
}

}  // namespace

TokenBuffers::TokenBuffers(ProgramBuilder& builder) : builder_(builder) {
  const auto add = [&](const char* name) {
    return builder.add_buffer(
        {.name = name, .num_elements = 1, .category = Category::communication, .persistent = true});
  };
  sent_ = add("pace/sent");
  received_ = add("pace/received");
}

void TokenBuffers::initialize(const Place& here) const {
  Instruction in{.kernel = Kernel::fill, .phase = Phase::setup, .name = "pace"};
  in.outputs = {sent()};
  in.attributes = {{"elements", std::int64_t{1}}, {"value", 0.0}};
  here.emit(std::move(in));
}

PaceTokens::PaceTokens(const RingLinks& links, const StepOrder& order, const TokenBuffers& buffers)
    : links_(links), pace_(*links.pace), order_(order), buffers_(buffers) {
  const std::vector<int> passes = passes_of_items(order);
  begins_.assign(passes.size(), -1);
  ends_ = begins_;
  int now = -1;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    if (passes[i] < 0 || passes[i] == now) continue;
    begins_[i] = now = passes[i];
  }
  now = -1;
  for (std::size_t i = passes.size(); i-- > 0;) {
    if (passes[i] < 0 || passes[i] == now) continue;
    ends_[i] = now = passes[i];
  }
}

Instruction PaceTokens::message(Collective kind, int item, int from, int to, const RingPace::Pass& other) const {
  const bool is_forward = order_.items[static_cast<std::size_t>(item)].pass == Pass::forward;
  return {.kernel = Kernel::none,
          .collective = kind,
          .group = links_.pace_group,
          .root = kind == Collective::send ? to : from,
          .stream = links_.stream_of_tokens(from, to),
          .phase = is_forward ? Phase::forward : Phase::backward,
          .step = RingPace::step_of_token(other),
          .name = "pace"};
}

void PaceTokens::before_item(const Place& here, int item) const {
  const int pass = begins_[static_cast<std::size_t>(item)];
  if (pass < 0) return;
  Instruction in = message(Collective::recv, item, pace_.before(), pace_.replica, pace_.awaited(pass));
  in.outputs = {buffers_.received()};
  here.hold(compute_stream, here.emit(std::move(in)));
}

void PaceTokens::behind_item(const Place& here, int item) const {
  const int pass = ends_[static_cast<std::size_t>(item)];
  if (pass < 0) return;
  Instruction in = message(Collective::send, item, pace_.replica, pace_.behind(), pace_.waiting(pass));
  in.inputs = {buffers_.sent()};
  const int last = here.last_on(compute_stream);
  here.emit(std::move(in), {&last, 1});
}

}  // namespace strata
