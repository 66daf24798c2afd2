#include "cli/bench/bench_ladder.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/bench/step_times.h"
#include "cli/console/svg.h"
#include "cli/console/terminal.h"
#include "cli/options/models.h"
#include "cli/quality/recoded_source.h"
#include "engine/open/open.h"
#include "model/arch/read_config.h"
#include "model/sources/synthetic.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

constexpr const char* kFullType = "bf16";
constexpr const char* kSmallType = "q4_k_m";
constexpr double kMostSeconds = 30;  // limit of all repetitions of one rung

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class CountingSink : public EventSink {
 public:
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token != kNoToken) tokens.push_back(event.token);
      if (event.finish != FinishReason::kNone) done = true;
      if (event.error != nullptr) error = *event.error;
    }
  }
  std::vector<TokenId> tokens;
  std::optional<Error> error;
  bool done = false;
};

// Returns the configuration of a synthetic draft model: a quarter of the width, half of the layers.
ModelConfig small_model(ModelConfig config) {
  const auto quarter = [](int& value) { value = std::max(1, value / 4); };
  quarter(config.n_heads), quarter(config.n_kv_heads);
  config.model_dim = config.n_heads * config.head_dim;
  config.ffn_dim = std::max(32, config.ffn_dim / 4 / 32 * 32);
  config.n_layers = std::max(1, config.n_layers / 2);
  config.layers.resize(static_cast<size_t>(config.n_layers));
  config.name += " draft";
  return config;
}

int64_t bytes_of(const WeightSource& source) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : source.tensors())
    bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

struct SpeculationPairs {
  // seconds per repetition; ratios: time without / with speculation
  std::vector<double> plain_seconds, seconds, by_clock, by_processor;
  Metrics before, after;
};

// Returns the tokens per round of speculation and the share of accepted draft tokens between two
// snapshots of the metrics.
std::pair<double, double> rounds_between(const Metrics& before, const Metrics& after) {
  const double drafts = after.spec_decode_num_drafts.value - before.spec_decode_num_drafts.value;
  const double kept =
      after.spec_decode_num_accepted_tokens.value - before.spec_decode_num_accepted_tokens.value;
  const double guesses =
      after.spec_decode_num_draft_tokens.value - before.spec_decode_num_draft_tokens.value;
  return {drafts > 0 ? 1 + kept / drafts : 1, guesses > 0 ? kept / guesses : 0};
}

class LadderRun {
 public:
  LadderRun(const Ladder& ladder, EngineConfig config, std::string shape, int repetitions)
      : ladder_(ladder),
        config_(std::move(config)),
        shape_(std::move(shape)),
        repetitions_(repetitions) {
    config_.enable_prefix_caching = false;
    config_.max_model_len = ladder.tokens + kPromptRoom;
    config_.max_num_seqs = ladder.batch;
  }

  Result<std::vector<LadderRung>> run(const std::function<void(const LadderRung&)>& show) {
    const std::string spec = config_.spec, draft_model = config_.draft_model;
    config_.spec.clear(), config_.draft_model.clear();
    ASSIGN_OR_RETURN(auto engine, open(kFullType, {}));
    const auto keep = [&](Result<LadderRung> rung) -> Status {
      if (!rung) return tl::unexpected(rung.error());
      show(*rung);
      rungs_.push_back(std::move(*rung));
      return {};
    };
    RETURN_IF_ERROR(keep(measure(*engine, fmt::format("naive ({})", kFullType), 1, true)));
    RETURN_IF_ERROR(keep(measure(*engine, "+ KV cache", 1, false)));
    engine.reset();
    ASSIGN_OR_RETURN(engine, open(kSmallType, {}));
    RETURN_IF_ERROR(keep(measure(*engine, fmt::format("+ INT4 ({})", kSmallType), 1, false)));
    RETURN_IF_ERROR(keep(measure(*engine, "+ batching", ladder_.batch, false)));
    engine.reset();
    config_.spec = spec, config_.draft_model = draft_model;
    ASSIGN_OR_RETURN(SpeculationInputs inputs, speculation());
    ASSIGN_OR_RETURN(engine, open(kSmallType, std::move(inputs)));
    RETURN_IF_ERROR(keep(measure(*engine, "+ speculation", ladder_.batch, false)));
    RETURN_IF_ERROR(keep(measure(*engine, "INT4, speculation", 1, false)));
    return rungs_;
  }

