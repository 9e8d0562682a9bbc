#pragma once

/// @file
/// What the communication tests send: values that every rank can compute for every other, exact in every dtype and in
/// every order of summation (small integers), and a runner that posts, waits and compares.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/collective.hpp"
#include "base/dtype.hpp"
#include "comm/engine.hpp"
#include "comm/world.hpp"

namespace strata::comm {

/// Element @p index of the tensor that @p rank contributes to operation @p salt: integers of -4 … 4, so that sums over
/// 30 ranks are exact in bf16 (8 bits).
inline int value_of(int rank, std::int64_t index, int salt) {
  const std::uint64_t mixed = (static_cast<std::uint64_t>(index) * 2654435761U +
                               static_cast<std::uint64_t>(rank) * 40503U + static_cast<std::uint64_t>(salt) * 97U) >>
                              3U;
  return static_cast<int>(mixed % 9) - 4;
}

inline void store(std::byte* data, std::int64_t index, DType dtype, int value) {
  switch (dtype) {
    case DType::f32: {
      const auto v = static_cast<float>(value);
      std::memcpy(data + index * 4, &v, 4);
      return;
    }
    case DType::bf16: {
      const bf16 v(static_cast<float>(value));
      std::memcpy(data + index * 2, &v, 2);
      return;
    }
    case DType::i32: std::memcpy(data + index * 4, &value, 4); return;
    case DType::u8: data[index] = static_cast<std::byte>(value + 128); return;
  }
}

/// One operation with buffers of its own, guarded at both ends against stray writes.
class Payload {
 public:
  Payload(const World& world, std::vector<int> ranks, Collective kind, DType dtype, std::int64_t num_elements,
          bool in_place, int peer = 0, Reduction reduction = Reduction::sum, int salt = 1)
      : ranks_(std::move(ranks)),
        kind_(kind),
        dtype_(dtype),
        num_elements_(num_elements),
        in_place_(in_place),
        peer_(peer),
        reduction_(reduction),
        salt_(salt) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i] == world.rank()) {
        me_ = static_cast<int>(i);
      }
    }
    fill();
  }

  Request request(int group, int stream = 0) const {
    Request r;
    r.kind = kind_;
    r.reduction = reduction_;
    r.input = input_at();
    r.output = output_at();
    r.num_elements = num_elements_;
    r.dtype = dtype_;
    r.group = group;
    r.peer = peer_;
    r.stream = stream;
    r.label = label_;
    return r;
  }

  /// Compares every byte, also those that must not have changed.
  void expect_right() const {
    std::vector<std::byte> expected = output_before_;
    const auto size = static_cast<int>(ranks_.size());
    const Chunk own = chunk_of(num_elements_, size, me_);
    std::byte* base = expected.data() + kGuard;
    const auto reduced = [&](std::int64_t index) {
      int result = value_of(ranks_[0], index, salt_);
      for (std::size_t i = 1; i < ranks_.size(); ++i) {
        const int value = value_of(ranks_[i], index, salt_);
        result = reduction_ == Reduction::sum ? result + value : std::max(result, value);
      }
      return result;
    };
    switch (kind_) {
      case Collective::all_reduce:
        for (std::int64_t i = 0; i < num_elements_; ++i) {
          store(base, i, dtype_, reduced(i));
        }
        break;
      case Collective::reduce:
        if (me_ == peer_) {
          for (std::int64_t i = 0; i < num_elements_; ++i) {
            store(base, i, dtype_, reduced(i));
          }
        }
        break;
      case Collective::reduce_scatter:
        for (std::int64_t i = own.begin; i < own.end; ++i) {
          store(base, in_place_ ? i : i - own.begin, dtype_, reduced(i));
        }
        break;
      case Collective::all_gather:
        for (int member = 0; member < size; ++member) {
          const Chunk chunk = chunk_of(num_elements_, size, member);
          for (std::int64_t i = chunk.begin; i < chunk.end; ++i) {
            store(base, i, dtype_, value_of(ranks_[static_cast<std::size_t>(member)], i, salt_));
          }
        }
        break;
      case Collective::all_to_all: {
        const std::int64_t block = num_elements_ / size;
        for (std::int64_t i = 0; i < num_elements_; ++i) {
          store(base, i, dtype_, value_of(ranks_[static_cast<std::size_t>(i / block)], me_ * block + i % block, salt_));
        }
        break;
      }
      case Collective::broadcast:
      case Collective::recv:
        for (std::int64_t i = 0; i < num_elements_; ++i) {
          store(base, i, dtype_, value_of(ranks_[static_cast<std::size_t>(peer_)], i, salt_));
        }
        break;
      case Collective::send: break;
    }
    const std::vector<std::byte>& got = in_place_ ? input_ : output_;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] != got[i]) {
        ADD_FAILURE() << label_ << ": byte " << static_cast<std::int64_t>(i) - kGuard << " of "
                      << expected.size() - 2 * kGuard << " is " << static_cast<int>(got[i]) << ", expected "
                      << static_cast<int>(expected[i]);
        return;
      }
    }
    if (!in_place_) {
      EXPECT_TRUE(input_ == input_before_) << label_ << ": the input has changed";
    }
  }

  /// Bring all buffers back to what they were before the operation.
  void reset() {
    input_ = input_before_;
    output_ = output_before_;
  }

 private:
  static constexpr std::int64_t kGuard = 68;  // bytes; odd in cache lines, a multiple of every element

  void fill() {
    const auto size = static_cast<int>(ranks_.size());
    const Chunk own = chunk_of(num_elements_, size, me_);
    const std::int64_t element_bytes = size_of(dtype_);
    const bool gathers = kind_ == Collective::all_gather;
    const bool scatters = kind_ == Collective::reduce_scatter;
    label_ = fmt::format("{}{} {} {} over {} ranks{}{}", to_string(kind_), reduction_ == Reduction::max ? "(max)" : "",
                         to_string(dtype_), num_elements_, size, in_place_ ? " in place" : "",
                         is_rooted(kind_) ? fmt::format(" root {}", peer_) : "");
    const auto make = [&](std::int64_t elements) {
      return std::vector<std::byte>(static_cast<std::size_t>(elements * element_bytes + 2 * kGuard), std::byte{0x5a});
    };
    if (in_place_) {  // one buffer of the full tensor
      input_ = make(num_elements_);
      for (std::int64_t i = 0; i < num_elements_; ++i) {
        const bool mine = gathers ? i >= own.begin && i < own.end : kind_ != Collective::broadcast || me_ == peer_;
        if (mine) {
          store(input_.data() + kGuard, i, dtype_, value_of(ranks_[static_cast<std::size_t>(me_)], i, salt_));
        }
      }
      output_before_ = input_;
    } else {
      const bool receives = kind_ == Collective::recv || (kind_ == Collective::broadcast && me_ != peer_);
      input_ = make(gathers ? own.size() : num_elements_);
      if (!receives) {
        const std::int64_t first = gathers ? own.begin : 0;
        for (std::int64_t i = first; i < (gathers ? own.end : num_elements_); ++i) {
          store(input_.data() + kGuard, i - first, dtype_, value_of(ranks_[static_cast<std::size_t>(me_)], i, salt_));
        }
      }
      output_ = make(scatters ? own.size() : num_elements_);
      output_before_ = output_;
    }
    input_before_ = input_;
  }

  const void* input_at() const {
    const Chunk own = chunk_of(num_elements_, static_cast<int>(ranks_.size()), me_);
    const std::int64_t skip = in_place_ && kind_ == Collective::all_gather ? own.begin * size_of(dtype_) : 0;
    return input_.data() + kGuard + skip;
  }
  /// Null where nothing may be written, but in place of the input.
  void* output_at() const {
    if (kind_ == Collective::reduce && me_ != peer_ && !in_place_) {
      return nullptr;
    }
    const Chunk own = chunk_of(num_elements_, static_cast<int>(ranks_.size()), me_);
    const std::int64_t skip = in_place_ && kind_ == Collective::reduce_scatter ? own.begin * size_of(dtype_) : 0;
    return const_cast<std::byte*>((in_place_ ? input_ : output_).data()) + kGuard + skip;
  }

  std::vector<int> ranks_;
  Collective kind_;
  DType dtype_;
  std::int64_t num_elements_;
  bool in_place_;
  int peer_;
  Reduction reduction_;
  int salt_;
  int me_ = 0;
  std::string label_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  std::vector<std::byte> input_before_;
  std::vector<std::byte> output_before_;
};

