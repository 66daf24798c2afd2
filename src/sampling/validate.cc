#include "sampling/validate.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {
namespace {

// Limits of lists of strings that are searched for in the text: each byte takes about 30 bytes of
// memory while the request runs.
constexpr size_t kMostStrings = 1024, kMostStringBytes = 16384;
// Limits of lists that are processed for every token.
constexpr size_t kMostStopIds = 1024, kMostBiases = 4096;

// Describes a range: "a number in (0, 1]", "1 to 1024", "a number >= 0".
std::string described(const SamplingParams::Range& range, bool whole) {
  if (whole && range.max >= std::numeric_limits<int>::max())
    return fmt::format("a number >= {}", range.min);
  if (whole) return fmt::format("{} to {}", range.min, range.max);
  return fmt::format("a number in {}{}, {:.10g}]", range.above_min ? '(' : '[', range.min,
                     range.max);
}

// Keeps the first failed expectation.
class Expectations {
 public:
  template <class T>
  void expect(bool ok, const char* name, std::string_view expected, const T& got) {
    if (status_ && !ok) {
      status_ = errorf(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", name, expected, got);
    }
  }
  // A request checks about twenty ranges: only a failed one is formatted.
  template <class T>
  void expect_in(const SamplingParams::Range& range, const char* name, T got) {
    if (!range.contains(got)) expect(false, name, described(range, std::is_integral_v<T>), got);
  }
  void expect_ids(const std::vector<TokenId>& ids, const char* name, int vocab_size) {
    for (const TokenId id : ids) expect_id(id, name, vocab_size);
  }
  void expect_id(TokenId id, const char* name, int vocab_size) {
    if (status_ && (id < 0 || id >= vocab_size)) {
      status_ = errorf(ErrorCode::kInvalidArgument, "{}: expected token ids in [0, {}), got {}",
                       name, vocab_size, id);
    }
  }
  Status status() const { return status_; }

 private:
  Status status_;
};

void validate_ranges(const SamplingParams& p, Expectations& e) {
  SamplingParams::visit(
      p, [&](const char* name, const auto& value, const char*, const SamplingParams::Range& range) {
        using Field = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Field, std::optional<int>>) {
          if (value) e.expect_in(range, name, *value);
        } else if constexpr (std::is_arithmetic_v<Field> && !std::is_same_v<Field, bool>) {
          e.expect_in(range, name, value);
        }
      });
}

// Validates combinations of fields, and lists.
void validate_together(const SamplingParams& p, Expectations& e) {
  e.expect(p.max_tokens > 0 || p.prompt_logprobs, "max_tokens",
           "at least 1 (0 only with prompt_logprobs)", p.max_tokens);
  e.expect(p.min_tokens <= p.max_tokens, "min_tokens", "0 to max_tokens", p.min_tokens);
  if (!p.use_beam_search) return;
  e.expect(p.beam_width >= p.n, "beam_width", "n to 256", p.beam_width);
  e.expect(p.max_tokens > 0, "max_tokens", "at least 1 with use_beam_search", p.max_tokens);
  e.expect(!p.prompt_logprobs, "prompt_logprobs", "nothing with use_beam_search",
           p.prompt_logprobs.value_or(0));
}

void validate_strings(const SamplingParams& p, Expectations& e) {
  for (const auto& [name, strings] :
       {std::pair("stop", &p.stop), std::pair("bad_words", &p.bad_words),
        std::pair("dry_sequence_breakers", &p.dry_sequence_breakers)}) {
    e.expect(strings->size() <= kMostStrings, name, "at most 1024 strings", strings->size());
    size_t n_bytes = 0;
    for (const std::string& text : *strings) {
      e.expect(!text.empty() || strings == &p.dry_sequence_breakers, name,
               "strings that are not empty", "\"\"");
      n_bytes += text.size();
    }
    e.expect(n_bytes <= kMostStringBytes, name, "strings of at most 16384 bytes together", n_bytes);
  }
}

void validate_tokens(const SamplingParams& p, int vocab_size, Expectations& e) {
  const auto most = [&](size_t n, size_t limit, const char* name) {
    if (n > limit) e.expect(false, name, fmt::format("at most {} tokens", limit), n);
  };
  const auto n_tokens = static_cast<size_t>(vocab_size);
  most(p.stop_token_ids.size(), kMostStopIds, "stop_token_ids");
  most(p.logit_bias.size(), kMostBiases, "logit_bias");
  most(p.allowed_token_ids.size(), n_tokens, "allowed_token_ids");
  most(p.banned_token_ids.size(), n_tokens, "banned_token_ids");
  e.expect_ids(p.stop_token_ids, "stop_token_ids", vocab_size);
  e.expect_ids(p.allowed_token_ids, "allowed_token_ids", vocab_size);
  e.expect_ids(p.banned_token_ids, "banned_token_ids", vocab_size);
  for (const auto& [token, bias] : p.logit_bias) {
    e.expect_id(token, "logit_bias", vocab_size);
    e.expect(!std::isnan(bias), "logit_bias", "a number", bias);
  }
}

}  // namespace

Status validate_lists(const SamplingParams& p, int vocab_size) {
  Expectations e;
  validate_strings(p, e);
  validate_tokens(p, vocab_size, e);
  return e.status();
}

Status validate(const SamplingParams& p, int vocab_size) {
  Expectations e;
  validate_ranges(p, e);
  validate_together(p, e);
  validate_strings(p, e);
  validate_tokens(p, vocab_size, e);
  return e.status();
}

}  // namespace penstock
