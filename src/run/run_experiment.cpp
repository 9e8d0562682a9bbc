#include "run/run_experiment.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/instruction_set.hpp"
#include "comm/bad_input.hpp"
#include "comm/collective_error.hpp"
#include "comm/launch_check.hpp"
#include "comm/session.hpp"
#include "comm/world.hpp"
#include "predict/device_options.hpp"
#include "predict/selected_point.hpp"
#include "profile/measured_peak.hpp"
#include "results/outcome.hpp"
#include "run/last_word.hpp"
#include "run/machine_costs.hpp"
#include "run/run_point.hpp"
#include "run/stop_signal.hpp"
#include "run/unstarted.hpp"

namespace strata::run {
namespace {

/// Fits this world: as many ranks in all. Ranks a node are checked against the launch later.
std::vector<const Point*> points_to_run(const predict::LoadedExperiment& loaded,
                                        const predict::ExperimentArguments& arguments, int world_size) {
  if (arguments.point) {
    const Point& point = predict::selected_point(loaded, arguments);
    if (point.experiment.num_ranks() != world_size) {
      throw LaunchMismatch(fmt::format("{}: point {} needs {} ranks, the world has {}", arguments.file, point.index,
                                       point.experiment.num_ranks(), world_size));
    }
    return {&point};
  }
  std::vector<const Point*> fitting;
  std::string left_out;
  std::set<std::int64_t> counts;
  for (const Point& point : loaded.expansion.points) {
    counts.insert(point.experiment.num_ranks());
    if (point.experiment.num_ranks() == world_size) {
      fitting.push_back(&point);
    } else {
      left_out += fmt::format(" {}", point.index);
    }
  }
  if (fitting.empty()) {
    std::string accepted;
    for (const std::int64_t count : counts) accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", count);
    throw LaunchMismatch(fmt::format("{}: no point for {} ranks; the experiment has points for {}", arguments.file,
                                     world_size, accepted));
  }
  if (!left_out.empty()) {
    say("left out, other numbers of ranks than {}: points{}\n", world_size, left_out);
  }
  return fitting;
}

/// The file of point @p next_id, which the submission of @p file launches too.
std::string file_of_next(const std::filesystem::path& file, const std::string& next_id) {
  // Jobs that earlier versions queued have `<point>/point.toml`.
  if (file.filename() == "point.toml") return (file.parent_path().parent_path() / next_id / "point.toml").string();
  return (file.parent_path() / (next_id + ".toml")).string();
}

class Run {
  // First, because its return type is deduced.
  /// @p action on rank 0, its text on all ranks; its failure too.
  template <typename Action, typename Read>
  auto on_root(const Action& action, const Read& read) {
    std::string text;
    comm::on_rank_0(world_, [&] { text = action(); });
    return read(world_.broadcast(text));
  }

 public:
  Run(const comm::World& world, LastWord& last_word, const RunArguments& arguments, const Environment& environment)
      : world_(world), arguments_(arguments), environment_(environment) {
    options_.results_folder = arguments.results_folder;
    options_.print_steps = !arguments.quiet;
    options_.last_word = &last_word;
    options_.origin.launch = arguments.launch;
    options_.origin.job = arguments.job;
    if (arguments.block >= 0) {
      options_.block = {.number = arguments.block, .order = arguments.block_order, .seed = arguments.block_seed};
    }
  }

  int run() {
    int worst = run_file();
    for (const NextLaunch& next : arguments_.then) {
      if (was_told_to_stop_) break;
      options_.origin.launch = next.launch;
      options_.block.order = next.block_order;
      arguments_.experiment.file = file_of_next(arguments_.experiment.file, next.point_id);
      worst = std::max(worst, run_file());
    }
    return worst;
  }

