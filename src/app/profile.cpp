/// @file
/// `strata profile`: what this machine takes for the kernels of an experiment's points and for collectives of every
/// size on the groups that they use, with as many ranks as it was started with. Kernels are timed where they will run:
/// in steps of the very Programs, all ranks at work, once without and once with communication beside them.

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "app/bad_input.hpp"
#include "app/engine_options.hpp"
#include "app/measured_peak.hpp"
#include "app/outcome.hpp"
#include "app/prediction.hpp"
#include "app/provenance.hpp"
#include "app/selected_point.hpp"
#include "app/training_inputs.hpp"
#include "app/verbs.hpp"
#include "base/error.hpp"
#include "comm/launch_check.hpp"
#include "comm/session.hpp"
#include "comm/world.hpp"
#include "cost/fit.hpp"
#include "cost/group_shape.hpp"
#include "cost/kernel_work.hpp"
#include "exec/cpu/cpu_executor.hpp"

namespace strata::app {
namespace {

constexpr int num_warmup_steps = 2;
constexpr int num_measured_steps = 6;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2.0;
}

/// What the steps of one Program showed.
struct Observed {
  struct Kernel {
    KernelShape shape;
    std::vector<double> seconds;  ///< by step: the mean over its instances, which holds what other ranks took away
  };
  std::map<std::pair<std::string, std::vector<double>>, Kernel> kernels;
  std::vector<double> compute_seconds, communication_seconds;  ///< by step
  std::vector<double> both_seconds;                            ///< a kernel and a transfer in progress
  std::vector<double> other_seconds;                           ///< outside kernels and waits
};

using Interval = std::pair<std::int64_t, std::int64_t>;

/// Total length of @p a ∩ ∪ @p b, both in nanoseconds and the first without overlaps.
double common_seconds(std::vector<Interval> a, std::vector<Interval> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  double total = 0.0;
  for (const auto& [from, to] : a) {
    std::int64_t covered = from;
    for (const auto& [begin, end] : b) {
      const std::int64_t lower = std::max(covered, begin);
      const std::int64_t upper = std::min(to, end);
      if (upper <= lower) continue;
      total += static_cast<double>(upper - lower) * 1e-9;
      covered = upper;
    }
  }
  return total;
}

class Profiler {
 public:
  Profiler(const comm::World& world, const ProfileArguments& arguments) : world_(world), arguments_(arguments) {}

  CostProfile run(const LoadedExperiment& loaded) {
    profile_.machine = machine_identity();
    profile_.provenance = {{"strata", version_and_commit()},
                           {"measured", results::to_iso_8601(results::unix_seconds_now())}};
    int num_points = 0;
    for (const Point& point : loaded.expansion.points) {
      if (point.experiment.num_ranks() != world_.size()) continue;
      if (arguments_.experiment.point && point.index != *arguments_.experiment.point) continue;
      ++num_points;
      measure_point(point);
    }
    if (num_points == 0) {
      throw UserError(fmt::format("{}: no point for {} ranks", arguments_.experiment.file, world_.size()));
    }
    profile_.kernels = kernels_of_all_ranks();
    for (const auto& [dtype, rate] : peaks_) {
      profile_.peaks.push_back({std::string(to_string(dtype)), world_.ranks_on_node(), rate});
    }
    profile_.step_overhead_seconds[world_.ranks_on_node()] = mean_over_ranks(median(kernels_.other_seconds));
    if (world_.size() > 1) {
      profile_.interference.push_back({world_.ranks_on_node(), interference_transport_, median(compute_slowdowns_),
                                       median(communication_slowdowns_)});
    }
    return std::move(profile_);
  }

 private:
  double mean_over_ranks(double value) const {
    double sum[1] = {value};
    world_.all_reduce_sum(sum);
    return sum[0] / world_.size();
  }

