// Counters, gauges and histograms of an engine. visit() is the one list from which /metrics, JSON
// and bench reports are made.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace penstock {

struct Counter {
  double value = 0;  // only grows
  void add(double amount = 1) { value += amount; }
};

struct Gauge {
  double value = 0;
};

inline constexpr int kMaxHistogramBuckets = 32;

// counts[i] observations were <= bounds[i] and greater than the bound before; counts[n] is the
// rest.
struct Histogram {
  std::span<const double> bounds;  // ascending, static storage
  std::array<uint64_t, kMaxHistogramBuckets + 1> counts{};
  double sum = 0;
  uint64_t count = 0;

  void observe(double value, uint64_t times = 1) {
    size_t i = 0;
    while (i < bounds.size() && value > bounds[i]) ++i;
    counts[i] += times;
    sum += value * static_cast<double>(times);
    count += times;
  }
};

inline constexpr int kMaxPositions = 16;

// A counter per position; positions from kMaxPositions on count as the last one.
struct PositionCounter {
  std::array<double, kMaxPositions> values{};
  int n = 0;  // positions seen so far: 1 + the greatest
  void add(int position) {
    const int i = position < kMaxPositions ? position : kMaxPositions - 1;
    values[i] += 1;
    n = i + 1 > n ? i + 1 : n;
  }
};

inline constexpr int kMaxMetricRanks = 64;

// One value for each of the processes that share a model, by rank; empty when one process has the
// whole model.
struct PerRank {
  std::array<double, kMaxMetricRanks> values{};
  int n = 0;
};
struct RankCounter : PerRank {};
struct RankGauge : PerRank {};

// Upper bounds of histogram buckets, in seconds, tokens or sequences.
inline constexpr double kFirstTokenBounds[] = {.001, .005, .01, .02, .04, .06, .08, .1,
                                               .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                               20,   40,   80,  160, 640, 2560};
inline constexpr double kInterTokenBounds[] = {.001, .0025, .005, .01, .025, .05, .075, .1,
                                               .15,  .2,    .3,   .4,  .5,   .75, 1,    2.5,
                                               5,    7.5,   10,   20,  40,   80};
inline constexpr double kLatencyBounds[] = {.001, .002, .005, .01, .02, .05, .1,  .2,   .3,  .5,
                                            .8,   1,    1.5,  2,   2.5, 5,   10,  15,   20,  30,
                                            40,   50,   60,   120, 240, 480, 960, 1920, 7680};
