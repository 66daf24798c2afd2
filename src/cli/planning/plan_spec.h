// penstock plan --spec: estimates the gain of speculative decoding from acceptance rates and step
// times.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "draft/speedup.h"

namespace CLI {
class App;
}

namespace penstock {

struct SpecPlan {
  explicit SpecPlan(CLI::App& app);
  // Prints a table, or one JSON object. Times that are not given are measured with the target
  // (`model`, or random weights of `shape`) and with the draft model.
  Status run(const std::string& model, const std::string& shape, const std::string& type,
             bool json) const;

  bool wanted = false;
  std::vector<double> acceptance, verify_ms;
  double target_ms = 0, draft_ms = -1, draft_round_ms = 0;  // draft_ms < 0: not given
  std::string draft_model;
  int length = 0, max_length = 16, threads = 0;

 private:
  Status check() const;
  Result<SpeculationCosts> costs(const std::string& model, const std::string& shape,
                                 const std::string& type) const;
};

}  // namespace penstock
