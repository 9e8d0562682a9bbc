#pragma once

/// @file
/// The steps that follow once it is known what runs: shown, tested, written, submitted. Everything is on disk before
/// the first job is submitted.

#include <vector>

#include "base/environment.hpp"
#include "harness/job_array.hpp"
#include "harness/submission.hpp"

namespace strata::harness {

/// The first that is set counts; where none is, jobs are submitted, or run here if the site has no Slurm.
struct SubmitOptions {
  bool dry_run = false;    ///< everything is printed, nothing written
  bool emit = false;       ///< written, not submitted
  bool test_only = false;  ///< written, and Slurm asked what it would do
};

/// @return the exit code. @throws UserError where Slurm is needed and does not answer, or a file cannot be written.
int carry_out(SubmissionRequest request, std::vector<JobArray> arrays, const SubmitOptions& options,
              const Environment& environment);

}  // namespace strata::harness
