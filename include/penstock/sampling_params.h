// Sampling parameters of a request. Names and defaults follow vLLM's SamplingParams where it has
// the field, llama.cpp's sampler names elsewhere. visit() is the one list from which JSON, the CLI
// flags and the docs are made, and the one place that gives the range of a field.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/structured_outputs.h"
#include "penstock/types.h"

namespace penstock {

struct SamplingParams {
  int n = 1;                 // sequences per prompt
  int max_tokens = 16;       // 0 only with prompt_logprobs
  int min_tokens = 0;        // no end-of-sequence before this many tokens
  float temperature = 1.0f;  // below 1e-5 means greedy
  int top_k = 0;             // 0 or -1 = all
  float top_p = 1.0f;        // 0 means greedy
  float min_p = 0.0f;
  float typical_p = 1.0f;           // Meister et al. 2022
  float repetition_penalty = 1.0f;  // Keskar et al. 2019, over prompt and output
  float presence_penalty = 0.0f;    // over output
  float frequency_penalty = 0.0f;   // over output
  // 0 to 4096: all three look at so many last tokens of prompt and output; -1: at all, as above
  int penalty_last_n = -1;
  // 0 = off; "don't repeat yourself" penalty of repeated suffixes
  float dry_multiplier = 0.0f;
  float dry_base = 1.75f;
  int dry_allowed_length = 2;
  int dry_penalty_last_n = -1;  // -1 = whole context
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  float xtc_probability = 0.0f;  // 0 = off; exclude top choices
  float xtc_threshold = 0.1f;
  int mirostat = 0;  // 0 off, 1, 2; Basu et al. 2021
  float mirostat_tau = 5.0f;
  float mirostat_eta = 0.1f;
  // the n best of beam_width beams; nothing is drawn
  bool use_beam_search = false;
  int beam_width = 4;  // at least n
  // beams are ranked by log-probability / length^length_penalty
  float length_penalty = 1.0f;
  // stop beams as soon as beam_width of them have ended
  bool early_stopping = false;
  // the same seed gives the same tokens whatever else runs
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;  // at most 1,024, of 16 KB together
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  std::vector<std::pair<TokenId, float>> logit_bias;  // added to the logit, clamped to [-100, 100]
  std::vector<TokenId> allowed_token_ids;             // empty = all
  std::vector<TokenId> banned_token_ids;
  // token sequences that must never be completed
  std::vector<std::string> bad_words;
  // alternatives per output token; -1 = whole vocabulary
  std::optional<int> logprobs;
  std::optional<int> prompt_logprobs;  // alternatives per prompt token
  // constraint on the text; not visited by visit()
  // the log-probabilities of `logprobs` are those of the distribution that the token was drawn from,
  // after penalties, masks and filters, and alternatives only what it leaves; not visited by visit()
  bool processed_logprobs = false;
  std::optional<StructuredOutputs> structured_outputs;

  // Range of the numbers that a field may take; never NaN.
  struct Range {
    static constexpr double kInfinity = std::numeric_limits<double>::infinity();
    double min = -kInfinity, max = kInfinity;
    bool above_min = false;  // min itself is excluded

    static constexpr Range above(double min, double max) { return {min, max, true}; }
    constexpr bool contains(double x) const {
      return x >= min && x <= max && !(above_min && x == min);
    }
    constexpr bool limited() const { return min > -kInfinity || max < kInfinity; }
  };

