// A grammar that texts are held to: compiled once, shared by all requests, matched token by token.
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
  kJsonSchema,     // a JSON Schema, drafts 4 to 2020-12
  kJsonObject,     // any JSON object; no text
  kRegex,          // the whole text matches; ECMAScript's dialect
  kGrammar,        // GBNF, EBNF or Lark, see syntax/notation.h
  kStructuralTag,  // JSON: {"type": "structural_tag", "format": ...} or {"structures": ..., "triggers": ...}
  kChoice,         // JSON: an array of texts
};

struct GrammarSpec {
  SpecKind kind = SpecKind::kJsonSchema;
  std::string text;
  JsonStyle json = {};
};

struct Program;
struct MaskSource;
class ShortestEndings;

// Immutable; any thread may use it. Masks made before are kept within a bound and shared by all matchers.
class Grammar {
 public:
  // Takes time and memory within the limits, whatever the text. vocabulary: null where no masks are asked for.
  // steps: how many of limits.max_steps it took, more where it was refused for them; may be null.
  static Compiled<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec,
                                                          std::shared_ptr<const Vocabulary> vocabulary,
                                                          const CompileLimits& limits = {},
                                                          uint64_t* steps = nullptr);
  ~Grammar();
  std::span<const Note> notes() const { return notes_; }
  const Program& program() const { return *program_; }
  // REQUIRES: compiled with a vocabulary.
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const MaskSource& masks() const { return *masks_; }
  const ShortestEndings& endings() const;  // made when first needed
  // Bytes, about, with the masks that are kept now; lexemes that grammars share are counted for each of them.
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

// Where one text stands in a grammar. Belongs to one thread at a time. A copy is a fork: both go on independently.
//
// Every text that is accepted so far can be completed. Work and memory of a text are bounded, see failure(): a text begins with some
// millions of operations, of which each token brings some more (work_meter.h). After the first few tokens nothing is allocated but by masks that no
// matcher of the grammar asked for before.
class Matcher {
 public:
  // text_begin: the first token begins the text, where SentencePiece drops a leading space; false behind a prompt.
  explicit Matcher(std::shared_ptr<const Grammar> grammar, bool text_begin = false);
  Matcher(const Matcher& other);
  Matcher& operator=(const Matcher& other);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  // Takes a token, which may be an end of generation where may_end(). Whether it was allowed; else nothing changes.
  bool append(TokenId token);
  // Takes bytes as one token of them would be.
  bool append_bytes(std::string_view bytes);
  // Undoes the last n that were taken. REQUIRES: as many were.
  void rollback(int n);
  int n_appended() const;
  // Why nothing can be said of the text any more: following it takes too much work or memory. Then nothing is taken and masks are
  // empty, also after a rollback. "": it can.
  std::string failure() const;
  uint64_t work() const;  // operations so far
  // Makes room for so many tokens of usual size, of which it takes a few thousand seriously.
  void reserve(size_t n_tokens);
  const Grammar& grammar() const;

  // bits: vocabulary().mask_words() words, bit per token id; all are written. Exactly the tokens append() takes.
  void fill_mask(std::span<uint32_t> bits);
  // Whether the text may end here; whether nothing else is possible.
  bool may_end() const;
  bool must_end() const;
  bool ended() const;  // an end of generation was appended
  // So many bytes, about, bring the text to where it may end; those that lead there lower it one by one. kNoEnding: unknown.
  uint64_t shortest_ending() const;
  // Appends the bytes that must come next whatever the tokens, until bytes has max_bytes; ends where there is a choice or
  // the text may end. spaced: where white space is open beside at most one other byte, goes on as the text was spaced before.
  void forced_bytes(std::string& bytes, size_t max_bytes = 256, bool spaced = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::grammar
