// When the words of a transcript are spoken: heads of the decoder that follow the sound say which row of the
// encoder each token belongs to, by dynamic time warping, as transformers has it.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/attention_watch.h"
#include "text/tokenizer.h"

namespace penstock {

struct TokenTime {
  double start = 0, end = 0;  // seconds
};

// Returns the ends of tokens, in seconds from the beginning of the window: each begins where the one before
// it ends. first: index of the first token in the sequence; n_tokens: of which the last was not computed and
// ends with the one before it. median_width: odd. step: seconds of a row.
std::vector<double> token_ends(AttentionWatch& watch, int first, int n_tokens, int median_width,
                               double step);

// A way through a matrix [rows, cols] of costs from its first cell to its last: the column in which each row
// is entered.
std::vector<int> warped(std::span<const double> costs, int rows, int cols);

struct SpokenWord {
  double start = 0, end = 0;
  std::string text;  // with the space before it
};

// Joins tokens of text to words: where there are spaces, in languages without them at each character;
// punctuation goes with the word beside it. times: of the tokens. language: a code.
std::vector<SpokenWord> words_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                 std::span<const TokenTime> times, std::string_view language);

}  // namespace penstock
