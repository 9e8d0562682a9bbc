#include "predict/prediction.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/read_file.hpp"
#include "lower/evaluation.hpp"
#include "predict/device_options.hpp"
#include "sim/steady_state.hpp"

namespace strata::predict {
namespace {

bool tells_ranks_apart(const SimulateSection& simulate) {
  return simulate.noise > 0.0 || (!simulate.straggler_ranks.empty() && simulate.straggler_slowdown > 1.0);
}

LoweredJob lower_with(const PreparedPoint& point, Program (*lower_rank)(const PreparedPoint&, int)) {
  LoweredJob lowered;
  RankClasses classes = rank_classes(point.plan, point.graph, point.leaves_that_matter());
  lowered.leaf_of_node.assign(point.leaves_that_matter().begin(), point.leaves_that_matter().end());
  if (tells_ranks_apart(point.experiment.simulate)) {
    classes.representatives.clear();
    for (std::size_t r = 0; r < classes.class_of_rank.size(); ++r) {
      classes.class_of_rank[r] = static_cast<int>(r);
      classes.representatives.push_back(static_cast<int>(r));
    }
  }
  for (const int rank : classes.representatives) lowered.programs.push_back(lower_rank(point, rank));
  lowered.class_of_rank = std::move(classes.class_of_rank);
  return lowered;
}

/// What [communication] emulates.
std::optional<Transports::Emulated> emulated_links(const Experiment& experiment) {
  const CommunicationSection& c = experiment.communication;
  if (c.emulated_gbit_per_s == 0.0) return std::nullopt;
  const auto link = [](double alpha_us, double gbit_per_s) { return Link{alpha_us * 1e-6, gbit_per_s * 1e9 / 8.0}; };
  const Link between = link(c.emulated_alpha_us, c.emulated_gbit_per_s);
  if (!experiment.emulates_nodes()) return Transports::Emulated{.inside = between, .between = between};
  return Transports::Emulated{.inside = link(c.emulated_inside_alpha_us, c.emulated_inside_gbit_per_s),
                              .between = between};
}

/// As comm::Engine names them: shared memory inside a node, MPI between nodes, both where a group has both. On GPUs as
/// runs do.
Transports transports_of(const Experiment& experiment, const CostProfile& profile) {
  const auto host = [only_mpi = experiment.communication.transport == "mpi"](const Factor& group) -> std::string {
    if (only_mpi || group.in_node == 1) return "mpi";
    return group.nodes == 1 ? "shm" : "two_level(shm,mpi)";
  };
  const Factor all{static_cast<int>(experiment.resources.ranks_per_node), static_cast<int>(experiment.resources.nodes)};
  Transports transports{.name = host, .of_all_ranks = "none", .emulated = emulated_links(experiment)};
  if (transports.emulated) {
    transports.of_all_ranks = "emulated_link";
  } else if (all.total() > 1) {
    transports.of_all_ranks = host(all);
  }
  if (is_on_gpus(experiment)) {
    const cuda::Transport transport = profiled_device_transport(experiment, profile);
    transports.name = [host, transport](const Factor& group) { return device_transport_name(transport, host(group)); };
    transports.of_all_ranks = device_transport_name(transport, transports.of_all_ranks);
  }
  return transports;
}

}  // namespace

std::string machine_identity(const Experiment& experiment) {
  if (!is_on_gpus(experiment)) {
    return fmt::format("{}, {} cores{}", cpu_name(), available_cores(),
                       cpu_numerics_of(experiment).winograd ? "" : ", direct convolutions");
  }
  const cuda::Numerics numerics = numerics_of(experiment);
  const std::string& attention = experiment.cuda.attention;
  return fmt::format("{}{}{}{}{}{}", cuda::first_device().name, numerics.tf32 ? ", tf32" : "",
                     numerics.deterministic ? ", deterministic" : "",
                     attention == "auto" ? "" : fmt::format(", attention of {}", attention),
                     experiment.cuda.graphs == "off" ? ", no graphs" : "",
                     experiment.cuda.time_products == "off" ? ", products not timed" : "");
}

CostProfile load_profile(const Experiment& experiment, const std::string& experiment_file) {
  const std::string path = path_beside(experiment_file, experiment.simulate.profile);
  CostProfile profile = parse_cost_profile(read_file(path), path);
  if (experiment.cluster != "this") return profile;
  if (const std::string machine = machine_identity(experiment); profile.machine != machine) {
    throw UserError(fmt::format("{}: measured on another machine: {}; with resources.device = \"{}\" this one is {}",
                                path, profile.machine, experiment.resources.device, machine));
  }
  return profile;
}

std::unique_ptr<CostModel> profiled_costs(const Experiment& experiment, const std::string& experiment_file) {
  const CostProfile profile = load_profile(experiment, experiment_file);
  return measured_costs(profile, static_cast<int>(experiment.ranks_per_machine()), transports_of(experiment, profile));
}

LinkLines profiled_links(const Experiment& experiment, const std::string& experiment_file) {
  if (const std::optional<Transports::Emulated> emulated = emulated_links(experiment)) {
    const auto line = [](const Link& link) {
      return Line{link.latency_seconds, 1.0 / link.bandwidth_bytes_per_second, 0.0};
    };
    return {.inside = line(emulated->inside), .across = line(emulated->between), .num_inside = 1, .num_across = 1};
  }
  const CostProfile profile = load_profile(experiment, experiment_file);
  const Transports transports = transports_of(experiment, profile);
  std::vector<CollectiveTime> times = profile.collectives;
  std::erase_if(times, [&](const CollectiveTime& row) { return row.transport != transports.name(row.group); });
  return fit_links(times);
}

namespace {

const std::string& cost_word(const Experiment& experiment, std::string_view key) {
  return key == "planner.cost" ? experiment.planner.cost : experiment.simulate.cost;
}

}  // namespace

bool knows_costs(const PreparedPoint& point, std::string_view key) {
  const bool is_described = point.cluster.name != "this" || point.cluster.memory_bandwidth_bytes_per_second > 0.0;
  return is_described || parse_cost_source(cost_word(point.experiment, key)) == CostSource::measured;
}

std::unique_ptr<CostModel> cost_model(const PreparedPoint& point, const std::string& experiment_file,
                                      std::string_view key) {
  const Experiment& experiment = point.experiment;
  const std::string& word = cost_word(experiment, key);
  const CostSource source = parse_cost_source(word);
  if (source == CostSource::measured) return profiled_costs(experiment, experiment_file);
  if (!knows_costs(point, key)) {
    throw UserError(
        fmt::format("{}: {} = \"{}\" needs a described cluster, and \"this\" is known by measuring alone: run `strata "
                    "profile`, then set {} = \"measured\" and simulate.profile; or name a cluster of `strata list "
                    "clusters`",
                    experiment.where(key), key, word, key));
  }
  return source == CostSource::paper ? paper_costs(point.cluster) : analytic_costs(point.cluster);
}

Job LoweredJob::job(int ranks_per_node) const {
  Job job{
      .programs = {}, .class_of_rank = class_of_rank, .ranks_per_node = ranks_per_node, .leaf_of_node = leaf_of_node};
  for (const Program& program : programs) job.programs.push_back(&program);
  return job;
}

LoweredJob lower_job(const PreparedPoint& point) { return lower_with(point, lower_for_cluster); }

LoweredJob lower_job_uncapped(const PreparedPoint& point) { return lower_with(point, lower_uncapped); }

std::int64_t evaluation_arena_bytes(const PreparedPoint& point, const LoweredJob& training) {
  if (point.experiment.evaluate.every == 0) return 0;
  const Plan plan = evaluation_plan(point.plan, evaluation_batch(point));
  const RankClasses classes = rank_classes(plan, evaluation_graph(point.graph));
  const auto training_bytes = [&](int rank) {
    const int of_rank = training.class_of_rank[static_cast<std::size_t>(rank)];
    return training.programs[static_cast<std::size_t>(of_rank)].arena_bytes;
  };
  // Ranks that evaluate alike may train differently: the one whose training takes most has the least left.
  std::vector<int> fullest(classes.representatives.size(), -1);
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    int& most = fullest[static_cast<std::size_t>(classes.class_of_rank[static_cast<std::size_t>(rank)])];
    if (most < 0 || training_bytes(rank) > training_bytes(most)) most = rank;
  }
  std::int64_t bytes = 0;
  for (const int rank : fullest) {
    const LoweredEvaluation lowered = lower_evaluation_for_cluster(point, rank, training_bytes(rank));
    bytes = std::max(bytes, lowered.program.arena_bytes);
  }
  return bytes;
}

