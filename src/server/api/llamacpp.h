// What the routes of llama.cpp's own API have in common (tools/server/README.md of llama.cpp).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/services/served_model.h"

namespace penstock {

// The schema of the fields that /completion and /infill both have.
nlohmann::json llamacpp_fields();
// The forms that a prompt has there.
nlohmann::json llamacpp_prompt_field();

// A checked body as read_generation's fields. Errors: kInvalidArgument, what cannot be honoured.
Result<nlohmann::ordered_json> params_of_llamacpp(const nlohmann::ordered_json& body,
                                                  const ServedModel& model);
// "samplers": the fields of the steps that it leaves out are set to what does nothing.
void read_samplers(const nlohmann::ordered_json& body, nlohmann::ordered_json& params);
// "logit_bias" in all its forms, as logit_bias and banned_token_ids.
Status read_bias(const nlohmann::ordered_json& body, const Tokenizer& tokenizer,
                 nlohmann::ordered_json& params);
// The token lists of a prompt in any of its forms. several: the reply is a list. Errors:
// kInvalidArgument, ids outside the vocabulary; kContextOverflow, a text that is certainly too
// long.
Result<std::vector<std::vector<TokenId>>> prompts_of_llamacpp(const nlohmann::ordered_json& prompt,
                                                              const ServedModel& model,
                                                              bool& several);

// "generation_settings": what holds for a call, under llama.cpp's names. n_predict: as it was asked
// for.
nlohmann::ordered_json llamacpp_settings(const SamplingParams& params, int64_t n_predict,
                                         bool stream);

// A token's entry under the names for probabilities after sampling: prob and top_probs.
void name_as_probabilities(nlohmann::ordered_json& entry);

// "timings", under llama.cpp's names. n_prompt: with the tokens that the cache had.
nlohmann::ordered_json llamacpp_timings(const RequestStats& stats, int64_t n_prompt,
                                        int64_t n_tokens);

// Of `reply` what `paths` ask for ("timings/prompt_n"), each under its path.
nlohmann::ordered_json picked_fields(const nlohmann::ordered_json& reply,
                                     const std::vector<std::string>& paths);

}  // namespace penstock
