#include "run/run_point.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "comm/collective_error.hpp"
#include "comm/engine.hpp"
#include "comm/session.hpp"
#include "exec/cpu/cpu_executor.hpp"
#include "exec/read_ahead.hpp"
#include "ir/program/repetition.hpp"
#include "ir/program/training_state.hpp"
#include "predict/device_options.hpp"
#include "predict/engine_options.hpp"
#include "predict/point_facts.hpp"
#include "predict/prediction.hpp"
#include "predict/progress_line.hpp"
#include "predict/provenance.hpp"
#include "profile/engine_collectives.hpp"
#include "profile/measured_all_reduce.hpp"
#include "profile/measured_peak.hpp"
#include "profile/nameplate.hpp"
#include "results/recorder.hpp"
#include "run/allocation_account.hpp"
#include "run/device_meter.hpp"
#include "run/evaluation.hpp"
#include "run/gathered_timeline.hpp"
#include "run/parameter_checksum.hpp"
#include "run/prediction_rows.hpp"
#include "run/step_exchange.hpp"
#include "run/stop_signal.hpp"
#include "run/stopping_rule.hpp"
#include "run/training_steps.hpp"

namespace strata::run {
namespace {

using results::Status;

/// What rank 0 tells all ranks after an exchange.
struct Decision {
  std::int64_t steps_until_next = 1;  ///< from the exchange's own step; 0: stop
  Status status = Status::running;    ///< with 0: why
  std::string message;
};

class PointRun {
 public:
  PointRun(const comm::World& world, const Environment& environment, const RunRequest& request,
           const RunOptions& options)
      : world_(world),
        environment_(environment),
        request_(request),
        options_(options),
        experiment_(request.prepared.experiment) {}

  results::Outcome run() {
    // Each stage may fail on some rank alone; all learn of it before the next one, so that nobody waits for a rank that
    // has given up.
    results::Outcome outcome = stage([&] { program_ = predict::lower_for_run(request_.prepared, world_.rank()); });
    if (outcome.status == Status::ok) {
      outcome = stage(
          [&] { device_choices_ = predict::device_choices(world_, experiment_, program_, request_.device_transport); });
    }
    const results::Outcome recording = stage([&] { open_recorder(); });
    if (recording.status != Status::ok) return recording;
    status_path_ = world_.broadcast(recorder_ ? recorder_->status_path() : "");
    options_.last_word->watch(status_path_, world_.rank());
    if (outcome.status == Status::ok) outcome = stage([&] { build(); });
    if (outcome.status != Status::ok && executor_) executor_->abandon();
    if (outcome.status == Status::ok) outcome = train();
    return finish(std::move(outcome));
  }

 private:
  bool root() const { return world_.rank() == 0; }

  template <typename Action>
  results::Outcome stage(const Action& action) {
    const auto failed = comm::collective_error(world_, action);
    return failed ? results::Outcome{results::status_of(failed->kind), failed->message} : results::Outcome{};
  }

  void open_recorder() {
    const std::vector<std::string> hosts =
        world_.all_gather(world_.node_names()[static_cast<std::size_t>(world_.node())]);
    facts_ = predict::facts_of_point(environment_, request_.prepared, request_.point.id);
    describe_attempt();
    describe_ranks(hosts);
    // The engine is needed for the transport's name; the recorder needs that name before the first row.
    make_engine();
    describe_communication();
    if (root()) {
      results::RecorderSettings settings;
      settings.origin = options_.origin;
      settings.origin.nodes = world_.node_names();
      recorder_ = std::make_unique<results::Recorder>(point_folder(options_, request_), facts_, settings);
    }
  }

  void describe_attempt() {
    facts_.device_choices = device_choices_;
    facts_.block = options_.block.number;
    facts_.block_order = options_.block.order;
    facts_.block_seed = options_.block.seed;
    if (options_.block.number >= 0) facts_.block_job = options_.origin.job;
    facts_.restarted_from = request_.restart.path;
    facts_.first_step = first_step();
    facts_.data_description = request_.inputs.description;
    facts_.evaluation_data_description = request_.evaluation_inputs.description;
    facts_.peak_flops_per_second = request_.peak.best;
    facts_.sustained_flops_per_second = request_.peak.sustained;
    facts_.nameplate_flops_per_second = profile::nameplate_flops_per_second(
        request_.gpu_name, request_.prepared.plan.dtypes.compute, experiment_.cuda.tf32);
    facts_.peak_source = profile::MeasuredPeak::source(experiment_);
  }

