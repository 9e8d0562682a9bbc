#include "lower/states/walk_messages.hpp"

#include <cstddef>
#include <utility>

namespace strata {

WalkMessages::WalkMessages(const WalkLinks& links, const ModelGraph& graph, const StepOrder& order, int step,
                           const HeldParameters& held, ProgramBuilder& builder)
    : links_(links),
      walk_(links.walk),
      graph_(graph),
      step_(step),
      held_(held),
      builder_(builder),
      begins_(order.items.size(), -1),
      ends_(order.items.size(), -1) {
  std::vector<int> last(walk_.visits.size(), -1);  // by visit: an item
  for (int i = 0; i < static_cast<int>(order.items.size()); ++i) {
    const OrderItem& item = order.items[static_cast<std::size_t>(i)];
    if (item.pass == Pass::update) continue;
    const int stage = order.shape.segments[static_cast<std::size_t>(item.segment)].stage;
    const bool forward = item.pass == Pass::forward;
    const int visit = walk_.visit_of(stage, !forward);
    if (forward && stage == walk_.own_stage()) behind_own_forward_ = i + 1;
    if (last[static_cast<std::size_t>(visit)] < 0) begins_[static_cast<std::size_t>(i)] = visit;
    last[static_cast<std::size_t>(visit)] = i;
  }
  for (std::size_t visit = 0; visit < last.size(); ++visit) {
    ends_[static_cast<std::size_t>(last[visit])] = static_cast<int>(visit);
  }
}

void WalkMessages::before_item(const Place& here, int item) const {
  if (item == behind_own_forward_) depart(here, true);
  const int visit = begins_[static_cast<std::size_t>(item)];
  if (visit < 0) return;
  const ParameterWalk::Visit& comes = walk_.visits[static_cast<std::size_t>(visit)];
  if (comes.from < 0) return;
  const bool from_owner = links_.is_from_owner(comes);
  message(here, Collective::recv, visit, comes.from, from_owner ? links_.owners_group : links_.readers_group,
          from_owner ? links_.stream_from_owner(comes.from, walk_.rank) : links_.stream_between(comes.from, walk_.rank),
          false);
}

void WalkMessages::behind_item(const Place& here, int item) const {
  const int visit = ends_[static_cast<std::size_t>(item)];
  if (visit < 0 || !walk_.visits[static_cast<std::size_t>(visit)].goes_on) return;
  const int to = walk_.rank + 1;
  message(here, Collective::send, visit, to, links_.readers_group, links_.stream_between(walk_.rank, to), false);
}

/// What the owner sends of θ_t, or of θ_{t-1}.
void WalkMessages::depart(const Place& here, bool fresh) const {
  for (const ParameterWalk::Departure& departure : walk_.departures) {
    if (departure.fresh != fresh) continue;
    message(here, Collective::send, departure.visit, departure.to, links_.owners_group,
            links_.stream_from_owner(walk_.rank, departure.to), fresh);
  }
}

void WalkMessages::message(const Place& here, Collective kind, int visit, int peer, int group, int stream,
                           bool fresh) const {
  const ParameterWalk::Visit& of = walk_.visits[static_cast<std::size_t>(visit)];
  for (const int p : held_.visiting->carried(visit)) {
    const Operand weight = of.from < 0 ? builder_.whole(held_.buffers.weight(p, fresh ? step_ : step_ - 1))
                                       : held_.visiting->weight(step_, visit, p);
    Instruction in{.kernel = Kernel::none,
                   .collective = kind,
                   .group = group,
                   .root = peer,
                   .stream = stream,
                   .phase = of.backward ? Phase::backward : Phase::forward,
                   .name = graph_.parameters[static_cast<std::size_t>(p)].name};
    (kind == Collective::send ? in.inputs : in.outputs) = {weight};
    here.emit(std::move(in));
  }
}

}  // namespace strata
