// penstock plan: computes the memory of weights and KV cache, and how many sequences fit. The KV
// cache of a sequence has 2 (K and V) x layers x KV heads x head dimension x tokens x bytes per
// value. With --spec: the gain of speculation; with flags of parallelism: that of several ranks; with
// --link-rate or --disk-rate: that of prefill on another machine; with --first-token: the time of a
// prompt.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>

#include "base/memory.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "cli/options/models.h"
#include "cli/planning/plan_gpu.h"
#include "cli/planning/plan_prompt.h"
#include "cli/planning/plan_ranks.h"
#include "cli/planning/plan_spec.h"
#include "cli/planning/plan_split.h"
#include "engine/open/tower_file.h"
#include "formats/weight_source.h"
#include "frontend/pictures/eyes.h"
#include "model/arch/read_config.h"
#include "model/load/stages.h"
#include "model/sources/synthetic.h"

namespace penstock {
namespace {

struct PlanCommand {
  explicit PlanCommand(CLI::App& app) : gpu(app), spec(app), ranks(app), split(app), prompt(app) {
    std::string names;
    for (const NamedShape& shape : named_shapes())
      names += (names.empty() ? "" : ", ") + std::string(shape.name);
    CLI::Option* model_option =
        app.add_option("-m,--model", model, "GGUF file, Hugging Face directory or name");
    app.add_option("--shape", shape, "a known shape instead of a file: " + names)
        ->excludes(model_option);
    app.add_option(
           "--mmproj", mmproj,
           "GGUF file of the vision tower (default: the model's own, or the file beside it)")
        ->type_name("FILE");
    app.add_option("-c,--tokens,--ctx-size", tokens,
                   "tokens per sequence (default: the model's limit)")
        ->check(CLI::PositiveNumber);
    app.add_option("--type", type, "encoding of the weights of a --shape")->capture_default_str();
    app.add_option("--kv-cache-dtype", kv_dtype, "f32, f16, bf16, int8, int4 or fp8")
        ->check(CLI::IsMember({"f32", "f16", "bf16", "int8", "int4", "fp8"}))
        ->capture_default_str();
    app.add_option("--mamba-ssm-cache-dtype", states,
                   "type of the states of recurrent layers: float32 or bfloat16")
        ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
        ->capture_default_str();
    app.add_option("--block-size", block_size, "tokens per block")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--memory", memory,
                   "memory to plan for, such as 24GiB (default: this machine's); with several "
                   "ranks that of each host");
    app.add_flag("--experts-offload", experts_offload,
                 "with experts in a file (see serve): they need not be in memory");
    app.add_flag("--json", json, "print one JSON object");
  }
  int run() const;

