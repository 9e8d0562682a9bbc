#include "harness/queue_view.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/folder_path.hpp"
#include "harness/slurm.hpp"
#include "harness/submission.hpp"

namespace strata::harness {

namespace {

/// Where Slurm has accepted a job, and whoever submitted it was killed, or found the disk full, before its number was
/// written: the queue knows it by its comment.
void find_lost_job_ids(const std::vector<Manifest>& manifests, const Slurm& slurm) {
  const auto lacks_id = [](const Manifest& m) { return m.has_slurm && !m.token.empty() && read_job_id(m).empty(); };
  if (std::ranges::none_of(manifests, lacks_id)) return;
  const auto jobs = slurm.jobs_by_comment();
  if (!jobs) return;
  for (const Manifest& manifest : manifests) {
    const auto job = jobs->find(manifest.token);
    if (job == jobs->end() || !lacks_id(manifest)) continue;
    write_job_id(manifest, job->second);
  }
}

}  // namespace

harness::SweepState state_with_queue(const std::string& results, const Environment& environment) {
  const std::filesystem::path folder = folder_path(results);
  std::vector<harness::Manifest> manifests = harness::read_manifests(folder);
  const harness::Slurm slurm(environment.variables);
  find_lost_job_ids(manifests, slurm);
  std::vector<std::string> jobs;
  for (const harness::Manifest& manifest : manifests) {
    if (std::string id = read_job_id(manifest); !id.empty()) jobs.push_back(std::move(id));
  }
  if (jobs.empty()) return harness::sweep_state(std::move(manifests), {});
  harness::QueueView view;
  if (auto queue = slurm.queue(jobs)) {
    view.known = true;
    view.tasks = *std::move(queue);
  }
  harness::SweepState state = harness::sweep_state(manifests, view);
  if (!view.known) return state;
  for (const std::string& nodes : suspect_nodes(state)) {
    const std::set<std::string> lost = slurm.lost_nodes(nodes);
    view.lost_nodes.insert(lost.begin(), lost.end());
  }
  return view.lost_nodes.empty() ? state : harness::sweep_state(std::move(manifests), view);
}

}  // namespace strata::harness
