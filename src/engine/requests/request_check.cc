#include "engine/requests/request_check.h"

#include <algorithm>

#include "engine/requests/adapter_pool.h"
#include "engine/requests/context_limit.h"
#include "engine/requests/given_input.h"
#include "engine/requests/prefix_salt.h"
#include "sampling/exclusions.h"
#include "sampling/validate.h"

namespace penstock {
namespace {

// Checks that all beams can run at once: otherwise they would wait for each other forever.
Status check_beams(const Request& request, const EngineInfo& info, const EngineConfig& config,
                   const Scheduler& scheduler) {
  const int width = request.sampling.beam_width;
  const int max_len = reach_of(request.prompt.size(), request.sampling.max_tokens, info);
  if (config.kv_layout != "paged")
    return errorf(ErrorCode::kUnsupported, "use_beam_search: needs kv_layout paged, got {}",
                  config.kv_layout);
  if (width > config.max_num_seqs) {
    return errorf(ErrorCode::kInvalidArgument,
                  "beam_width: expected at most max_num_seqs, {}, got {}", config.max_num_seqs,
                  width);
  }
  if (!scheduler.fits(max_len, width)) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "beam_width: {} beams of up to {} tokens do not fit into the KV cache of {} tokens", width,
        max_len, int64_t{info.block_size} * info.n_blocks);
  }
  return {};
}

Status check_thinking(const ThinkingBudget& budget, int vocab_size) {
  const auto bad = [&](TokenId id) { return id < 0 || id >= vocab_size; };
  const bool has_marks = !budget.close.empty() && (budget.starts_inside || !budget.open.empty());
  if (budget.max_tokens < 0 || !has_marks || std::ranges::any_of(budget.open, bad) ||
      std::ranges::any_of(budget.close, bad)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "thinking_token_budget: expected a number >= 0 and marks of token ids in [0, {})",
                  vocab_size);
  }
  return {};
}

// Checks that the parameters leave the grammar at least one first token.
Status check_beginning(const Request& request, const EngineInfo& info) {
  const SamplingParams& params = request.sampling;
  const bool excludes = !params.banned_token_ids.empty() || !params.allowed_token_ids.empty() ||
                        !request.bad_words.empty();
  if (request.matcher == nullptr || !excludes) return {};
  const auto spec = SamplingSpec::make(
      params, {.bad_words = request.bad_words, .matcher = request.matcher}, 0, info.vocab_size);
  SamplerState state(spec, 0, {}, 0);
  std::string why =
      why_none_is_left({state, request.prompt, static_cast<int>(request.prompt.size())});
  if (!why.empty()) return make_error(ErrorCode::kInvalidArgument, std::move(why));
  return {};
}

// Checks that max_tokens suffices for the shortest text that the grammar completes.
Status check_ending(const Request& request, const EngineInfo& info) {
  const SamplingParams& params = request.sampling;
  const bool completes =
      params.structured_outputs && params.structured_outputs->complete_within_max_tokens;
  if (!completes || request.matcher == nullptr) return {};
  constexpr const char* kName = "complete_within_max_tokens";
  if (params.use_beam_search)
    return errorf(ErrorCode::kUnsupported, "{}: not with use_beam_search", kName);
  const int room =
      std::min(params.max_tokens, info.max_model_len - static_cast<int>(request.prompt.size()));
  const std::unique_ptr<TokenMatcher> matcher = request.matcher->fork();
  const int needed = matcher->tokens_to_end();
  if (needed <= room) return {};
  if (std::string why = matcher->failure(); !why.empty())
    return make_error(ErrorCode::kInvalidArgument, std::move(why));
  if (needed >= TokenMatcher::kUnknown)
    return errorf(ErrorCode::kUnsupported,
                  "{}: nobody knows how this text ends soonest: several items or property names "
                  "have to come that must all differ, whitespace_pattern demands white space or "
                  "has runs that may not end early, the grammar is too large to look through, or "
                  "the vocabulary has no tokens of single bytes",
                  kName);
  return errorf(ErrorCode::kInvalidArgument,
                "{}: the shortest text may take {} tokens, one for each byte and one for the end; "
                "max_tokens and the context leave {}",
                kName, needed, room);
}

// Checks a request whose prompt only is computed.
Status check_prompt_only(const SamplingParams& params) {
  const char* refused = params.use_beam_search   ? "use_beam_search"
                        : params.prompt_logprobs ? "prompt_logprobs"
                                                 : nullptr;
  if (refused == nullptr) return {};
  return errorf(
      ErrorCode::kUnsupported,
      "{}: not with role prefill, which computes prompts for others to go on from: ask one "
      "of role decode or both",
      refused);
}

}  // namespace

Status check_lists(const SamplingParams& params, const EngineInfo& info) {
  return validate_lists(params, info.vocab_size);
}

Status check_request(const Request& request, const EngineInfo& info, const EngineConfig& config,
                     const Scheduler& scheduler, const StepModel& model) {
  RETURN_IF_ERROR(validate(request.sampling, info.vocab_size));
  if (config.role == "prefill") RETURN_IF_ERROR(check_prompt_only(request.sampling));
  const auto check_ids = [&](const std::vector<TokenId>& ids, const char* what) -> Status {
    for (const TokenId id : ids) {
      if (id < 0 || id >= info.vocab_size) {
        return errorf(ErrorCode::kInvalidArgument, "{}: expected token ids in [0, {}), got {}",
                      what, info.vocab_size, id);
      }
    }
    return {};
  };
  if (!(request.prefill_wait_seconds >= 0 && request.prefill_wait_seconds <= kLongestPrefillWait))
    return errorf(ErrorCode::kInvalidArgument,
                  "prefill_wait_seconds: expected 0 to {} seconds, got {}", kLongestPrefillWait,
                  request.prefill_wait_seconds);
  RETURN_IF_ERROR(check_ids(request.prompt, "prompt"));
  RETURN_IF_ERROR(check_embeddings(
      request, info, std::max(1, config.max_num_batched_tokens - config.max_num_seqs)));
  RETURN_IF_ERROR(check_encoder_rows(request, info));
  RETURN_IF_ERROR(check_ids(request.dry_breakers, "dry_sequence_breakers"));
  RETURN_IF_ERROR(check_ids(request.eos_token_ids, "eos_token_ids"));
  for (const auto& word : request.bad_words) RETURN_IF_ERROR(check_ids(word, "bad_words"));
  if (request.thinking) RETURN_IF_ERROR(check_thinking(*request.thinking, info.vocab_size));
  if (request.adapter != nullptr && &request.adapter->model() != &model)
    return make_error(ErrorCode::kInvalidArgument,
                      "adapter: expected one that this engine has opened");
  RETURN_IF_ERROR(check_beginning(request, info));
  RETURN_IF_ERROR(check_ending(request, info));
  RETURN_IF_ERROR(
      check_prompt_fits(request.prompt.size(), request.sampling.max_tokens, info.max_model_len));
  if (request.sampling.use_beam_search) return check_beams(request, info, config, scheduler);
  return {};
}

}  // namespace penstock
