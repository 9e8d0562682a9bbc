#include "exec/read_ahead.hpp"

#include <algorithm>
#include <utility>

namespace strata {

ReadAhead::ReadAhead(InputSource& source, int num_threads) : source_(source) {
  for (int thread = 0; thread < num_threads; ++thread) threads_.emplace_back([this] { run(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
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

void ReadAhead::load(const Load& load, std::int64_t step, const Room& room) {
  std::unique_lock lock(mutex_);
  Slot& slot = *slots_.try_emplace(load).first;
  Ahead& ahead = slot.second;
  done_.wait(lock, [&] { return ahead.parts_left == 0; });
  lock.unlock();
  if (ahead.step == step) {
    if (ahead.error) {
      ahead.step = -1;
      std::rethrow_exception(std::exchange(ahead.error, nullptr));
    }
    if (room.pixels.empty()) {  // a few tokens: a thread takes longer to wake
      do_part({.slot = &slot, .begin = 0, .end = load.num_samples, .copied_to = &room});
    } else {
      lock.lock();
      queue_parts(slot, &room);
      done_.wait(lock, [&] { return ahead.parts_left == 0; });
      lock.unlock();
    }
  } else {
    read(load, step, room);
    ahead.tokens.resize(room.tokens.size());
    ahead.pixels.resize(room.pixels.size());
    ahead.targets.resize(room.targets.size());
  }
  lock.lock();
  ahead.step = step + 1;
  ahead.error = nullptr;
  queue_parts(slot, nullptr);
}

/// With the lock held.
void ReadAhead::queue_parts(Slot& slot, const Room* copied_to) {
  const std::int64_t num_samples = slot.first.num_samples;
  const auto num_parts = std::clamp<std::int64_t>(num_samples, 1, static_cast<std::int64_t>(threads_.size()));
  slot.second.parts_left = num_parts;
  for (std::int64_t part = 0; part < num_parts; ++part) {
    queue_.push_back({.slot = &slot,
                      .begin = part * num_samples / num_parts,
                      .end = (part + 1) * num_samples / num_parts,
                      .copied_to = copied_to});
  }
  wanted_.notify_all();
}

void ReadAhead::read(const Load& load, std::int64_t step, const Room& room) {
  switch (load.kind) {
    case Kind::tokens: return source_.load_tokens(step, load.first_sample, load.num_samples, room.tokens, room.targets);
    case Kind::images: return source_.load_images(step, load.first_sample, load.num_samples, room.pixels, room.targets);
    case Kind::targets: return source_.load_targets(step, load.first_sample, load.num_samples, room.targets);
  }
}

void ReadAhead::do_part(const Part& part) {
  const Load& load = part.slot->first;
  Ahead& ahead = part.slot->second;
  const std::size_t num_samples = std::max<std::size_t>(static_cast<std::size_t>(load.num_samples), 1);
  const auto of_part = [&]<typename T>(std::span<T> all) {
    const std::size_t size = all.size() / num_samples;
    return all.subspan(static_cast<std::size_t>(part.begin) * size,
                       static_cast<std::size_t>(part.end - part.begin) * size);
  };
  const Room room = ahead.room();
  if (part.copied_to != nullptr) {
    std::ranges::copy(of_part(room.tokens), of_part(part.copied_to->tokens).begin());
    std::ranges::copy(of_part(room.pixels), of_part(part.copied_to->pixels).begin());
    std::ranges::copy(of_part(room.targets), of_part(part.copied_to->targets).begin());
    return;
  }
  Load mine = load;
  mine.first_sample += part.begin;
  mine.num_samples = part.end - part.begin;
  read(mine, ahead.step, {of_part(room.tokens), of_part(room.pixels), of_part(room.targets)});
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [&] { return is_over_ || !queue_.empty(); });
    if (is_over_) return;
    const Part part = queue_.front();
    queue_.pop_front();
    Ahead& ahead = part.slot->second;
    lock.unlock();
    std::exception_ptr error;
    try {
      do_part(part);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) ahead.error = error;
    if (--ahead.parts_left == 0) done_.notify_all();
  }
}

}  // namespace strata
