// penstock plan of prefill and decode on different machines: what a prompt's blocks take on their way
// through the store, beside what the prompt takes to be computed.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace penstock {

struct SplitPlan {
  explicit SplitPlan(CLI::App& app);
  bool wanted() const { return !link.empty() || !disk.empty() || prefill_rate > 0; }

  struct Outcome {
    int64_t tokens = 0, bytes = 0;              // of a prompt, and of its blocks
    double link_seconds = 0, disk_seconds = 0;  // of the bytes, once; 0: not there
    double read_seconds = 0;                    // of the slower one
    double prefill_seconds = 0;                 // 0: not given
    // The first token comes that much later than where the prompt was computed: blocks are written
    // while it is computed, and read behind it.
    double later_seconds = 0;
    // tokens a second of computing prompts beyond which decode servers compute by themselves
    double most_prefill_rate = 0;
    bool pays = false;
  };
  // bytes: of the blocks of a prompt of `tokens` tokens. Errors: kInvalidArgument.
  Result<Outcome> plan(int64_t tokens, int64_t bytes) const;
  void print(const Outcome& result) const;
  static nlohmann::json json(const Outcome& result);

  std::string link, disk;
  double prefill_rate = 0;
};

}  // namespace penstock
