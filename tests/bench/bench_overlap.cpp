/// @file
/// How much of the gradient all-reduce `ddp` hides: hidden = (T_none - T) / (T_none - T_bound), where T_none reduces
/// after backward, T under it, and T_bound is the longest path through the overlapped Program with the kernels' own
/// times. Steps of both kinds alternate in one run, so that a noisy machine disturbs both alike.
///
///   mpiexec -n 2 build/cpu/tests/bench_overlap tests/bench/overlap.toml            over an emulated link
///   tests/bench/wire.sh build/cpu/tests/bench_overlap tests/bench/overlap.toml --wire --set train.global_batch=56
///                                                                        over MPI between namespaces, 400 Mbit/s
///
/// The emulated link is set so that the all-reduce takes half of backward; collectives of T_bound then cost
/// what the link allows. Over a wire they cost what T_none measured, and the batch is such that this is half of
/// backward.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/environment.hpp"
#include "comm/engine.hpp"
#include "comm/session.hpp"
#include "comm/world.hpp"
#include "config/sweep.hpp"
#include "exec/cpu/cpu_executor.hpp"
#include "predict/prepared_point.hpp"
#include "predict/training_inputs.hpp"

namespace strata {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/// One variant of the step with everything that runs it.
class Variant {
 public:
  Variant(predict::PreparedPoint point, const std::string& all_reduce, const std::string& file,
          const comm::World& world, const comm::EngineOptions& options)
      : point_(std::move(point)) {
    point_.plan.overlap.all_reduce = all_reduce;
    program_ = predict::lower_for_run(point_, world.rank());
    inputs_ = predict::make_training_inputs(point_.experiment, point_.graph, point_.plan.global_batch, file);
    engine_ = std::make_unique<comm::Engine>(world, options);
    executor_ = std::make_unique<cpu::CpuExecutor>(program_, *engine_, *inputs_.source, point_.plan.seed);
    executor_->initialize();
    durations_.resize(program_.body.size());
  }

  void step(const comm::World& world, bool warm) {
    world.barrier();
    double seconds[1] = {run_step(*executor_, {.step = step_++, .learning_rate = 0.01}).step_seconds};
    world.all_reduce_max(seconds);
    if (warm) return;
    step_seconds_.push_back(seconds[0]);
    const auto events = executor_->events();
    for (std::size_t i = 0; i < events.size(); ++i) {
      durations_[i].push_back(static_cast<double>(events[i].end_ns - events[i].begin_ns) * 1e-9);
    }
  }

  const Program& program() const { return program_; }
  double step_seconds() const { return median(step_seconds_); }
  double duration(std::size_t i) const { return median(durations_[i]); }
  double seconds_of(Phase phase) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < program_.body.size(); ++i) {
      const Instruction& in = program_.body[i];
      if (!in.is_collective() && in.phase == phase) sum += duration(i);
    }
    return sum;
  }
  /// Kernels, or collectives, one after the other.
  double total_seconds(bool collectives) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < program_.body.size(); ++i) {
      if (program_.body[i].is_collective() == collectives) sum += duration(i);
    }
    return sum;
  }
  std::string transport() const { return engine_->transport_name(0); }
  bool has_thread() const { return engine_->has_thread(); }

 private:
  predict::PreparedPoint point_;
  Program program_;
  predict::TrainingInputs inputs_;
  std::unique_ptr<comm::Engine> engine_;
  std::unique_ptr<cpu::CpuExecutor> executor_;
  std::int64_t step_ = 0;
  std::vector<double> step_seconds_;
  std::vector<std::vector<double>> durations_;
};

/// The same instruction in both Programs, wherever it stands.
using Key = std::tuple<Kernel, std::string, Phase, int>;
Key key(const Instruction& in) { return {in.kernel, in.name, in.phase, in.micro_batch}; }

/// Of an all-reduce over a ring: 2 (p - 1) steps, each alpha and the bytes this rank sends in it.
double ring_seconds(const Program& program, const Instruction& in, const comm::EmulatedLink& link) {
  const auto ranks = static_cast<double>(program.groups[static_cast<std::size_t>(in.group)].ranks.size());
  return 2.0 * (ranks - 1.0) * link.alpha_seconds +
         static_cast<double>(bytes_sent(program, in)) * link.beta_seconds_per_byte;
}

