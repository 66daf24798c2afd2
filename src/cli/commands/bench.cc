// penstock bench: measures the speed of prefill and decoding, in tokens/s and as a share of the
// machine's limit (the roofline).
//
// Every figure is the median of --repetitions rounds of requests to the engine, after one warm-up
// round. Prompts are random tokens, or the lines of --prompts. The prefix cache is off: it would
// hold prompts of earlier rounds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/bench/bench_ladder.h"
#include "cli/bench/bench_round.h"
#include "cli/bench/bench_serve.h"
#include "cli/bench/bench_structured.h"
#include "cli/bench/roofline.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/console/svg.h"
#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "cli/options/models.h"
#include "engine/open/open.h"
#include "formats/weight_source.h"
#include "model/arch/read_config.h"
#include "model/sources/synthetic.h"
#include "ops/ops.h"
#include "quantize/write/output.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

// The median of ratios of pairs of measurements and its 95 % confidence interval, which assumes no
// distribution.
struct Ratio {
  double median = 0, low = 0, high = 0;
};

// The result of one benchmark, a line of the output.
struct Row {
  std::string test;  // name, such as "prefill 512" or "decode 128 @ 4096 x 8"
  double tokens_per_second = 0, low = 0, high = 0;
  // operations and bytes read per token, which determine the limit
  TokenOperations operations = {};
  double bytes = 0;
  double acceptance = -1, tokens_per_round = 1;  // of speculation; acceptance -1: no drafts
  // tokens/s in batch-invariant mode; 0 = not measured
  double invariant = 0;
  // ratio to decoding without speculation; 0: not measured
  Ratio to_plain;
};

double limit_share(const Row& row, const MachineLimits& limits) {
  const double limit = token_limit(limits, row.operations, row.bytes);
  return limit > 0 ? row.tokens_per_second / limit : 0;
}

struct BenchCommand {
  explicit BenchCommand(CLI::App& app) : ladder(app) {
    add_engine_flags(app, config);
    std::string names;
    for (const NamedShape& row : named_shapes())
      names += (names.empty() ? "" : ", ") + std::string(row.name);
    app.add_option(
        "--shape", shape,
        "random weights of a known shape instead of a file, SHAPE:N of its first N layers: " +
            names);
    app.add_option("--type", type,
                   "encoding of those weights: f32, bf16, q8_0, q4_0, q4_k, q4_k_m, int8, int4, "
                   "int3, nf4, w8a8, fp8, ternary, …")
        ->capture_default_str();
    app.add_option("--write-gguf", write_gguf, "write the model of --shape to this file and stop");
    lengths_option = app.add_option("-p,--prompt-tokens", prompt_tokens,
                                    "prompt lengths to measure prefill with; 0 is none")
                         ->delimiter(',')
                         ->capture_default_str();
    app.add_option("-n,--decode-tokens", decode_tokens, "tokens to decode; 0 is none")
        ->capture_default_str();
    app.add_option("-d,--depth", depths, "context lengths to decode after")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--batch", batches, "sequences decoding together")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("-r,--repetitions", repetitions, "measured repetitions")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--prompts", prompts_file,
                   "decode after the lines of this text file, in turn, instead of random tokens "
                   "(speculation on random tokens says nothing)")
        ->check(CLI::ExistingFile);
    app.add_flag("--invariant-price", invariant_price,
                 "measure each line in batch-invariant mode too, with an engine of its own (twice "
                 "the memory)");
    app.add_flag(
        "--beside-plain", beside_plain,
        "decode each round also without speculation, in turn, with an engine of its own (twice the "
        "memory), and give the median of the rounds' ratios");
    app.add_flag("--roofline,!--no-roofline", roofline,
                 "measure the machine's limits and show percentages");
    load.add_options(app);
    structured.add_options(app);
    app.add_flag("--json", json, "print one JSON object {model, limits, results}");
  }
  int run();
  int write() const;
  int serve(Engine& engine, const std::string& name) const;
  int run_structured();
  Result<std::unique_ptr<Engine>> open();
  // Additional engines for comparisons; null: not requested.
  struct Others {
    std::unique_ptr<Engine> invariant;  // same model, batch-invariant mode
    std::unique_ptr<Engine> plain;      // same model without speculation
  };
  Result<Others> open_others();
  Result<std::vector<Row>> measure(Engine& engine, const Others& others, LimitWatch& watch) const;

  EngineConfig config;
  std::string shape, type = "q8_0", write_gguf, prompts_file;
  std::vector<std::vector<TokenId>> prompts;    // tokenized lines of prompts_file
  const CLI::Option* lengths_option = nullptr;  // flag of prompt_tokens
  std::vector<int> prompt_tokens = {512}, depths = {0}, batches = {1};
  int decode_tokens = 128, repetitions = 5;
  // parameters of the output layer, which a prompt uses for its last token only
  int64_t output_parameters = 0;
  bool roofline = true, json = false, invariant_price = false, beside_plain = false;
  Ladder ladder;
  ServeLoad load;
  StructuredBench structured;
};