  /// Collective. @param hosts by rank.
  void describe_ranks(const std::vector<std::string>& hosts) {
    facts_.num_ranks = world_.size();
    facts_.num_nodes = experiment_.resources.nodes;
    facts_.ranks_per_node = experiment_.resources.ranks_per_node;
    facts_.host_names = hosts;
    if (on_gpus_) {
      facts_.device_names = world_.all_gather(request_.gpu_name);
      facts_.library_versions.merge(
          cuda::library_versions(uses_nccl() ? cuda::Transport::nccl : cuda::Transport::host));
    } else {
      facts_.device_names.assign(hosts.size(), cpu_name());
    }
  }

  /// Transport, links and the devices' counters. Collective.
  void describe_communication() {
    facts_.transport = engine_->transport_name(world_group_);
    if (on_gpus_) facts_.transport = predict::device_transport_name(request_.device_transport, facts_.transport);
    facts_.all_reduce_bytes_per_second = all_reduce_bytes_per_second();
    // Before the executor takes its memory.
    meter_ = std::make_unique<DeviceMeter>(world_, on_gpus_ ? cuda::make_monitor() : nullptr);
    meter_->describe(facts_);
    facts_.progress_mode = uses_nccl() ? "device" : engine_->has_thread() ? "thread" : "polling";
    const CommunicationSection& c = experiment_.communication;
    if (c.emulated_gbit_per_s > 0.0) {
      facts_.emulated_link_alpha_seconds = c.emulated_alpha_us * 1e-6;
      facts_.emulated_link_bytes_per_second = c.emulated_gbit_per_s * 1e9 / 8.0;
    }
    if (experiment_.emulates_nodes()) {
      facts_.emulated_inside_alpha_seconds = c.emulated_inside_alpha_us * 1e-6;
      facts_.emulated_inside_bytes_per_second = c.emulated_inside_gbit_per_s * 1e9 / 8.0;
    }
  }

  std::unique_ptr<comm::Engine> make_engine(const Program& program) {
    comm::EngineOptions options = predict::engine_options(experiment_, predict::num_operations(program));
    options.on_watchdog = [this](const comm::WatchdogReport& report) { record_failure(Status::hang, report.message); };
    return std::make_unique<comm::Engine>(world_, options);
  }
  void make_engine() {
    engine_ = make_engine(program_);
    world_group_ = engine_->create_group(profile::all_ranks(world_));
  }

  /// Several ranks on GPUs of their own.
  bool uses_nccl() const { return on_gpus_ && request_.device_transport == cuda::Transport::nccl && world_.size() > 1; }

  /// Of all ranks, for the record; nothing where there is one.
  double all_reduce_bytes_per_second() {
    if (world_.size() == 1) return results::unknown;
    const std::vector<int> ranks = profile::all_ranks(world_);
    const profile::OperandMemory memory = on_gpus_ ? profile::OperandMemory::managed : profile::OperandMemory::host;
    const TimedCollectives collectives = uses_nccl()
                                             ? cuda::nccl_collectives(world_, ranks, profile::max_all_reduced)
                                             : profile::engine_collectives(*engine_, world_group_, ranks, world_.rank(),
                                                                           profile::max_all_reduced, memory);
    return profile::measure_all_reduce(world_, world_.size(), collectives).bandwidth_bytes_per_second;
  }

  std::unique_ptr<Executor> make_executor(const Program& program, comm::Engine& engine, InputSource& inputs) {
    const std::uint64_t seed = request_.prepared.plan.seed;
    if (!on_gpus_) {
      return std::make_unique<cpu::CpuExecutor>(program, engine, inputs, seed, predict::cpu_numerics_of(experiment_));
    }
    return cuda::make_executor(
        program, world_, engine, inputs, seed,
        {.transport = request_.device_transport,
         .numerics = predict::numerics_of(experiment_),
         .graphs = predict::graph_use_of(experiment_),
         .timing = experiment_.cuda.timing,
         .watchdog_seconds = experiment_.communication.watchdog_seconds,
         .on_watchdog = [this](const comm::WatchdogReport& report) { record_failure(Status::hang, report.message); }});
  }

