#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/unicode/regex.h"

#include <pcre2.h>

#include <optional>

#include "base/work.h"
#include "text/unicode/newer_characters.h"
#include "text/unicode/regex_dialect.h"
#include "text/unicode/unicode.h"

namespace penstock {
namespace {

constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMatchLimit = 1'000'000;  // backtracking steps per search
constexpr uint32_t kQuickLimit = 10'000;     // searches beyond this limit are counted
constexpr uint32_t kHeapLimitKib = 32 << 10;
constexpr size_t kJitStackMax = 8 << 20;

struct JitStack {
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackMax, nullptr);
  ~JitStack() { pcre2_jit_stack_free(stack); }
};

pcre2_jit_stack* jit_stack(void*) {
  thread_local JitStack holder;
  return holder.stack;
}

// A compiled expression.
class Program {
 public:
  ~Program() {
    pcre2_code_free(code_);
    pcre2_match_context_free(context_);
    pcre2_match_context_free(quick_);
  }

  // pattern: original text, for errors. translated: PCRE2's syntax.
  static Result<std::unique_ptr<const Program>> compile(std::string_view pattern,
                                                        const std::string& translated) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    auto program = std::make_unique<Program>();
    program->code_ =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                      &offset, nullptr);
    if (program->code_ == nullptr) {
      PCRE2_UCHAR message[200];
      pcre2_get_error_message(error, message, sizeof message);
      return errorf(ErrorCode::kCorruptFile, "tokenizer pattern \"{:.80}\": {} at byte {}", pattern,
                    reinterpret_cast<const char*>(message), offset);
    }
    program->context_ = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(program->context_, kMatchLimit);
    pcre2_set_heap_limit(program->context_, kHeapLimitKib);
    program->jit_ = pcre2_jit_compile(program->code_, PCRE2_JIT_COMPLETE) == 0;
    program->quick_ = pcre2_match_context_copy(program->context_);
    pcre2_set_match_limit(program->quick_, kQuickLimit);
    for (pcre2_match_context* context : {program->context_, program->quick_}) {
      if (program->jit_) pcre2_jit_stack_assign(context, jit_stack, nullptr);
    }
    return program;
  }

  // Finds the first match from `at` on. Returns false if there is none.
  bool search(std::string_view text, size_t at, Match& found) const {
    // One per thread: patterns also run over single words, for which an allocation would cost more
    // than the match.
    thread_local const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
        pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() != nullptr ? text.data() : "");
    const auto match = [&](pcre2_match_context* context) {
      return (jit_ ? pcre2_jit_match : pcre2_match)(code_, subject, text.size(), at,
                                                    PCRE2_NO_UTF_CHECK, data.get(), context);
    };
    Work* const work = WorkScope::current();
    int rc = match(work != nullptr ? quick_ : context_);
    if (rc == PCRE2_ERROR_MATCHLIMIT && work != nullptr) {
      if (!work->take_long_step()) {
        end_work(
            {ErrorCode::kInvalidArgument,
             "text: long runs of digits, letters or spaces take the model's tokenizer too long"});
      }
      rc = match(context_);
    }
    if (rc < 0) return false;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    found = {range[0], range[1]};
    // \K may have moved the start: such matches are ignored
    return found.begin <= found.end && found.begin >= at;
  }

 private:
  pcre2_code* code_ = nullptr;
  // quick_: has a lower limit, for the first try
  pcre2_match_context *context_ = nullptr, *quick_ = nullptr;
  bool jit_ = false;
};

}  // namespace

struct Regex::Code {
  std::unique_ptr<const Program> program;  // null: literal or runs suffice
  // for texts with newer characters, if the pattern depends on them
  std::unique_ptr<const Program> newer;
  std::string literal;
  Grouped grouped = Grouped::kNo;
  std::optional<Regex> runs;  // with `grouped`: matches the runs of digits
};

