#include "engine/requests/metrics_recorder.h"

#include <algorithm>

namespace penstock {

void set_ranks(std::span<const CommunicatorUse> ranks, Metrics& metrics) {
  static_assert(kMaxMetricRanks >= kMaxRanks);
  for (PerRank* one :
       {static_cast<PerRank*>(&metrics.rank_calls), static_cast<PerRank*>(&metrics.rank_bytes),
        static_cast<PerRank*>(&metrics.rank_seconds),
        static_cast<PerRank*>(&metrics.rank_resident_memory_bytes)})
    one->n = static_cast<int>(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    metrics.rank_calls.values[rank] = static_cast<double>(ranks[rank].calls);
    metrics.rank_bytes.values[rank] = static_cast<double>(ranks[rank].bytes);
    metrics.rank_seconds.values[rank] = ranks[rank].seconds;
    metrics.rank_resident_memory_bytes.values[rank] = static_cast<double>(ranks[rank].memory_bytes);
  }
}

void set_store(KvStore& store, Metrics& metrics) {
  const BlockLoader::Counts read = store.loader().counts();
  const BlockWriter::Counts written = store.writer().counts();
  const auto set = [](Counter& counter, int64_t value) {
    counter.value = static_cast<double>(value);
  };
  set(metrics.kv_store_queries, read.queries);
  set(metrics.kv_store_misses, read.misses);
  set(metrics.kv_store_refusals, read.refused);
  set(metrics.kv_store_followed, read.followed);
  set(metrics.kv_store_lost, read.lost);
  set(metrics.kv_store_damaged_blocks, read.damaged);
  set(metrics.kv_store_read_blocks, read.blocks);
  set(metrics.kv_store_read_bytes, read.bytes);
  set(metrics.kv_store_written_blocks, written.blocks);
  set(metrics.kv_store_written_bytes, written.bytes);
  set(metrics.kv_store_dropped_blocks, written.dropped);
}

void MetricsRecorder::note_scheduled(const Running& sequence, double time) {
  metrics_.prompt_tokens.add(sequence.n_prompt);
  metrics_.prompt_tokens_cached.add(sequence.n_cached);
  const PrefixUse& use = sequence.stats.prefix;
  metrics_.prompt_tokens_from_memory.add(use.memory_tokens);
  metrics_.prompt_tokens_from_store.add(use.store_tokens);
  metrics_.kv_store_wait_seconds.add(use.load_seconds);
  metrics_.request_queue_time_seconds.observe(time - sequence.request->submitted);
}

void MetricsRecorder::note_first_token(const Running& sequence, double time) {
  metrics_.time_to_first_token_seconds.observe(time - sequence.request->submitted);
  metrics_.request_prefill_time_seconds.observe(time - sequence.first_scheduled);
}

void MetricsRecorder::note_token(Running& sequence, double time) {
  metrics_.generation_tokens.add();
  if (sequence.first_token < 0) {
    sequence.first_token = time;
    note_first_token(sequence, time);
  } else {
    const double gap = time - sequence.last_token;
    sequence.stats.max_inter_token_seconds = std::max(sequence.stats.max_inter_token_seconds, gap);
    metrics_.inter_token_latency_seconds.observe(gap);
  }
  sequence.last_token = time;
}

void MetricsRecorder::note_end(const Running& sequence, FinishReason reason, double time) {
  switch (reason) {
    case FinishReason::kStop: metrics_.request_success_stop.add(); break;
    case FinishReason::kLength: metrics_.request_success_length.add(); break;
    case FinishReason::kError: metrics_.request_success_error.add(); break;
    default: metrics_.request_success_abort.add(); break;
  }
  metrics_.e2e_request_latency_seconds.observe(time - sequence.request->submitted);
  metrics_.request_decode_time_seconds.observe(sequence.stats.decode_seconds);
  metrics_.request_prompt_tokens.observe(sequence.stats.prompt_tokens);
  metrics_.request_generation_tokens.observe(sequence.stats.completion_tokens);
  if (sequence.first_scheduled >= 0) {
    metrics_.request_inference_time_seconds.observe(time - sequence.first_scheduled);
    metrics_.request_prefill_kv_computed_tokens.observe(sequence.stats.prompt_tokens -
                                                        sequence.stats.cached_tokens);
  }
  if (sequence.stats.completion_tokens > 1) {
    metrics_.request_time_per_output_token_seconds.observe(sequence.stats.decode_seconds /
                                                           (sequence.stats.completion_tokens - 1));
  }
  if (sequence.request->n_open > 1) return;
  int longest = 0;
  for (const auto& each : sequence.request->sequences)
    longest = std::max(longest, each->n_tokens() - each->n_prompt);
  metrics_.request_max_num_generation_tokens.observe(longest);
  metrics_.request_params_n.observe(sequence.spec().params.n);
  metrics_.request_params_max_tokens.observe(sequence.spec().params.max_tokens);
}

void MetricsRecorder::note_draft(int n_proposed, int n_accepted) {
  metrics_.spec_decode_num_drafts.add();
  metrics_.spec_decode_num_draft_tokens.add(n_proposed);
  metrics_.spec_decode_num_accepted_tokens.add(n_accepted);
  for (int i = 0; i < n_accepted; ++i) metrics_.spec_decode_num_accepted_tokens_per_pos.add(i);
}

void MetricsRecorder::note_step(double seconds) {
  const std::lock_guard lock(mutex_);
  for (Metrics* metrics : {&metrics_, &published_}) {
    metrics->steps.add();
    metrics->step_seconds.add(seconds);
    metrics->iteration_seconds.observe(seconds);
  }
}

void MetricsRecorder::publish(const Scheduler& scheduler) {
  metrics_.num_requests_running.value = scheduler.n_running();
  metrics_.num_requests_waiting.value = scheduler.n_waiting();
  const BlockAllocator& allocator = scheduler.allocator();
  metrics_.kv_cache_waste_perc.value = scheduler.waste();
  metrics_.kv_cache_usage_perc.value =
      static_cast<double>(allocator.n_referenced()) / allocator.n_blocks();
  metrics_.prefix_cache_queries.value = static_cast<double>(scheduler.n_queried());
  metrics_.prefix_cache_hits.value = static_cast<double>(scheduler.n_hit());
  const std::lock_guard lock(mutex_);
  published_ = metrics_;
}

Metrics MetricsRecorder::published() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

}  // namespace penstock