SimulationOptions simulation_options(const PreparedPoint& point) {
  const SimulateSection& s = point.experiment.simulate;
  SimulationOptions options;
  options.num_steps = static_cast<int>(s.steps);
  // On the CPU the calling thread computes and posts; devices have a host that runs ahead.
  options.issue_in_list_order = computes_on_cpus(point.cluster);
  options.noise = s.noise;
  options.seed = static_cast<std::uint64_t>(s.seed);
  for (const std::int64_t rank : s.straggler_ranks) {
    if (rank >= point.plan.mesh.num_ranks()) {
      throw UserError(fmt::format("{}: simulate.straggler_ranks: rank {} of {}",
                                  point.experiment.where("simulate.straggler_ranks"), rank,
                                  point.plan.mesh.num_ranks()));
    }
    options.stragglers[static_cast<int>(rank)] = s.straggler_slowdown;
  }
  return options;
}

Prediction predict(const PreparedPoint& point, const LoweredJob& lowered, const CostModel& costs) {
  Prediction prediction;
  prediction.simulation =
      simulate_steady(lowered.job(point.plan.mesh.ranks_per_node), costs, simulation_options(point));
  prediction.source = "simulator, " + costs.description();
  const Program& program = lowered.programs[static_cast<std::size_t>(lowered.class_of_rank.front())];
  for (const TimelineEvent& e : prediction.simulation.events) {
    if (e.rank != program.rank || e.step != prediction.simulation.steady_step) continue;
    const Instruction& in = program.body[static_cast<std::size_t>(e.instruction)];
    const double seconds = static_cast<double>(e.end_ns - e.begin_ns) * 1e-9;
    if (in.is_collective()) {
      prediction.collective_seconds[std::string(to_string(in.collective))] += seconds;
    } else {
      prediction.kernel_seconds[std::string(kernel_signature(in.kernel).name)] += seconds;
    }
  }
  return prediction;
}