  // Runs the same request of one sequence alternately without and with speculation: one warm-up,
  // then `repetitions` measured times. type: encoding of a shape's random weights; ignored for
  // files.
  Result<SpeculationPairs> compare(const std::string& type) {
    const std::string spec = config_.spec, draft_model = config_.draft_model;
    config_.spec.clear(), config_.draft_model.clear();
    config_.max_num_seqs = 1;
    const std::string own = shape_.empty() ? "" : type;
    ASSIGN_OR_RETURN(auto plain, open(own, {}));
    config_.spec = spec, config_.draft_model = draft_model;
    ASSIGN_OR_RETURN(SpeculationInputs inputs, speculation());
    ASSIGN_OR_RETURN(auto speculating, open(own, std::move(inputs)));
    SpeculationPairs pairs;
    for (int i = 0; i <= repetitions_; ++i) {
      if (i == 1) pairs.before = speculating->metrics();
      const std::clock_t started = std::clock();
      ASSIGN_OR_RETURN(const double without, decode(*plain, 1, {}, ladder_.tokens));
      const std::clock_t between = std::clock();
      ASSIGN_OR_RETURN(const double with, decode(*speculating, 1, {}, ladder_.tokens));
      if (i == 0) continue;
      pairs.plain_seconds.push_back(without), pairs.seconds.push_back(with);
      pairs.by_clock.push_back(without / with);
      pairs.by_processor.push_back(
          static_cast<double>(between - started) /
          static_cast<double>(std::max<std::clock_t>(1, std::clock() - between)));
    }
    pairs.after = speculating->metrics();
    return pairs;
  }

  const std::string& speculation_note() const { return note_; }

 private:
  static constexpr int kPromptRoom = 64;

