/// @file
/// This file builds the sequence of primitives of each operation, as the table in decompose.hpp says.

#include "comm/decompose.hpp"

#include <algorithm>

#include "base/ceil_div.hpp"
#include "base/error.hpp"

namespace strata::comm {
namespace {

ChunkLayout even_chunks(std::int64_t num_elements, int num_members) {
  const std::int64_t length = ceil_div(num_elements, num_members);
  return {0, length, length, num_elements};
}

ChunkLayout in_pieces(const std::vector<std::int64_t>& begins, std::int64_t longest) {
  return {0, 0, longest, begins.back(), &begins};
}

/// What all primitives of a request have in common.
Primitive draft(const Request& request, int channel) {
  Primitive primitive;
  primitive.kind = request.kind;
  primitive.reduction = request.reduction;
  primitive.dtype = request.dtype;
  primitive.input = static_cast<const std::byte*>(request.input);
  primitive.output = static_cast<std::byte*>(request.output);
  primitive.peer = request.peer;
  primitive.channel = channel;
  return primitive;
}

void inside(Primitive& primitive, const Members& members) {
  primitive.medium = Medium::shared_memory;
  primitive.members = &members;
}

void across(Primitive& primitive, const Members& members) {
  primitive.medium = Medium::mpi;
  primitive.members = &members;
}

std::optional<Primitive> flat(const Request& request, const Group& group, int channel, int index) {
  Primitive primitive = draft(request, channel);
  primitive.medium = group.transport == Transport::shared_memory ? Medium::shared_memory : Medium::mpi;
  primitive.members = &group.all;
  primitive.layout = even_chunks(request.num_elements, group.all.size());
  primitive.output_layout = primitive.layout;
  if (request.kind != Collective::all_reduce || primitive.medium == Medium::shared_memory) {
    return index == 0 ? std::optional(primitive) : std::nullopt;
  }
  std::byte* own = primitive.output + primitive.layout.chunk(group.all.index).begin * size_of(request.dtype);
  if (index == 0) {
    primitive.kind = Collective::reduce_scatter;
    primitive.output = own;
    return primitive;
  }
  if (index == 1) {
    primitive.kind = Collective::all_gather;
    primitive.input = own;
    return primitive;
  }
  return std::nullopt;
}

/// Pieces of unequal sizes go straight to whom they are for, over MPI where the group has more than one node: two
/// levels would have to cut them at other places than nodes have.
std::optional<Primitive> flat_in_pieces(const Request& request, const Group& group, int channel, int index) {
  if (index > 0) return std::nullopt;
  Primitive primitive = draft(request, channel);
  primitive.medium = group.transport == Transport::shared_memory ? Medium::shared_memory : Medium::mpi;
  primitive.members = &group.all;
  const Pieces& pieces = *request.pieces;
  primitive.layout = in_pieces(pieces.input.empty() ? pieces.output : pieces.input, pieces.longest);
  primitive.output_layout = in_pieces(pieces.output.empty() ? pieces.input : pieces.output, pieces.longest);
  return primitive;
}

std::optional<Primitive> two_level_all_reduce(const Request& request, const Group& group, int channel, int index) {
  Primitive primitive = draft(request, channel);
  const std::int64_t element_bytes = size_of(request.dtype);
  const ChunkLayout places = even_chunks(request.num_elements, group.ranks_per_node);
  const Chunk mine = places.chunk(group.place());
  std::byte* part = primitive.output + mine.begin * element_bytes;  // what my column reduces
  const ChunkLayout nodes = even_chunks(mine.size(), group.num_nodes);
  std::byte* own = part + nodes.chunk(group.node_index()).begin * element_bytes;
  switch (index) {
    case 0:
      inside(primitive, group.local);
      primitive.kind = Collective::reduce_scatter;
      primitive.layout = places;
      primitive.output = part;
      return primitive;
    case 1:
      across(primitive, group.column);
      primitive.kind = Collective::reduce_scatter;
      primitive.layout = nodes;
      primitive.input = part;
      primitive.output = own;
      return primitive;
    case 2:
      across(primitive, group.column);
      primitive.kind = Collective::all_gather;
      primitive.layout = nodes;
      primitive.input = own;
      primitive.output = part;
      return primitive;
    case 3:
      inside(primitive, group.local);
      primitive.kind = Collective::all_gather;
      primitive.layout = places;
      primitive.input = part;
      return primitive;
    default: return std::nullopt;
  }
}

std::optional<Primitive> two_level_reduce_scatter(const Request& request, const Group& group, int channel, int index) {
  Primitive primitive = draft(request, channel);
  const std::int64_t element_bytes = size_of(request.dtype);
  const std::int64_t length = ceil_div(request.num_elements, group.all.size());
  const std::int64_t slice_length = std::min(length, kWorkspaceElements);
  const std::int64_t slice = index / (group.num_nodes + 1);
  const int node = index % (group.num_nodes + 1);
  const std::int64_t begin = slice * slice_length;
  if (begin >= length) {
    return std::nullopt;
  }
  const std::int64_t slice_elements = std::min(slice_length, length - begin);
  std::byte* workspace = group.workspace[static_cast<std::size_t>(channel)].get();
  const auto layout_of = [&](int n) {
    return ChunkLayout{n * group.ranks_per_node * length + begin, length, slice_elements, request.num_elements};
  };
  if (node < group.num_nodes) {
    inside(primitive, group.local);
    primitive.layout = layout_of(node);
    primitive.output = workspace + node * slice_length * element_bytes;
    return primitive;
  }
  across(primitive, group.column);
  // The tensor's end cuts the chunk of one node and empties those behind it; the same end in the workspace's numbering.
  std::int64_t end = group.num_nodes * slice_length;
  for (int n = 0; n < group.num_nodes; ++n) {
    const std::int64_t size = layout_of(n).chunk(group.place()).size();
    if (size < slice_elements) {
      end = n * slice_length + size;
      break;
    }
  }
  primitive.layout = {0, slice_length, slice_elements, end};
  primitive.input = workspace;
  primitive.output += begin * element_bytes;
  return primitive;
}

std::optional<Primitive> two_level_all_gather(const Request& request, const Group& group, int channel, int index) {
  Primitive primitive = draft(request, channel);
  const std::int64_t length = ceil_div(request.num_elements, group.all.size());
  const std::int64_t node_length = length * group.ranks_per_node;
  if (index == 0) {
    across(primitive, group.column);
    primitive.layout = {group.place() * length, node_length, length, request.num_elements};
    return primitive;
  }
  const int node = index - 1;
  if (node == group.num_nodes) {
    return std::nullopt;
  }
  inside(primitive, group.local);
  primitive.layout = {node * node_length, length, length, request.num_elements};
  primitive.input = primitive.output + primitive.layout.chunk(group.place()).begin * size_of(request.dtype);
  return primitive;
}

std::optional<Primitive> two_level_all_to_all(const Request& request, const Group& group, int channel, int index) {
  Primitive primitive = draft(request, channel);
  primitive.layout = primitive.output_layout = even_chunks(request.num_elements, group.all.size());
  if (index == 0) {
    inside(primitive, group.local);
    primitive.layout.offset = group.node_index() * group.ranks_per_node * primitive.layout.length;
    primitive.output_layout = primitive.layout;
    return primitive;
  }
  if (index == 1) {
    across(primitive, group.all);
    primitive.skip_block = group.ranks_per_node;
    return primitive;
  }
  return std::nullopt;
}

std::optional<Primitive> two_level_broadcast(const Request& request, const Group& group, int channel, int index) {
  Primitive primitive = draft(request, channel);
  primitive.layout = {0, 0, 0, request.num_elements};
  const int root_place = request.peer % group.ranks_per_node;
  const bool in_column = group.place() == root_place;
  if (index == 0 && in_column) {
    across(primitive, group.column);
    primitive.peer = request.peer / group.ranks_per_node;
    return primitive;
  }
  if (index == (in_column ? 1 : 0)) {
    inside(primitive, group.local);
    primitive.peer = root_place;
    primitive.input = primitive.output;  // the column has put it there, on the root too
    return primitive;
  }
  return std::nullopt;
}

/// A node's sum has a place of its own where it is not the root's: nobody else has an output. That place holds a slice.
std::optional<Primitive> two_level_reduce(const Request& request, const Group& group, int channel, int index) {
  Primitive primitive = draft(request, channel);
  const int root_place = request.peer % group.ranks_per_node;
  const int num_levels = group.place() == root_place ? 2 : 1;
  const std::int64_t slice_length = group.num_nodes * kWorkspaceElements;
  const std::int64_t begin = index / num_levels * slice_length;
  if (begin >= request.num_elements) {
    return std::nullopt;
  }
  const std::int64_t begin_bytes = begin * size_of(request.dtype);
  std::byte* node_sum = group.all.index == request.peer ? primitive.output + begin_bytes
                                                        : group.workspace[static_cast<std::size_t>(channel)].get();
  primitive.layout = {0, 0, 0, std::min(slice_length, request.num_elements - begin)};
  primitive.output = node_sum;
  if (index % num_levels == 0) {
    inside(primitive, group.local);
    primitive.peer = root_place;
    primitive.input += begin_bytes;
  } else {
    across(primitive, group.column);
    primitive.peer = request.peer / group.ranks_per_node;
    primitive.input = node_sum;
  }
  return primitive;
}

std::optional<Primitive> two_level_peer(const Request& request, const Group& group, int channel, int index) {
  if (index > 0) {
    return std::nullopt;
  }
  Primitive primitive = draft(request, channel);
  primitive.layout = {0, 0, 0, request.num_elements};
  if (request.peer / group.ranks_per_node == group.node_index()) {
    inside(primitive, group.local);
    primitive.peer = request.peer % group.ranks_per_node;
  } else {
    across(primitive, group.all);
  }
  return primitive;
}

}  // namespace

std::optional<Primitive> primitive_of(const Request& request, const Group& group, int channel, int index) {
  if (request.pieces != nullptr) {
    return flat_in_pieces(request, group, channel, index);
  }
  if (group.transport != Transport::two_level) {
    return flat(request, group, channel, index);
  }
  switch (request.kind) {
    case Collective::all_reduce: return two_level_all_reduce(request, group, channel, index);
    case Collective::reduce_scatter: return two_level_reduce_scatter(request, group, channel, index);
    case Collective::all_gather: return two_level_all_gather(request, group, channel, index);
    case Collective::all_to_all: return two_level_all_to_all(request, group, channel, index);
    case Collective::broadcast: return two_level_broadcast(request, group, channel, index);
    case Collective::reduce: return two_level_reduce(request, group, channel, index);
    case Collective::send:
    case Collective::recv: return two_level_peer(request, group, channel, index);
  }
  return std::nullopt;
}

}  // namespace strata::comm