  void build() {
    // On processors the rank's threads compute meanwhile; beside a GPU they have nothing else to do.
    const std::int64_t num_readers = on_gpus_ ? experiment_.resources.threads_per_rank : 1;
    inputs_ = std::make_unique<ReadAhead>(*request_.inputs.source, static_cast<int>(num_readers));
    executor_ = make_executor(program_, *engine_, *inputs_);
    executor_->initialize();
    if (!request_.restart.path.empty()) {
      load_checkpoint(request_.restart.path, first_step(), program_, request_.prepared.graph, *executor_);
    }
    if (experiment_.evaluate.every > 0) {
      evaluation_.emplace(
          request_.prepared, request_.evaluation_inputs, program_.arena_bytes,
          Evaluation::Machinery{
              .world = world_,
              .engine = [this](const Program& program) { return make_engine(program); },
              .executor = [this](const Program& program, comm::Engine& engine,
                                 InputSource& inputs) { return make_executor(program, engine, inputs); }});
    }
    if (root()) predict_step();
  }

  /// What the simulator says of this run, before it begins: of this machine, whatever cluster the plan was made for.
  void predict_step() {
    predict::PreparedPoint point = request_.prepared;
    if (on_gpus_)
      point.experiment = predict::with_device_transport(std::move(point.experiment), request_.device_transport);
    point.cluster = request_.machine;
    const std::unique_ptr<CostModel> costs = predict::cost_model(point, request_.experiment_file);
    const predict::LoweredJob lowered = predict::lower_job(point);
    prediction_ = predict::predict(point, lowered, *costs);
    predicted_row_ = predict::steady_row(point, lowered, prediction_.simulation);
  }

  /// Steps go on while ranks exchange what they have measured and rank 0 decides: whoever is ahead makes as many steps
  /// more as others may lag behind where steps overlap, and one at least, before the decision holds for all.
  results::Outcome train() {
    const FillAndDrain mine = fill_and_drain(program_);
    double most[4] = {static_cast<double>(depth(program_)), static_cast<double>(largest_lag(program_)),
                      static_cast<double>(mine.fill), static_cast<double>(mine.drain)};
    world_.all_reduce_max(most);
    const TrainingSteps::Overlap overlap{
        .depth = static_cast<int>(most[0]),
        .ends = {static_cast<std::int64_t>(most[2]), static_cast<std::int64_t>(most[3])}};
    const std::int64_t lead = 1 + (overlap.depth + static_cast<std::int64_t>(most[1])) * program_.steps_per_body;
    TrainingSteps steps(program_, experiment_, request_.length, first_step(), overlap, {*executor_, *engine_, *meter_});
    latest_end_ = latest_end(experiment_.measure, request_.length.num_steps, first_step(), overlap.ends);
    const std::unique_ptr<const comm::World> other_world = world_.duplicate();
    const MemoryPeak peak = memory_peak(program_);
    // Whoever leaves by an exception ends the process before this would wait for an exchange that no peer comes to.
    std::future<Decision> answer;
    Decision decision;
    try {
      for (std::int64_t exchange_at = first_step() + 1;; exchange_at += decision.steps_until_next) {
        train_until(exchange_at, steps);
        exchange_at = steps.num_submitted();
        answer = std::async(
            std::launch::async, [&, mine = steps.take(), touched_bytes = steps.touched_bytes(), exchange_at] {
              const NotWatched recording;
              return decide(*other_world, exchange_steps(*other_world, mine, step_facts(), peak, touched_bytes),
                            exchange_at);
            });
        train_until(exchange_at + lead, steps);
        decision = answer.get();
        record_evaluations();
        if (saved_.status != Status::ok) decision = {0, saved_.status, saved_.message};
        if (decision.steps_until_next == 0) break;
      }
      steps.drain();
      if (decision.status == Status::ok && evaluation_ && evaluated_step_ != steps.num_submitted()) {
        evaluate(steps.num_submitted());
      }
      record_evaluations();
      take(exchange_steps(world_, steps.take(), step_facts(), peak, steps.touched_bytes()));
      const std::string diverged = world_.broadcast(diverged_);  // in one of the last steps
      if (decision.status == Status::ok && !diverged.empty()) decision = {0, Status::diverged, diverged};
      timeline_steps_ = steps.timeline_steps();
      recorded_ = steps.recorded();
      const bool was_told_to_stop = decision.status == Status::timeout || decision.status == Status::preempted;
      if ((decision.status == Status::ok || was_told_to_stop) && experiment_.checkpoint.every > 0) {
        if (saved_step_ != steps.num_submitted()) save(steps.num_submitted());
        if (saved_.status != Status::ok) return saved_;
      }
    } catch (const std::exception& e) {
      results::Outcome outcome = results::outcome_of(e);
      record_failure(outcome.status, outcome.message);
      // The other ranks do not know, or are gone: nothing collective can follow.
      comm::abort_all(exit_code_of(outcome.status), outcome.message);
    }
    if (decision.status != Status::ok) return {decision.status, decision.message};
    return after_training(peak, steps.num_submitted() - 1);
  }

