#include "engine/requests/request_start.h"

#include <algorithm>
#include <string>

#include "base/text_hash.h"
#include "engine/requests/adapter_pool.h"
#include "engine/requests/given_input.h"
#include "engine/requests/prefix_salt.h"

namespace penstock {
namespace {

// rows of vocab_size floats that one step may need for one prompt
constexpr int kPromptLogprobChunk = 128;

std::shared_ptr<const SamplingSpec> make_spec(RequestState& state, const SequenceStart& start) {
  Request& request = state.request;
  SamplingParams& params = request.sampling;
  if (request.eos_token_ids.empty()) request.eos_token_ids = start.info.eos_token_ids;
  std::vector<TokenId> ends = request.eos_token_ids;
  ends.insert(ends.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  const uint64_t seed = params.seed ? *params.seed : seed_of_request(start.seed, state.id);
  return SamplingSpec::make(std::move(params),
                            {std::move(ends), std::move(request.bad_words),
                             std::move(request.dry_breakers), std::move(request.matcher),
                             std::move(request.thinking), std::move(request.logits_processor)},
                            seed, start.info.vocab_size);
}

std::unique_ptr<BeamSearch> make_beam_search(const SamplingParams& params,
                                             std::span<const TokenId> eos, int max_tokens) {
  BeamOptions options;
  options.width = params.beam_width;
  options.length_penalty = params.length_penalty;
  options.early_stopping = params.early_stopping;
  options.min_tokens = params.min_tokens;
  options.max_tokens = max_tokens;
  options.end_tokens = params.stop_token_ids;
  if (!params.ignore_eos)
    options.end_tokens.insert(options.end_tokens.end(), eos.begin(), eos.end());
  std::ranges::sort(options.end_tokens);
  const auto repeated = std::ranges::unique(options.end_tokens);
  options.end_tokens.erase(repeated.begin(), repeated.end());
  return std::make_unique<BeamSearch>(std::move(options));
}

}  // namespace

uint64_t tenant_of(const Request& request) {
  return request.tenant.empty() ? 0 : text_hash(request.tenant);
}

int n_sequences_of(const SamplingParams& params) {
  return params.use_beam_search ? params.beam_width : params.n;
}

void make_sequences(RequestState& state, const SequenceStart& start) {
  Request& request = state.request;
  // That of the whole text, also where its prompt only is computed here.
  const int reach = reach_of(request.prompt.size(), request.sampling.max_tokens, start.info);
  if (start.prompts_only) request.sampling.max_tokens = 0;
  state.spec = make_spec(state, start);
  const SamplingParams& params = state.spec->params;
  const int n_prompt = static_cast<int>(request.prompt.size());
  const int max_len = reach_of(request.prompt.size(), std::max(params.max_tokens, 1), start.info);
  const BlockHash root = root_hash(prefix_salt(request, reach, start.info));
  const uint64_t tenant = tenant_of(request);
  const std::shared_ptr<const PromptInput> input = prompt_input_of(request, start.info);
  const int n_sequences = n_sequences_of(params);
  for (int index = 0; index < n_sequences; ++index) {
    auto sequence = std::make_unique<Running>();
    sequence->id = SeqId(start.next_sequence);
    sequence->arrival_order = start.next_sequence++;
    sequence->tokens.reserve(max_len + 1);
    sequence->tokens = request.prompt;
    sequence->n_prompt = n_prompt;
    sequence->input = input;
    sequence->max_len = max_len;
    sequence->priority = request.priority;
    sequence->tenant = tenant;
    sequence->n_turns = n_sequences;
    sequence->arrival = state.submitted;
    sequence->root = root;
    sequence->adapter = state.adapter_slot;
    sequence->long_rope = takes_long_rope(reach, start.info);
    sequence->read_cache = request.read_prefix_cache && !(params.prompt_logprobs && index == 0);
    sequence->prefill_wait = request.prefill_wait_seconds;
    if (params.prompt_logprobs && index == 0) sequence->max_chunk = kPromptLogprobChunk;
    sequence->request = &state;
    sequence->index = index;
    sequence->sampler = SamplerState(state.spec, index, request.prompt, params.max_tokens);
    state.sequences.push_back(std::move(sequence));
  }
  if (params.use_beam_search)
    state.beams = make_beam_search(params, request.eos_token_ids, max_len - n_prompt);
  state.n_open = n_sequences;
}

}  // namespace penstock
