// A piece of work that is done for somebody who may leave meanwhile, and who may have asked for too much.
//
// Whoever starts it makes a Work, and a WorkScope on the thread that does it. Loops over what a client sent call
// give_way() or end_work(), which throw WorkEnded out of the work; without a scope on the thread (the command line, the
// library) they do nothing. Code between must be exception safe; a WorkEnded is caught by whoever made the scope.
#pragma once
#include <atomic>
#include <exception>
#include <utility>

#include "base/result.h"

namespace penstock {

class WorkEnded : public std::exception {
 public:
  explicit WorkEnded(Error error) : error_(std::move(error)) {}
  const Error& error() const { return error_; }  // kCancelled: nobody wants the result
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  Error error_;
};

class Work {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }  // any thread
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  // A step that takes milliseconds where others take microseconds, of the thread that works. False: it has had its share.
  bool take_long_step() { return ++n_long_steps_ <= kMostLongSteps; }

 private:
  static constexpr int kMostLongSteps = 256;
  std::atomic<bool> cancelled_ = false;
  int n_long_steps_ = 0;
};

// Says what this thread works for while it lives; scopes may nest.
class WorkScope {
 public:
  explicit WorkScope(Work& work) : outer_(std::exchange(current_, &work)) {}
  ~WorkScope() { current_ = outer_; }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;
  static Work* current() { return current_; }  // null: no client waits for what this thread does

 private:
  Work* const outer_;
  inline static thread_local Work* current_ = nullptr;
};

// Ends the work when it was cancelled. Cheap; meant for every few microseconds of work.
inline void give_way() {
  const Work* work = WorkScope::current();
  if (work != nullptr && work->cancelled()) throw WorkEnded({ErrorCode::kCancelled, "cancelled"});
}

// Ends the work with an error for the client who asked for it.
inline void end_work(Error error) {
  if (WorkScope::current() != nullptr) throw WorkEnded(std::move(error));
}

}  // namespace penstock