  // type: encoding of a shape's random weights; "": the encodings of the file.
  Result<std::unique_ptr<Engine>> open(const std::string& type, SpeculationInputs inputs) {
    std::unique_ptr<WeightSource> source;
    if (!shape_.empty()) {
      ASSIGN_OR_RETURN(source, make_synthetic_source(shape_, type));
    } else {
      ASSIGN_OR_RETURN(auto file, open_weights(config_.model));
      if (prompt_.empty()) {
        ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(*file));
        prompt_ = tokenizer->encode(kStoryPrompt);
      }
      if (!type.empty()) {
        ASSIGN_OR_RETURN(source, recode(std::move(file), type));
      } else {
        source = std::move(file);
      }
    }
    if (prompt_.empty()) prompt_ = {2, 3, 5, 7, 11};
    prompt_.resize(std::min<size_t>(prompt_.size(), kPromptRoom / 2));
    EngineConfig config = config_;
    ASSIGN_OR_RETURN(const ModelConfig model, read_config(*source));
    config.max_model_len = std::min(config.max_model_len, model.max_seq_len);
    if (config.kv_cache_memory == 0) {
      const CacheSpec spec = model.cache_spec(KvDType::kF32, config.block_size);
      const int blocks = config.max_model_len / config.block_size + 8;
      for (int g = 0; g < std::max(1, spec.n_groups()); ++g)
        config.kv_cache_memory +=
            2 * spec.block_bytes(g) * (g == spec.state_group() ? 2 : blocks) * ladder_.batch;
    }
    return open_engine(std::move(source), config, {}, std::move(inputs));
  }

  // Returns the drafter of the last rungs: the one of the flags, else one that suits the model.
  Result<SpeculationInputs> speculation() {
    SpeculationInputs inputs;
    if (!config_.spec.empty() || !config_.draft_model.empty()) {
      note_ = config_.spec.empty() ? "draft" : config_.spec;
    } else if (!shape_.empty()) {
      ASSIGN_OR_RETURN(const ModelConfig shape, config_from_shape(shape_));
      ASSIGN_OR_RETURN(inputs.draft_source, make_synthetic_source(small_model(shape), kSmallType));
      inputs.acceptance = ladder_.acceptance;
      config_.spec = "draft";
      config_.spec_length = ladder_.spec_nodes > 0 ? std::to_string(ladder_.spec_nodes) : "auto";
      forced_ = true;
      note_ = fmt::format(
          "a synthetic draft of a quarter of the width and half of the layers, acceptance {}",
          ladder_.acceptance);
    } else if (const auto draft = find_model("penstock-stories-1m-q8_0");
               draft && is_story_model()) {
      config_.spec = "draft";
      config_.draft_model = draft->string();
      note_ = "draft " + draft->filename().string();
    } else {
      config_.spec = "ngram";
      note_ = "n-gram";
    }
    if (!config_.draft_model.empty()) {
      ASSIGN_OR_RETURN(const auto path, find_model(config_.draft_model));
      config_.draft_model = path.string();
      ASSIGN_OR_RETURN(inputs.draft_source, open_weights(path));
    }
    if (inputs.draft_source) draft_bytes_ = bytes_of(*inputs.draft_source);
    return inputs;
  }

  bool is_story_model() const {
    return config_.model.find("penstock-stories-15m") != std::string::npos;
  }

  // Returns the seconds in which n_requests concurrent requests generate n_tokens tokens each. The
  // prompts end with the tokens `known`.
  Result<double> decode(Engine& engine, int n_requests, std::span<const TokenId> known,
                        int n_tokens) {
    std::vector<std::shared_ptr<CountingSink>> sinks;
    const double begin = seconds_now();
    for (int i = 0; i < n_requests; ++i) {
      Request request;
      request.prompt = prompt_;
      if (i > 0)
        request.prompt.push_back(static_cast<TokenId>((300 + 17 * i) % engine.info().vocab_size));
      request.prompt.insert(request.prompt.end(), known.begin(), known.end());
      request.sampling.max_tokens = n_tokens;
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      // the token that a synthetic draft model predicts correctly
      if (forced_) request.sampling.allowed_token_ids = {7};
      sinks.push_back(std::make_shared<CountingSink>());
      RETURN_IF_ERROR(engine.submit(std::move(request), sinks.back()));
    }
    while (engine.step()) {
      if (interrupted()) return make_error(ErrorCode::kCancelled, "interrupted");
    }
    const double seconds = seconds_now() - begin;
    for (const auto& sink : sinks) {
      if (sink->error) return tl::unexpected(*sink->error);
    }
    if (!sinks.empty()) last_ = sinks[0]->tokens;
    return seconds;
  }

  // Generates one token at a time, each by a new request, so that no K and V are reused.
  Result<double> decode_naive(Engine& engine) {
    std::vector<TokenId> known;
    double seconds = 0;
    for (int i = 0; i < ladder_.tokens; ++i) {
      ASSIGN_OR_RETURN(const double one, decode(engine, 1, known, 1));
      seconds += one;
      known.insert(known.end(), last_.begin(), last_.end());
    }
    return seconds;
  }

  Result<LadderRung> measure(Engine& engine, std::string name, int n_requests, bool naive) {
    std::vector<double> times;
    double total = 0;
    const Metrics before = engine.metrics();
    // The first repetition is a warm-up. It counts only if it takes all the time of the rung.
    for (int i = 0; i <= repetitions_ && total < kMostSeconds; ++i) {
      ASSIGN_OR_RETURN(const double seconds, naive
                                                 ? decode_naive(engine)
                                                 : decode(engine, n_requests, {}, ladder_.tokens));
      total += seconds;
      if (i > 0 || total >= kMostSeconds) times.push_back(seconds);
    }
    const Metrics after = engine.metrics();
    std::ranges::sort(times);
    LadderRung rung{std::move(name), n_requests, times[times.size() / 2]};
    rung.tokens_per_second = n_requests * ladder_.tokens / rung.request_seconds;
    const int64_t kept = naive ? 0 : static_cast<int64_t>(prompt_.size()) + ladder_.tokens;
    const bool drafts = !engine.config().spec.empty();
    rung.memory_bytes = engine.info().weight_bytes +
                        n_requests * kept * engine.info().kv_bytes_per_token +
                        (drafts ? draft_bytes_ : 0);
    rung.tokens_per_round = rounds_between(before, after).first;
    return rung;
  }

  const Ladder& ladder_;
  EngineConfig config_;
  const std::string shape_;
  const int repetitions_;
  std::vector<TokenId> prompt_, last_;
  std::vector<LadderRung> rungs_;
  int64_t draft_bytes_ = 0;
  bool forced_ = false;
  std::string note_;
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

