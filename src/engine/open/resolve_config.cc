// Validation of an engine's configuration, and its automatic values.
#include <algorithm>
#include <charconv>

#include "base/memory.h"
#include "draft/drafters.h"
#include "engine/open/open.h"
#include "engine/ranks/rank_worker.h"
#include "engine/store/kv_store.h"
#include "parallel/host_cpus.h"

namespace penstock {

int spec_length(const std::string& text) {
  if (text == "auto" || text.empty()) return 0;
  int length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  return error == std::errc() && end == text.data() + text.size() && length >= 1 &&
                 length <= kMaxDraftNodes
             ? length
             : -1;
}

namespace {

constexpr int kMaxEngines = 64;

struct Preset {
  const char* name;
  int max_num_seqs;
  int max_num_batched_tokens;
  double memory_utilization;
};

constexpr Preset kPresets[] = {
    {"", 64, 2048, 0.85},
    {"chat", 32, 4096, 0.70},
    {"batch", 256, 32768, 0.95},
    {"hybrid", 128, 16384, 0.85},
};

constexpr double kDeviceMemoryUtilization = 0.9;  // share of a device's memory, without a preset

Status check_role(const EngineConfig& c) {
  if (c.role != "both" && c.role != "prefill" && c.role != "decode") {
    return errorf(ErrorCode::kInvalidArgument, "role: expected prefill, decode or both, got '{}'",
                  c.role);
  }
  if (c.role == "both") return {};
  const auto store = parse_kv_store(c.kv_store);
  if (store && store->is_shared()) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "role: {} needs a kv_store that both sides share (a folder, or redis://HOST), got "
                "{}",
                c.role, store ? "memory alone" : "none");
}

Status check_config(const EngineConfig& c) {
  const auto expect = [](bool ok, const char* name, const char* expected, auto got) -> Status {
    if (ok) return {};
    return errorf(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", name, expected, got);
  };
  RETURN_IF_ERROR(
      expect(c.block_size >= 1 && c.block_size <= 1024, "block_size", "1 to 1024", c.block_size));
  RETURN_IF_ERROR(expect(c.max_num_seqs >= 1 && c.max_num_seqs <= 65536, "max_num_seqs",
                         "1 to 65536", c.max_num_seqs));
  RETURN_IF_ERROR(
      expect(c.max_loras >= 1 && c.max_loras <= 1024, "max_loras", "1 to 1024", c.max_loras));
  RETURN_IF_ERROR(expect(c.max_lora_rank >= 1 && c.max_lora_rank <= 4096, "max_lora_rank",
                         "1 to 4096", c.max_lora_rank));
  RETURN_IF_ERROR(expect(c.max_num_batched_tokens >= c.max_num_seqs, "max_num_batched_tokens",
                         "at least max_num_seqs", c.max_num_batched_tokens));
  RETURN_IF_ERROR(expect(c.max_model_len >= 0, "max_model_len", "a number >= 0", c.max_model_len));
  RETURN_IF_ERROR(expect(c.thread_weight >= 0.01 && c.thread_weight <= 100, "thread_weight",
                         "0.01 to 100", c.thread_weight));
  RETURN_IF_ERROR(check_ranks(c));
  RETURN_IF_ERROR(expect(c.data_parallel_size >= 0 && c.data_parallel_size <= kMaxEngines,
                         "data_parallel_size", fmt::format("0 to {}", kMaxEngines).c_str(),
                         c.data_parallel_size));
  if (c.data_parallel_size > 1 && mpi_place()) {
    return errorf(ErrorCode::kUnsupported,
                  "data_parallel_size {}: ranks that MPI has started are of one engine",
                  c.data_parallel_size);
  }
  RETURN_IF_ERROR(expect(c.threads >= 0 && c.threads <= 4096, "threads", "0 to 4096", c.threads));
  RETURN_IF_ERROR(expect(c.prefill_chunk >= 0, "prefill_chunk", "a number >= 0", c.prefill_chunk));
  RETURN_IF_ERROR(expect(c.state_snapshot_interval >= 0, "state_snapshot_interval",
                         "a number of tokens >= 0", c.state_snapshot_interval));
  RETURN_IF_ERROR(expect(c.expert_cache_memory >= -1, "expert_cache_memory",
                         "a number of bytes >= 0, or -1", c.expert_cache_memory));
  RETURN_IF_ERROR(expect(c.kv_cache_memory >= 0, "kv_cache_memory", "a number of bytes >= 0",
                         c.kv_cache_memory));
  RETURN_IF_ERROR(expect(c.memory_utilization > 0 && c.memory_utilization <= 1,
                         "memory_utilization", "a number in (0, 1]", c.memory_utilization));
  RETURN_IF_ERROR(expect(c.kv_layout == "paged" || c.kv_layout == "contiguous", "kv_layout",
                         "paged or contiguous", c.kv_layout));
  if (!c.kv_store.empty()) {
    ASSIGN_OR_RETURN(const KvStoreSpec store, parse_kv_store(c.kv_store));
    RETURN_IF_ERROR(
        expect(store.memory_bytes <= total_memory(), "kv_store",
               fmt::format("at most the {} bytes of this machine's memory", total_memory()).c_str(),
               store.memory_bytes));
    // The value is not shown: a Redis's URL may have a password.
    RETURN_IF_ERROR(expect(c.enable_prefix_caching && c.kv_layout == "paged", "kv_store",
                           "prefix caching and the paged layout beside it", "one without"));
  }
  RETURN_IF_ERROR(check_role(c));
  RETURN_IF_ERROR(
      expect(c.prefix_history >= 0, "prefix_history", "a number of tokens >= 0", c.prefix_history));
  RETURN_IF_ERROR(expect(c.max_tokens_per_batch >= 0, "max_tokens_per_batch", "a number >= 0",
                         c.max_tokens_per_batch));
  RETURN_IF_ERROR(expect(c.max_queued_requests >= 1, "max_queued_requests", "at least 1",
                         c.max_queued_requests));
  RETURN_IF_ERROR(
      expect(spec_length(c.spec_length) >= 0, "spec_length", "auto or 1 to 63", c.spec_length));
  RETURN_IF_ERROR(
      expect(c.spec_exit_layer >= 0, "spec_exit_layer", "a number >= 0", c.spec_exit_layer));
  RETURN_IF_ERROR(expect(c.draft_model.empty() || c.spec.empty() || c.spec == "draft",
                         "draft_model", "spec draft beside it", c.spec));
  RETURN_IF_ERROR(expect(c.spec_corpus.empty() || c.spec == "ngram", "spec_corpus",
                         "spec ngram beside it", c.spec));
  return {};
}

}  // namespace

std::string backend_of(const EngineConfig& c) {
  const bool automatic = c.backend.empty() || c.backend == "auto";
  const bool alone =
      c.tensor_parallel_size == 1 && c.pipeline_parallel_size == 1 && c.data_parallel_size == 1;
  return automatic && !alone ? "cpu" : choose_backend(c.backend);
}

Result<EngineConfig> resolve_preset(EngineConfig config) {
  const auto* preset =
      std::ranges::find_if(kPresets, [&](const Preset& row) { return config.preset == row.name; });
  if (preset == std::end(kPresets)) {
    return errorf(ErrorCode::kInvalidArgument, "preset: expected chat, batch or hybrid, got '{}'",
                  config.preset);
  }
  if (config.max_num_seqs == 0) config.max_num_seqs = preset->max_num_seqs;
  if (config.max_num_batched_tokens == 0) {
    config.max_num_batched_tokens = std::max(preset->max_num_batched_tokens, config.max_num_seqs);
  }
  if (config.data_parallel_size == 0)
    config.data_parallel_size = mpi_place() ? 1 : n_nodes(host_cpus());
  config.backend = backend_of(config);
  if (config.memory_utilization == 0) {
    const bool of_device = config.backend.starts_with("cuda") && config.preset.empty();
    config.memory_utilization = of_device ? kDeviceMemoryUtilization : preset->memory_utilization;
  }
  if (config.max_batch_size == 0) config.max_batch_size = config.max_num_seqs;
  if (config.spec.empty() && !config.draft_model.empty()) config.spec = "draft";
  RETURN_IF_ERROR(check_config(config));
  return config;
}

}  // namespace penstock