// Returns the tokens of every non-empty line of a text file. Errors: those of open_input();
// kInvalidArgument when there is no such line.
Result<std::vector<std::vector<TokenId>>> read_prompts(const std::string& path,
                                                       const WeightSource& source) {
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(source));
  ASSIGN_OR_RETURN(const auto file, open_input(path));
  std::vector<std::vector<TokenId>> prompts;
  for (std::string line; std::getline(*file, line);) {
    if (!line.empty()) prompts.push_back(tokenizer->encode(line));
  }
  if (prompts.empty())
    return errorf(ErrorCode::kInvalidArgument, "--prompts {}: expected lines of text, got none",
                  path);
  return prompts;
}

std::vector<std::vector<TokenId>> random_prompts(int vocab_size, int n_tokens, int n,
                                                 uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<TokenId> token(0, vocab_size - 1);
  std::vector<std::vector<TokenId>> prompts(n);
  for (auto& prompt : prompts) {
    for (int t = 0; t < n_tokens; ++t) prompt.push_back(token(random));
  }
  return prompts;
}

// Runs one request per prompt concurrently, each generating n_decode tokens.
Result<RoundReport> run_round(Engine& engine, std::vector<std::vector<TokenId>> prompts,
                              int n_decode) {
  std::vector<Request> requests;
  for (auto& prompt : prompts) requests.push_back(decode_request(std::move(prompt), n_decode));
  return run_round(engine, std::move(requests));
}

Row summarize(std::string test, std::vector<double> rates, const TokenOperations& operations,
              double bytes) {
  std::sort(rates.begin(), rates.end());
  return {std::move(test), rates[rates.size() / 2], rates.front(), rates.back(), operations, bytes};
}

// Uses order statistics: the interval's bounds are the ratios about 0.98 sqrt(n) places below and
// above the median of n ratios.
Ratio summarize(std::vector<double> ratios) {
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  const auto at = [&](double place) {
    return ratios[static_cast<size_t>(std::clamp(std::floor(place), 0.0, n - 1))];
  };
  const double reach = 0.98 * std::sqrt(n);
  return {at(n / 2), at(n / 2 - reach), at(n / 2 + reach)};
}

// Returns the operations of a token that attends to n_visible tokens: 2 per weight, and 4 per query
// dimension and visible token for the scores and the weighted sum of values. left_out: number of
// weights not to count, those of the output layer times the share of tokens without logits.
TokenOperations token_operations(const EngineInfo& info, double n_visible, double left_out) {
  const auto floats =
      static_cast<double>(std::min(info.active_float_parameters, info.active_parameters));
  const double integers = static_cast<double>(info.active_parameters) - floats;
  const double of_floats = std::min(left_out, floats);
  return {2.0 * (floats - of_floats) + 4.0 * static_cast<double>(info.attention_dims) * n_visible,
          2.0 * std::max(integers - (left_out - of_floats), 0.0)};
}

class Bench {
 public:
  // plain: engine without speculation, measured alternately with `engine`; null: none.
  Bench(const BenchCommand& command, Engine& engine, Engine* plain, LimitWatch& watch)
      : command_(command), engine_(engine), plain_(plain), watch_(watch) {}