void print_rung(const LadderRung& rung) {
  fmt::print("{:20} {:>2} x  {:>10.1f} ms  {:>10.1f} tokens/s  {:>10}", rung.name, rung.n_requests,
             rung.request_seconds * 1e3, rung.tokens_per_second,
             format_bytes(static_cast<double>(rung.memory_bytes)));
  if (rung.tokens_per_round > 1) fmt::print("  {:.2f} tokens per round", rung.tokens_per_round);
  fmt::print("\n");
  std::fflush(stdout);
}

void print_bars(const std::vector<LadderRung>& rungs) {
  constexpr double kWidth = 50;
  double most = 0;
  for (const LadderRung& rung : rungs) most = std::max(most, rung.tokens_per_second);
  fmt::print("\ntokens per second\n");
  for (const LadderRung& rung : rungs) {
    std::string bar;
    const int eighths = std::max(1, static_cast<int>(rung.tokens_per_second / most * kWidth * 8));
    for (int i = 0; i < eighths / 8; ++i) bar += "█";
    const char* parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    bar += parts[eighths % 8];
    fmt::print("{:20} {} {:.0f} ({:.1f}x)\n", rung.name, bar, rung.tokens_per_second,
               rung.tokens_per_second / rungs[0].tokens_per_second);
  }
}

}  // namespace

std::string ladder_svg(const std::string& title, const std::vector<LadderRung>& rungs) {
  constexpr int kLeft = 190, kBar = 420, kRow = 34, kTop = 50;
  double most = 0;
  for (const LadderRung& rung : rungs) most = std::max(most, rung.tokens_per_second);
  const int height = kTop + kRow * static_cast<int>(rungs.size()) + 20;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"{0}\" viewBox=\"0 0 860 "
      "{0}\" "
      "font-family=\"sans-serif\" font-size=\"14\">\n<rect width=\"860\" height=\"{0}\" "
      "fill=\"#ffffff\"/>\n"
      "<text x=\"16\" y=\"28\" font-size=\"17\" fill=\"#1a2733\">{1}</text>\n",
      height, escaped(title));
  for (size_t i = 0; i < rungs.size(); ++i) {
    const LadderRung& rung = rungs[i];
    const int y = kTop + kRow * static_cast<int>(i);
    const double width = most > 0 ? std::max(1.0, rung.tokens_per_second / most * kBar) : 1.0;
    out += fmt::format(
        "<text x=\"16\" y=\"{0}\" fill=\"#1a2733\">{1}</text>\n"
        "<rect x=\"{2}\" y=\"{3}\" width=\"{4:.1f}\" height=\"22\" rx=\"3\" fill=\"#2f6f9f\"/>\n"
        "<text x=\"{5:.1f}\" y=\"{0}\" fill=\"#44525e\">{6:.0f} tokens/s, {7:.0f} ms, {8}</text>\n",
        y + 16, escaped(rung.name), kLeft, y, width, kLeft + width + 8, rung.tokens_per_second,
        rung.request_seconds * 1e3, format_bytes(static_cast<double>(rung.memory_bytes)));
  }
  return out + "</svg>\n";
}

