/// @file
/// Graphs of the emulation. A launch does the nodes of a graph in an order of its own, the last recorded of those that
/// may go first: a wait that is missing shows. What CUDA refuses while a graph is recorded is refused.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "cuda/emulation/streams.hpp"

namespace emulation {
namespace {

struct Node {
  std::function<void(cudaStream_t)> work;
  std::vector<int> after;
};
struct Graph {
  std::vector<Node> nodes;
};

std::unique_ptr<Graph> recorded;  // null: none is being recorded
int num_recordings = 0;
cudaStream_t origin = nullptr;
bool refuses = false;

bool is_recorded(cudaStream_t stream) { return recorded && place_of(stream).graph == num_recordings; }

void record(cudaStream_t stream, std::function<void(cudaStream_t)> work) {
  Place& place = place_of(stream);
  const int number = static_cast<int>(recorded->nodes.size());
  recorded->nodes.push_back({std::move(work), std::exchange(place.nodes, {number})});
}

/// One launch under way.
class Launch {
 public:
  explicit Launch(std::shared_ptr<const Graph> graph)
      : graph_(std::move(graph)), places_(graph_->nodes.size()), done_(graph_->nodes.size(), false) {}

  /// All that can be done now. @return true when everything is complete.
  bool advance() {
    bool all = true;
    for (std::size_t i = graph_->nodes.size(); i-- > 0;) {
      if (done_[i]) {
        all = all && is_complete(places_[i].operations);
      } else if (std::ranges::all_of(graph_->nodes[i].after, [&](int before) { return is_done(before); })) {
        graph_->nodes[i].work(reinterpret_cast<cudaStream_t>(&places_[i]));
        done_[i] = true;
        i = graph_->nodes.size();  // again from the last one
        all = true;
      } else {
        all = false;
      }
    }
    return all;
  }

 private:
  bool is_done(int node) {
    const auto n = static_cast<std::size_t>(node);
    return done_[n] && is_complete(places_[n].operations);
  }

  std::shared_ptr<const Graph> graph_;
  std::vector<Place> places_;  ///< a stream each
  std::vector<bool> done_;
};

/// Every node comes before what the first stream does next.
bool is_joined(const Graph& graph, const std::vector<int>& last) {
  std::vector<bool> reached(graph.nodes.size(), false);
  std::vector<int> open = last;
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    if (reached[static_cast<std::size_t>(n)]) continue;
    reached[static_cast<std::size_t>(n)] = true;
    const std::vector<int>& after = graph.nodes[static_cast<std::size_t>(n)].after;
    open.insert(open.end(), after.begin(), after.end());
  }
  return std::ranges::all_of(reached, [](bool is) { return is; });
}

std::shared_ptr<const Graph>& of(cudaGraph_t graph) { return *reinterpret_cast<std::shared_ptr<const Graph>*>(graph); }
std::shared_ptr<const Graph>& of(cudaGraphExec_t graph) {
  return *reinterpret_cast<std::shared_ptr<const Graph>*>(graph);
}

}  // namespace

void refuse_recordings(bool refuse) { refuses = refuse; }

int recording() { return recorded ? num_recordings : 0; }

void submit_operations(cudaStream_t stream, const std::function<void(cudaStream_t)>& work) {
  if (is_recorded(stream)) return record(stream, work);
  if (recorded) {
    // CUDA would do it at once, which is never meant.
    std::fprintf(stderr, "emulation: work on a stream that is not part of the graph that is being recorded\n");
    std::abort();
  }
  work(stream);
}

void submit(cudaStream_t stream, const std::function<void()>& work) {
  submit_operations(stream, [work](cudaStream_t on) {
    wait(on);
    work();
  });
}

}  // namespace emulation

using emulation::of;
using emulation::place_of;

extern "C" {
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (emulation::recorded) return cudaErrorStreamCaptureUnsupported;
  emulation::recorded = std::make_unique<emulation::Graph>();
  emulation::origin = stream;
  place_of(stream).graph = ++emulation::num_recordings;
  place_of(stream).nodes.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  emulation::Place& place = place_of(stream);
  *graph = nullptr;
  if (stream != emulation::origin) return cudaErrorStreamCaptureWrongThread;
  const std::shared_ptr<const emulation::Graph> made = std::move(emulation::recorded);
  const bool joined = emulation::is_joined(*made, place.nodes);
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  if (emulation::refuses) return cudaErrorStreamCaptureInvalidated;
  *graph = reinterpret_cast<cudaGraph_t>(new std::shared_ptr(made));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new std::shared_ptr(of(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete &of(graph), cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return delete &of(executable), cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::shared_ptr<const emulation::Graph>& graph = of(executable);
  const auto launch = std::make_shared<emulation::Launch>(graph);
  const auto operation = std::make_shared<emulation::Operation>();
  operation->after = emulation::pending(stream);
  operation->begin = [] {};
  operation->poll = [launch] { return launch->advance(); };
  emulation::queue(stream, {operation});
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags != cudaEventRecordExternal || !emulation::is_recorded(stream)) return cudaErrorInvalidValue;
  // Until then it is what it was, complete by the launch before.
  emulation::record(stream, [event](cudaStream_t) { place_of(event) = {}; });
  return cudaSuccess;
}
}
