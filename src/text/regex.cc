#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include "text/regex_dialect.h"
#include "text/unicode.h"

namespace penstock {
namespace {

constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMatchLimit = 1'000'000;  // backtracking steps of one search
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

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  bool jit = false;
  std::string literal;

  ~Code() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
};

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
  if (!unicode::is_valid(pattern)) return errorf(ErrorCode::kCorruptFile, "tokenizer pattern: not UTF-8");
  ASSIGN_OR_RETURN(const std::string translated, to_pcre(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                             &offset, nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[200];
    pcre2_get_error_message(error, message, sizeof message);
    return errorf(ErrorCode::kCorruptFile, "tokenizer pattern \"{:.80}\": {} at byte {}", pattern,
                  reinterpret_cast<const char*>(message), offset);
  }
  code->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  if (code->jit) pcre2_jit_stack_assign(code->context, jit_stack, nullptr);
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

void Regex::find_all(std::string_view text, std::vector<Match>& out) const {
  const Code& code = *code_;
  if (code.code == nullptr) {
    if (code.literal.empty()) return;
    for (size_t at = 0; (at = text.find(code.literal, at)) != std::string_view::npos;
         at += code.literal.size()) {
      out.push_back({at, at + code.literal.size()});
    }
    return;
  }
  // Kept per thread: patterns run over single words too, where making it would cost more than the match.
  thread_local const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() != nullptr ? text.data() : "");
  size_t at = 0, last_end = std::string_view::npos;
  while (at <= text.size()) {
    const int rc = code.jit ? pcre2_jit_match(code.code, subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                              data.get(), code.context)
                            : pcre2_match(code.code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(),
                                          code.context);
    if (rc < 0) return;
    const size_t begin = range[0], end = range[1];
    if (end < begin || begin < at) return;  // \K moved the start: no sensible pieces
    const bool empty = begin == end;
    if (!empty || begin != last_end) out.push_back({begin, end});
    last_end = end;
    at = end;
    if (empty) at += end < text.size() ? unicode::sequence_length(static_cast<unsigned char>(text[end])) : 1;
  }
}

}  // namespace penstock
