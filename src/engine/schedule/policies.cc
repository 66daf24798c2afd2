#include "engine/schedule/policies.h"

#include <algorithm>
#include <string>

namespace penstock {
namespace {

// Admits sequences whenever there is room.
class Continuous : public Policy {
 public:
  explicit Continuous(const PolicyConfig&) {}
  double rank(const Sequence&, double) const override { return 0; }
};

// Forms a batch of waiting sequences, and the next one only when all of its sequences
// have ended. Prompts that exceed a step are computed over several steps without chunk
// limits.
class Static : public Policy {
 public:
  explicit Static(const PolicyConfig& config) : config_(config) {}
  double rank(const Sequence&, double) const override { return 0; }
  void begin_step(const QueueState& queue) override {
    if (queue.n_running == 0) n_open_ = std::min(queue.n_waiting, config_.max_batch_size);
  }
  bool admits(const Sequence&) const override { return n_open_ > 0; }
  void note_admitted(const Sequence&) override { --n_open_; }
  bool spares_decoding() const override { return false; }

 protected:
  PolicyConfig config_;
  int n_open_ = 0;  // free places of the batch that is being formed
};

// As Static, but a batch also waits until it is full (by sequences or prompt tokens) or its oldest
// sequence has waited max_wait_seconds.
class Dynamic : public Static {
 public:
  using Static::Static;
  void begin_step(const QueueState& queue) override {
    if (queue.n_running > 0) return;
    const bool full = queue.n_waiting >= config_.max_batch_size ||
                      (counts_tokens() && queue.n_waiting_tokens >= config_.max_batch_tokens);
    n_tokens_ = n_open_ = 0;
    if (full || queue.oldest_wait >= config_.max_wait_seconds) Static::begin_step(queue);
  }
  bool looks_at_waiting() const override { return true; }
  // The first sequence always fits, or a long one would never run.
  bool admits(const Sequence& sequence) const override {
    const bool fits = !counts_tokens() || n_tokens_ == 0 ||
                      n_tokens_ + sequence.n_tokens() <= config_.max_batch_tokens;
    return Static::admits(sequence) && fits;
  }
  void note_admitted(const Sequence& sequence) override {
    Static::note_admitted(sequence);
    n_tokens_ += sequence.n_tokens();
  }

 private:
  bool counts_tokens() const { return config_.max_batch_tokens > 0; }

  int64_t n_tokens_ = 0;  // prompt tokens of the batch that is being formed
};

// Lower priority values first; ageing_seconds of waiting count as one level, so that none starves.
class ByPriority : public Continuous {
 public:
  explicit ByPriority(const PolicyConfig& config)
      : Continuous(config), ageing_(config.ageing_seconds) {}
  double rank(const Sequence& sequence, double waited) const override {
    const double aged = ageing_ > 0 ? waited / ageing_ : 0;
    return static_cast<double>(sequence.priority) - aged;
  }
  bool ranks_priorities() const override { return true; }
  bool preempts() const override { return true; }

 private:
  double ageing_;
};

struct Row {
  const char* name;
  std::unique_ptr<Policy> (*make)(const PolicyConfig&);
};
template <class P>
std::unique_ptr<Policy> make(const PolicyConfig& config) {
  return std::make_unique<P>(config);
}

// THE list.
constexpr Row kPolicies[] = {
    {"continuous", make<Continuous>},
    {"static", make<Static>},
    {"dynamic", make<Dynamic>},
    {"priority", make<ByPriority>},
};

}  // namespace

std::string policy_names() {
  std::string names;
  for (const Row& row : kPolicies) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicyConfig& config) {
  for (const Row& row : kPolicies) {
    if (name == row.name) return row.make(config);
  }
  return errorf(ErrorCode::kInvalidArgument, "policy: expected one of {}, got '{}'", policy_names(),
                name);
}

}  // namespace penstock