  Result<Row> prefill(int n_tokens) {
    std::vector<double> rates;
    for (int i = 0; i <= command_.repetitions; ++i) {
      watch_.sample();
      ASSIGN_OR_RETURN(const auto round, run_round(engine_, random(n_tokens, 1, i), 1));
      if (i > 0) rates.push_back(n_tokens / round.stats.at(0).prefill_seconds);
    }
    watch_.sample();
    const EngineInfo& info = engine_.info();
    return summarize(
        fmt::format("prefill {}", n_tokens), rates,
        token_operations(info, n_tokens / 2.0,
                         static_cast<double>(command_.output_parameters) * (1 - 1.0 / n_tokens)),
        static_cast<double>(info.active_weight_bytes) / n_tokens);
  }

  Result<Row> decode(int depth, int batch) {
    const int n = command_.decode_tokens;
    const auto& prompts = command_.prompts;
    const int n_prompt = prompts.empty() ? std::max(depth, 1) : static_cast<int>(prompts[0].size());
    std::vector<double> rates, ratios;
    const Metrics before = engine_.metrics();
    for (int i = 0; i <= command_.repetitions; ++i) {
      watch_.sample();
      Engine* const turns[] = {i % 2 == 0 ? plain_ : &engine_, i % 2 == 0 ? &engine_ : plain_};
      double rate = 0, plain = 0;
      for (Engine* engine : turns) {
        if (engine == nullptr) continue;
        ASSIGN_OR_RETURN((engine == plain_ ? plain : rate),
                         decode_round(*engine, n_prompt, batch, i));
      }
      if (i == 0) continue;
      rates.push_back(rate);
      if (plain_ != nullptr) ratios.push_back(rate / plain);
    }
    const EngineInfo& info = engine_.info();
    const double bytes = static_cast<double>(info.active_weight_bytes) / batch +
                         static_cast<double>(info.kv_bytes_per_token) * (n_prompt + n / 2.0);
    std::string test = fmt::format("decode {}", n);
    if (depth > 0) test += fmt::format(" @ {}", depth);
    if (batch > 1) test += fmt::format(" x {}", batch);
    watch_.sample();
    Row row = summarize(test, rates, token_operations(info, n_prompt + n / 2.0, 0), bytes);
    row.to_plain = summarize(ratios);
    const Metrics after = engine_.metrics();
    const double drafts = after.spec_decode_num_drafts.value - before.spec_decode_num_drafts.value;
    const double kept =
        after.spec_decode_num_accepted_tokens.value - before.spec_decode_num_accepted_tokens.value;
    if (drafts > 0) {
      row.acceptance = kept / (after.spec_decode_num_draft_tokens.value -
                               before.spec_decode_num_draft_tokens.value);
      row.tokens_per_round = 1 + kept / drafts;
    }
    return row;
  }

 private:
  std::vector<std::vector<TokenId>> random(int n_tokens, int n, int seed) const {
    return random_prompts(engine_.info().vocab_size, n_tokens, n, static_cast<uint32_t>(seed));
  }

  // Returns the tokens/s of `batch` sequences that decode after prompts of the file, or after
  // n_prompt random tokens. A round of short requests is repeated if the first one ended before the
  // last one began, which happens when this thread waits for a CPU. If the requests still do not
  // overlap, their times are added up.
  Result<double> decode_round(Engine& engine, int n_prompt, int batch, int i) const {
    constexpr int kTries = 5;
    constexpr double kLongSeconds = 0.2;
    const auto& prompts = command_.prompts;
    for (int attempt = 1;; ++attempt) {
      std::vector<std::vector<TokenId>> round;
      for (int b = 0; b < batch && !prompts.empty(); ++b)
        round.push_back(prompts[(i * batch + b) % prompts.size()]);
      if (prompts.empty()) round = random(n_prompt, batch, i);
      ASSIGN_OR_RETURN(const auto report,
                       run_round(engine, std::move(round), command_.decode_tokens + 1));
      if (report.together.n_tokens > 0) return rate_together(report, batch);
      double all = 0;
      for (const RequestStats& one : report.stats) all += one.decode_seconds;
      if (batch == 1 || attempt == kTries || all > kLongSeconds)
        return static_cast<double>(command_.decode_tokens) * batch / all;
    }
  }

  // Returns the tokens/s by the longest request's time. With speculation some requests end much
  // earlier than others, so only the time in which all decode counts, if it covers more than a
  // quarter of the tokens.
  double rate_together(const RoundReport& report, int batch) const {
    const int64_t n_tokens = int64_t{command_.decode_tokens} * batch;
    const bool may_draft = !command_.config.spec.empty() && command_.config.spec != "off";
    if (may_draft && 4 * report.together.n_tokens > n_tokens) return report.together.rate();
    double longest = 0;
    for (const RequestStats& one : report.stats) longest = std::max(longest, one.decode_seconds);
    return static_cast<double>(n_tokens) / longest;
  }

