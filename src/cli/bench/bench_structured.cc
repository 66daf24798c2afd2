#include "cli/bench/bench_structured.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_round.h"
#include "cli/console/input.h"
#include "cli/options/models.h"
#include "grammar/sequence_matcher.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

// Restricts forced text to the tokenizer's own tokenization.
class OneSpelling final : public TokenMatcher {
 public:
  explicit OneSpelling(std::unique_ptr<TokenMatcher> inner) : inner_(std::move(inner)) {}
  void fill_mask(std::span<uint32_t> mask) override {
    TokenId next = kNoToken;
    if (inner_->forced({&next, 1}) == 0) return inner_->fill_mask(mask);
    std::ranges::fill(mask, 0);
    mask[static_cast<size_t>(next) / 32] |= 1u << (next % 32);
  }
  bool append(TokenId token) override { return inner_->append(token); }
  void rollback(int n) override { inner_->rollback(n); }
  bool complete() const override { return inner_->complete(); }
  bool must_end() const override { return inner_->must_end(); }
  int forced(std::span<TokenId> tokens) override { return inner_->forced(tokens); }
  std::unique_ptr<TokenMatcher> fork() const override {
    return std::make_unique<OneSpelling>(inner_->fork());
  }

 private:
  std::unique_ptr<TokenMatcher> inner_;
};

Result<std::shared_ptr<const TokenMatcher>> matcher_of(const std::string& schema,
                                                       const Tokenizer& tokenizer,
                                                       bool random_weights) {
  const grammar::GrammarSpec spec{.text = schema,
                                  .json = {.whitespace = grammar::WhiteSpace::kNone}};
  auto compiled = grammar::Grammar::compile(spec, grammar::Vocabulary::make(tokenizer));
  if (!compiled)
    return errorf(ErrorCode::kInvalidArgument, "--json-schema: {}: {}", compiled.error().where,
                  compiled.error().message);
  auto matcher = grammar::make_sequence_matcher(*std::move(compiled));
  if (random_weights) matcher = std::make_unique<OneSpelling>(std::move(matcher));
  return std::shared_ptr<const TokenMatcher>(std::move(matcher));
}

// Runs one round of `batch` sequences with different prompts and returns the tokens per second.
Result<double> rate_of(Engine& engine, const StructuredBench::Setup& setup, int batch,
                       const std::shared_ptr<const TokenMatcher>& matcher) {
  std::vector<Request> requests;
  for (int i = 0; i < batch; ++i) {
    requests.push_back(decode_request({1, 2 + i}, setup.n_decode + 1));
    requests.back().sampling.temperature = 1;  // so that the texts differ
    requests.back().sampling.seed = static_cast<uint64_t>(i) + 1;
    requests.back().matcher = matcher;
  }
  ASSIGN_OR_RETURN(const auto stats, run_requests(engine, std::move(requests)));
  double seconds = 0;
  for (const RequestStats& one : stats) {
    if (one.completion_tokens != setup.n_decode + 1) {
      return errorf(
          ErrorCode::kInvalidArgument,
          "--json-schema: expected texts of more than {} tokens (minItems), got one of {}",
          setup.n_decode, one.completion_tokens);
    }
    seconds = std::max(seconds, one.decode_seconds);
  }
  return static_cast<double>(setup.n_decode) * batch / seconds;
}

double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Medians of the repetitions. The ratios are computed per repetition.
struct StructuredRow {
  int batch = 0;
  double free = 0, schema = 0, drafting = 0;  // tokens per second
  double schema_ratio = 0, drafting_ratio = 0;
  double forced_share = 0;  // share of the tokens that are forced
};

Result<StructuredRow> measure_batch(const StructuredBench::Setup& setup, int batch,
                                    const std::shared_ptr<const TokenMatcher>& matcher) {
  std::vector<double> free, schema, drafting, schema_ratio, drafting_ratio;
  const Metrics before = setup.drafting.metrics();
  for (int i = 0; i <= setup.repetitions; ++i) {
    ASSIGN_OR_RETURN(const double f, rate_of(setup.plain, setup, batch, nullptr));
    ASSIGN_OR_RETURN(const double s, rate_of(setup.plain, setup, batch, matcher));
    ASSIGN_OR_RETURN(const double d, rate_of(setup.drafting, setup, batch, matcher));
    if (i == 0) continue;
    free.push_back(f), schema.push_back(s), drafting.push_back(d);
    schema_ratio.push_back(s / f), drafting_ratio.push_back(d / f);
  }
  const Metrics after = setup.drafting.metrics();
  const double forced = after.grammar_forced_tokens.value - before.grammar_forced_tokens.value;
  const double share = forced / (after.generation_tokens.value - before.generation_tokens.value);
  return StructuredRow{batch,
                       middle_of(free),
                       middle_of(schema),
                       middle_of(drafting),
                       middle_of(schema_ratio),
                       middle_of(drafting_ratio),
                       share};
}

void print_structured(const StructuredBench::Setup& setup, const StructuredRow& row) {
  if (setup.json) {
    const nlohmann::json line = {{"batch", row.batch},
                                 {"free", row.free},
                                 {"schema", row.schema},
                                 {"drafting", row.drafting},
                                 {"schema_ratio", row.schema_ratio},
                                 {"drafting_ratio", row.drafting_ratio},
                                 {"forced_share", row.forced_share}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print(
        "decode {} x {}: free {:.1f} tokens/s, schema {:.1f} ({:.3f}), drafting {:.1f} ({:.3f}), "
        "{:.0f} % of the tokens forced\n",
        setup.n_decode, row.batch, row.free, row.schema, row.schema_ratio, row.drafting,
        row.drafting_ratio, row.forced_share * 100);
  }
  std::fflush(stdout);
}

}  // namespace

void StructuredBench::add_options(CLI::App& app) {
  app.add_option("--json-schema", schema_file_,
                 "decode under this schema (without white space) and without it, in turn; the text "
                 "must not end early")
      ->check(CLI::ExistingFile);
  app.add_option("--tokenizer", tokenizer_,
                 "for --json-schema with --shape: a model or tokenizer file")
      ->check(CLI::ExistingPath);
}

Status StructuredBench::run(const Setup& setup) const {
  ASSIGN_OR_RETURN(const auto tokenizer,
                   open_tokenizer(tokenizer_.empty() ? setup.model : tokenizer_));
  ASSIGN_OR_RETURN(const std::string schema, read_text(schema_file_));
  ASSIGN_OR_RETURN(const auto matcher, matcher_of(schema, *tokenizer, setup.random_weights));
  setup.plain.start();
  setup.drafting.start();
  RETURN_IF_ERROR(settle(setup.plain));
  RETURN_IF_ERROR(settle(setup.drafting));
  for (const int batch : setup.batches) {
    ASSIGN_OR_RETURN(const StructuredRow row, measure_batch(setup, batch, matcher));
    print_structured(setup, row);
  }
  setup.plain.stop();
  setup.drafting.stop();
  return {};
}

}  // namespace penstock
