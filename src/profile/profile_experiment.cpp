#include "profile/profile_experiment.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/median.hpp"
#include "base/read_file.hpp"
#include "comm/bad_input.hpp"
#include "comm/collective_error.hpp"
#include "comm/launch_check.hpp"
#include "comm/session.hpp"
#include "comm/world.hpp"
#include "exec/cpu/cpu_executor.hpp"
#include "exec/cuda_backend.hpp"
#include "predict/device_options.hpp"
#include "predict/engine_options.hpp"
#include "predict/prediction.hpp"
#include "predict/provenance.hpp"
#include "predict/selected_point.hpp"
#include "predict/training_inputs.hpp"
#include "profile/collective_times.hpp"
#include "profile/engine_collectives.hpp"
#include "profile/measured_machine.hpp"
#include "profile/measured_peak.hpp"
#include "profile/observed_steps.hpp"
#include "results/file_descriptor.hpp"
#include "results/outcome.hpp"

namespace strata::profile {
namespace {

constexpr int num_warmup_steps = 2;
constexpr int num_measured_steps = 6;

/// What is refused, or does not fit, equal on all ranks.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Profiler {
 public:
  Profiler(const comm::World& world, const ProfileArguments& arguments) : world_(world), arguments_(arguments) {}

  CostProfile run(const predict::LoadedExperiment& loaded) {
    const std::vector<const Point*> points = points_to_measure(loaded);
    profile_.machine = on_all([&] { return machine_of(points); });
    profile_.provenance = {{"strata", predict::version_and_commit()},
                           {"measured", results::to_iso_8601(results::unix_seconds_now())}};
    if (predict::is_on_gpus(points.front()->experiment)) select_device(points.front()->experiment);
    for (const Point* point : points) measure_point(*point);
    profile_.kernels = kernels_of_all_ranks();
    for (const auto& [dtype, rate] : peaks_) {
      profile_.peaks.push_back({std::string(to_string(dtype)), world_.ranks_on_node(), rate});
    }
    profile_.step_overhead_seconds[world_.ranks_on_node()] = mean_over_ranks(median(steps_.other_seconds));
    for (const auto& [transport, slowdowns] : interference_) {
      profile_.interference.push_back(
          {world_.ranks_on_node(), transport, median(slowdowns.compute), median(slowdowns.communication)});
    }
    return std::move(profile_);
  }

 private:
  /// By point.
  struct Slowdowns {
    std::vector<double> compute, communication;
  };

  std::vector<const Point*> points_to_measure(const predict::LoadedExperiment& loaded) const {
    std::vector<const Point*> points;
    for (const Point& point : loaded.expansion.points) {
      if (point.experiment.num_ranks() != world_.size()) continue;
      if (arguments_.experiment.point && point.index != *arguments_.experiment.point) continue;
      points.push_back(&point);
    }
    if (points.empty()) {
      throw UserError(fmt::format("{}: no point for {} ranks", arguments_.experiment.file, world_.size()));
    }
    return points;
  }

  std::string machine_of(const std::vector<const Point*>& points) const {
    const std::string machine = predict::machine_identity(points.front()->experiment);
    for (const Point* point : points) {
      const std::string other = predict::machine_identity(point->experiment);
      if (other == machine) continue;
      throw UserError(
          fmt::format("{}: a profile is of one device, and point {} computes on {}, point {} on {}; choose "
                      "with --point",
                      arguments_.experiment.file, points.front()->index, machine, point->index, other));
    }
    return machine;
  }

  void select_device(const Experiment& experiment) {
    device_ = on_all([&] { return cuda::select_device(world_, predict::may_use_nccl(experiment)); });
    const std::vector<std::string> names = world_.all_gather(device_->device.name);
    const auto other = std::ranges::find_if(names, [&](const std::string& name) { return name != names.front(); });
    if (other != names.end()) {
      throw Refusal(fmt::format("refused: a profile is of one kind of GPU, and rank 0 has {}, rank {} {}",
                                names.front(), other - names.begin(), *other));
    }
    profile_.provenance["host"] = fmt::format("{}, {} cores", cpu_name(), available_cores());
  }

  /// @p action on every rank. @throws Refusal where one of them cannot do it, and other errors as they are, on all
  /// ranks.
  template <typename Action>
  std::invoke_result_t<const Action&> on_all(const Action& action) const {
    std::optional<std::invoke_result_t<const Action&>> result;
    const auto error = comm::collective_error(world_, [&] { result = action(); });
    if (!error) return std::move(*result);
    const bool is_refusal = error->kind == ErrorKind::unsupported || error->kind == ErrorKind::out_of_memory;
    if (!is_refusal) throw_error(error->kind, error->message);
    throw Refusal(fmt::format("{}: {}", results::to_string(results::status_of(error->kind)), error->message));
  }

  double mean_over_ranks(double value) const {
    double sum[1] = {value};
    world_.all_reduce_sum(sum);
    return sum[0] / world_.size();
  }