/// The shortest time in which one repetition of a body can run when every instruction takes a given time: streams in
/// order, waits honoured, nothing else in the way.
double longest_path_seconds(const Program& program, std::span<const double> seconds) {
  std::vector<double> stream_end(program.streams.size(), 0.0);
  std::vector<double> end;
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    double& stream = stream_end[static_cast<std::size_t>(in.stream)];
    for (const Wait& wait : in.waits) {
      if (wait.lag == 0) stream = std::max(stream, end[static_cast<std::size_t>(wait.instruction)]);
    }
    stream += seconds[i];
    end.push_back(stream);
  }
  return end.empty() ? 0.0 : *std::ranges::max_element(end);
}

double bound_seconds(const Variant& none, const Variant& overlapped, const comm::EmulatedLink* link) {
  std::map<Key, double> measured;
  for (std::size_t i = 0; i < none.program().body.size(); ++i) {
    measured[key(none.program().body[i])] = none.duration(i);
  }
  std::vector<double> seconds;
  for (const Instruction& in : overlapped.program().body) {
    seconds.push_back(in.is_collective() && link != nullptr ? ring_seconds(overlapped.program(), in, *link)
                                                            : measured.at(key(in)));
  }
  return longest_path_seconds(overlapped.program(), seconds);
}

int run(int argc, char** argv) {
  const comm::Session session(argc, argv);
  if (argc < 2) {
    fmt::print(stderr,
               "usage: bench_overlap EXPERIMENT.toml [--wire] [--set key=value] [--steps N] [--progress MODE]\n");
    return 2;
  }
  const std::string file = argv[1];
  bool wire = false;
  int num_steps = 15;
  std::vector<std::string> overrides;
  comm::EngineOptions options;
  for (int a = 2; a < argc; ++a) {
    const std::string_view word = argv[a];
    if (word == "--wire") wire = true;
    if (word == "--set" && a + 1 < argc) overrides.emplace_back(argv[++a]);
    if (word == "--steps" && a + 1 < argc) num_steps = std::stoi(argv[++a]);
    if (word == "--progress" && a + 1 < argc) {
      const std::string_view mode = argv[++a];
      options.progress = mode == "thread"    ? comm::ProgressMode::thread
                         : mode == "polling" ? comm::ProgressMode::polling
                                             : comm::ProgressMode::automatic;
    }
  }
  const Environment environment = read_environment();
  const comm::World world({.node_name = environment.node_name});
  Experiment experiment = load_experiment(file, overrides).base;
  if (wire) {
    experiment.resources.nodes = world.num_nodes();
    experiment.resources.ranks_per_node = world.ranks_on_node(0);
    options.transport = "mpi";
  } else {
    experiment.resources.ranks_per_node = world.size();
  }
  const predict::PreparedPoint point = predict::prepare_point(experiment, file);

  comm::EmulatedLink link{.alpha_seconds = 20e-6, .beta_seconds_per_byte = 0.0};
  {
    Variant probe(point, "none", file, world, options);
    for (int i = 0; i < 5; ++i) probe.step(world, i < 2);
    double facts[2] = {probe.seconds_of(Phase::backward),
                       static_cast<double>(bytes_by_collective(probe.program())[Collective::all_reduce])};
    world.all_reduce_max(facts);
    link.beta_seconds_per_byte = 0.5 * facts[0] / facts[1];
    if (world.rank() == 0) fmt::print("backward {:.1f} ms, {:.1f} MB sent a rank\n", facts[0] * 1e3, facts[1] * 1e-6);
  }
  if (!wire) options.emulated_link = link;
  Variant none(point, "none", file, world, options);
  Variant overlapped(point, "backward", file, world, options);
  for (int i = 0; i < num_steps + 2; ++i) {
    none.step(world, i < 2);
    overlapped.step(world, i < 2);
  }
  double times[3] = {none.step_seconds(), overlapped.step_seconds(),
                     bound_seconds(none, overlapped, wire ? nullptr : &link)};
  world.all_reduce_max(times);
  if (world.rank() == 0) {
    for (const Variant* v : {&none, &overlapped}) {
      fmt::print("{:10} kernels {:.1f} ms, collectives {:.1f} ms\n", v == &none ? "none" : "overlapped",
                 v->total_seconds(false) * 1e3, v->total_seconds(true) * 1e3);
    }
    fmt::print("transport {}, progress by {}\n", overlapped.transport(),
               overlapped.has_thread() ? "thread" : "polling");
    fmt::print("T_none {:.2f} ms  T {:.2f} ms  T_bound {:.2f} ms  hidden {:.3f}\n", times[0] * 1e3, times[1] * 1e3,
               times[2] * 1e3, (times[0] - times[1]) / (times[0] - times[2]));
  }
  return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::run(argc, argv); }
