#include "interchange/chakra.hpp"

#include <chakra/trace.pb.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <tuple>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"
#include "ir/timeline/timeline.hpp"

namespace strata {
namespace {

/// Of the publishers' own generator; readers ignore it.
constexpr const char* schema_version = "1.0.0";
constexpr std::int64_t messages_per_group = 100'000;

chakra::Attribute& attribute(chakra::Node& node, const char* name) {
  chakra::Attribute& result = *node.add_attr();
  result.set_name(name);
  return result;
}

chakra::CollectiveCommType comm_type(Collective kind) {
  switch (kind) {
    case Collective::all_reduce: return chakra::ALL_REDUCE;
    case Collective::reduce_scatter: return chakra::REDUCE_SCATTER;
    case Collective::all_gather: return chakra::ALL_GATHER;
    case Collective::all_to_all: return chakra::ALL_TO_ALL;
    case Collective::broadcast: return chakra::BROADCAST;
    case Collective::reduce: return chakra::REDUCE;
    case Collective::send:
    case Collective::recv: break;
  }
  throw InternalError(fmt::format("{} is no collective of a group", to_string(kind)));
}

void describe_kernel(chakra::Node& node, const Instruction& in, std::int64_t tensor_bytes) {
  node.set_type(chakra::COMP_NODE);
  // A copy has one operation: the intensity 0 has no speed, and readers divide by it.
  attribute(node, "num_ops").set_int64_val(std::max(1LL, std::llround(flops(in))));
  attribute(node, "tensor_size").set_uint64_val(static_cast<std::uint64_t>(tensor_bytes));
}

void describe_collective(chakra::Node& node, const Program& program, const Instruction& in, int group_number) {
  const Group& group = program.groups[static_cast<std::size_t>(in.group)];
  std::int64_t bytes = priced_bytes(program, in);
  if (in.collective == Collective::all_gather) {
    bytes = 0;
    for (int tensor = 0; tensor < num_tensors(in); ++tensor) {
      const Operand& full = full_operand(in, tensor);
      bytes += size_of(program.buffers[static_cast<std::size_t>(full.buffer)].dtype) *
               (in.pieces.empty() ? chunk_of(full.num_elements, static_cast<int>(group.ranks.size()), 0).size()
                                  : in.pieces.longest);
    }
  }
  node.set_type(chakra::COMM_COLL_NODE);
  attribute(node, "comm_type").set_int64_val(comm_type(in.collective));
  attribute(node, "comm_size").set_int64_val(bytes);
  attribute(node, "pg_name").set_string_val(fmt::to_string(group_number));
  if (is_rooted(in.collective)) {
    attribute(node, in.collective == Collective::broadcast ? "comm_src" : "comm_dst")
        .set_int32_val(group.ranks[static_cast<std::size_t>(root_of(in, 0))]);  // of several one: there is room for one
  }
}

void describe_message(chakra::Node& node, const Program& program, const Instruction& in, std::int64_t tag) {
  const int peer = program.groups[static_cast<std::size_t>(in.group)].ranks[static_cast<std::size_t>(in.root)];
  const bool sends = in.collective == Collective::send;
  STRATA_INVARIANT(tag <= std::numeric_limits<std::int32_t>::max(), fmt::format("{}: tag {}", in.name, tag));
  node.set_type(sends ? chakra::COMM_SEND_NODE : chakra::COMM_RECV_NODE);
  attribute(node, "comm_size").set_int64_val(full_bytes(program, in));
  attribute(node, "comm_src").set_int32_val(sends ? program.rank : peer);
  attribute(node, "comm_dst").set_int32_val(sends ? peer : program.rank);
  attribute(node, "comm_tag").set_int32_val(static_cast<std::int32_t>(tag));
}

void append(std::ostream& stream, const google::protobuf::MessageLite& message) {
  STRATA_INVARIANT(google::protobuf::util::SerializeDelimitedToOstream(message, &stream), "a message was not written");
}

}  // namespace

int ChakraWriter::number_of(const Group& group) {
  return numbers_.try_emplace({group.name, group.ranks}, static_cast<int>(numbers_.size()) + 1).first->second;
}

std::string ChakraWriter::trace(const Program& program) {
  STRATA_INVARIANT(is_repeated_alone(program), "steps that overlap are written as one list");
  std::vector<int> group_numbers;
  for (const Group& group : program.groups) group_numbers.push_back(number_of(group));

  std::ostringstream stream;
  chakra::GlobalMetadata metadata;
  metadata.set_version(schema_version);
  append(stream, metadata);

  const std::vector<std::vector<int>> dependencies = body_dependencies(program);
  std::vector<double> stream_seconds(program.streams.size(), 0.0);
  std::map<std::tuple<int, int, Collective>, std::int64_t> num_messages;  // by group, peer and direction
  std::optional<std::size_t> last_issued;                                 // send or collective
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    const NodeCost cost = costs_(program, in);
    chakra::Node node;
    node.set_id(i);
    node.set_name(instruction_label(in));
    for (const int d : dependencies[i]) node.add_data_deps(static_cast<std::uint64_t>(d));

    if (in.is_collective() && in.collective != Collective::recv) {
      if (last_issued) node.add_ctrl_deps(*last_issued);
      last_issued = i;
    }

    double& seconds = stream_seconds[static_cast<std::size_t>(in.stream)];
    const long long begin_micros = std::llround(seconds * 1e6);
    seconds += cost.seconds;
    node.set_duration_micros(static_cast<std::uint64_t>(std::llround(seconds * 1e6) - begin_micros));

    attribute(node, "is_cpu_op").set_bool_val(false);  // all of a step is the device's
    if (!in.is_collective()) {
      describe_kernel(node, in, cost.tensor_bytes);
    } else if (in.collective == Collective::send || in.collective == Collective::recv) {
      const std::int64_t message = num_messages[{in.group, in.root, in.collective}]++;
      STRATA_INVARIANT(message < messages_per_group, fmt::format("rank {}: message {}", program.rank, message));
      const std::int64_t group = group_numbers[static_cast<std::size_t>(in.group)];
      describe_message(node, program, in, group * messages_per_group + message);
    } else {
      describe_collective(node, program, in, group_numbers[static_cast<std::size_t>(in.group)]);
    }
    append(stream, node);
  }
  return std::move(stream).str();
}

std::string ChakraWriter::communicator_groups() const {
  std::vector<std::string> lines(numbers_.size());
  for (const auto& [group, number] : numbers_) {
    lines[static_cast<std::size_t>(number) - 1] = fmt::format("  \"{}\": [{}]", number, fmt::join(group.second, ", "));
  }
  return fmt::format("{{\n{}\n}}\n", fmt::join(lines, ",\n"));
}

}  // namespace strata
