// SentencePiece's unigram model: the segmentation of highest total log-probability.
#pragma once
#include <vector>

#include "text/vocab/trie.h"
#include "text/vocab/vocabulary.h"
#include "text/vocab/word_model.h"

namespace penstock {

struct UnigramRules {
  Trie pieces;                 // piece -> id; without control tokens
  std::vector<double> scores;  // scores, indexed by id
  double unk_score = 0;        // score of one unknown character
  TokenId unk = kNoToken;      // kNoToken: unknown characters are dropped
  bool byte_fallback = false;
  ByteTokens byte_ids{};
  bool single_precision = false;  // round sums to float, as SentencePiece does
  // Of equally good segmentations the one is taken whose first piece is the longest, then the second, and
  // so on (PLaMo). False: another one, as SentencePiece does.
  bool from_end = false;
};

class Unigram final : public WordModel {
 public:
  explicit Unigram(UnigramRules rules);
  std::unique_ptr<WordScratch> make_scratch() const override;
  // A run of unknown characters becomes its bytes or one unk.
  void encode(std::string_view word, WordScratch* scratch,
              std::vector<TokenId>& out) const override;

 private:
  struct Scratch;
  void encode_part(std::string_view word, Scratch& s, std::vector<TokenId>& out) const;
  // Make the path of the best segmentation, its last piece first.
  void search(std::string_view word, Scratch& s) const;
  void search_from_end(std::string_view word, Scratch& s) const;
  void emit_unknown(std::string_view text, std::vector<TokenId>& out) const;

  UnigramRules rules_;
  bool all_bytes_;
};

}  // namespace penstock
