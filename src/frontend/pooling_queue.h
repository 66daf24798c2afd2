// Computes vectors, classes and scores for many callers: one thread computes the waiting inputs in
// batches.
//
// Calls of the same kind share steps: each step takes some inputs of every tenant, and of every
// waiting call of a tenant, so that neither a call with two thousand texts nor a tenant with a
// thousand calls delays the others. Kinds take turns within a tenant, and the tenants between them.
// When memory runs out, the calls of the step end with an error. Thread-safe.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
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

// The task and options of a call.
struct PoolingKind {
  enum class Task : uint8_t { kEmbed, kEmbedTokens, kClassify, kScore };
  Task task = Task::kEmbed;
  bool use_activation = true;  // classes and scores: apply the activation
  // vectors: normalize to length 1; nullopt: the model's default
  std::optional<bool> normalize;
  int dimensions = 0;                      // vectors: number of dimensions; 0: all
  std::shared_ptr<const Adapter> adapter;  // null: the model without an adapter
  bool operator==(const PoolingKind&) const = default;
};

struct PoolingCall {
  PoolingKind kind;
  // results of EmbeddingModel::encode; empty for kScore
  std::vector<std::vector<TokenId>> inputs;
  // for kScore, as EmbeddingModel::pair_tokens made them
  std::vector<PairTokens> pairs;
  std::vector<size_t> lengths;  // number of tokens of each input or pair
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // tenant that pays for the call; "": no tenant
  std::string tenant;
};

class PoolingQueue {
 public:
  // The vector, classes or score of each input, in the inputs' order.
  using Vectors = std::vector<std::vector<float>>;
  // Called once, on the queue's thread; throws nothing. Errors: those of the model; kCancelled,
  // kDeadlineExceeded, kResourceExhausted (memory ran out).
  using Done = std::function<void(Result<Vectors>)>;

  // Maximum number of waiting calls and of their tokens.
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
  // Returns an id for cancel(). Errors: kResourceExhausted, when a limit is exceeded; kCancelled,
  // after stop().
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
    size_t n_taken = 0;  // number of inputs that steps have taken
    bool begun = false, cancelled = false;
    Clock::time_point submitted;
    size_t n_inputs() const { return call.lengths.size(); }
  };
  struct Item {
    Open* open;
    size_t index;
  };
  // A tenant's state of the round robin, and its share of the step that is being assembled.
  struct Turn {
    // number of the last step whose kind this tenant chose; 0: none
    uint64_t last = 0;
    size_t n_calls = 0;   // number of waiting calls of the step's kind
    size_t n_tokens = 0;  // number of its tokens in the step
  };
  void work();
  std::vector<Item> next_items();
  const PoolingKind& next_kind();
  void end_late_ones(std::unique_lock<std::mutex>& lock);
  void end_begun_ones();
  void compute(const std::vector<Item>& items);
  Result<Vectors> run(const std::vector<Item>& items);
  Result<Vectors> run_model(const std::vector<Item>& items);
  void give(const std::vector<Item>& items, Vectors vectors);
  void fail(const std::vector<Item>& items, const Error& error);
  void finish(std::list<Open>::iterator open, Result<Vectors> result,
              std::unique_lock<std::mutex>& lock);
  size_t n_waiting() const;

  const std::unique_ptr<EmbeddingModel> model_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Open> calls_;  // in the order of service
  size_t n_tokens_ = 0;    // tokens of all calls_
  uint64_t last_id_ = 0;
  std::map<std::string, Turn> turns_;  // by tenant; only tenants with calls
  uint64_t n_turns_ = 0;
  bool stopping_ = false;
  Metrics metrics_;
  std::thread thread_;
};

}  // namespace penstock