  const BenchCommand& command_;
  Engine& engine_;
  Engine* const plain_;
  LimitWatch& watch_;
};

Result<std::unique_ptr<Engine>> BenchCommand::open() {
  RETURN_IF_ERROR(check_svg(load.svg));
  int longest = 0;
  for (const int n : prompt_tokens) longest = std::max(longest, n);
  for (const int depth : depths) longest = std::max(longest, std::max(depth, 1) + decode_tokens);
  const int most = *std::max_element(batches.begin(), batches.end());
  if (config.max_num_seqs == 0 && !load.on) config.max_num_seqs = std::max(most, 1);
  if (!load.on) config.enable_prefix_caching = false;
  std::unique_ptr<WeightSource> source;
  if (!shape.empty()) {
    ASSIGN_OR_RETURN(source, make_synthetic_source(shape, type));
  } else {
    RETURN_IF_ERROR(find_models(config));
    ASSIGN_OR_RETURN(source, open_weights(config.model));
  }
  if (!prompts_file.empty()) {
    ASSIGN_OR_RETURN(prompts, read_prompts(prompts_file, *source));
    for (const auto& prompt : prompts)
      longest = std::max(longest, static_cast<int>(prompt.size()) + decode_tokens);
  }
  ASSIGN_OR_RETURN(const ModelConfig model, read_config(*source));
  output_parameters = static_cast<int64_t>(model.model_dim) * model.vocab_size;
  if (lengths_option->count() == 0) {
    const int limit = config.max_model_len > 0 ? config.max_model_len : model.max_seq_len;
    for (int& n : prompt_tokens) n = std::min(n, limit - 1);
  }
  if (!load.on && config.kv_cache_memory == 0 && config.memory_utilization == 0) {
    if (config.max_model_len == 0) config.max_model_len = std::min(model.max_seq_len, longest + 2);
    const CacheSpec spec = model.cache_spec(KvDType::kF32, config.block_size);
    config.kv_cache_memory = spec.block_bytes(0) * ((longest + 2) / config.block_size + 2) * most;
    config.kv_cache_memory += 3 * spec.state_bytes() * most;  // with snapshots of recurrent states
    // a draft model has its own KV cache
    if (!config.spec.empty()) config.kv_cache_memory *= 2;
  }
  return open_engine(std::move(source), config);
}

int BenchCommand::write() const {
  if (shape.empty()) return fail({ErrorCode::kInvalidArgument, "--write-gguf: needs --shape"});
  if (const Status free = check_output({.path = write_gguf, .replace = true}, nullptr, {}); !free)
    return fail(free.error());
  if (const Status own = check_replaces_synthetic(write_gguf); !own) return fail(own.error());
  const auto source = make_synthetic_source(shape, type);
  if (!source) return fail(source.error());
  const Status written = penstock::write_gguf(**source, write_gguf);
  return written ? kExitOk : fail(written.error());
}

void print_head(const std::string& name, const EngineInfo& info) {
  fmt::print("{}, {}, {} threads, {} of weights", name, info.backend, info.n_threads,
             format_bytes(static_cast<double>(info.weight_bytes)));
  if (info.state_bytes > 0)
    fmt::print(", {} of states for each sequence",
               format_bytes(static_cast<double>(info.state_bytes)));
  fmt::print("\n");
}

void print_row(const Row& row, const MachineLimits& limits) {
  fmt::print("{:24} {:10.1f} tokens/s  ({:.1f} to {:.1f})", row.test, row.tokens_per_second,
             row.low, row.high);
  if (const double share = limit_share(row, limits); share > 0)
    fmt::print("  {:5.1f} % of the limit", share * 100);
  if (row.acceptance >= 0)
    fmt::print("  {:.2f} of the guesses right, {:.2f} tokens per round", row.acceptance,
               row.tokens_per_round);
  if (row.invariant > 0)
    fmt::print("  batch-invariant {:.1f}, {:.2f} of the speed", row.invariant,
               row.invariant / row.tokens_per_second);
  if (row.to_plain.median > 0)
    fmt::print("  {:.3f} of plain decoding ({:.3f} to {:.3f})", row.to_plain.median,
               row.to_plain.low, row.to_plain.high);
  fmt::print("\n");
  std::fflush(stdout);
}