  std::vector<KernelTime> kernels_of_all_ranks() const {
    const CostProfile mine{.machine = profile_.machine, .kernels = kernel_times(steps_, world_.ranks_on_node())};
    std::vector<KernelTime> of_ranks;
    for (const std::string& text : world_.all_gather(to_text(mine))) {
      const CostProfile theirs = parse_cost_profile(text, "kernels of a rank");
      of_ranks.insert(of_ranks.end(), theirs.kernels.begin(), theirs.kernels.end());
    }
    return mean_by_shape(of_ranks);
  }

  void measure_point(const Point& point) {
    if (world_.rank() == 0) say("profiling point {} [{}]\n", point.index, point.id);
    Experiment experiment = point.experiment;
    if (device_) {
      choose_transport(on_all([&] { return predict::device_transport(experiment, device_->sharing); }));
      experiment = predict::with_device_transport(std::move(experiment), device_transport_);
      profile_.provenance.merge(cuda::library_versions(uses_nccl() ? cuda::Transport::nccl : cuda::Transport::host));
    }
    // Modes that compare plans ask what the machine takes before its profile is there.
    const Cluster machine = measured_machine(world_, experiment, device_transport_, peak_);
    predict::PreparedPoint prepared =
        on_all([&] { return predict::prepare_point(experiment, arguments_.experiment.file, &machine); });
    const DType dtype = prepared.plan.dtypes.compute;
    peaks_[dtype] = peak_.flops_per_second(point.experiment, dtype);
    profile_.provenance["threads_per_rank"] = fmt::format("{}", point.experiment.resources.threads_per_rank);
    const Overlap overlap = prepared.plan.overlap;
    prepared.plan.overlap = {.bucket_bytes = overlap.bucket_bytes, .all_reduce = "none"};
    const ObservedSteps alone = observe(prepared);
    steps_.add(alone);
    if (world_.size() == 1) return;
    prepared.plan.overlap = overlap;
    note_interference(alone, observe(prepared));
  }

  /// Kernels in managed memory, between collectives that the host carries, take other times than those beside NCCL.
  void choose_transport(cuda::Transport transport) {
    if (!kernel_transport_) kernel_transport_ = transport;
    if (world_.size() > 1 && *kernel_transport_ != transport) {
      throw Refusal(
          "refused: a profile of GPUs is of one communication.device_transport, and the points have nccl and "
          "host; choose with --point");
    }
    device_transport_ = transport;
  }

  void note_interference(const ObservedSteps& alone, const ObservedSteps& together) {
    const auto mean = [&](const std::vector<double>& by_step) { return mean_over_ranks(median(by_step)); };
    const double both = mean(together.both_seconds);
    Slowdowns& slowdowns = interference_[transport_];
    slowdowns.compute.push_back(slowdown(mean(alone.compute_seconds), mean(together.compute_seconds), both));
    slowdowns.communication.push_back(
        slowdown(mean(alone.communication_seconds), mean(together.communication_seconds), both));
  }

  ObservedSteps observe(const predict::PreparedPoint& point) {
    const Program program = on_all([&] { return predict::lower_for_run(point, world_.rank()); });
    for (const auto& [name, choice] :
         on_all([&] { return predict::device_choices(world_, point.experiment, program, device_transport_); })) {
      profile_.provenance[name] = choice;
    }
    comm::EngineOptions options = predict::engine_options(point.experiment, predict::num_operations(program));
    comm::Engine engine(world_, options);
    const std::string host =
        options.emulated_link ? "emulated_link" : engine.transport_name(engine.create_group(all_ranks(world_)));
    transport_ = transport_name(host);
    ObservedSteps observed;
    {
      const predict::TrainingInputs inputs = predict::make_training_inputs(
          point.experiment, point.graph, point.plan.global_batch, arguments_.experiment.file);
      const std::unique_ptr<Executor> executor =
          on_all([&] { return make_executor(point, program, engine, *inputs.source); });
      executor->initialize();
      for (int step = 0; step < num_warmup_steps + num_measured_steps; ++step) {
        const StepMeasurement m = run_step(*executor, {.step = step, .learning_rate = 1e-4});
        if (step >= num_warmup_steps) observed.add(program, executor->events(), m);
      }
    }
    // Its memory is free again.
    if (!options.emulated_link) measure_new_groups(engine, program);
    return observed;
  }

  std::unique_ptr<Executor> make_executor(const predict::PreparedPoint& point, const Program& program,
                                          comm::Engine& engine, InputSource& inputs) const {
    if (!device_) {
      return std::make_unique<cpu::CpuExecutor>(program, engine, inputs, point.plan.seed,
                                                predict::cpu_numerics_of(point.experiment));
    }
    return cuda::make_executor(program, world_, engine, inputs, point.plan.seed,
                               {.transport = device_transport_,
                                .numerics = predict::numerics_of(point.experiment),
                                .graphs = predict::graph_use_of(point.experiment),
                                .timing = true,
                                .watchdog_seconds = point.experiment.communication.watchdog_seconds});
  }