  StepFacts step_facts() const {
    return {.num_samples = facts_.num_samples_per_step,
            .num_warmup_steps = first_step() + experiment_.measure.warmup_steps};
  }

  /// Until @p step steps have been submitted, whole bodies of them, or all that may be, or saving has failed. Saves
  /// where checkpoints are due. Nothing is under way after the last step.
  void train_until(std::int64_t step, TrainingSteps& steps) {
    const std::int64_t end = latest_end_;
    const auto next = [&](std::int64_t every) {
      return every > 0 ? (steps.num_submitted() / every + 1) * every : end + 1;
    };
    while (steps.num_submitted() < std::min(step, end) && saved_.status == Status::ok) {
      const std::int64_t next_checkpoint = next(experiment_.checkpoint.every);
      const std::int64_t next_evaluation = next(experiment_.evaluate.every);
      steps.submit(std::min({end, next_checkpoint, next_evaluation}));
      const std::int64_t now = steps.num_submitted();
      if (now != next_checkpoint && now != next_evaluation) continue;
      steps.drain();
      if (now == next_checkpoint) save(now);
      if (now == next_evaluation && saved_.status == Status::ok) evaluate(now);
    }
    if (steps.num_submitted() == end) steps.drain();
  }

  std::int64_t first_step() const { return request_.restart.step; }

  void evaluate(std::int64_t num_trained) {
    evaluated_step_ = num_trained;
    results::EvaluationRow row = evaluation_->run(program_, *executor_, num_trained);
    row.epoch = static_cast<double>(num_trained * request_.prepared.plan.global_batch) /
                static_cast<double>(request_.inputs.order.num_samples);
    evaluated_.push_back(row);
    last_evaluation_ = row;
  }

  /// While nothing else is recorded.
  void record_evaluations() {
    if (root()) {
      for (const results::EvaluationRow& row : evaluated_) {
        record([&] { recorder_->add_evaluation(row); });
        if (options_.print_steps) say("{}\n", predict::evaluation_line(row));
      }
    }
    evaluated_.clear();
  }

  void save(std::int64_t num_trained) {
    saved_step_ = num_trained;
    bool is_finite = true;
    saved_ = stage([&] {
      const results::CheckpointFacts facts{
          .step = num_trained,
          .creator_version = facts_.creator_version,
          .experiment_toml = facts_.experiment_toml,
          .plan_text = facts_.plan_text,
          .identity = training_identity(experiment_, request_.prepared.plan.global_batch)};
      is_finite = save_checkpoint(world_, program_, request_.prepared.graph, *executor_, facts,
                                  {.path = checkpoint_folder(options_, request_),
                                   .keep = experiment_.checkpoint.keep,
                                   .attempt = recorder_ ? recorder_->attempt() : 0,
                                   .is_own = recorder_ && recorder_->has_folder_to_itself()});
    });
    if (saved_.status == Status::ok && !is_finite) {
      saved_ = {Status::diverged,
                fmt::format("a parameter or state is not finite after {} steps; no checkpoint of them is "
                            "saved",
                            num_trained)};
    }
  }

