#include "lower/stage_links.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/error.hpp"

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

StageLinks::StageLinks(const Plan& plan, const ModelGraph& graph, const std::vector<Stage>& stages, int stage,
                       int group, int first_stream, ProgramBuilder& builder, Activations& activations)
    : graph_(graph), group_(group), builder_(builder), activations_(activations) {
  int next_stream = first_stream;
  for (const auto& [link, peer] : {std::pair{&before_, stage - 1}, {&behind_, stage + 1}}) {
    if (peer < 0 || peer >= static_cast<int>(stages.size())) continue;
    *link = link_to(plan, graph, stages, stage, peer);
    link->send_stream = next_stream++;
    link->receive_stream = next_stream++;
  }
}

StageLinks::Link StageLinks::link_to(const Plan& plan, const ModelGraph& graph, const std::vector<Stage>& stages,
                                     int stage, int peer) {
  Link link;
  link.peer = peer;
  link.tensors = tensors_across(graph, stages[static_cast<std::size_t>(std::max(stage, peer))].first_operator);
  link.forward_at.resize(static_cast<std::size_t>(plan.schedule.micro_batches));
  link.backward_at.resize(link.forward_at.size());
  const std::vector<StagePass> order =
      pass_order(plan.schedule.kind, static_cast<int>(stages.size()), peer, plan.schedule.micro_batches);
  for (std::size_t i = 0; i < order.size(); ++i) {
    (order[i].backward ? link.backward_at : link.forward_at)[static_cast<std::size_t>(order[i].micro_batch)] =
        static_cast<int>(i);
  }
  return link;
}

Instruction StageLinks::message(const StagePass& pass, const Link& link, int tensor) const {
  return {.kernel = Kernel::none,
          .group = group_,
          .root = link.peer,
          .phase = pass.backward ? Phase::backward : Phase::forward,
          .micro_batch = pass.micro_batch,
          .name = graph_.tensors[static_cast<std::size_t>(tensor)].name + (pass.backward ? "/gradient" : "")};
}

void StageLinks::receive(const StagePass& pass) {
  activations_.select(pass.micro_batch);
  Link& link = pass.backward ? behind_ : before_;
  if (link.peer < 0) return;
  // The memory of what ended on the compute stream so far, and of messages that the neighbour must have taken before it
  // could send this one, is free for this one and for what follows it.
  std::vector<int> complete;
  if (const int last = builder_.last_on(0); last >= 0) complete.push_back(last);
  const auto turn = [&](const std::vector<int>& at, int m) { return at[static_cast<std::size_t>(m)]; };
  const int theirs = turn(pass.backward ? link.backward_at : link.forward_at, pass.micro_batch);
  for (std::size_t i = link.sent.size(); i-- > 0;) {
    if (turn(pass.backward ? link.forward_at : link.backward_at, link.sent[i].micro_batch) < theirs) {
      complete.push_back(link.sent[i].instruction);
      break;
    }
  }
  for (const int t : link.tensors) {
    if (pass.backward && !activations_.needs_gradient(t)) continue;
    Instruction in = message(pass, link, t);
    in.collective = Collective::recv;
    in.stream = link.receive_stream;
    in.outputs = {pass.backward ? activations_.gradient_destination(t, true).operand : activations_.produce(t)};
    builder_.emit(std::move(in), complete);
  }
}

void StageLinks::send(const StagePass& pass) {
  Link& link = pass.backward ? before_ : behind_;
  if (link.peer < 0) return;
  for (const int t : link.tensors) {
    if (pass.backward && !activations_.needs_gradient(t)) continue;
    Instruction in = message(pass, link, t);
    in.collective = Collective::send;
    in.stream = link.send_stream;
    in.inputs = {pass.backward ? activations_.take_gradient(t).operand : activations_.value(t)};
    const int instruction = builder_.emit(std::move(in));
    if (!link.sent.empty() && link.sent.back().micro_batch == pass.micro_batch) {
      link.sent.back().instruction = instruction;
    } else {
      link.sent.push_back({instruction, pass.micro_batch});
    }
  }
}

}  // namespace strata