  /// Each with the mean of the ranks that ran it: where whole tensors are dealt to ranks, their updates differ in
  /// shape.
  std::vector<KernelTime> kernels_of_all_ranks() const {
    CostProfile mine{.machine = profile_.machine};
    for (const auto& [key, kernel] : kernels_.kernels) {
      mine.kernels.push_back({.kind = kernel.shape.kind,
                              .sizes = kernel.shape.sizes,
                              .work = kernel.shape.work,
                              .ranks_on_node = world_.ranks_on_node(),
                              .seconds = median(kernel.seconds),
                              .num_measured = static_cast<int>(kernel.seconds.size())});
    }
    std::map<std::pair<std::string, std::vector<double>>, std::vector<KernelTime>> by_shape;
    for (const std::string& text : world_.all_gather(to_text(mine))) {
      for (const KernelTime& kernel : parse_cost_profile(text, "kernels of a rank").kernels) {
        by_shape[{kernel.kind, kernel.sizes}].push_back(kernel);
      }
    }
    std::vector<KernelTime> all;
    for (const auto& [shape, of_ranks] : by_shape) {
      all.push_back(of_ranks.front());
      double sum = 0.0;
      for (const KernelTime& kernel : of_ranks) sum += kernel.seconds;
      all.back().seconds = sum / static_cast<double>(of_ranks.size());
    }
    return all;
  }

  void measure_point(const Point& point) {
    if (is_on_gpus(point.experiment)) {
      throw UserError(fmt::format("{}: resources.device = \"cuda\": strata profile measures \"cpu\"",
                                  point.experiment.where("resources.device")));
    }
    if (world_.rank() == 0) fmt::print("profiling point {} [{}]\n", point.index, point.id);
    PreparedPoint prepared = prepare_point(point.experiment, arguments_.experiment.file);
    const DType dtype = prepared.plan.dtypes.compute;
    peaks_[dtype] = peak_.flops_per_second(point.experiment, dtype);
    profile_.provenance["threads_per_rank"] = fmt::format("{}", point.experiment.resources.threads_per_rank);
    const Overlap overlap = prepared.plan.overlap;
    prepared.plan.overlap = {.bucket_bytes = overlap.bucket_bytes, .all_reduce = "none"};
    const Observed alone = observe(prepared);
    for (const auto& [key, kernel] : alone.kernels) {
      Observed::Kernel& mine = kernels_.kernels[key];
      mine.shape = kernel.shape;
      mine.seconds.insert(mine.seconds.end(), kernel.seconds.begin(), kernel.seconds.end());
    }
    kernels_.other_seconds.insert(kernels_.other_seconds.end(), alone.other_seconds.begin(), alone.other_seconds.end());
    if (world_.size() == 1) return;
    prepared.plan.overlap = overlap;
    note_interference(alone, observe(prepared));
  }

  /// Of T' seconds of kernels O ran beside a transfer, at 1/s of their speed: T = T' - O + O/s. Likewise for transfers.
  void note_interference(const Observed& alone, const Observed& together) {
    const double both = mean_over_ranks(median(together.both_seconds));
    const auto slowdown = [&](const std::vector<double>& before, const std::vector<double>& after) {
      const double free = both - (mean_over_ranks(median(after)) - mean_over_ranks(median(before)));
      return both <= 0.0 ? 1.0 : std::max(1.0, both / std::max(free, 0.1 * both));
    };
    compute_slowdowns_.push_back(slowdown(alone.compute_seconds, together.compute_seconds));
    communication_slowdowns_.push_back(slowdown(alone.communication_seconds, together.communication_seconds));
  }