nlohmann::json report_json(const std::string& name, const EngineInfo& info,
                           const MachineLimits& limits, const std::vector<ThreadLimit>& threads,
                           const std::vector<Row>& rows) {
  nlohmann::json object = {
      {"model", name},
      {"backend", info.backend},
      {"threads", info.n_threads},
      {"weight_bytes", info.weight_bytes},
      {"offloaded_bytes", info.offloaded_bytes},
      {"state_bytes_per_sequence", info.state_bytes},
      {"limits",
       {{"read_bytes_per_second", limits.read_bytes_per_second},
        {"flops_per_second", limits.floats.operations_per_second},
        {"compute_unit", limits.floats.unit},
        {"integer_operations_per_second", limits.integers.operations_per_second},
        {"integer_unit", limits.integers.unit},
        {"threads", nlohmann::json::array()}}},
      {"results", nlohmann::json::array()}};
  for (const ThreadLimit& limit : threads)
    object["limits"]["threads"].push_back(
        {{"of", limit.name}, {"all", limit.all}, {"one", limit.one}});
  for (const Row& row : rows) {
    object["results"].push_back({{"test", row.test},
                                 {"tokens_per_second", row.tokens_per_second},
                                 {"min", row.low},
                                 {"max", row.high},
                                 {"limit_share", limit_share(row, limits)}});
    if (row.acceptance >= 0) {
      object["results"].back()["acceptance"] = row.acceptance;
      object["results"].back()["tokens_per_round"] = row.tokens_per_round;
    }
    if (row.invariant > 0)
      object["results"].back()["batch_invariant_tokens_per_second"] = row.invariant;
    if (row.to_plain.median > 0)
      object["results"].back()["to_plain"] = {
          {"median", row.to_plain.median}, {"min", row.to_plain.low}, {"max", row.to_plain.high}};
  }
  return object;
}

Result<BenchCommand::Others> BenchCommand::open_others() {
  const EngineConfig own = config;
  Others others;
  if (invariant_price) {
    config.batch_invariant = true;
    ASSIGN_OR_RETURN(others.invariant, open());
    config = own;
  }
  if (beside_plain) {
    config.spec = "off";
    config.draft_model = config.spec_corpus = config.spec_heads = "";
    ASSIGN_OR_RETURN(others.plain, open());
    config = own;
  }
  return others;
}

Result<std::vector<Row>> BenchCommand::measure(Engine& engine, const Others& others,
                                               LimitWatch& watch) const {
  std::vector<Row> rows;
  Bench bench(*this, engine, others.plain.get(), watch);
  for (Engine* one : {&engine, others.invariant.get(), others.plain.get()}) {
    if (one == nullptr) continue;
    one->start();
    RETURN_IF_ERROR(settle(*one));
  }
  const auto keep = [&](auto&& test) -> Status {
    ASSIGN_OR_RETURN(Row row, test(bench));
    if (others.invariant != nullptr) {
      Bench other(*this, *others.invariant, nullptr, watch);
      ASSIGN_OR_RETURN(const Row same, test(other));
      row.invariant = same.tokens_per_second;
    }
    if (!json) print_row(row, watch.best());
    rows.push_back(std::move(row));
    return {};
  };
  for (const int n : prompt_tokens) {
    if (n > 0) RETURN_IF_ERROR(keep([&](Bench& b) { return b.prefill(n); }));
  }
  for (const int depth : depths) {
    for (const int batch : batches) {
      if (decode_tokens > 0)
        RETURN_IF_ERROR(keep([&](Bench& b) { return b.decode(depth, batch); }));
    }
  }
  return rows;
}

int BenchCommand::serve(Engine& engine, const std::string& name) const {
  engine.start();
  if (const Status settled = settle(engine); !settled) return fail(settled.error());
  const auto report = run_load(engine, load);
  engine.stop();
  if (!report) return fail(report.error());
  if (json) {
    fmt::print("{}\n", report_json(*report).dump());
  } else {
    print_report(*report);
  }
  if (!load.svg.empty()) {
    if (const Status written = write_svg(load.svg, plot_svg(*report, name)); !written)
      return fail(written.error());
  }
  return report->n_failed == 0 ? kExitOk : kExitFailure;
}

