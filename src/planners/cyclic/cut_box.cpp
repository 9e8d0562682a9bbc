#include "planners/cyclic/cut_box.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace strata {

CutBox CutBox::of_all(int num_pieces, int num_stages) {
  CutBox box;
  for (int j = 0; j < num_stages; ++j) {
    box.first.push_back(j);
    box.last.push_back(j == 0 ? 0 : num_pieces - num_stages + j);
  }
  box.first.push_back(num_pieces);
  box.last.push_back(num_pieces);
  return box;
}

std::array<CutBox, 2> CutBox::split(int stage, int piece) const {
  const auto at = static_cast<std::size_t>(stage);
  STRATA_INVARIANT(first[at] < piece && piece <= last[at], "both parts of a box have cuts");
  CutBox before = *this, behind = *this;
  before.last[at] = piece - 1;
  for (std::size_t j = at; j-- > 0;) before.last[j] = std::min(before.last[j], before.last[j + 1] - 1);
  behind.first[at] = piece;
  for (std::size_t j = at + 1; j < first.size(); ++j)
    behind.first[j] = std::max(behind.first[j], behind.first[j - 1] + 1);
  return {before, behind};
}

PieceSeconds::PieceSeconds(const RingProblem& problem, const RingStages& stages)
    : before_(problem.pieces.size() + 1),
      messages_(before_.size() * before_.size()),
      num_replicas_(problem.schedule.micro_batches),
      adds_behind_(problem.schedule.sum == "after") {
  const int n = stages.num_pieces();
  for (std::size_t p = 0; p < problem.pieces.size(); ++p) {
    const RingPiece& piece = problem.pieces[p];
    before_[p + 1] = {before_[p].forward + piece.forward, before_[p].backward + piece.backward,
                      before_[p].addition + piece.addition, before_[p].update + piece.update};
  }
  for (int begin = 0; begin < n; ++begin) {
    for (int end = n; end > begin; --end) {
      const StageSeconds& stage = stages.seconds(begin, end);
      Messages least{stage.sum, stage.parameters};
      const auto or_of = [&](const Messages& larger) {
        least.sum = std::min(least.sum, larger.sum);
        least.parameters = std::min(least.parameters, larger.parameters);
      };
      if (begin > 0) or_of(messages(begin - 1, end));
      if (end < n) or_of(messages(begin, end + 1));
      messages_[static_cast<std::size_t>(begin) * before_.size() + static_cast<std::size_t>(end)] = least;
    }
  }
}

double PieceSeconds::passes(int begin, int end) const {
  const Before &b = before_[static_cast<std::size_t>(begin)], &e = before_[static_cast<std::size_t>(end)];
  return e.forward - b.forward + e.backward - b.backward;
}

BoxSeconds::BoxSeconds(const PieceSeconds& pieces, const CutBox& box) : num_replicas_(pieces.num_replicas_) {
  const std::size_t num_stages = box.first.size() - 1;
  messages_.resize(num_stages);
  times_.resize(num_streams * num_kinds * num_stages);
  const auto before = [&](int piece) -> const PieceSeconds::Before& {
    return pieces.before_[static_cast<std::size_t>(piece)];
  };
  const PieceSeconds::Before& all = pieces.before_.back();
  for (std::size_t stream = 0; stream < num_streams; ++stream) {
    const bool is_last = stream == 2;
    const double adds = pieces.adds_behind_ && (stream == 1 || (is_last && num_replicas_ > 1)) ? 1.0 : 0.0;
    const double updates = is_last ? 1.0 : 0.0;
    step_[stream] = all.forward + all.backward + adds * all.addition + updates * all.update;
    for (std::size_t j = 0; j < num_stages; ++j) {
      // When the stage's backward, addition and update are over that of pieces from b, of those from a, from u on.
      const auto behind = [&](int b, int a, int u) {
        return step_[stream] - before(b).backward - adds * before(a).addition - updates * before(u).update;
      };
      const auto times = [&](RingEvent::Kind kind) -> Times& {
        return times_[(stream * num_kinds + static_cast<std::size_t>(kind)) * num_stages + j];
      };
      const int b = box.first[j], e = box.first[j + 1], late_b = box.last[j], late_e = box.last[j + 1];
      times(RingEvent::Kind::forward) = {before(late_b).forward, before(e).forward};
      times(RingEvent::Kind::backward) = {behind(e, e, e), behind(late_b, late_e, late_e)};
      times(RingEvent::Kind::addition) = {behind(b, e, e), behind(late_b, late_b, late_e)};
      times(RingEvent::Kind::update) = {behind(b, b, e), behind(late_b, late_b, late_b)};
    }
  }
  for (std::size_t j = 0; j < num_stages; ++j) {
    if (box.last[j] < box.first[j + 1]) messages_[j] = pieces.messages(box.last[j], box.first[j + 1]);
  }
}

}  // namespace strata