  Observed observe(const PreparedPoint& point) {
    const Program program = lower_for_run(point, world_.rank());
    comm::EngineOptions options = engine_options(point.experiment, program);
    comm::Engine engine(world_, options);
    interference_transport_ = options.emulated_link ? "emulated_link" : "";
    const TrainingInputs inputs =
        make_training_inputs(point.experiment, point.graph, point.plan.global_batch, arguments_.experiment.file);
    cpu::CpuExecutor executor(program, engine, *inputs.source, point.plan.seed);
    executor.initialize();
    Observed observed;
    for (int step = 0; step < num_warmup_steps + num_measured_steps; ++step) {
      const StepMeasurement m = executor.step({.step = step, .learning_rate = 1e-4});
      if (step < num_warmup_steps) continue;
      note_step(program, executor.events(), m, observed);
    }
    if (!options.emulated_link && measured_groups_.empty()) measure_collectives(engine, program);
    if (interference_transport_.empty() && world_.size() > 1) {
      interference_transport_ = engine.transport_name(engine.create_group(all_ranks()));
    }
    return observed;
  }

  std::vector<int> all_ranks() const {
    std::vector<int> ranks;
    for (int r = 0; r < world_.size(); ++r) ranks.push_back(r);
    return ranks;
  }

  static void note_step(const Program& program, std::span<const TimelineEvent> events, const StepMeasurement& m,
                        Observed& observed) {
    std::vector<Interval> kernels;
    std::vector<Interval> transfers;
    std::map<Observed::Kernel*, std::pair<std::int64_t, int>> of_this_step;  // nanoseconds, instances
    for (const TimelineEvent& e : events) {
      const Instruction& in = program.body[static_cast<std::size_t>(e.instruction)];
      if (in.is_collective()) {
        transfers.emplace_back(e.begin_ns, e.end_ns);
        continue;
      }
      kernels.emplace_back(e.begin_ns, e.end_ns);
      KernelShape shape = kernel_shape(program, in);
      Observed::Kernel& kernel = observed.kernels[{shape.kind, shape.sizes}];
      kernel.shape = std::move(shape);
      auto& [nanoseconds, instances] = of_this_step[&kernel];
      nanoseconds += e.end_ns - e.begin_ns;
      ++instances;
    }
    for (const auto& [kernel, total] : of_this_step) {
      // At least the clock's resolution, where a kernel is over before it can tell.
      const auto nanoseconds = static_cast<double>(std::max<std::int64_t>(1, total.first));
      kernel->seconds.push_back(nanoseconds * 1e-9 / total.second);
    }
    observed.both_seconds.push_back(common_seconds(kernels, transfers));
    observed.compute_seconds.push_back(m.compute_seconds);
    observed.communication_seconds.push_back(m.communication_seconds);
    observed.other_seconds.push_back(m.step_seconds - m.compute_seconds - m.exposed_seconds);
  }

  /// Every collective at every size on each shape of group that the Program has.
  void measure_collectives(comm::Engine& engine, const Program& program) {
    std::vector<std::vector<int>> groups;
    for (const Group& group : program.groups) {
      if (group.ranks.size() < 2) continue;
      const Factor shape = group_shape(group.ranks, world_.ranks_on_node());
      if (std::ranges::find(measured_groups_, shape) != measured_groups_.end()) continue;
      measured_groups_.push_back(shape);
      groups.push_back(group.ranks);
    }
    std::vector<float> input(max_elements);
    std::vector<float> output(max_elements);
    for (const std::vector<int>& ranks : groups) {
      const int group = engine.create_group(ranks);
      for (const Collective kind :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::all_to_all,
            Collective::broadcast, Collective::reduce, Collective::send}) {
        measure_collective(engine, group, ranks, kind, input.data(), output.data());
      }
    }
  }

