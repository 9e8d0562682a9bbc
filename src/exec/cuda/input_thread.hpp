#pragma once

/// @file
/// A thread that has inputs written into page-locked memory while the device computes.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace strata::cuda {

class InputThread {
 public:
  InputThread() : thread_([this] { work(); }) {}
  /// Does all that is asked for first: somebody may wait for it.
  ~InputThread() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    wanted_.notify_one();
    thread_.join();
  }
  InputThread(const InputThread&) = delete;
  InputThread& operator=(const InputThread&) = delete;

  /// One job after the other. What it uses outlives it.
  std::future<void> run(std::function<void()> job) {
    std::packaged_task<void()> task(std::move(job));
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(task));
    }
    wanted_.notify_one();
    return done;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wanted_.wait(lock, [&] { return is_over_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::packaged_task<void()> task = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<std::packaged_task<void()>> jobs_;
  bool is_over_ = false;
  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace strata::cuda
