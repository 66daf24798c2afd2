// Cancellation of work that is done for a client, who may disconnect meanwhile or may have asked
// for too much.
//
// The code that starts the work makes a Work, and a WorkScope on the thread that does it. Loops
// over a client's input call give_way() or end_work(), which throw WorkEnded out of the work;
// without a scope on the thread (command line, library) they do nothing. Code in between must be
// exception safe; the code that made the scope catches WorkEnded.
#pragma once
#include <atomic>
#include <exception>
#include <utility>

#include "base/result.h"

namespace penstock {

class WorkEnded : public std::exception {
 public:
  explicit WorkEnded(Error error) : error_(std::move(error)) {}
  const Error& error() const { return error_; }  // kCancelled: the client has left
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  Error error_;
};

class Work {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }  // any thread
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  // Counts an operation that takes milliseconds instead of microseconds. False: there were
  // kMostLongSteps of them already. Called by the working thread only.
  bool take_long_step() { return ++n_long_steps_ <= kMostLongSteps; }

 private:
  static constexpr int kMostLongSteps = 256;
  std::atomic<bool> cancelled_ = false;
  int n_long_steps_ = 0;
};

// Sets the Work that this thread does while the scope lives; scopes may nest.
class WorkScope {
 public:
  explicit WorkScope(Work& work) : outer_(std::exchange(current_, &work)) {}
  ~WorkScope() { current_ = outer_; }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;
  static Work* current() { return current_; }  // null: this thread does not work for a client

 private:
  Work* const outer_;
  inline static thread_local Work* current_ = nullptr;
};

// Throws WorkEnded when the work was cancelled. Cheap; to be called every few microseconds.
inline void give_way() {
  const Work* work = WorkScope::current();
  if (work != nullptr && work->cancelled()) throw WorkEnded({ErrorCode::kCancelled, "cancelled"});
}

// Throws WorkEnded with an error for the client; does nothing without a scope.
inline void end_work(Error error) {
  if (WorkScope::current() != nullptr) throw WorkEnded(std::move(error));
}

}  // namespace penstock
