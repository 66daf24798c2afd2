#include "engine/policies.h"

#include <limits>
#include <string>

namespace penstock {
namespace {

constexpr int kNoLimit = std::numeric_limits<int>::max();

// A sequence joins as soon as there is room.
class Continuous : public Policy {
 public:
  explicit Continuous(const PolicyConfig&) {}
  double rank(const Sequence&, double) const override { return 0; }
  int admissions(const QueueState&) const override { return kNoLimit; }
};

// A batch is formed of what waits, runs until its last sequence has ended, and only then the next is formed.
class Static : public Policy {
 public:
  explicit Static(const PolicyConfig& config) : config_(config) {}
  double rank(const Sequence&, double) const override { return 0; }
  int admissions(const QueueState& queue) const override {
    return queue.n_running == 0 ? config_.max_batch_size : 0;
  }

 protected:
  PolicyConfig config_;
};

// Static, but a batch also waits until it is full or its oldest sequence has waited long enough.
class Dynamic : public Static {
 public:
  using Static::Static;
  int admissions(const QueueState& queue) const override {
    const bool ready =
        queue.n_waiting >= config_.max_batch_size || queue.oldest_wait >= config_.max_wait_seconds;
    return ready ? Static::admissions(queue) : 0;
  }
};

// Lower priority values first; waiting for ageing_seconds is worth one level, so nobody starves.
class ByPriority : public Continuous {
 public:
  explicit ByPriority(const PolicyConfig& config) : Continuous(config), ageing_(config.ageing_seconds) {}
  double rank(const Sequence& sequence, double waited) const override {
    const double aged = ageing_ > 0 ? waited / ageing_ : 0;
    return static_cast<double>(sequence.priority) - aged;
  }
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

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicyConfig& config) {
  std::string names;
  for (const Row& row : kPolicies) {
    if (name == row.name) return row.make(config);
    names += names.empty() ? row.name : std::string(", ") + row.name;
  }
  return errorf(ErrorCode::kInvalidArgument, "policy: expected one of {}, got '{}'", names, name);
}

}  // namespace penstock