// Whether the pattern groups digits in threes from the right. Such patterns look ahead to
// the end of a run at every group, which is quadratic. Sets `runs` to a pattern of the
// runs.
Regex::Grouped Regex::grouped_by(std::string_view pattern, std::string& runs) {
  for (const char* digit : {"\\d", "\\p{Nd}", "\\p{N}", "[0-9]"}) {
    const auto is = [&](const char* form) {
      std::string text;
      for (const char* at = form; *at != '\0'; ++at)
        text += *at == 'D' ? std::string(digit) : std::string(1, *at);
      return pattern == text;
    };
    // \p{N} includes characters that are no word characters
    const bool is_number = std::string_view(digit) == "\\p{N}";
    const bool at_boundary =
        !is_number && (is("D{1,3}(?=(?:D{3})*\\b)") || is("D{1,3}(?=(D{3})*\\b)"));
    const bool groups =
        at_boundary || is("D{1,3}(?=(?:D{3})*(?!D))") || is("D{1,3}(?=(D{3})*(?!D))");
    if (!groups && !is("(?=(D{3})+(?!D))") && !is("(?=(?:D{3})+(?!D))")) continue;
    runs = fmt::format("(?<!{0}){0}++{1}", digit, at_boundary ? "\\b" : "");
    return groups ? Grouped::kGroups : Grouped::kBetween;
  }
  return Grouped::kNo;
}

Regex Regex::literal(std::string_view text) {
  auto code = std::make_shared<Code>();
  code->literal = text;
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return errorf(ErrorCode::kUnsupported, "tokenizer pattern: expected at most {} bytes, got {}",
                  kMaxPattern, pattern.size());
  }
  auto code = std::make_shared<Code>();
  std::string runs;
  code->grouped = grouped_by(pattern, runs);
  if (code->grouped != Grouped::kNo) {
    ASSIGN_OR_RETURN(code->runs, compile(runs));
    Regex regex;
    regex.code_ = std::move(code);
    return regex;
  }
  if (!unicode::is_valid(pattern))
    return errorf(ErrorCode::kCorruptFile, "tokenizer pattern: not UTF-8");
  ASSIGN_OR_RETURN(const std::string translated, to_pcre(pattern));
  ASSIGN_OR_RETURN(const std::string with_newer, to_pcre(pattern, Characters::kWithNewer));
  ASSIGN_OR_RETURN(code->program, Program::compile(pattern, translated));
  if (with_newer != translated) {
    // If the extended pattern is too large, newer characters count as unassigned.
    if (auto newer = Program::compile(pattern, with_newer)) code->newer = *std::move(newer);
  }
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

void Regex::for_each(std::string_view text, FunctionRef<void(Match)> found) const {
  const Code& code = *code_;
  if (code.grouped != Grouped::kNo) return for_each_group(code, text, found);
  if (code.program == nullptr) {
    if (code.literal.empty()) return;
    for (size_t at = 0; (at = text.find(code.literal, at)) != std::string_view::npos;
         at += code.literal.size()) {
      found({at, at + code.literal.size()});
    }
    return;
  }
  const bool newer = code.newer != nullptr && unicode::has_newer_characters(text);
  const Program& program = newer ? *code.newer : *code.program;
  size_t at = 0, last_end = std::string_view::npos;
  for (Match match{}; at <= text.size() && program.search(text, at, match);) {
    give_way();
    const auto [begin, end] = match;
    const bool empty = begin == end;
    if (!empty || begin != last_end) found(match);
    last_end = end;
    at = end;
    if (empty)
      at += end < text.size() ? unicode::sequence_length(static_cast<unsigned char>(text[end])) : 1;
  }
}

// Finds the runs of digits and divides each in threes from its end; calls `found` with the groups,
// or (kBetween) with the positions where they begin.
void Regex::for_each_group(const Code& code, std::string_view text,
                           FunctionRef<void(Match)> found) {
  code.runs->for_each(text, [&](Match run) {
    const auto next = [&](size_t at) {
      return at +
             static_cast<size_t>(unicode::sequence_length(static_cast<unsigned char>(text[at])));
    };
    size_t n_digits = 0;
    for (size_t at = run.begin; at < run.end; at = next(at)) ++n_digits;
    for (size_t at = run.begin; at < run.end;) {
      const size_t begin = at;
      const bool whole = n_digits % 3 == 0;
      for (size_t n = whole ? 3 : n_digits % 3; n > 0; --n, --n_digits) at = next(at);
      if (code.grouped == Grouped::kGroups) found({begin, at});
      if (code.grouped == Grouped::kBetween && whole) found({begin, begin});
    }
  });
}

}  // namespace penstock