int BenchCommand::run_structured() {
  const std::string spec = config.spec;
  config.spec = "off";
  auto plain = open();
  if (!plain) return fail(plain.error());
  config.spec = spec;
  auto drafting = open();
  if (!drafting) return fail(drafting.error());
  const Status done = structured.run({**plain, **drafting, batches, decode_tokens, repetitions,
                                      !shape.empty(), config.model, json});
  return done ? kExitOk : fail(done.error());
}

int BenchCommand::run() {
  if (!write_gguf.empty()) return write();
  install_interrupt_handler();
  if (ladder.pairs_wanted) {
    const Status done = ladder.run_pairs(config, shape, type, repetitions);
    return done ? kExitOk : fail(done.error());
  }
  if (ladder.wanted) {
    const Status done = ladder.run(config, shape, repetitions, json);
    return done ? kExitOk : fail(done.error());
  }
  if (structured.wanted()) return run_structured();
  std::unique_ptr<Ops> probe;
  if (roofline && !load.on) {
    auto ops = make_ops(config.backend, {.n_threads = config.threads});
    if (!ops) return fail(ops.error());
    probe = std::move(*ops);
  }
  LimitWatch watch(std::move(probe));
  auto engine = open();
  if (!engine) return fail(engine.error());
  const EngineInfo& info = (*engine)->info();
  watch.read_as(info);
  const std::string name = shape.empty() ? config.model : shape + " " + type;
  if (!json) print_head(name, info);
  if (load.on) return serve(**engine, name);
  const auto others = open_others();
  if (!others) return fail(others.error());
  const auto rows = measure(**engine, *others, watch);
  for (Engine* one : {engine->get(), others->invariant.get(), others->plain.get()})
    if (one != nullptr) one->stop();
  if (!rows) return fail(rows.error());
  if (info.offloaded_bytes > 0 && !json) {
    fmt::print("of {} of experts in a file, {} were read again\n",
               format_bytes(static_cast<double>(info.offloaded_bytes)),
               format_bytes((*engine)->metrics().expert_bytes_read.value));
  }
  const Metrics metrics = (*engine)->metrics();
  if (info.expert_cache_bytes > 0 && !json) {
    fmt::print(
        "of {:.0f} choices of the CPU's experts {:.0f} had a copy on the GPU, {:.0f} were made\n",
        metrics.expert_choices.value, metrics.expert_cache_hits.value,
        metrics.expert_cache_moves.value);
  }
  const std::vector<ThreadLimit> threads = watch.of_threads();
  const UnpackingRates unpacking = watch.of_unpacking();
  const DeviceLimits device = watch.of_device();
  if (json) {
    nlohmann::json report = report_json(name, info, watch.best(), threads, *rows);
    report["expert_bytes_read"] = metrics.expert_bytes_read.value;
    report["expert_cache"] = {{"bytes", info.expert_cache_bytes},
                              {"choices", metrics.expert_choices.value},
                              {"hits", metrics.expert_cache_hits.value},
                              {"moves", metrics.expert_cache_moves.value}};
    for (const DeviceLimit& limit : device.all)
      report["limits"]["device"].push_back(
          {{"of", limit.name}, {"value", limit.value}, {"unit", limit.unit}});
    if (device.emulated) report["limits"]["emulated"] = true;
    for (const ProductPlan& plan : watch.of_products()) {
      report["products"].push_back({{"weights", plan.weights},
                                    {"rows", plan.rows},
                                    {"path", plan.path},
                                    {"strategy", plan.strategy},
                                    {"block", plan.block},
                                    {"panels", plan.panels},
                                    {"prefetch", plan.prefetch}});
    }
    if (!unpacking.chosen.empty()) {
      report["limits"]["unpacking"] = {{"chosen", unpacking.chosen},
                                       {"before", unpacking.before},
                                       {"between", unpacking.between}};
    }
    fmt::print("{}\n", report.dump());
  } else {
    print_limits(watch.best(), threads);
    print_limits(unpacking);
    print_limits(device);
  }
  return kExitOk;
}

}  // namespace

Action add_bench(CLI::App& app) {
  auto command = std::make_shared<BenchCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
