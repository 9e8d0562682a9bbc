#pragma once

/// @file
/// Small Programs of two ranks whose steps overlap, each with the values that it computes or the reason for which it is
/// refused. Whoever gives overlapping steps a meaning is asked with all of them: verify, addresses, the simulator,
/// executors, exports.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"
#include "lower/step/builder.hpp"

namespace strata::test {

struct OverlapCase {
  std::string name;
  std::function<Program(int rank)> program;
  /// Found by verify() of a rank, or, where it begins with "deadlock", of all ranks together; empty: it runs.
  std::string refusal{};
  /// After so many steps, by name of a persistent buffer: the value of each of its elements on that rank.
  /// @param pause nothing is under way before this step.
  std::function<std::map<std::string, float>(int rank, int num_steps, int pause)> values{};
};

/// Exact in binary, and another one in the next step.
inline double overlap_learning_rate(std::int64_t step) { return step % 2 == 0 ? 0.25 : 0.125; }

constexpr std::int64_t overlap_elements = 5;

/// Two ranks, a compute stream and two that carry transfers; persistent buffers begin at a value.
class OverlapBuilder {
 public:
  explicit OverlapBuilder(int rank) : builder_(rank, 2, {"compute", "communication", "second"}) {
    builder_.let_steps_overlap();
    both_ = builder_.add_group({"both", {0, 1}});
  }
  int rank() const { return builder_.rank(); }

  int persistent(const std::string& name, double value) {
    const int id = builder_.add_buffer({.name = name, .num_elements = overlap_elements, .persistent = true});
    builder_.prologue().emit({.kernel = Kernel::fill,
                              .phase = Phase::setup,
                              .name = name,
                              .outputs = {builder_.whole(id)},
                              .attributes = {{"elements", overlap_elements}, {"value", value}}});
    return id;
  }
  int temporary(const std::string& name) {
    return builder_.add_buffer({.name = name, .num_elements = overlap_elements});
  }
  void kernel(Kernel kind, int from, int to, int step) {
    Instruction in{.kernel = kind, .step = step, .name = "kernel", .inputs = {builder_.whole(from)}};
    in.outputs = {builder_.whole(to)};
    in.attributes = {{"elements", overlap_elements}};
    if (kind == Kernel::sgd) in.attributes.set("weight_decay", 0.0);
    body().emit(std::move(in));
  }
  void copy(int from, int to, int step = 0) { kernel(Kernel::copy, from, to, step); }
  void add(int what, int to, int step = 0) { kernel(Kernel::accumulate, what, to, step); }
  void update(int weight, int gradient, int step) { kernel(Kernel::sgd, gradient, weight, step); }
  void all_reduce(int id, int step = 0) {
    transfer(Collective::all_reduce, {builder_.whole(id)}, {builder_.whole(id)}, 1, step);
  }
  void broadcast(int id, int step) {
    transfer(Collective::broadcast, {builder_.whole(id)}, {builder_.whole(id)}, 1, step);
  }
  /// To or from the other rank.
  void send(int id, int stream, int step = 0) { transfer(Collective::send, {builder_.whole(id)}, {}, stream, step); }
  void receive(int id, int stream, int step = 0) { transfer(Collective::recv, {}, {builder_.whole(id)}, stream, step); }

  /// @param steps_per_body see Program.
  Program finish(int steps_per_body = 1) && {
    builder_.set_steps_per_body(steps_per_body);
    return std::move(builder_).finish([](const Program&, const Instruction&) { return std::int64_t{0}; });
  }