results::StepRow step_row(const PreparedPoint& point, const LoweredJob& lowered, const SimulationResult& simulation,
                          std::int64_t step) {
  const std::vector<SimulatedStep>& classes = simulation.steps[static_cast<std::size_t>(step)];
  const auto largest = [&](double SimulatedStep::*member) {
    double value = 0.0;
    for (const SimulatedStep& c : classes) value = std::max(value, c.*member);
    return value;
  };
  results::StepRow row;
  row.step = step;
  row.phase = results::StepPhase::measured;
  row.step_seconds_max = largest(&SimulatedStep::step_seconds);
  std::vector<double> seconds;  // by rank
  double busy_ranks = 0.0;
  for (const int c : lowered.class_of_rank) {
    const SimulatedStep& of_rank = classes[static_cast<std::size_t>(c)];
    seconds.push_back(of_rank.step_seconds);
    busy_ranks += of_rank.compute_seconds / of_rank.step_seconds;
  }
  row.busy_share = busy_ranks / static_cast<double>(seconds.size());
  std::ranges::nth_element(seconds, seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2));
  row.step_seconds_median = seconds[seconds.size() / 2];
  row.compute_seconds = largest(&SimulatedStep::compute_seconds);
  row.communication_seconds = largest(&SimulatedStep::communication_seconds);
  row.exposed_communication_seconds = largest(&SimulatedStep::exposed_seconds);
  const SimulatedStep& slowest = *std::ranges::max_element(classes, {}, &SimulatedStep::step_seconds);
  row.slowest_rank_compute_seconds = slowest.compute_seconds;
  row.slowest_rank_exposed_seconds = slowest.exposed_seconds;
  row.other_seconds = slowest.step_seconds - slowest.compute_seconds - slowest.exposed_seconds;
  set_account(row, point, lowered);
  return row;
}

results::StepRow steady_row(const PreparedPoint& point, const LoweredJob& lowered, const SimulationResult& simulation) {
  const int num_steps = std::max(1, simulation.period_steps);
  results::StepRow row = step_row(point, lowered, simulation, simulation.steady_step);
  if (num_steps == 1) return row;
  for (const auto member :
       {&results::StepRow::step_seconds_max, &results::StepRow::step_seconds_median, &results::StepRow::compute_seconds,
        &results::StepRow::communication_seconds, &results::StepRow::exposed_communication_seconds,
        &results::StepRow::other_seconds, &results::StepRow::slowest_rank_compute_seconds,
        &results::StepRow::slowest_rank_exposed_seconds, &results::StepRow::busy_share}) {
    double sum = 0.0;
    for (int s = simulation.steady_step + 1 - num_steps; s <= simulation.steady_step; ++s) {
      sum += step_row(point, lowered, simulation, s).*member;
    }
    row.*member = sum / num_steps;
  }
  return row;
}

double extrapolated_share(const SimulationResult& simulation) {
  double total = 0.0;
  for (const double seconds : simulation.seconds_by_basis) total += seconds;
  return total > 0.0 ? simulation.seconds_by_basis[static_cast<std::size_t>(Basis::extrapolated)] / total : 0.0;
}

std::int64_t peak_bytes(const Program& program) {
  return program.arena_bytes > 0 ? program.arena_bytes : memory_peak(program).total_bytes;
}

void set_account(results::StepRow& row, const PreparedPoint& point, const LoweredJob& lowered) {
  row.num_samples = point.plan.global_batch * point.graph.positions_per_sample;
  MemoryPeak fullest;
  for (const Program& program : lowered.programs) {
    const BytesByCollective sent = bytes_by_collective(program);
    for (std::size_t kind = 0; kind < row.sent_bytes.size(); ++kind) {
      row.sent_bytes[kind] = std::max(row.sent_bytes[kind], sent.bytes[kind]);
    }
    if (const std::int64_t bytes = peak_bytes(program); bytes > row.arena_peak_bytes) {
      row.arena_peak_bytes = bytes;
      fullest = memory_peak(program);
    }
  }
  const auto live = [&](Category category) { return fullest.bytes[static_cast<int>(category)]; };
  row.parameter_bytes = live(Category::parameter);
  row.gradient_bytes = live(Category::gradient);
  row.optimizer_bytes = live(Category::optimizer);
  row.activation_bytes = live(Category::activation);
  row.workspace_bytes = live(Category::workspace);
  row.communication_bytes = live(Category::communication);
  row.outside_arena_peak_bytes = point.cluster.runtime_memory_bytes;
}

}  // namespace strata::predict