 private:
  /// The points of arguments_.experiment. @return the exit code.
  int run_file() {
    predict::LoadedExperiment loaded;
    std::vector<const Point*> points;
    const auto as_count = [](const std::string& text) { return std::stoi(text); };
    const bool one_point_file = on_root(
                                    [&] {
                                      loaded = predict::load_points(arguments_.experiment, device_backend);
                                      return fmt::format("{}", loaded.expansion.points.size());
                                    },
                                    as_count) == 1;
    int num_points = 0;
    try {
      comm::check_launcher(world_, environment_.launcher_num_ranks, environment_.launcher_variable);
      num_points = on_root(
          [&] {
            points = points_to_run(loaded, arguments_.experiment, world_.size());
            return fmt::format("{}", points.size());
          },
          as_count);
    } catch (const LaunchMismatch& e) {
      if (one_point_file && speaks()) {
        record_unstarted(environment_, loaded.expansion.points.front(), world_.size(), results::outcome_of(e),
                         options_);
      }
      throw;
    }
    int worst = exit_ok;
    for (int p = 0; p < num_points; ++p) {
      const Point* point = world_.rank() == 0 ? points[static_cast<std::size_t>(p)] : nullptr;
      const results::Status status = one_point(point, loaded);
      was_told_to_stop_ = status == results::Status::timeout || status == results::Status::preempted;
      if (status != results::Status::ok) {
        worst =
            num_points == 1 ? exit_code_of(status) : std::max(worst, expected_ ? int{exit_ok} : int{exit_some_failed});
      }
      if (was_told_to_stop_) break;
    }
    return worst;
  }

  /// Once a launch, even where the launcher started worlds of one rank each.
  bool speaks() const { return world_.rank() == 0 && environment_.launcher_rank == 0; }

  results::Status one_point(const Point* point, const predict::LoadedExperiment& loaded) {
    results::Outcome outcome;
    const auto record_refusal = [&](const std::exception& e) {
      outcome = results::outcome_of(e);
      if (speaks()) record_unstarted(environment_, *point, world_.size(), outcome, options_);
    };
    try {
      const RunRequest request = make_request(point, loaded);
      outcome = run_point(world_, environment_, request, options_);
    } catch (const Unsupported& e) {
      record_refusal(e);
    } catch (const OutOfMemory& e) {
      record_refusal(e);
    } catch (const LaunchMismatch& e) {
      if (speaks()) record_unstarted(environment_, *point, world_.size(), results::outcome_of(e), options_);
      throw;
    }
    expected_ = on_root(
        [&] { return std::string(is_expected(point->experiment.expect, outcome.status) ? "yes" : "no"); }, is_yes);
    if (world_.rank() == 0 && outcome.status != results::Status::ok) {
      say_error("strata: {}: {}\n", results::to_string(outcome.status), outcome.message);
    }
    return outcome.status;
  }

  /// Everything that is known before the first step: plan, data, restart, peaks. @param point on rank 0.
  RunRequest make_request(const Point* point, const predict::LoadedExperiment& loaded) {
    RunRequest request;
    request.experiment_file = arguments_.experiment.origin();
    request.point = same_point(point);
    request.point.experiment.backend = request.point.experiment.resources.device;
    const Experiment& experiment = request.point.experiment;
    request.experiment_name = experiment.name;
    comm::check_launch(world_, expectation(experiment));
    if (predict::is_on_gpus(experiment)) {
      cuda::SelectedDevice device = cuda::select_device(world_, predict::may_use_nccl(experiment));
      request.device_transport = predict::device_transport(experiment, device.sharing);
      request.gpu_name = std::move(device.device.name);
    }
    // Before the plan: planners ask what kernels and transfers take.
    request.machine =
        machine_costs(world_, experiment, fmt::format("{}/{}", options_.results_folder, request.experiment_name),
                      request.device_transport, peak_);
    const std::string plan_text = on_root([&] { return plan_on_root(request); }, as_it_is);
    request.prepared =
        predict::prepare_point_with_plan(experiment, request.experiment_file, plan_text, "plan", &request.machine);
    open_inputs(request);
    find_restart(request);
    describe(request, loaded);
    request.peak = peak_.product_rates(experiment, request.prepared.plan.dtypes.compute);
    return request;
  }

  /// Rank 0 has read everything; the others learn the texts. One reader, one error.
  Point same_point(const Point* point) {
    const std::string text = on_root([&] { return to_text(point->experiment); }, as_it_is);
    const std::string id = on_root([&] { return point->id; }, as_it_is);
    if (world_.rank() == 0) return *point;
    return {.id = id, .experiment = read_experiment(text, "point").base, .axes = {}};
  }