  std::string model, mmproj, shape, type = "bf16", kv_dtype = "f16", states = "float32", memory;
  int64_t tokens = 0;
  int block_size = 16;
  bool experts_offload = false, json = false;
  GpuPlan gpu;
  SpecPlan spec;
  RanksPlan ranks;
  SplitPlan split;
  PromptPlan prompt;
};

constexpr int64_t kTypicalTokens = 1024;  // length of a sequence for step times

KvDType parse_kv_dtype(const std::string& name) {
  if (name == "f32") return KvDType::kF32;
  if (name == "bf16") return KvDType::kBF16;
  if (name == "fp8") return KvDType::kF8;
  if (name == "int4") return KvDType::kI4;
  return name == "int8" ? KvDType::kI8 : KvDType::kF16;
}

CacheTypes types_of(const PlanCommand& command) {
  return {parse_kv_dtype(command.kv_dtype),
          command.states == "bfloat16" ? StateDType::kBF16 : StateDType::kF32};
}

struct Plan {
  std::string name;
  std::optional<GpuPlan::Outcome> gpu;
  std::optional<SplitPlan::Outcome> split;
  std::optional<PromptPlan::Outcome> prompt;
  ModelConfig config;
  int64_t weight_bytes = 0, offloaded_bytes = 0, token_bytes = 0, state_bytes = 0, tokens = 0,
          sequence_bytes = 0, memory = 0, n_sequences = 0;
  int64_t table_bytes = 0;  // tables of n-grams, which stay in their file
  std::optional<TowerMemory> tower;
  int64_t picture_bytes = 0;  // of rows of pictures that are kept
};

int64_t expert_parameters(const ModelConfig& c) {
  const auto n_layers =
      std::ranges::count_if(c.layers, [](const LayerConfig& layer) { return layer.moe; });
  return int64_t{n_layers} * (c.ffn.gated ? 3 : 2) * c.experts.count * c.expert_dim() *
         c.experts.ffn_dim;
}

Result<std::unique_ptr<WeightSource>> open_source(const PlanCommand& command) {
  if (!command.shape.empty()) return make_synthetic_source(command.shape, command.type);
  ASSIGN_OR_RETURN(const auto path, find_model(command.model));
  return open_weights(path);
}

Result<std::optional<GpuPlan::Outcome>> plan_gpu(const PlanCommand& command,
                                                 const ModelConfig& config,
                                                 int64_t sequence_bytes) {
  if (command.ranks.wanted()) {
    RETURN_IF_ERROR(command.gpu.check_unused("several ranks"));
    return std::optional<GpuPlan::Outcome>();
  }
  ASSIGN_OR_RETURN(const auto source, open_source(command));
  return command.gpu.plan(*source, config, sequence_bytes);
}

Result<PromptPlan::Outcome> plan_prompt(const PlanCommand& command, const Plan& plan,
                                        const CacheSpec& spec) {
  // All tokens of layers with windows, too: what is measured begins at any depth.
  const int64_t needed = plan.weight_bytes - plan.table_bytes + plan.state_bytes +
                         plan.token_bytes * (plan.tokens + command.block_size),
                free = available_memory();
  if (plan.tokens > plan.config.max_seq_len) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--first-token: expected at most the model's {} --tokens, got {}",
                  plan.config.max_seq_len, plan.tokens);
  }
  if (needed > free) {
    return errorf(ErrorCode::kResourceExhausted,
                  "--first-token: weights and the cache of {} --tokens: expected at most the {} of "
                  "memory that are free, got {}",
                  plan.tokens, format_bytes(static_cast<double>(free)),
                  format_bytes(static_cast<double>(needed)));
  }
  ASSIGN_OR_RETURN(const auto source, open_source(command));
  return command.prompt.plan(*source, spec, types_of(command).states,
                             static_cast<int>(plan.tokens));
}