inline std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    ranks.push_back(rank);
  }
  return ranks;
}

/// Every kind of collective, dtype and place on one group; bytes on the wire are those of elements_sent(). Every rank
/// takes part, all in one group or in groups of as many ranks each.
inline void check_all_collectives(const World& world, Engine& engine, int group, const std::vector<int>& ranks,
                                  const std::vector<std::int64_t>& sizes) {
  const auto num_ranks = static_cast<int>(ranks.size());
  const int num_groups = world.size() / num_ranks;
  const auto run = [&](Collective kind, DType dtype, std::int64_t elements, bool in_place, int peer,
                       Reduction reduction) {
    Payload payload(world, ranks, kind, dtype, elements, in_place, peer, reduction);
    const Ticket ticket = engine.post(payload.request(group));
    engine.wait(ticket);
    payload.expect_right();
    double sent = static_cast<double>(engine.times(ticket).bytes_sent);
    world.all_reduce_sum(std::span(&sent, 1));
    std::int64_t expected = 0;
    for (int member = 0; member < num_ranks; ++member) {
      expected += elements_sent(kind, elements, num_ranks, member, peer) * size_of(dtype);
    }
    EXPECT_EQ(sent, static_cast<double>(num_groups * expected)) << payload.request(group).label;
    if (kind == Collective::reduce) {  // goes no way round: each rank's bytes are its own
      const auto index = static_cast<int>(std::ranges::find(ranks, world.rank()) - ranks.begin());
      EXPECT_EQ(engine.times(ticket).bytes_sent, elements_sent(kind, elements, num_ranks, index, peer) * size_of(dtype))
          << payload.request(group).label;
    }
  };
  for (const std::int64_t size : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
      const bool reducible = dtype == DType::f32 || dtype == DType::bf16;
      for (const bool in_place : {false, true}) {
        if (reducible) {
          for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
            run(Collective::all_reduce, dtype, size, in_place, 0, reduction);
            run(Collective::reduce_scatter, dtype, size, in_place, 0, reduction);
            run(Collective::reduce, dtype, size, in_place, static_cast<int>(size) % num_ranks, reduction);
          }
        }
        run(Collective::all_gather, dtype, size, in_place, 0, Reduction::sum);
        run(Collective::broadcast, dtype, size, in_place, static_cast<int>(size) % num_ranks, Reduction::sum);
      }
      run(Collective::all_to_all, dtype, size * num_ranks, false, 0, Reduction::sum);
    }
  }
}

}  // namespace strata::comm
