#pragma once

/// @file
/// Chakra traces read back through their schema.

#include <chakra/trace.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace strata::test {

struct ChakraTrace {
  chakra::GlobalMetadata metadata;
  std::vector<chakra::Node> nodes;
};

/// Messages with their lengths before them, to the last byte.
inline ChakraTrace parse_chakra(const std::string& bytes) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  const auto next = [&](google::protobuf::MessageLite& message) {
    std::uint32_t size = 0;
    if (!stream.ReadVarint32(&size)) return false;
    const auto limit = stream.PushLimit(static_cast<int>(size));
    EXPECT_TRUE(message.ParseFromCodedStream(&stream) && stream.BytesUntilLimit() == 0);
    stream.PopLimit(limit);
    return true;
  };
  ChakraTrace trace;
  EXPECT_TRUE(next(trace.metadata));
  for (chakra::Node node; next(node);) trace.nodes.push_back(node);
  EXPECT_EQ(stream.CurrentPosition(), static_cast<int>(bytes.size()));
  return trace;
}

inline const chakra::Attribute& attribute(const chakra::Node& node, const std::string& name) {
  static const chakra::Attribute none;
  const chakra::Attribute* found = &none;
  for (const chakra::Attribute& a : node.attr()) {
    if (a.name() != name) continue;
    EXPECT_EQ(found, &none) << node.name() << " has two " << name;
    found = &a;
  }
  EXPECT_NE(found, &none) << node.name() << " has no " << name;
  return *found;
}

}  // namespace strata::test
