/// @file
/// The batch script says to Slurm what the geometry and the site say, is correct shell, and quotes what it is given.

#include <gmock/gmock.h>

#include "harness/command.hpp"
#include "harness/job_script.hpp"
#include "unit/data/temporary_folder.hpp"
#include "unit/harness/sample_manifest.hpp"

namespace strata::harness::test_job_script {
namespace {

using data::TemporaryFolder;
using data::user_error;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(JobScript, SaysTheGeometryToSlurm) {
  Site site = parse_site(
      "account = \"p1\"\nmodules = [\"gcc\"]\ndirectives = [\"--switches=1\"]\n[environment]\nA = \"b c\"\n", "s.toml");
  const std::string script = job_script(test::sample_manifest("/r"), site, "/opt/strata");
  EXPECT_THAT(script,
              StartsWith("#!/bin/bash\n#SBATCH --job-name=sweep-1\n#SBATCH --array=0-1%2\n#SBATCH --nodes=2\n"));
  for (const std::string line : {"#SBATCH --ntasks-per-node=2", "#SBATCH --cpus-per-task=4", "#SBATCH --time=20",
                                 "#SBATCH --account=p1", "#SBATCH --signal=B:USR1@60", "#SBATCH --open-mode=append",
                                 "#SBATCH --switches=1", "#SBATCH --output=/r/sweep/submissions/3/logs/%x-%A_%a.out",
                                 "module load 'gcc'", "export A='b c'", "export OMP_NUM_THREADS=4"}) {
    EXPECT_THAT(script, HasSubstr("\n" + line + "\n"));
  }
  EXPECT_THAT(script, HasSubstr("srun --mpi=pmi2 --kill-on-bad-exit=1 --unbuffered --nodes=2 --ntasks=4 "
                                "--ntasks-per-node=2 --cpus-per-task=4"));
  EXPECT_THAT(script, AllOf(Not(HasSubstr("--partition")), Not(HasSubstr("--gpus"))));
}

TEST(JobScript, WithoutSlurmItTakesTheTaskAsItsArgument) {
  const std::string script =
      job_script(test::sample_manifest("/r"), parse_site("scheduler = \"none\"", "s.toml"), "/x");
  EXPECT_THAT(script, AllOf(Not(HasSubstr("#SBATCH")), HasSubstr("mpiexec -n 4"), HasSubstr("task=${1:?")));
}

TEST(JobScript, WhatSlurmCannotQuoteIsRefused) {
  for (const char* folder : {"/my\tresults", "/my#results", "/my\\results", "/my\rresults", "/my\vresults",
                             "/my\fresults", "/my\"results", "/my'results"}) {
    EXPECT_THAT(user_error([&] { job_script(test::sample_manifest(folder), {}, "/x"); }), HasSubstr("blanks"))
        << folder;
  }
  EXPECT_THAT(job_script(test::sample_manifest("/100%A"), {}, "/x"),
              HasSubstr("#SBATCH --output=/100%%A/sweep/submissions/3/logs/%x-%A_%a.out\n"));
  EXPECT_THAT(user_error([] { job_script(test::sample_manifest("/my results"), {}, "/x"); }), HasSubstr("blanks"));
}

/// The loop, with a stand-in for strata that lists two launches and fails the first.
TEST(JobScript, RunsEveryLaunchAndNotesWhatHappened) {
  const TemporaryFolder folder;
  const std::string results = folder.path("it's here");
  const std::string fake = folder.write("strata", std::string(R"(#!/bin/bash
if [[ $1 == launches ]]; then
  printf '3/1.0.0 aaaaaaaaaaaa --block 0 --block-order 0\n3/1.0.1 bbbbbbbbbbbb\n'
else
  echo "$@" >>"$0.runs"
  [[ $2 != *aaaa* ]] || exit 3
fi
)"));
  std::filesystem::permissions(fake, std::filesystem::perms::owner_all);
  const Manifest manifest = test::sample_manifest(results);
  test::put(manifest);
  Site site = parse_site("scheduler = \"none\"\nlauncher = \"launch\"\n", "s.toml");
  site.setup = {"launch() { shift 2; \"$@\"; }"};
  const std::string script = folder.write("array.sh", job_script(manifest, site, fake));
  const CommandResult ended = run_command({"bash", script, "0"}, {"PATH=/usr/bin:/bin"});
  EXPECT_EQ(ended.exit_code, 3) << ended.error;
  std::ifstream runs(fake + ".runs");
  std::string first, second;
  std::getline(runs, first);
  std::getline(runs, second);
  EXPECT_THAT(first, AllOf(HasSubstr("run " + results + "/sweep/submissions/3/points/aaaaaaaaaaaa.toml"),
                           HasSubstr("--paths-from /home/me/sweep.toml"), HasSubstr("--launch 3/1.0.0"),
                           HasSubstr("--block 0 --block-order 0")));
  EXPECT_THAT(second, AllOf(HasSubstr("bbbbbbbbbbbb"), Not(HasSubstr("--block"))));
}

}  // namespace
}  // namespace strata::harness::test_job_script
