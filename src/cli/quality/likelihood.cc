#include "cli/quality/likelihood.h"

#include "base/result.h"
#include "cli/console/terminal.h"

namespace penstock {

Result<std::vector<std::vector<float>>> log_likelihoods(
    LLM& llm, std::span<const std::vector<TokenId>> sequences,
    const std::function<void(size_t, size_t)>& progress) {
  SamplingParams params;
  params.max_tokens = 0;
  params.prompt_logprobs = 0;
  GenerateOptions options;
  options.should_stop = interrupted;
  options.on_progress = progress;
  const std::vector<Prompt> prompts(sequences.begin(), sequences.end());
  ASSIGN_OR_RETURN(const auto outputs, llm.generate(prompts, params, options));
  if (interrupted()) return make_error(ErrorCode::kCancelled, "interrupted");
  std::vector<std::vector<float>> result;
  for (size_t s = 0; s < outputs.size(); ++s) {
    const auto& rows = outputs[s].prompt_logprobs;
    if (rows.size() != sequences[s].size()) {
      return errorf(ErrorCode::kInternal, "sequence {}: expected {} log probabilities, got {}", s,
                    sequences[s].size(), rows.size());
    }
    std::vector<float>& values = result.emplace_back();
    for (size_t i = 1; i < rows.size(); ++i) values.push_back(rows[i].at(0).logprob);
  }
  return result;
}

}  // namespace penstock
