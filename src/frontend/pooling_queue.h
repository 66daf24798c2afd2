// Vectors, classes and scores for many callers at once: what waits is computed together, by one thread.
//
// Calls of one kind share steps: of every call that waits a share of its inputs goes into the next one, so that a call of two
// thousand texts holds up nobody. Methods may be called from any thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/embed.h"
#include "penstock/metrics.h"

namespace penstock {

// What a call wants of each of its inputs.
struct PoolingKind {
  enum class Task : uint8_t { kEmbed, kEmbedTokens, kClassify, kScore };
  Task task = Task::kEmbed;
  bool use_activation = true;     // of classes and scores
  std::optional<bool> normalize;  // of vectors
  int dimensions = 0;             // of vectors
  bool truncate = false;          // of pairs, whose tokens are made when they are computed
  int truncate_to = 0;
  std::shared_ptr<const Adapter> adapter;  // null: the model as it is
  bool operator==(const PoolingKind&) const = default;
};

struct PoolingCall {
  PoolingKind kind;
  std::vector<std::vector<TokenId>> inputs;  // as EmbeddingModel::encode made them; none for kScore
  std::vector<std::pair<std::string, std::string>> pairs;  // for kScore
  std::vector<size_t> lengths;                             // tokens of each input or pair
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

class PoolingQueue {
 public:
  // For each input its vector, classes or score, in their order.
  using Vectors = std::vector<std::vector<float>>;
  // Called once, by the queue's thread. Errors: the model's; kCancelled, kDeadlineExceeded.
  using Done = std::function<void(Result<Vectors>)>;

  // Of the calls that wait: at most so many, with so many tokens.
  struct Limits {
    size_t calls = 4096;
    size_t tokens = size_t{1} << 24;
  };
  PoolingQueue(std::unique_ptr<EmbeddingModel> model, Limits limits);
  ~PoolingQueue() { stop(); }

  const EmbeddingModel& model() const { return *model_; }
  Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path) {
    return model_->open_adapter(path);
  }
  // A number for cancel(). Errors: kResourceExhausted, too much waits; kCancelled after stop().
  Result<uint64_t> submit(PoolingCall call, Done done);
  void cancel(uint64_t id);
  // Ends every call.
  void stop();
  Metrics metrics() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    uint64_t id;
    PoolingCall call;
    Done done;
    Vectors results;
    size_t n_taken = 0;  // inputs that were given to a step
    bool begun = false, cancelled = false;
    Clock::time_point submitted;
    size_t n_inputs() const { return call.lengths.size(); }
  };
  struct Item {
    Open* open;
    size_t index;
  };
  void work();
  std::vector<Item> next_items();
  void end_late_ones(std::unique_lock<std::mutex>& lock);
  void compute(const std::vector<Item>& items);
  Result<Vectors> run(const std::vector<Item>& items);
  void give(const std::vector<Item>& items, Vectors vectors);
  void fail(const std::vector<Item>& items, const Error& error);
  void finish(std::list<Open>::iterator open, Result<Vectors> result, std::unique_lock<std::mutex>& lock);
  size_t n_waiting() const;

  const std::unique_ptr<EmbeddingModel> model_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Open> calls_;  // in the order of their turns
  size_t n_tokens_ = 0;    // of calls_
  uint64_t last_id_ = 0;
  bool stopping_ = false;
  Metrics metrics_;
  std::thread thread_;
};

}  // namespace penstock
