// Shared parts of the routes of llama.cpp's own API (see tools/server/README.md of llama.cpp).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/services/served_model.h"

namespace penstock {

// Returns the schema of the fields shared by /completion and /infill.
nlohmann::json llamacpp_fields();
// Returns the schema of a prompt in llama.cpp's forms.
nlohmann::json llamacpp_prompt_field();

// Most tokens to generate: n_predict or its other name, max_tokens; -1 is what fits the context.
int64_t most_llamacpp_tokens(const nlohmann::ordered_json& body);
// Converts a checked body to the fields of read_generation(). Errors: kInvalidArgument (a field
// that cannot be honoured).
Result<nlohmann::ordered_json> params_of_llamacpp(const nlohmann::ordered_json& body,
                                                  const ServedModel& model);
// Applies "samplers": neutralizes the fields of the sampling steps that the list leaves out.
void read_samplers(const nlohmann::ordered_json& body, nlohmann::ordered_json& params);
// Converts "logit_bias" in all its forms to logit_bias and banned_token_ids.
Status read_bias(const nlohmann::ordered_json& body, const Tokenizer& tokenizer,
                 nlohmann::ordered_json& params);
// Returns the token lists of a prompt in any of its forms. several: set if the reply is a list. pictures:
// gets those of the first prompts, by prompt. Errors: kInvalidArgument (ids outside the vocabulary, pictures
// that are none or have no places), kContextOverflow (the text is certainly too long).
Result<std::vector<std::vector<TokenId>>> prompts_of_llamacpp(
    const nlohmann::ordered_json& prompt, const ServedModel& model, bool& several,
    std::vector<PromptPictures>& pictures);

// Returns "generation_settings": the effective parameters under llama.cpp's names. n_predict: as
// requested.
nlohmann::ordered_json llamacpp_settings(const SamplingParams& params, int64_t n_predict,
                                         bool stream);

// Renames a token's log-probability entry for post-sampling probabilities: prob and top_probs.
void name_as_probabilities(nlohmann::ordered_json& entry);

// Returns "timings" under llama.cpp's names. n_prompt: includes tokens from the cache.
nlohmann::ordered_json llamacpp_timings(const RequestStats& stats, int64_t n_prompt,
                                        int64_t n_tokens);

// Returns the parts of `reply` selected by `paths` ("timings/prompt_n"), each under its path.
nlohmann::ordered_json picked_fields(const nlohmann::ordered_json& reply,
                                     const std::vector<std::string>& paths);

}  // namespace penstock