inline constexpr double kTokenBounds[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                          1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
inline constexpr double kStepTokenBounds[] = {1,   8,    16,   32,   64,   128,   256,
                                              512, 1024, 2048, 4096, 8192, 16384, 32768};
inline constexpr double kCountBounds[] = {1, 2, 5, 10, 20};
inline constexpr double kBatchBounds[] = {1,  2,   4,   8,   16,  32,  48,  64,
                                          96, 128, 192, 256, 384, 512, 768, 1024};
inline constexpr double kCompileBounds[] = {.0001, .0002, .0005, .001, .002, .005, .01,
                                            .02,   .05,   .1,    .2,   .5,   1};
inline constexpr double kStepTimeBounds[] = {.00001, .00002, .00005, .0001, .0002, .0005,
                                             .001,   .002,   .005,   .01,   .02,   .05,
                                             .1,     .2,     .5,     1,     2,     5};

struct Metrics {
  Gauge num_requests_running, num_requests_waiting, kv_cache_usage_perc, kv_cache_waste_perc;
  Counter prompt_tokens, prompt_tokens_cached, prompt_tokens_from_memory, prompt_tokens_from_store,
      kv_store_wait_seconds, generation_tokens, prefix_cache_queries, prefix_cache_hits;
  Counter kv_store_queries, kv_store_misses, kv_store_refusals, kv_store_late;
  Counter kv_store_read_blocks, kv_store_read_bytes, kv_store_damaged_blocks;
  Counter kv_store_written_blocks, kv_store_written_bytes, kv_store_dropped_blocks,
      kv_store_unsettled, kv_store_followed, kv_store_lost;
  Counter num_preemptions, out_of_memory, steps, admission_rejections;
  Counter grammar_rows, grammar_mask_seconds, grammar_forced_tokens;
  Counter grammar_cache_queries, grammar_cache_hits, grammar_refusals;
  Counter spec_decode_num_drafts, spec_decode_num_draft_tokens, spec_decode_num_accepted_tokens;
  PositionCounter spec_decode_num_accepted_tokens_per_pos;
  Counter request_success_stop, request_success_length, request_success_abort,
      request_success_error;
  Counter expert_bytes_read, expert_choices, expert_cache_hits, expert_cache_moves;
  Counter step_seconds, schedule_seconds, forward_seconds, sample_seconds, draft_seconds;
  RankCounter rank_calls, rank_bytes, rank_seconds;
  RankGauge rank_resident_memory_bytes;
  Histogram time_to_first_token_seconds{kFirstTokenBounds},
      inter_token_latency_seconds{kInterTokenBounds};
  Histogram e2e_request_latency_seconds{kLatencyBounds}, request_queue_time_seconds{kLatencyBounds};
  Histogram request_prefill_time_seconds{kLatencyBounds},
      request_decode_time_seconds{kLatencyBounds};
  Histogram request_prompt_tokens{kTokenBounds}, request_generation_tokens{kTokenBounds};
  Histogram request_inference_time_seconds{kLatencyBounds};
  Histogram request_time_per_output_token_seconds{kInterTokenBounds};
  Histogram request_max_num_generation_tokens{kTokenBounds},
      request_prefill_kv_computed_tokens{kTokenBounds};
  Histogram request_params_n{kCountBounds}, request_params_max_tokens{kTokenBounds};
  Histogram iteration_tokens_total{kStepTokenBounds}, iteration_seconds{kStepTimeBounds};
  Histogram iteration_num_seqs{kBatchBounds};
  Histogram grammar_compile_seconds{kCompileBounds};

  // Calls v(name, metric, help) for every metric. Self is Metrics or const Metrics.
  template <class Self, class V>
  static void visit(Self& m, V&& v) {
    v("num_requests_running", m.num_requests_running, "sequences being computed");
    v("num_requests_waiting", m.num_requests_waiting, "sequences waiting for their turn");
    v("kv_cache_usage_perc", m.kv_cache_usage_perc, "share of the KV cache in use, 0 to 1");
    v("kv_cache_waste_perc", m.kv_cache_waste_perc,
      "share of the running sequences' blocks that holds no token, 0 to 1");
    v("prompt_tokens", m.prompt_tokens, "prompt tokens of the requests that started");
    v("prompt_tokens_cached", m.prompt_tokens_cached, "prompt tokens taken from the prefix cache");
    v("prompt_tokens_from_memory", m.prompt_tokens_from_memory, "of these, found in memory");
    v("prompt_tokens_from_store", m.prompt_tokens_from_store,
      "of these, read from the store of blocks");
    v("generation_tokens", m.generation_tokens, "tokens generated");
    v("prefix_cache_queries", m.prefix_cache_queries, "tokens looked up in the prefix cache");
    v("prefix_cache_hits", m.prefix_cache_hits, "tokens found in the prefix cache");
    v("num_preemptions", m.num_preemptions,
      "sequences that gave their blocks back and started over");
    v("spec_decode_num_drafts", m.spec_decode_num_drafts, "drafts checked by the target");
    v("spec_decode_num_draft_tokens", m.spec_decode_num_draft_tokens, "tokens in these drafts");
    v("spec_decode_num_accepted_tokens", m.spec_decode_num_accepted_tokens,
      "draft tokens that were kept");
    v("spec_decode_num_accepted_tokens_per_pos", m.spec_decode_num_accepted_tokens_per_pos,
      "draft tokens that were kept, by their place in the draft");
    v("grammar_rows", m.grammar_rows, "rows of logits that a grammar constrained");
    v("grammar_mask_seconds", m.grammar_mask_seconds,
      "time of all threads in making masks for them");
    v("grammar_cache_queries", m.grammar_cache_queries, "grammars that requests asked for");
    v("grammar_cache_hits", m.grammar_cache_hits, "of these, compiled or being compiled already");
    v("grammar_refusals", m.grammar_refusals, "grammars that were refused when they were compiled");
    v("grammar_forced_tokens", m.grammar_forced_tokens,
      "draft tokens that were kept and that a grammar had forced");
    v("out_of_memory", m.out_of_memory, "requests that ended with an error because memory ran out");
    v("kv_store_queries", m.kv_store_queries, "prompts looked up in the store of blocks");
    v("kv_store_misses", m.kv_store_misses, "of these, with no more blocks there than in memory");
    v("kv_store_refusals", m.kv_store_refusals,
      "of these, computed since reading was expected to take longer");
    v("kv_store_late", m.kv_store_late, "of these, whose blocks were not read in time");
    v("kv_store_wait_seconds", m.kv_store_wait_seconds,
      "time that requests have waited for the store before they started");
    v("kv_store_read_blocks", m.kv_store_read_blocks, "blocks read from the store");
    v("kv_store_read_bytes", m.kv_store_read_bytes, "their bytes");
    v("kv_store_damaged_blocks", m.kv_store_damaged_blocks,
      "blocks of the store that could not be read, or whose checksum was wrong");
    v("kv_store_written_blocks", m.kv_store_written_blocks,
      "blocks given to the store and written, or there already");
    v("kv_store_written_bytes", m.kv_store_written_bytes, "their bytes");
    v("kv_store_dropped_blocks", m.kv_store_dropped_blocks,
      "blocks that were not written: the store was slow or full");
    v("kv_store_unsettled", m.kv_store_unsettled,
      "prompts of role prefill that were answered while the store had not all their blocks");
    v("kv_store_followed", m.kv_store_followed,
      "prompts whose blocks were read while another server computed them");
    v("kv_store_lost", m.kv_store_lost,
      "of these, whose blocks did not all come in time: the rest was computed here");
    v("steps", m.steps, "engine steps");
    v("admission_rejections", m.admission_rejections,
      "requests refused because the queue was full");
    v("request_success_stop", m.request_success_stop,
      "sequences that ended by a stop token or string");
    v("request_success_length", m.request_success_length, "sequences that ended by length");
    v("request_success_abort", m.request_success_abort, "sequences that were cancelled");
    v("request_success_error", m.request_success_error, "sequences that failed");
    v("expert_bytes_read", m.expert_bytes_read,
      "bytes of offloaded experts that were not in memory when a step chose them");
    v("expert_choices", m.expert_choices,
      "choices, by tokens, of experts that lie in the host's memory beside a GPU");
    v("expert_cache_hits", m.expert_cache_hits, "those whose expert had a copy on the GPU");
    v("expert_cache_moves", m.expert_cache_moves, "experts copied to the GPU");
    v("step_seconds", m.step_seconds, "time in steps");
    v("rank_calls", m.rank_calls, "operations between the rank and others");
    v("rank_bytes", m.rank_bytes, "bytes that the rank has shown the others");
    v("rank_seconds", m.rank_seconds,
      "time of the rank in these operations, waiting for others included, not for a step to be "
      "told");
    v("rank_resident_memory_bytes", m.rank_resident_memory_bytes,
      "memory in use by the rank's process");
    v("schedule_seconds", m.schedule_seconds, "time in the scheduler and in bookkeeping");
    v("forward_seconds", m.forward_seconds, "time in the model");
    v("sample_seconds", m.sample_seconds, "time in the sampler");
    v("draft_seconds", m.draft_seconds, "time in the drafter");
    v("time_to_first_token_seconds", m.time_to_first_token_seconds, "submit to first token");
    v("inter_token_latency_seconds", m.inter_token_latency_seconds,
      "between two tokens of a sequence");
    v("e2e_request_latency_seconds", m.e2e_request_latency_seconds, "submit to last token");
    v("request_queue_time_seconds", m.request_queue_time_seconds, "submit to first scheduled");
    v("request_prefill_time_seconds", m.request_prefill_time_seconds,
      "first scheduled to first token");
    v("request_decode_time_seconds", m.request_decode_time_seconds, "first to last token");
    v("request_prompt_tokens", m.request_prompt_tokens, "prompt length");
    v("request_generation_tokens", m.request_generation_tokens, "completion length");
    v("request_inference_time_seconds", m.request_inference_time_seconds,
      "first scheduled to last token");
    v("request_time_per_output_token_seconds", m.request_time_per_output_token_seconds,
      "mean time between the tokens of a sequence");
    v("request_max_num_generation_tokens", m.request_max_num_generation_tokens,
      "longest completion of a request's sequences");
    v("request_prefill_kv_computed_tokens", m.request_prefill_kv_computed_tokens,
      "prompt tokens that were computed, not taken from the prefix cache");
    v("request_params_n", m.request_params_n, "sequences asked for");
    v("request_params_max_tokens", m.request_params_max_tokens, "max_tokens asked for");
    v("iteration_tokens_total", m.iteration_tokens_total,
      "tokens of a step: prompt tokens computed, and tokens generated");
    v("iteration_seconds", m.iteration_seconds, "duration of a step");
    v("iteration_num_seqs", m.iteration_num_seqs, "sequences in a step: the batch size");
    v("grammar_compile_seconds", m.grammar_compile_seconds, "time to compile a grammar");
  }
};

}  // namespace penstock