  /// Rank 0 records rows; the others have none.
  void take(const std::vector<results::StepRow>& rows) {
    for (const results::StepRow& row : rows) {
      record([&] { recorder_->add_step(row); });
      if (row.phase == results::StepPhase::measured) {
        measured_seconds_.push_back(row.step_seconds_max);
        measured_rows_.push_back(row);
      }
      last_row_ = row;
      if (diverged_.empty() && !std::isfinite(row.loss)) {
        diverged_ =
            fmt::format("the loss of step {} is {}", row.step, std::isnan(row.loss) ? "not a number" : "infinite");
      }
    }
    print(rows);
  }

  /// @param step how many training steps there have been, those before a restart too.
  Decision decide(const comm::World& world, const std::vector<results::StepRow>& rows, std::int64_t step) {
    Decision decision;
    double signal[1] = {static_cast<double>(stop_signal())};
    world.all_reduce_max(signal);
    take(rows);
    if (root()) {
      decision.steps_until_next =
          steps_until_exchange(experiment_.measure, request_.length.num_steps, step, latest_end_, measured_seconds_);
      if (decision.steps_until_next == 0) decision.status = Status::ok;
      if (signal[0] != 0.0) {
        decision = {0, signal[0] == SIGUSR1 ? Status::timeout : Status::preempted,
                    "stopped by a signal after a complete step"};
      }
      if (!diverged_.empty()) decision = {0, Status::diverged, diverged_};
      if (!recording_error_.empty()) decision = {0, Status::recording_error, recording_error_};
    }
    const std::string text = world.broadcast(root() ? fmt::format("{} {}\n{}", decision.steps_until_next,
                                                                  static_cast<int>(decision.status), decision.message)
                                                    : "");
    const std::size_t space = text.find(' ');
    return {std::stoll(text), static_cast<Status>(std::stoi(text.substr(space))), text.substr(text.find('\n') + 1)};
  }

  /// Only rank 0 writes: what goes wrong there is kept until all ranks can be told. Nothing is written after it.
  template <typename Action>
  void record(const Action& action) {
    if (!recorder_ || !recording_error_.empty()) return;
    try {
      action();
    } catch (const std::exception& e) {
      recording_error_ = e.what();
    }
  }

  void print(const std::vector<results::StepRow>& rows) {
    if (!options_.print_steps || rows.empty()) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_print_ < std::chrono::seconds(1) && rows.front().step > 0) return;
    last_print_ = now;
    say("{}\n", predict::progress_line(facts_, rows.back()));
    flush_output();
  }

  /// Copies of a parameter must be equal; predictions are set beside what was measured; timelines come home.
  results::Outcome after_training(const MemoryPeak& peak, std::int64_t last_step) {
    std::vector<ParameterChecksum> mine;
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (buffer.parameter.empty() || buffer.num_elements == 0) continue;
      if (is_older_version(program_, static_cast<int>(b), last_step)) continue;
      mine.push_back({buffer.parameter, buffer.block.in_whole(buffer.parameter_begin),
                      hash_bytes(std::as_bytes(executor_->read(static_cast<int>(b))))});
    }
    gather_timeline(world_, program_, recorded_, timeline_steps_, [this](const TimelineRows& rows) {
      record([&] {
        recorder_->add_events(rows.events);
        recorder_->add_memory(rows.memory);
      });
    });
    record_predictions(peak);
    std::vector<std::vector<ParameterChecksum>> by_rank;
    for (const std::string& text : world_.all_gather(to_text(mine))) by_rank.push_back(parse_checksums(text));
    const JointChecksum joint = join_checksums(request_.prepared.graph, by_rank);
    checksum_ = joint.text;
    if (!joint.difference.empty()) return {Status::wrong_answer, joint.difference};
    return {};
  }