  // Calls v(name, field, help, range) for every field, in this order. Self is SamplingParams or
  // const SamplingParams.
  template <class Self, class V>
  static void visit(Self& p, V&& v) {
    constexpr double kMost = std::numeric_limits<int>::max();
    constexpr Range kAny, kCount = {0, kMost}, kAllOrCount = {-1, kMost};
    v("n", p.n, "sequences to generate per prompt", Range{1, 1024});
    v("max_tokens", p.max_tokens, "most tokens to generate", kCount);
    v("min_tokens", p.min_tokens, "fewest tokens before the end-of-sequence token is allowed",
      kCount);
    v("temperature", p.temperature,
      "flattens (> 1) or sharpens (< 1) the distribution; 0 is greedy", Range{0, 1e6});
    v("top_k", p.top_k, "keep the k most likely tokens; 0 keeps all", kAllOrCount);
    v("top_p", p.top_p, "keep the smallest set of tokens whose probability reaches p; 0 is greedy",
      Range{0, 1});
    v("min_p", p.min_p, "drop tokens less likely than this fraction of the most likely one",
      Range{0, 1});
    v("typical_p", p.typical_p, "keep locally typical tokens up to this mass", Range::above(0, 1));
    v("repetition_penalty", p.repetition_penalty,
      "divides (multiplies) positive (negative) logits of seen tokens", Range::above(0, 1e6));
    v("presence_penalty", p.presence_penalty,
      "subtracted once from the logit of every generated token", Range{-2, 2});
    v("frequency_penalty", p.frequency_penalty,
      "subtracted per occurrence from the logit of generated tokens", Range{-2, 2});
    v("penalty_last_n", p.penalty_last_n,
      "last tokens of prompt and output that these three look at; -1 is all", Range{-1, 4096});
    v("dry_multiplier", p.dry_multiplier,
      "strength of the DRY penalty on repeated sequences; 0 is off", Range{0, 1e6});
    v("dry_base", p.dry_base, "growth of the DRY penalty per repeated token", Range{1, 1e6});
    v("dry_allowed_length", p.dry_allowed_length, "repeats up to this length are free", kCount);
    v("dry_penalty_last_n", p.dry_penalty_last_n, "context scanned for repeats; -1 is all of it",
      kAllOrCount);
    v("dry_sequence_breakers", p.dry_sequence_breakers, "strings that end a repeated sequence",
      kAny);
    v("xtc_probability", p.xtc_probability, "chance of excluding the top choices at a step",
      Range{0, 1});
    v("xtc_threshold", p.xtc_threshold, "probability above which a token counts as a top choice",
      Range{0, 1});
    v("mirostat", p.mirostat, "0 off, 1 or 2: keep surprise at mirostat_tau", Range{0, 2});
    v("mirostat_tau", p.mirostat_tau, "target surprise in bits", Range{0, 1000});
    v("mirostat_eta", p.mirostat_eta, "learning rate of mirostat", Range{0, 1000});
    v("use_beam_search", p.use_beam_search,
      "return the n best of beam_width beams instead of drawing", kAny);
    v("beam_width", p.beam_width, "beams that are followed at once", Range{1, 256});
    v("length_penalty", p.length_penalty,
      "beams are ranked by log-probability / length to this power", Range{-100, 100});
    v("early_stopping", p.early_stopping, "stop as soon as beam_width beams have ended", kAny);
    v("seed", p.seed, "random seed; the same seed gives the same tokens", kAny);
    v("stop", p.stop, "strings that end the text", kAny);
    v("stop_token_ids", p.stop_token_ids, "token ids that end the text", kAny);
    v("ignore_eos", p.ignore_eos, "go on after the end-of-sequence token", kAny);
    v("include_stop_str_in_output", p.include_stop_str_in_output,
      "keep the stop string in the text", kAny);
    v("skip_special_tokens", p.skip_special_tokens, "leave special tokens out of the text", kAny);
    v("logit_bias", p.logit_bias, "token id to bias added to its logit", kAny);
    v("allowed_token_ids", p.allowed_token_ids, "only these tokens may be generated", kAny);
    v("banned_token_ids", p.banned_token_ids, "these tokens are never generated", kAny);
    v("bad_words", p.bad_words, "words that are never generated", kAny);
    v("logprobs", p.logprobs,
      "return this many most likely alternatives per token; -1 is the vocabulary", kAllOrCount);
    v("prompt_logprobs", p.prompt_logprobs, "the same for the tokens of the prompt", kAllOrCount);
  }
};

}  // namespace penstock
