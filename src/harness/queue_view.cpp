#include "harness/queue_view.hpp"

#include "base/error.hpp"
#include "harness/slurm.hpp"

namespace strata::harness {

harness::SweepState state_with_queue(const std::string& results, const Environment& environment) {
  std::vector<harness::Manifest> manifests = harness::read_manifests(results);
  std::vector<std::string> jobs;
  for (const harness::Manifest& manifest : manifests) {
    if (std::string id = read_job_id(manifest); !id.empty()) jobs.push_back(std::move(id));
  }
  if (manifests.empty() || jobs.empty()) return harness::sweep_state(results, {});
  const harness::Slurm slurm(environment.variables);
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
