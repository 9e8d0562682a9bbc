/// @file
/// As the table of Collective says: all elements or the own chunk.

#include "comm/footprint.hpp"

namespace strata::comm {

Footprint footprint(const Request& request, int size, int index) {
  const std::int64_t all = request.num_elements;
  const std::int64_t own = chunk_of(all, size, index).size();
  std::int64_t num_read = all;
  std::int64_t num_written = all;
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