 private:
  /// All of it is one item, whichever training steps its instructions belong to.
  Place body() { return builder_.item(0, 0, 0); }
  void transfer(Collective kind, std::vector<Operand> inputs, std::vector<Operand> outputs, int stream, int step) {
    const bool is_message = kind == Collective::send || kind == Collective::recv;
    body().emit({.collective = kind,
                 .group = both_,
                 .root = is_message ? 1 - builder_.rank() : 0,
                 .stream = stream,
                 .step = step,
                 .name = "transfer",
                 .inputs = std::move(inputs),
                 .outputs = std::move(outputs)});
  }
  ProgramBuilder builder_;
  int both_ = 0;
};

/// The gradient of a step is applied at the beginning of the next repetition: it is born in one and dies in the next.
inline Program late_update(int rank) {
  OverlapBuilder b(rank);
  const int weight = b.persistent("weight", 1.0 + rank);
  const int gradient = b.temporary("gradient");
  b.update(weight, gradient, -1);
  b.copy(weight, gradient);
  b.all_reduce(gradient);
  return std::move(b).finish();
}

/// The weight is read before the update of the step before: that gradient travels under a whole step. After a pause,
/// which ends all that was begun, there is no step before, and the weight is read as it is.
inline Program delayed_gradient(int rank) {
  OverlapBuilder b(rank);
  const int weight = b.persistent("weight", 1.0);
  const int read = b.temporary("read");
  const int sum = b.temporary("sum");
  b.copy(weight, read);
  b.update(weight, sum, -1);
  b.copy(read, sum);
  b.all_reduce(sum);
  return std::move(b).finish();
}

/// Two versions of a weight by turns: a body of two steps, of which either may be the last.
inline Program two_versions(int rank) {
  OverlapBuilder b(rank);
  const int even = b.persistent("even", 1.0);
  const int odd = b.persistent("odd", 0.0);
  const int first = b.temporary("first");
  const int second = b.temporary("second");
  b.copy(even, first, 0);
  b.all_reduce(first, 0);
  b.copy(even, odd, 0);
  b.update(odd, first, 0);
  b.copy(odd, second, 1);
  b.all_reduce(second, 1);
  b.copy(odd, even, 1);
  b.update(even, second, 1);
  return std::move(b).finish(2);
}

/// A message of rank 0's repetition arrives in rank 1's next one.
inline Program late_message(int rank) {
  OverlapBuilder b(rank);
  const int one = b.persistent("one", 1.0);
  const int count = b.persistent("count", 0.0);
  if (rank == 0) {
    b.add(one, count);
    b.send(count, 1);
  } else {
    const int message = b.temporary("message");
    b.receive(message, 1, -1);
    b.add(message, count, -1);
  }
  return std::move(b).finish();
}

/// Each rank sends to the other what it has, and adds what came a repetition later.
inline Program ring(int rank) {
  OverlapBuilder b(rank);
  const int one = b.persistent("one", 1.0 + rank);
  const int count = b.persistent("count", 0.0);
  const int sum = b.persistent("sum", 0.0);
  const int message = b.temporary("message");
  b.receive(message, rank == 0 ? 1 : 2, -1);
  b.add(message, sum, -1);
  b.add(one, count);
  b.send(count, rank == 0 ? 2 : 1);
  return std::move(b).finish();
}

/// Updates of rank 0 are spread under the next step's work (AMSP's late broadcast).
inline Program late_broadcast(int rank) {
  OverlapBuilder b(rank);
  const int weight = b.persistent("weight", 1.0);
  const int one = b.persistent("one", 1.0);
  const int count = b.persistent("count", 0.0);
  const int gradient = b.temporary("gradient");
  b.broadcast(weight, -1);
  b.add(one, count);
  b.copy(weight, gradient);
  b.all_reduce(gradient);
  if (rank == 0) {
    b.update(weight, gradient, 0);
  } else {
    b.copy(gradient, count);
  }
  return std::move(b).finish();
}

/// Three repetitions a step: what rank 0 makes comes back to it two repetitions later.
inline Program there_and_back(int rank) {
  OverlapBuilder b(rank);
  const int one = b.persistent("one", 1.0);
  const int count = b.persistent("count", 0.0);
  if (rank == 0) {
    const int back = b.temporary("back");
    b.receive(back, 2, -2);
    b.add(back, count, -2);
    b.send(one, 1);
  } else {
    const int there = b.temporary("there");
    b.receive(there, 1, -1);
    b.add(there, count, -1);
    b.send(count, 2, -1);
  }
  return std::move(b).finish();
}

inline Program without_lag_waits(Program program) {
  for (Instruction& in : program.body) std::erase_if(in.waits, [](const Wait& wait) { return wait.lag > 0; });
  return program;
}

/// Nothing says that the second use belongs to the step before.
inline Program use_of_another_step(int rank) {
  Program program = late_update(rank);
  program.body[0].step = 0;
  return program;
}

inline Program nobody_receives(int rank) {
  if (rank == 0) return late_message(0);
  OverlapBuilder b(rank);
  b.persistent("count", 0.0);
  return std::move(b).finish();
}

/// Each waits for the other's message of the same step before it sends its own.
inline Program both_wait(int rank) {
  OverlapBuilder b(rank);
  const int count = b.persistent("count", 0.0);
  const int message = b.temporary("message");
  b.receive(message, rank == 0 ? 1 : 2);
  b.add(message, count);
  b.send(count, rank == 0 ? 2 : 1);
  return std::move(b).finish();
}

/// Rank 1 sends a step's message one repetition after rank 0 needed it to begin the next one's.
inline Program both_wait_across_steps(int rank) {
  OverlapBuilder b(rank);
  const int count = b.persistent("count", 0.0);
  const int message = b.temporary("message");
  if (rank == 0) {
    b.receive(message, 1);
    b.add(message, count);
    b.send(count, 2);
  } else {
    b.receive(message, 2, -1);
    b.add(message, count, -1);
    b.send(count, 1, -1);
  }
  return std::move(b).finish();
}

inline Program too_long_a_life(int rank) {
  Program program = late_update(rank);
  // The last use is put behind the first one: it comes a repetition and an instruction later.
  std::swap(program.body[0], program.body[1]);
  return program;
}

inline std::vector<OverlapCase> overlap_cases() {
  const auto rate = [](int step) { return static_cast<float>(overlap_learning_rate(step)); };
  return {
      {"late_update", late_update, "",
       [rate](int rank, int steps, int) {
         float weights[2] = {1.0F, 2.0F};
         for (int t = 0; t < steps; ++t) {
           const float sum = weights[0] + weights[1];
           for (float& w : weights) w -= rate(t) * sum;
         }
         return std::map<std::string, float>{{"weight", weights[rank]}};
       }},
      {"delayed_gradient", delayed_gradient, "",
       [rate](int, int steps, int pause) {
         float weight = 1.0F, sum = 0.0F;
         for (int t = 0; t < steps; ++t) {
           float read = weight;
           if (t > 0) weight -= rate(t - 1) * sum;
           if (t == pause) read = weight;
           sum = 2.0F * read;
         }
         if (steps > 0) weight -= rate(steps - 1) * sum;
         return std::map<std::string, float>{{"weight", weight}};
       }},
      {"two_versions", two_versions, "",
       [rate](int, int steps, int) {
         float versions[2] = {1.0F, 0.0F};
         for (int t = 0; t < steps; ++t) {
           const float read = versions[t % 2];
           versions[1 - t % 2] = read - rate(t) * 2.0F * read;
         }
         return std::map<std::string, float>{{"even", versions[0]}, {"odd", versions[1]}};
       }},
      {"late_message", late_message, "",
       [](int rank, int steps, int) {
         const int sum = steps * (steps + 1) / 2;
         return std::map<std::string, float>{{"count", static_cast<float>(rank == 0 ? steps : sum)}};
       }},
      {"ring", ring, "",
       [](int rank, int steps, int) {
         const int others = rank == 0 ? 2 : 1;
         return std::map<std::string, float>{{"sum", static_cast<float>(others * steps * (steps + 1) / 2)}};
       }},
      {"late_broadcast", late_broadcast, "",
       [rate](int, int steps, int) {
         float weight = 1.0F;
         for (int t = 0; t < steps; ++t) weight -= rate(t) * 2.0F * weight;
         return std::map<std::string, float>{{"weight", weight}};
       }},
      {"there_and_back", there_and_back, "",
       [](int rank, int steps, int) {
         const int sum = steps * (steps + 1) / 2;
         return std::map<std::string, float>{{"count", static_cast<float>(rank == 0 ? sum : steps)}};
       }},
      {"missing_lag_wait", [](int rank) { return without_lag_waits(late_update(rank)); }, "not ordered after #2 in"},
      {"missing_lag_wait_of_a_message", [](int rank) { return without_lag_waits(late_broadcast(rank)); },
       "not ordered after"},
      {"use_of_another_step", use_of_another_step, "gradient is used before it is allocated"},
      {"too_long_a_life", too_long_a_life, "gradient is allocated while it lives"},
      {"nobody_receives", nobody_receives, "deadlock"},
      {"both_wait", both_wait, "deadlock"},
      {"both_wait_across_steps", both_wait_across_steps, "deadlock"},
  };
}

}  // namespace strata::test