Result<Plan> make_plan(const PlanCommand& command) {
  Plan plan;
  if (!command.shape.empty()) {
    ASSIGN_OR_RETURN(plan.config, config_from_shape(command.shape));
    double weight_size = 0;  // bytes
    if (const QuantTypeInfo* type = find_quant_type(command.type)) {
      weight_size = static_cast<double>(type->block_bytes) / type->block_size;
    } else {  // a mixture of encodings, or none
      ASSIGN_OR_RETURN(const int64_t bytes, synthetic_weight_bytes(plan.config, command.type));
      weight_size = static_cast<double>(bytes) / static_cast<double>(plan.config.n_parameters());
    }
    const auto bytes_of = [&](int64_t n) {
      return static_cast<int64_t>(static_cast<double>(n) * weight_size);
    };
    plan.weight_bytes = bytes_of(plan.config.n_parameters());
    plan.offloaded_bytes = bytes_of(expert_parameters(plan.config));
    plan.table_bytes = bytes_of(plan.config.ngrams.n_values());
    plan.name = command.shape + " " + command.type;
  } else {
    ASSIGN_OR_RETURN(const auto path, find_model(command.model));
    ASSIGN_OR_RETURN(const auto source, open_weights(path));
    ASSIGN_OR_RETURN(plan.config, read_config(*source));
    for (const TensorInfo& tensor : source->tensors())
      plan.weight_bytes += static_cast<int64_t>(tensor.bytes.size());
    auto tower = tower_memory(*source, command.mmproj);
    if (!tower && !command.mmproj.empty()) return tl::unexpected(std::move(tower).error());
    if (tower) plan.tower = *std::move(tower);
    if (plan.tower) {
      plan.picture_bytes = static_cast<int64_t>(Eyes::Limits().cache_bytes);
      if (plan.tower->apart) plan.weight_bytes += plan.tower->weight_bytes;
    }
    plan.offloaded_bytes = expert_bytes(*source, plan.config);
    plan.table_bytes = table_bytes(*source, plan.config);
    plan.name = model_label(command.model, path);
  }
  if (!command.experts_offload) plan.offloaded_bytes = 0;
  plan.offloaded_bytes += plan.table_bytes;
  if (command.experts_offload && plan.config.experts.count == 0) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "--experts-offload: {}: expected a mixture of experts, got architecture {} without any",
        plan.name, plan.config.arch);
  }
  plan.tokens = command.tokens > 0 ? command.tokens : plan.config.max_seq_len;
  const CacheSpec spec = plan.config.cache_spec(types_of(command), command.block_size);
  for (const KvLayerSpec& layer : spec.layers)
    plan.token_bytes += CacheSpec::token_bytes(layer, spec.dtype);
  plan.state_bytes = spec.state_bytes();
  plan.sequence_bytes = sequence_bytes(spec, plan.tokens);
  plan.memory = total_memory();
  if (!command.memory.empty()) {
    if (std::string wrong = parse_bytes(command.memory, plan.memory); !wrong.empty()) {
      return errorf(ErrorCode::kInvalidArgument, "--memory: {}", wrong);
    }
  }
  ASSIGN_OR_RETURN(plan.gpu, plan_gpu(command, plan.config, plan.sequence_bytes));
  if (command.split.wanted()) {
    ASSIGN_OR_RETURN(plan.split, command.split.plan(plan.tokens, plan.sequence_bytes));
  }
  if (command.prompt.wanted) {
    ASSIGN_OR_RETURN(plan.prompt, plan_prompt(command, plan, spec));
  }
  const int64_t left = std::max<int64_t>(
      0, plan.memory - (plan.weight_bytes - plan.offloaded_bytes) - plan.picture_bytes);
  plan.n_sequences = left / std::max<int64_t>(1, plan.sequence_bytes);
  return plan;
}

// Returns a text such as "2 x 24 layers x 8 heads x 128", with a term for each kind of layer with K
// and V.
std::string cached_values(const ModelConfig& config) {
  // (KV heads, head dimension) -> number of layers; of indexers, which have no values, apart
  std::map<std::pair<int, int>, int> kinds, keys;
  const bool in_keys = config.latent.kv_rank > 0 || config.compressed.query_rank > 0;
  for (const KvLayerSpec& layer : config.cache_spec(KvDType::kF16, 16).layers) {
    const bool of_index = layer.values_in_keys > 0 && !in_keys;
    if (layer.n_kv_heads > 0) ++(of_index ? keys : kinds)[{layer.n_kv_heads, layer.head_dim}];
  }
  std::string all, of_indexers;
  for (const auto& [heads, n_layers] : keys)
    of_indexers += fmt::format(" + {} layers x {}", n_layers, heads.second);
  for (const auto& [heads, n_layers] : kinds) {
    const std::string size = in_keys ? fmt::format("{}", heads.second)
                                     : fmt::format("{} heads x {}", heads.first, heads.second);
    all += fmt::format("{}{} layers x {}", all.empty() ? "" : " + ", n_layers, size);
  }
  if (in_keys) return all;
  return (kinds.size() > 1 ? fmt::format("2 x ({})", all) : "2 x " + all) + of_indexers;
}

nlohmann::json plan_json(const Plan& plan, const std::string& kv_dtype, const std::string& states) {
  nlohmann::json object = {{"model", plan.name},
                           {"parameters", plan.config.n_parameters()},
                           {"weight_bytes", plan.weight_bytes},
                           {"offloaded_bytes", plan.offloaded_bytes},
                           {"table_bytes", plan.table_bytes},
                           {"tower_bytes", plan.tower ? plan.tower->weight_bytes : 0},
                           {"picture_bytes", plan.picture_bytes},
                           {"kv_cache_dtype", kv_dtype},
                           {"kv_bytes_per_token", plan.token_bytes},
                           {"mamba_ssm_cache_dtype", states},
                           {"state_bytes_per_sequence", plan.state_bytes},
                           {"tokens", plan.tokens},
                           {"kv_bytes_per_sequence", plan.sequence_bytes},
                           {"memory_bytes", plan.memory},
                           {"sequences_that_fit", plan.n_sequences}};
  if (plan.gpu) object["gpu"] = GpuPlan::json(*plan.gpu);
  if (plan.split) object["split"] = SplitPlan::json(*plan.split);
  if (plan.prompt) object["prompt"] = PromptPlan::json(*plan.prompt);
  return object;
}

