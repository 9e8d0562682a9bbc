/// @file
/// One attempt of three steps with a checkpoint, written as a run writes it, but for the training: all files that a run
/// makes in the folder of its point, in milliseconds. On a broken disk it ends as a run does, with one message and exit
/// code 2.
///
/// Usage: write_attempt <folder of the point>

#include <cstdio>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "results/checkpoint_file.hpp"
#include "results/recorder.hpp"
#include "unit/results/sample_attempt.hpp"

namespace strata::results::test {
namespace {

constexpr std::int64_t num_steps = 3;

void save_checkpoint(const std::string& folder, const Recorder& recorder) {
  const std::vector<CheckpointParameter> parameters = {{"weight", 3000}};
  const std::vector<std::string> states = {"value", "m"};
  const std::string path = unfinished_checkpoint_path(folder, num_steps, recorder.attempt());
  create_checkpoint(path,
                    {.step = num_steps, .creator_version = "1", .experiment_toml = "", .plan_text = "", .identity = {}},
                    parameters, states);
  std::vector<float> values(3000);
  std::iota(values.begin(), values.end(), 1.0F);
  std::map<CheckpointKey, std::uint64_t> checksums;
  {
    const CheckpointFile file(path, parameters, states, true);
    for (const std::string& state : states) {
      file.write("weight", state, 0, values);
      checksums[{"weight", state}] = checksum_of_elements(0, values);
    }
    file.sync();
  }
  write_checksums(path, checksums);
  rename_file(path, checkpoint_path(folder, num_steps));
  if (recorder.has_folder_to_itself()) remove_unfinished_checkpoints(folder);
}

void write_attempt(const std::string& folder) {
  Recorder recorder(folder, sample_facts(), {.flush_seconds = 1000.0});
  for (std::int64_t step = 0; step < num_steps; ++step) {
    recorder.add_step(sample_step(step));
    recorder.flush();
  }
  try {
    save_checkpoint(folder + "/checkpoints", recorder);
  } catch (const UserError& error) {
    recorder.finish(Status::recording_error, error.what());
    throw;
  }
  recorder.finish(Status::ok, "");
}

}  // namespace
}  // namespace strata::results::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_attempt <folder of the point>\n");
    return 2;
  }
  try {
    strata::results::test::write_attempt(argv[1]);
  } catch (const strata::UserError& error) {
    std::fprintf(stderr, "strata: %s\n", error.what());
    return 2;
  }
  return 0;
}