  void record_predictions(const MemoryPeak& peak) {
    std::vector<results::PredictionRow> rows = account_predictions(world_, program_, peak, last_row_);
    if (evaluated_step_ >= 0) {
      rows.push_back(evaluation_prediction(world_, evaluation_->program(), last_evaluation_));
    }
    if (root()) {
      std::vector<TimelineEvent> timeline;
      for (const RecordedStep& step : recorded_) {
        if (timeline_steps_.contains(step.step)) std::ranges::copy(step.events, std::back_inserter(timeline));
      }
      for (results::PredictionRow& row :
           time_predictions(program_, {prediction_, predicted_row_}, measured_rows_, timeline)) {
        rows.push_back(std::move(row));
      }
    }
    for (const results::PredictionRow& row : rows) {
      record([&] { recorder_->add_prediction(row); });
    }
  }

  /// Called where nothing collective is possible any more: says what is known and leaves a readable file.
  void record_failure(Status status, const std::string& message) noexcept {
    try {
      if (status_path_.empty()) return;
      const results::Outcome ending = ending_of_failure({status, message}, status_path_);
      if (recorder_) {
        recorder_->finish(ending.status, ending.message);
      } else {
        results::write_status(status_path_, ending.status, ending.message, world_.rank());
      }
    } catch (const std::exception& e) {
      say_error("strata: rank {}: the failure `{}` could not be recorded: {}\n", world_.rank(), message, e.what());
    }
  }

  results::Outcome finish(results::Outcome outcome) {
    const results::Outcome written = stage([&] {
      record([&] { recorder_->finish(outcome.status, outcome.message, checksum_); });
      if (!recording_error_.empty()) throw UserError(recording_error_);
    });
    options_.last_word->release();
    if (root() && written.status == Status::ok && options_.print_steps && !measured_seconds_.empty()) {
      say("{}\n", predict::progress_line(facts_, last_row_));
    }
    return written.status == Status::ok ? outcome : written;
  }

  const comm::World& world_;
  const Environment& environment_;
  const RunRequest& request_;
  const RunOptions& options_;
  const Experiment& experiment_;
  const bool on_gpus_ = predict::is_on_gpus(experiment_);
  Program program_;
  results::AttemptFacts facts_;
  std::unique_ptr<results::Recorder> recorder_;  ///< rank 0 alone
  std::string recording_error_;                  ///< rank 0: why nothing more is written
  std::string diverged_;                         ///< rank 0: which step's loss was the first that is not finite
  std::string status_path_;
  std::unique_ptr<comm::Engine> engine_;
  std::unique_ptr<DeviceMeter> meter_;
  int world_group_ = 0;
  std::map<std::string, std::string> device_choices_;
  std::unique_ptr<ReadAhead> inputs_;
  std::unique_ptr<Executor> executor_;
  std::vector<RecordedStep> recorded_;
  StepRange timeline_steps_;
  std::int64_t latest_end_ = 0;
  std::int64_t saved_step_ = -1;  ///< of the last checkpoint
  std::optional<Evaluation> evaluation_;
  std::int64_t evaluated_step_ = -1;               ///< of the last evaluation
  std::vector<results::EvaluationRow> evaluated_;  ///< not recorded yet
  results::EvaluationRow last_evaluation_;         ///< recorded or not yet
  results::Outcome saved_;                         ///< what became of it, equal on all ranks
  predict::Prediction prediction_;                 ///< rank 0
  results::StepRow predicted_row_;                 ///< rank 0
  std::vector<double> measured_seconds_;           ///< rank 0
  std::vector<results::StepRow> measured_rows_;    ///< rank 0
  results::StepRow last_row_;                      ///< rank 0
  std::string checksum_;
  std::chrono::steady_clock::time_point last_print_{};
};

}  // namespace

std::string point_folder(const RunOptions& options, const RunRequest& request) {
  return fmt::format("{}/{}/{}", options.results_folder, request.experiment_name, request.point.id);
}

std::string checkpoint_folder(const RunOptions& options, const RunRequest& request) {
  return point_folder(options, request) + "/checkpoints";
}

results::Outcome run_point(const comm::World& world, const Environment& environment, const RunRequest& request,
                           const RunOptions& options) {
  return PointRun(world, environment, request, options).run();
}

}  // namespace strata::run