int PlanCommand::run() const {
  if (prompt.wanted && (spec.wanted || ranks.wanted() || experts_offload)) {
    return fail(
        {ErrorCode::kInvalidArgument,
         "--first-token: expected no --spec, --experts-offload or several ranks beside it"});
  }
  if (spec.wanted) {
    const Status done = spec.run(model, shape, type, json);
    return done ? kExitOk : fail(done.error());
  }
  const auto plan = make_plan(*this);
  if (!plan) return fail(plan.error());
  const ModelConfig& config = plan->config;
  if (ranks.wanted() && experts_offload) {
    return fail({ErrorCode::kInvalidArgument,
                 "--experts-offload: plans of several ranks count all weights; leave it out"});
  }
  if (ranks.wanted()) {
    const double bytes_per_weight =
        static_cast<double>(plan->weight_bytes) / static_cast<double>(config.n_parameters());
    const int64_t length = tokens > 0 ? tokens : std::min<int64_t>(plan->tokens, kTypicalTokens);
    const PlannedModel planned{plan->name, config,          bytes_per_weight,
                               length,     types_of(*this), block_size};
    const Status done = ranks.run(planned, memory.empty() ? 0 : plan->memory, json);
    return done ? kExitOk : fail(done.error());
  }
  if (json) {
    fmt::print("{}\n", plan_json(*plan, kv_dtype, states).dump());
    return kExitOk;
  }
  fmt::print("{}: {:.2f} B parameters, weights {}\n", plan->name,
             static_cast<double>(config.n_parameters()) / 1e9,
             format_bytes(static_cast<double>(plan->weight_bytes)));
  if (plan->tower) {
    fmt::print("of these the tower      {} ({}); rows of pictures that are kept take {} more\n",
               format_bytes(static_cast<double>(plan->tower->weight_bytes)), plan->tower->family,
               format_bytes(static_cast<double>(plan->picture_bytes)));
  }
  if (plan->table_bytes > 0)
    fmt::print(
        "tables of n-grams       {}, of which a token reads {} rows: they stay in their file\n",
        format_bytes(static_cast<double>(plan->table_bytes)), config.ngrams.n_rows());
  if (experts_offload) {
    fmt::print(
        "experts in a file       {}; in memory {}, and of the experts what there is room for\n",
        format_bytes(static_cast<double>(plan->offloaded_bytes - plan->table_bytes)),
        format_bytes(static_cast<double>(plan->weight_bytes - plan->offloaded_bytes)));
  }
  fmt::print("KV cache per token      {} x {} = {}\n", cached_values(config), kv_dtype,
             format_bytes(static_cast<double>(plan->token_bytes)));
  if (plan->state_bytes > 0) {
    fmt::print(
        "state per sequence      {} layers, {} ({}); as much again for each prefix that is kept\n",
        std::ranges::count_if(std::views::iota(0, config.n_layers),
                              [&](int layer) { return config.state_values_of(layer) > 0; }),
        format_bytes(static_cast<double>(plan->state_bytes)),
        states == "auto" ? "float32" : states);
  }
  fmt::print("one sequence of {:<7} {}\n", plan->tokens,
             format_bytes(static_cast<double>(plan->sequence_bytes)));
  fmt::print("sequences that fit      {} in {} (memory less weights{})\n", plan->n_sequences,
             format_bytes(static_cast<double>(plan->memory)),
             experts_offload ? " without those experts; what sequences take, experts lose" : "");
  if (plan->gpu) GpuPlan::print(*plan->gpu);
  if (plan->split) split.print(*plan->split);
  if (plan->prompt) PromptPlan::print(*plan->prompt);
  return kExitOk;
}

}  // namespace

Action add_plan(CLI::App& app) {
  auto command = std::make_shared<PlanCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