Ladder::Ladder(CLI::App& app) {
  const char* group = "Ladder";
  app.add_flag("--ladder", wanted,
               "one request without KV cache, then with it, with INT4 weights, in a batch, with "
               "speculation")
      ->group(group);
  app.add_flag(
         "--ladder-spec", pairs_wanted,
         "only one request without and with speculation, in turn, with the weights as they are")
      ->group(group);
  app.add_option("--ladder-tokens", tokens, "tokens per request")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str()
      ->group(group);
  app.add_option("--ladder-batch", batch, "requests of the batch")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(group);
  app.add_option("--svg", svg, "also draw the ladder to this file")->group(group);
  app.add_option("--spec-acceptance", acceptance,
                 "share of right guesses of the synthetic draft of a --shape")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--spec-nodes", spec_nodes, "guesses per round of that draft; 0 is automatic")
      ->check(CLI::Range(0, 16))
      ->capture_default_str()
      ->group(group);
}

Status Ladder::run_pairs(EngineConfig config, const std::string& shape, const std::string& type,
                         int repetitions) const {
  if (shape.empty()) {
    ASSIGN_OR_RETURN(const auto path, find_model(config.model));
    config.model = path.string();
  }
  LadderRun ladder(*this, config, shape, repetitions);
  ASSIGN_OR_RETURN(const SpeculationPairs pairs, ladder.compare(type));
  const auto [tokens_per_round, right] = rounds_between(pairs.before, pairs.after);
  const nlohmann::json object = {{"model", shape.empty() ? config.model : shape + " " + type},
                                 {"tokens", tokens},
                                 {"speculation", ladder.speculation_note()},
                                 {"plain_seconds", median(pairs.plain_seconds)},
                                 {"seconds", median(pairs.seconds)},
                                 {"speedup", median(pairs.by_clock)},
                                 {"speedup_processor_time", median(pairs.by_processor)},
                                 {"tokens_per_round", tokens_per_round},
                                 {"right", right}};
  fmt::print("{}\n", object.dump(1));
  return {};
}

Status Ladder::run(EngineConfig config, const std::string& shape, int repetitions,
                   bool json) const {
  RETURN_IF_ERROR(check_svg(svg));
  std::string name = shape;
  if (shape.empty()) {
    ASSIGN_OR_RETURN(const auto path, find_model(config.model));
    config.model = path.string();
    name = path.filename().string();
  }
  const std::string title = fmt::format("{}: a request of {} tokens", name, tokens);
  if (!json)
    fmt::print("{}\n{:20} {:>4}  {:>13}  {:>19}  {:>10}\n", title, "", "requests", "time", "",
               "memory");
  LadderRun ladder(*this, std::move(config), shape, repetitions);
  ASSIGN_OR_RETURN(const auto rungs, ladder.run([&](const LadderRung& rung) {
    if (!json) print_rung(rung);
  }));
  if (json) {
    print_json(name, ladder.speculation_note(), rungs);
  } else {
    print_bars(rungs);
    fmt::print("\nspeculation: {}\n", ladder.speculation_note());
  }
  return svg.empty() ? Status() : write_svg(svg, ladder_svg(title, rungs));
}

void Ladder::print_json(const std::string& name, const std::string& note,
                        const std::vector<LadderRung>& rungs) const {
  nlohmann::json object = {{"model", name},
                           {"tokens", tokens},
                           {"speculation", note},
                           {"rungs", nlohmann::json::array()}};
  for (const LadderRung& rung : rungs) {
    object["rungs"].push_back({{"name", rung.name},
                               {"requests", rung.n_requests},
                               {"request_seconds", rung.request_seconds},
                               {"tokens_per_second", rung.tokens_per_second},
                               {"memory_bytes", rung.memory_bytes},
                               {"tokens_per_round", rung.tokens_per_round}});
  }
  fmt::print("{}\n", object.dump());
}

}  // namespace penstock
