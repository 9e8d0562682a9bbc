#include "exec/cuda/graph.hpp"

#include <vector>

#include "exec/cuda/check.hpp"

namespace strata::cuda {
namespace {

struct Recorded {
  Recorded() = default;
  ~Recorded() {
    // Nothing can be done about a failure here.
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  cudaGraph_t graph = nullptr;
};

}  // namespace

void fork(std::span<const std::unique_ptr<Stream>> streams, Event& event) {
  event.record(streams.front()->get());
  for (const auto& stream : streams.subspan(1)) event.hold(stream->get());
}

Graph::Graph(std::span<const std::unique_ptr<Stream>> streams, const std::function<void()>& queue) {
  const cudaStream_t first = streams.front()->get();
  std::vector<std::unique_ptr<Event>> ends;
  Recorded recorded;
  // Other threads, NCCL's among them, do as they like meanwhile.
  check(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    queue();
    for (const auto& stream : streams.subspan(1)) {
      ends.push_back(std::make_unique<Event>(Event::Kind::order));
      ends.back()->record(stream->get());
      ends.back()->hold(first);
    }
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(first, &recorded.graph));
    throw;
  }
  check(cudaStreamEndCapture(first, &recorded.graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable_, recorded.graph, 0), "cudaGraphInstantiate");
}

Graph::~Graph() { static_cast<void>(cudaGraphExecDestroy(executable_)); }

void Graph::launch(cudaStream_t stream) const { check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }

}  // namespace strata::cuda