  void measure_collective(comm::Engine& engine, int group, const std::vector<int>& ranks, Collective kind,
                          const float* input, float* output) {
    const int size = static_cast<int>(ranks.size());
    const int index = static_cast<int>(std::ranges::find(ranks, world_.rank()) - ranks.begin());
    const Factor shape = kind == Collective::send
                             ? group_shape(std::vector<int>{ranks[0], ranks[1]}, world_.ranks_on_node())
                             : group_shape(ranks, world_.ranks_on_node());
    const std::string transport = engine.transport_name(group);
    const int sender = kind == Collective::reduce ? 1 : 0;  // the root, member 0, sends nothing then
    std::vector<TransferTime> times;
    for (std::int64_t elements = 16; elements <= max_elements; elements *= 4) {
      comm::Request request;
      request.kind = kind;
      request.input = input;
      request.output = output;
      request.num_elements = elements;
      request.group = group;
      if (kind == Collective::send) {
        request.kind = index == 0 ? Collective::send : Collective::recv;
        request.peer = index == 0 ? 1 : 0;
      }
      const bool takes_part = kind != Collective::send || index < 2;
      const double seconds = seconds_of(engine, request, takes_part, elements);
      const auto bytes = elements * static_cast<std::int64_t>(sizeof(float));
      profile_.collectives.push_back({kind, shape, transport, bytes, seconds});
      times.push_back({static_cast<double>(elements_sent(kind, elements, size, sender)) * sizeof(float), seconds});
      if (seconds > 1.0) break;  // a slow wire: larger ones would take minutes and lie on the same line
    }
    if (times.size() >= 2) {
      const Line line = fit_alpha_beta(times);
      profile_.lines.push_back(
          {kind, shape, transport, line.alpha_seconds, line.beta_seconds_per_byte, line.mean_relative_error});
    }
  }

  /// Median of repetitions that begin together, each timed by its slowest rank; small ones several in a row.
  double seconds_of(comm::Engine& engine, const comm::Request& request, bool takes_part, std::int64_t elements) const {
    const int in_a_row = elements < 4096 ? 20 : 1;
    std::vector<double> seconds;
    for (int i = 0; i < 8; ++i) {
      world_.barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < in_a_row && takes_part; ++k) engine.wait(engine.post(request));
      double slowest[1] = {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / in_a_row};
      world_.all_reduce_max(slowest);
      if (i > 0) seconds.push_back(slowest[0]);
      if (slowest[0] > 0.5 && i > 0) break;
    }
    return median(seconds);
  }

  static constexpr std::int64_t max_elements = std::int64_t{1} << 24;  // 64 MiB

  const comm::World& world_;
  const ProfileArguments& arguments_;
  MeasuredPeak peak_{world_};
  CostProfile profile_;
  std::map<DType, double> peaks_;
  Observed kernels_;  ///< of all points
  std::vector<double> compute_slowdowns_, communication_slowdowns_;
  std::vector<Factor> measured_groups_;
  std::string interference_transport_;
};

void write(const std::string& path, const CostProfile& measured) {
  CostProfile profile = measured;
  if (std::filesystem::exists(path)) {
    profile = parse_cost_profile(read_file(path), path);
    merge(profile, measured);
  }
  std::ofstream file(path + ".tmp");
  file << to_text(profile);
  file.close();
  if (!file) throw UserError(path + ": cannot be written");
  std::filesystem::rename(path + ".tmp", path);
  fmt::print("{}: {} kernels, {} collectives\n", path, profile.kernels.size(), profile.collectives.size());
}

}  // namespace

int profile_experiment(int argc, char** argv, const ProfileArguments& arguments, const Environment& environment) {
  const comm::Session session(argc, argv);
  const comm::World world({.node_name = environment.node_name});
  try {
    comm::check_launcher(world, environment.launcher_num_ranks, environment.launcher_variable);
    // Every rank reads the file for itself: it is small, and equal for all.
    const LoadedExperiment loaded = load_points(arguments.experiment, device_backend);
    const CostProfile measured = Profiler(world, arguments).run(loaded);
    if (world.rank() == 0) write(arguments.output_file, measured);
    return exit_ok;
  } catch (const UserError& e) {
    return report_bad_input(e, world, environment);
  } catch (const std::exception& e) {
    comm::abort_all(exit_internal, e.what());
  }
}

}  // namespace strata::app
