#pragma once

/// @file
/// How far something is that takes its time: one line on a terminal, which is written over and goes at the end.

#include <chrono>
#include <cstddef>
#include <string>

namespace strata {

/// "planned 120 of 9600 points, 310 a second, 30.6 s left"
std::string progress_in_words(const std::string& done_in_words, std::size_t done, std::size_t total, double seconds);

/// On standard error. Not for several threads at once.
class Progress {
 public:
  /// @param done_in_words "planned". @param shows false: nothing is ever written.
  Progress(std::string done_in_words, std::size_t total, bool shows);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { hide(); }

  /// Writes the line at most five times a second, and never in the first.
  void show(std::size_t done);
  /// Before something else is written.
  void hide();

 private:
  using Clock = std::chrono::steady_clock;
  std::string done_in_words_;
  std::size_t total_;
  bool shows_;
  bool is_visible_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_;
};

}  // namespace strata
