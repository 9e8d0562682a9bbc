#pragma once

/// @file
/// Collectives in pieces of unequal sizes, some of them empty, compared with what every rank can compute for every
/// other.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mpi/comm/payload.hpp"

namespace strata::comm {

/// Elements that member @p from has for member @p to: 0 to 4 times @p unit.
inline std::int64_t piece_elements(int from, int to, std::int64_t unit) { return (3 * from + 2 * to) % 5 * unit; }

/// Element @p i of the piece that @p from has for @p to.
inline float piece_value(int from, int to, std::int64_t i) {
  return static_cast<float>(value_of(from, i + 1000003 * to, 7));
}

class PieceCheck {
 public:
  PieceCheck(Engine& engine, int group, const std::vector<int>& ranks, const World& world)
      : engine_(engine),
        group_(group),
        size_(static_cast<int>(ranks.size())),
        index_(static_cast<int>(std::ranges::find(ranks, world.rank()) - ranks.begin())) {}

  /// @p unit elements: as many as cross the slices and segments of transports, too.
  void run(std::int64_t unit) {
    gather(unit);
    scatter(unit);
    exchange(unit);
  }

 private:
  template <typename Size>
  std::vector<std::int64_t> begins(const Size& size_of_piece) const {
    std::vector<std::int64_t> begins = {0};
    for (int member = 0; member < size_; ++member) begins.push_back(begins.back() + size_of_piece(member));
    return begins;
  }

  void post(Collective kind, const Pieces& pieces, const std::vector<float>& input,
            const std::vector<float>& expected) {
    constexpr float guard = -77.0F;
    std::vector<float> output(expected.size() + 1, guard);
    Request request;
    request.kind = kind;
    request.input = input.data();
    request.output = output.data();
    request.num_elements = static_cast<std::int64_t>(std::max(input.size(), expected.size()));
    request.pieces = &pieces;
    request.group = group_;
    const Ticket ticket = engine_.post(request);
    engine_.wait(ticket);
    EXPECT_EQ(output.back(), guard) << to_string(kind);
    output.pop_back();
    EXPECT_TRUE(output == expected) << to_string(kind) << " of member " << index_ << " of " << size_;
    EXPECT_EQ(engine_.times(ticket).bytes_sent, size_ == 1 ? 0 : 4 * elements_sent(kind, pieces, index_))
        << to_string(kind);
  }

  static void append(std::vector<float>& to, std::int64_t elements, const auto& value) {
    for (std::int64_t i = 0; i < elements; ++i) to.push_back(value(i));
  }

  void gather(std::int64_t unit) {
    Pieces pieces{
        .input = {}, .output = begins([&](int m) { return piece_elements(m, m, unit); }), .longest = 4 * unit};
    std::vector<float> input, expected;
    append(input, piece_elements(index_, index_, unit), [&](auto i) { return piece_value(index_, index_, i); });
    for (int m = 0; m < size_; ++m) {
      append(expected, piece_elements(m, m, unit), [&](auto i) { return piece_value(m, m, i); });
    }
    post(Collective::all_gather, pieces, input, expected);
  }

  void scatter(std::int64_t unit) {
    Pieces pieces{
        .input = begins([&](int m) { return piece_elements(m, m, unit); }), .output = {}, .longest = 4 * unit};
    std::vector<float> input, expected;
    for (int m = 0; m < size_; ++m) {
      append(input, piece_elements(m, m, unit), [&](auto i) { return piece_value(index_, m, i); });
    }
    append(expected, piece_elements(index_, index_, unit), [&](auto i) {
      float sum = 0.0F;
      for (int from = 0; from < size_; ++from) sum += piece_value(from, index_, i);
      return sum;
    });
    post(Collective::reduce_scatter, pieces, input, expected);
  }

  void exchange(std::int64_t unit) {
    Pieces pieces{.input = begins([&](int to) { return piece_elements(index_, to, unit); }),
                  .output = begins([&](int from) { return piece_elements(from, index_, unit); }),
                  .longest = 4 * unit};
    std::vector<float> input, expected;
    for (int m = 0; m < size_; ++m) {
      append(input, piece_elements(index_, m, unit), [&](auto i) { return piece_value(index_, m, i); });
      append(expected, piece_elements(m, index_, unit), [&](auto i) { return piece_value(m, index_, i); });
    }
    post(Collective::all_to_all, pieces, input, expected);
  }

  Engine& engine_;
  int group_;
  int size_;
  int index_;
};

inline void check_pieces(const World& world, Engine& engine, int group, const std::vector<int>& ranks) {
  for (const std::int64_t unit : {0, 1, 33, 50021}) PieceCheck(engine, group, ranks, world).run(unit);
}

}  // namespace strata::comm