  static std::string as_it_is(const std::string& text) { return text; }

  static bool is_yes(const std::string& text) { return text == "yes"; }

  /// Each rank reads the data for itself; what one of them cannot read ends all, before anything is recorded.
  void open_inputs(RunRequest& request) const {
    comm::on_all_ranks(world_, [&] {
      request.inputs = predict::make_training_inputs(request.point.experiment, request.prepared.graph,
                                                     request.prepared.plan.global_batch, request.experiment_file);
      if (request.point.experiment.evaluate.every > 0) {
        request.evaluation_inputs =
            predict::make_evaluation_inputs(request.point.experiment, request.prepared.graph,
                                            predict::evaluation_batch(request.prepared), request.experiment_file);
      }
      request.length = predict::training_length(request.point.experiment, request.inputs.order);
    });
  }

  /// Rank 0 looks, so that all begin at one step.
  void find_restart(RunRequest& request) {
    request.restart = on_root(
        [&] {
          const RestartPoint found = find_restart_point(request.prepared, request.length, request.experiment_file,
                                                        checkpoint_folder(options_, request));
          return fmt::format("{} {}", found.step, found.path);
        },
        [](const std::string& text) {
          return RestartPoint{.path = text.substr(text.find(' ') + 1), .step = std::stoll(text)};
        });
    if (!request.restart.path.empty()) verify_checkpoint(world_, request.restart.path);
  }

  std::string plan_on_root(const RunRequest& request) const {
    Experiment experiment = request.point.experiment;
    if (predict::is_on_gpus(experiment)) {
      experiment = predict::with_device_transport(std::move(experiment), request.device_transport);
    }
    const predict::PreparedPoint prepared = predict::prepare_point(experiment, arguments_.experiment.origin(),
                                                                   arguments_.experiment.plan_file, &request.machine);
    return to_text(prepared.plan);
  }

  comm::LaunchExpectation expectation(const Experiment& experiment) const {
    return {.num_ranks = static_cast<int>(experiment.num_ranks()),
            .num_nodes = static_cast<int>(experiment.num_machines()),
            .ranks_per_node = static_cast<int>(experiment.ranks_per_machine()),
            .binary_hash = binary_hash_,
            .instruction_set = instruction_set()};
  }

  void describe(const RunRequest& request, const predict::LoadedExperiment& loaded) const {
    if (world_.rank() != 0) return;
    say("point {} of {} [{}]", request.point.index, loaded.expansion.points.size(), request.point.id);
    for (const AxisValue& axis : request.point.axes) {
      if (axis.value != "\"unset\"") say(" {}={}", axis.key, axis.value);
    }
    say("\n");
    if (!request.restart.path.empty()) {
      say("from step {} of {}\n", request.restart.step, request.restart.path);
    } else if (!request.point.experiment.checkpoint.restart_from.empty()) {
      say("no checkpoint yet: from step 0\n");
    }
    flush_output();
  }

  const comm::World& world_;
  RunArguments arguments_;
  const Environment& environment_;
  RunOptions options_;
  profile::MeasuredPeak peak_{world_};
  std::uint64_t binary_hash_ = binary_hash();
  bool expected_ = false;
  bool was_told_to_stop_ = false;
};

}  // namespace

int run_experiment(int argc, char** argv, const RunArguments& arguments, const Environment& environment) {
  remember_stop_signals();
  LastWord last_word;  // forks, so before MPI and its threads
  const comm::Session session(argc, argv);
  const comm::World world({.node_name = environment.node_name});
  try {
    return Run(world, last_word, arguments, environment).run();
  } catch (const UserError& e) {
    // All ranks hold the same error: one of them says it, nobody is killed.
    return comm::report_bad_input(e, world, environment);
  } catch (const Unsupported& e) {
    if (world.rank() == 0) say_error("strata: refused: {}\n", e.what());
    return exit_refused;
  } catch (const CommunicationError& e) {
    comm::abort_all(exit_some_failed, e.what());
  } catch (const std::exception& e) {
    comm::abort_all(exit_internal, e.what());
  }
}

}  // namespace strata::run
