#include "exec/read_ahead.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace strata {

ReadAhead::ReadAhead(InputSource& source) : source_(source), thread_([this] { run(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wanted_.notify_one();
  thread_.join();
}

void ReadAhead::load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                            std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  load({Kind::tokens, first_sample, num_samples, tokens.size(), targets.size()}, step, {tokens, {}, targets});
}

void ReadAhead::load_images(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                            std::span<float> pixels, std::span<std::int32_t> labels) {
  load({Kind::images, first_sample, num_samples, pixels.size(), labels.size()}, step, {{}, pixels, labels});
}

void ReadAhead::load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                             std::span<std::int32_t> targets) {
  load({Kind::targets, first_sample, num_samples, 0, targets.size()}, step, {{}, {}, targets});
}

double ReadAhead::take_seconds(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  const auto found = seconds_.find(step);
  const double seconds = found == seconds_.end() ? 0.0 : found->second;
  seconds_.erase(seconds_.begin(), seconds_.upper_bound(step));
  return seconds;
}

void ReadAhead::load(const Load& load, std::int64_t step, const Room& room) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  Slot& slot = *slots_.try_emplace(load).first;
  Ahead& ahead = slot.second;
  done_.wait(lock, [&] { return ahead.is_done; });
  lock.unlock();
  if (ahead.step == step) {
    if (ahead.error) {
      ahead.step = -1;
      std::rethrow_exception(std::exchange(ahead.error, nullptr));
    }
    std::ranges::copy(ahead.tokens, room.tokens.begin());
    std::ranges::copy(ahead.pixels, room.pixels.begin());
    std::ranges::copy(ahead.targets, room.targets.begin());
  } else {
    read(load, step, room);
    ahead.tokens.resize(room.tokens.size());
    ahead.pixels.resize(room.pixels.size());
    ahead.targets.resize(room.targets.size());
  }
  lock.lock();
  ahead.step = step + 1;
  ahead.is_done = false;
  ahead.error = nullptr;
  queue_.push_back(&slot);
  seconds_[step] += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  lock.unlock();
  wanted_.notify_one();
}

void ReadAhead::read(const Load& load, std::int64_t step, const Room& room) {
  switch (load.kind) {
    case Kind::tokens: return source_.load_tokens(step, load.first_sample, load.num_samples, room.tokens, room.targets);
    case Kind::images: return source_.load_images(step, load.first_sample, load.num_samples, room.pixels, room.targets);
    case Kind::targets: return source_.load_targets(step, load.first_sample, load.num_samples, room.targets);
  }
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [&] { return is_over_ || !queue_.empty(); });
    if (is_over_) return;
    auto& [load, ahead] = *queue_.front();
    queue_.pop_front();
    lock.unlock();
    try {
      read(load, ahead.step, ahead.room());
    } catch (...) {
      ahead.error = std::current_exception();
    }
    lock.lock();
    ahead.is_done = true;
    done_.notify_one();
  }
}

}  // namespace strata