  /// @param host the engine's.
  std::string transport_name(const std::string& host) const {
    return device_ ? predict::device_transport_name(device_transport_, host) : host;
  }

  bool uses_nccl() const { return device_ && device_transport_ == cuda::Transport::nccl && world_.size() > 1; }

  /// Every collective at every size on each shape of group that the Programs have, once by each transport.
  void measure_new_groups(comm::Engine& engine, const Program& program) {
    for (const GroupsOfShape& groups : groups_to_measure(world_, program)) {
      std::vector<int> mine;
      for (const std::vector<int>& ranks : groups.groups) {
        if (std::ranges::find(ranks, world_.rank()) != ranks.end()) mine = ranks;
      }
      const int group = mine.empty() ? -1 : engine.create_group(mine);
      // All groups of a shape have one; a rank that is in none learns it.
      const std::string host =
          world_.broadcast(mine.empty() ? "" : engine.transport_name(group), groups.groups.front().front());
      const std::string transport = transport_name(host);
      if (!measured_.emplace(groups.shape.in_node, groups.shape.nodes, transport).second) continue;
      measure_collectives(world_, groups, transport, collectives_of(engine, group, mine, measured_capacity(groups)),
                          profile_);
    }
  }

  /// @param ranks this rank's group, @p group in @p engine; may be empty.
  TimedCollectives collectives_of(comm::Engine& engine, int group, const std::vector<int>& ranks,
                                  std::int64_t max_elements) const {
    if (uses_nccl()) return cuda::nccl_collectives(world_, ranks, max_elements);
    if (ranks.empty()) return {};
    return engine_collectives(engine, group, ranks, world_.rank(), max_elements,
                              device_ ? OperandMemory::managed : OperandMemory::host);
  }

  const comm::World& world_;
  const ProfileArguments& arguments_;
  MeasuredPeak peak_{world_};
  std::optional<cuda::SelectedDevice> device_;  ///< on GPUs
  CostProfile profile_;
  std::map<DType, double> peaks_;
  ObservedSteps steps_;                                   ///< of all points
  std::map<std::string, Slowdowns> interference_;         ///< by transport
  std::set<std::tuple<int, int, std::string>> measured_;  ///< shapes of groups, ranks in a node × nodes, and transports
  std::optional<cuda::Transport> kernel_transport_;       ///< of all points on GPUs
  // Of the point that is measured.
  cuda::Transport device_transport_ = cuda::Transport::host;
  std::string transport_;  ///< of the group of all ranks
};

/// @throws UserError where one has times of ranks on GPUs by NCCL and the other by the host.
void require_one_transport(const CostProfile& kept, const CostProfile& measured, const std::string& path) {
  const auto is_of_gpus = [](const Interference& row) {
    return row.transport == "nccl" || row.transport.starts_with("managed_memory");
  };
  for (const Interference& before : kept.interference) {
    for (const Interference& now : measured.interference) {
      if (before.ranks_on_node != now.ranks_on_node || !is_of_gpus(before) || !is_of_gpus(now)) continue;
      if ((before.transport == "nccl") == (now.transport == "nccl")) continue;
      throw UserError(
          fmt::format("{}: has times of {} ranks a node by {}, and these are by {}: a profile is of one; "
                      "write these to another file",
                      path, now.ranks_on_node, before.transport, now.transport));
    }
  }
}

void write(const std::string& path, const CostProfile& measured) {
  CostProfile profile = measured;
  if (std::filesystem::exists(path)) {
    profile = parse_cost_profile(read_file(path), path);
    require_one_transport(profile, measured, path);
    merge(profile, measured);
  }
  results::replace_file(path, to_text(profile), fmt::format("{}", ::getpid()));
  say("{}: {} kernels, {} collectives\n", path, profile.kernels.size(), profile.collectives.size());
}

}  // namespace

int profile_experiment(int argc, char** argv, const ProfileArguments& arguments, const Environment& environment) {
  const comm::Session session(argc, argv);
  const comm::World world({.node_name = environment.node_name});
  try {
    comm::check_launcher(world, environment.launcher_num_ranks, environment.launcher_variable);
    // Every rank reads the file for itself: it is small, and equal for all.
    const predict::LoadedExperiment loaded = predict::load_points(arguments.experiment, device_backend);
    const CostProfile measured = Profiler(world, arguments).run(loaded);
    if (world.rank() == 0) write(arguments.output_file, measured);
    return exit_ok;
  } catch (const UserError& e) {
    return comm::report_bad_input(e, world, environment);
  } catch (const Refusal& e) {
    if (world.rank() == 0) say_error("strata: {}\n", e.what());
    return exit_refused;
  } catch (const std::exception& e) {
    const results::Outcome outcome = results::outcome_of(e);  // of this rank alone
    comm::abort_all(exit_code_of(outcome.status), outcome.message);
  }
}

}  // namespace strata::profile
