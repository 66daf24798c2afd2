// A compiled grammar that constrains texts: compiled once, shared by all requests, matched token by
// token.
//
//   ASSIGN vocabulary = Vocabulary::make(tokenizer)
//   grammar = Grammar::compile({.kind = SpecKind::kJsonSchema, .text = schema}, vocabulary)   // or a Refusal
//   Matcher matcher(grammar);  matcher.fill_mask(bits);  matcher.append(token);  matcher.may_end();
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/parts/budget.h"
#include "grammar/parts/refusal.h"
#include "grammar/schema/json_style.h"
#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

enum class SpecKind : uint8_t {
  kJsonSchema,  // a JSON Schema, drafts 4 to 2020-12
  kJsonObject,  // any JSON object; GrammarSpec::text is ignored
  // a regular expression in ECMAScript's dialect, matched against the whole text
  kRegex,
  kGrammar,  // GBNF, EBNF or Lark, see syntax/notation.h
  // JSON: {"type": "structural_tag", "format": ...} or {"structures": ..., "triggers": ...}
  kStructuralTag,
  kChoice,  // JSON: an array of texts
};

struct GrammarSpec {
  SpecKind kind = SpecKind::kJsonSchema;
  std::string text;
  JsonStyle json = {};
};

struct Program;
struct MaskSource;
class ShortestEndings;

// Immutable and thread-safe. Its cache of token masks is bounded and shared by all matchers.
class Grammar {
 public:
  // Compiles a specification; time and memory are bounded by the limits for any text. vocabulary:
  // null if no masks are needed. steps: set to the number of steps taken, which exceeds
  // limits.max_steps when compilation was refused for them; may be null.
  static Compiled<std::shared_ptr<const Grammar>> compile(
      const GrammarSpec& spec, std::shared_ptr<const Vocabulary> vocabulary,
      const CompileLimits& limits = {}, uint64_t* steps = nullptr);
  ~Grammar();
  std::span<const Note> notes() const { return notes_; }
  const Program& program() const { return *program_; }
  // REQUIRES: compiled with a vocabulary.
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const MaskSource& masks() const { return *masks_; }
  const ShortestEndings& endings() const;  // created lazily
  // Returns the approximate memory in bytes, including cached masks; lexemes that several grammars
  // share are counted for each.
  size_t memory() const;

 private:
  Grammar(Program program, std::vector<Note> notes, std::shared_ptr<const Vocabulary> vocabulary);
  struct Caches;
  std::unique_ptr<const Program> program_;
  std::vector<Note> notes_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::unique_ptr<Caches> caches_;
  std::unique_ptr<const MaskSource> masks_;
};

// The state of one text in a grammar. Not thread-safe. A copy is an independent fork.
//
// Every text that is accepted so far can be completed. Work and memory of a text are bounded, see
// failure(): a text starts with a budget of some millions of operations, to which each token adds
// some (work_meter.h). After the first few tokens memory is allocated only for masks that are not
// in the grammar's cache.
class Matcher {
 public:
  // text_begin: the first token begins the text, where SentencePiece drops a leading space; false:
  // it follows a prompt.
  explicit Matcher(std::shared_ptr<const Grammar> grammar, bool text_begin = false);
  Matcher(const Matcher& other);
  Matcher& operator=(const Matcher& other);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  // Appends a token; an end-of-generation token is allowed if may_end(). Returns whether it is
  // allowed; if not, nothing changes.
  bool append(TokenId token);
  // As append(), for a token with these bytes.
  bool append_bytes(std::string_view bytes);
  // Undoes the last n appends. REQUIRES: n <= n_appended().
  void rollback(int n);
  int n_appended() const;
  // The error when following the text takes too much work or memory; "": none. After an error
  // append() refuses everything and masks are empty, even after a rollback.
  std::string failure() const;
  uint64_t work() const;  // number of operations so far
  // Reserves memory for n_tokens tokens of usual size, at most for a few thousand.
  void reserve(size_t n_tokens);
  const Grammar& grammar() const;

  // Sets bits to the tokens that append() would accept, one bit per token id. REQUIRES: bits.size()
  // == vocabulary().mask_words().
  void fill_mask(std::span<uint32_t> bits);
  // may_end(): the text may end here. must_end(): nothing but the end is allowed.
  bool may_end() const;
  bool must_end() const;
  // whether an end-of-generation token was appended
  bool ended() const;
  // Returns the approximate number of bytes to the nearest point where the text may end; along a
  // shortest way it falls by one with each byte. kNoEnding: unknown.
  uint64_t shortest_ending() const;
  // Appends to `bytes` the bytes that must come next, until it has max_bytes; stops where there is
  // a choice or the text may end. spaced: where optional white space and at most one other byte are
  // allowed, the white space follows the style of the text so far.
  void forced_bytes(std::string& bytes, size_t max_bytes = 256, bool spaced = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::grammar
