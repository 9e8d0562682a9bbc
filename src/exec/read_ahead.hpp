#pragma once

/// @file
/// Threads that read the samples of the next step while this one computes, each a part of a load. What a Program loads
/// it loads in every step: whoever has asked for samples of one step will ask for the same positions of the next, so
/// that nobody has to say what comes, and of each load one step is held, never more.

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "exec/executor.hpp"

namespace strata {

/// Different loads may be called by several threads at a time, one and the same by one.
class ReadAhead final : public InputSource {
 public:
  /// @param source outlives this. It is asked by the calling thread too, for what nobody could foresee: calls by
  /// several threads at a time must be safe. @param num_threads at least 1; a load's samples are split among them.
  explicit ReadAhead(InputSource& source, int num_threads = 1);
  /// Waits for what is being read.
  ~ReadAhead() override;
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// @throws what the source has thrown for this step, on whichever thread. What is thrown for a step that never comes
  /// is never heard of.
  void load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                   std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override;
  void load_images(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples, std::span<float> pixels,
                   std::span<std::int32_t> labels) override;
  void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                    std::span<std::int32_t> targets) override;

  bool may_be_read_ahead() const override { return true; }

 private:
  enum class Kind : std::uint8_t { tokens, images, targets };
  /// What is the same in every step.
  struct Load {
    Kind kind{};
    std::int64_t first_sample = 0, num_samples = 0;
    std::size_t num_values = 0, num_targets = 0;  ///< tokens or pixels; targets or labels
    auto operator<=>(const Load&) const = default;
  };
  /// Where samples go: of tokens and pixels one is empty.
  struct Room {
    std::span<std::int32_t> tokens;
    std::span<float> pixels;
    std::span<std::int32_t> targets;
  };
  /// One load of one step, read or to be read. The threads have it while parts are left, the caller afterwards.
  struct Ahead {
    std::int64_t step = -1;
    std::int64_t parts_left = 0;
    std::exception_ptr error;
    std::vector<std::int32_t> tokens, targets;
    std::vector<float> pixels;
    Room room() { return {tokens, pixels, targets}; }
  };
  using Slot = std::pair<const Load, Ahead>;
  /// Samples [begin, end) of a load.
  struct Part {
    Slot* slot = nullptr;
    std::int64_t begin = 0, end = 0;
    const Room* copied_to = nullptr;  ///< of what has been read; null: is to be read
  };

  void load(const Load& load, std::int64_t step, const Room& room);
  void queue_parts(Slot& slot, const Room* copied_to);
  void read(const Load& load, std::int64_t step, const Room& room);
  void do_part(const Part& part);
  void run();

  InputSource& source_;
  std::mutex mutex_;
  std::condition_variable wanted_, done_;
  std::map<Load, Ahead> slots_;
  std::deque<Part> queue_;
  bool is_over_ = false;
  std::vector<std::thread> threads_;  ///< last: they use all of the above
};

}  // namespace strata
