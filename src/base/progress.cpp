#include "base/progress.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <utility>

#include "base/console.hpp"
#include "base/duration.hpp"

namespace strata {

std::string progress_in_words(const std::string& done_in_words, std::size_t done, std::size_t total, double seconds) {
  const double rate = static_cast<double>(done) / seconds;
  return fmt::format("{} {} of {} points, {:.{}f} a second, {} left", done_in_words, done, total, rate,
                     rate < 10.0 ? 2 : 0, duration_in_words(static_cast<double>(total - done) / rate));
}

Progress::Progress(std::string done_in_words, std::size_t total, bool shows)
    : done_in_words_(std::move(done_in_words)), total_(total), shows_(shows), next_(begin_ + std::chrono::seconds{1}) {}

void Progress::show(std::size_t done) {
  const Clock::time_point now = Clock::now();
  if (!shows_ || now < next_ || done == 0) return;
  next_ = now + std::chrono::milliseconds{200};
  const std::chrono::duration<double> seconds = now - begin_;
  // To the line's begin, the line, and nothing of an older one behind it.
  say_error("\r{}\033[K", progress_in_words(done_in_words_, done, total_, seconds.count()));
  std::fflush(stderr);
  is_visible_ = true;
}

void Progress::hide() {
  if (!is_visible_) return;
  say_error("\r\033[K");
  std::fflush(stderr);
  is_visible_ = false;
}

}  // namespace strata
