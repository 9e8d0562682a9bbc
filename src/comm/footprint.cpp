/// @file
/// As the table of Collective says: all elements or the own chunk.

#include "comm/footprint.hpp"

namespace strata::comm {

Footprint footprint(const Request& request, int size, int index) {
  const std::int64_t all = request.num_elements;
  std::int64_t num_read = all;
  std::int64_t num_written = all;
  std::int64_t own = chunk_of(all, size, index).size();
  if (const Pieces* pieces = request.pieces) {
    if (!pieces->input.empty()) num_read = pieces->input.back();
    if (!pieces->output.empty()) num_written = pieces->output.back();
    own = piece_of(request.kind == Collective::all_gather ? pieces->output : pieces->input, index).size();
  }
  switch (request.kind) {
    case Collective::all_gather: num_read = own; break;
    case Collective::reduce_scatter: num_written = own; break;
    case Collective::broadcast: num_read = request.peer == index ? all : 0; break;
    case Collective::reduce: num_written = request.peer == index ? all : 0; break;
    case Collective::send: num_written = 0; break;
    case Collective::recv: num_read = 0; break;
    case Collective::all_reduce:
    case Collective::all_to_all: break;
  }
  const auto bytes = [&](const void* begin, std::int64_t num_elements) {
    const auto* first = static_cast<const std::byte*>(begin);
    return num_elements == 0 ? Bytes{} : Bytes{first, first + num_elements * size_of(request.dtype)};
  };
  return {bytes(request.input, num_read), bytes(request.output, num_written)};
}

}  // namespace strata::comm
