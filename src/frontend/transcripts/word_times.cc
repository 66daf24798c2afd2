#include "frontend/transcripts/word_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/work.h"

namespace penstock {
namespace {

// A matrix of one head, normalised over the tokens of each column.
void normalise(std::vector<float>& values, size_t rows, size_t cols) {
  for (size_t col = 0; col < cols; ++col) {
    double sum = 0, squares = 0;
    for (size_t row = 0; row < rows; ++row) sum += static_cast<double>(values[row * cols + col]);
    const double mean = sum / static_cast<double>(rows);
    for (size_t row = 0; row < rows; ++row) {
      const double away = static_cast<double>(values[row * cols + col]) - mean;
      squares += away * away;
    }
    const double deviation = std::sqrt(squares / static_cast<double>(rows));
    for (size_t row = 0; row < rows; ++row) {
      float& value = values[row * cols + col];
      value = deviation == 0 ? 0.0f
                             : static_cast<float>((static_cast<double>(value) - mean) / deviation);
    }
  }
}

// The median of `width` neighbours in a row, which is reflected at its ends. Rows of half a width and less
// stay.
void smooth(std::span<float> row, int width) {
  const int n = static_cast<int>(row.size()), half = width / 2;
  if (n <= half) return;
  const std::vector<float> from(row.begin(), row.end());
  std::vector<float> window(static_cast<size_t>(width));
  for (int i = 0; i < n; ++i) {
    for (int k = -half; k <= half; ++k) {
      int at = std::abs(i + k);
      if (at >= n) at = 2 * (n - 1) - at;
      window[static_cast<size_t>(k + half)] = from[static_cast<size_t>(std::max(at, 0))];
    }
    std::ranges::nth_element(window, window.begin() + half);
    row[static_cast<size_t>(i)] = window[static_cast<size_t>(half)];
  }
}

// A part of a text: its characters and tokens [first, end).
struct TextPart {
  std::string text;
  size_t first = 0, end = 0;
};

constexpr std::string_view kReplaced = "\xEF\xBF\xBD";  // U+FFFD

// Parts that are whole characters, or bytes that are none in the whole text either.
std::vector<TextPart> whole_characters(const Tokenizer& tokenizer,
                                       std::span<const TokenId> tokens) {
  const std::string whole = tokenizer.decode(tokens);
  std::vector<TextPart> parts;
  size_t offset = 0, first = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string text = tokenizer.decode(tokens.subspan(first, i + 1 - first));
    const size_t replaced = text.find(kReplaced);
    const bool ends = replaced == std::string::npos || offset + replaced >= whole.size() ||
                      std::string_view(whole).substr(offset + replaced).starts_with(kReplaced);
    if (!ends) continue;
    offset += text.size();
    parts.push_back({std::move(text), first, i + 1});
    first = i + 1;
  }
  return parts;
}

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \n\r\t\v\f";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

bool is_in(std::string_view text, std::string_view all) {
  return all.find(text) != std::string_view::npos;
}

// A part that begins with a space or is punctuation begins a word.
std::vector<TextPart> words_between_spaces(std::vector<TextPart> parts) {
  constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  std::vector<TextPart> words;
  for (TextPart& part : parts) {
    const bool begins = words.empty() || part.text.starts_with(' ') ||
                        is_in(without_spaces(part.text), kPunctuation);
    if (begins) {
      words.push_back(std::move(part));
    } else {
      words.back().text += part.text, words.back().end = part.end;
    }
  }
  return words;
}

void join_punctuation(std::vector<TextPart>& words) {
  constexpr std::string_view kBefore = "\"'“¡¿([{-", kBehind = "\"'.。,，!！?？:：”)]}、";
  const auto join = [&](size_t to, size_t from) {
    if (from < to) {
      words[to].text = words[from].text + words[to].text, words[to].first = words[from].first;
    } else {
      if (words[to].text.empty()) words[to].first = words[from].first;
      words[to].text += words[from].text, words[to].end = words[from].end;
    }
    words[from].text.clear();
  };
  for (size_t i = words.size(), next = i; i-- > 0;) {
    const bool joins = next < words.size() && words[i].text.starts_with(' ') &&
                       is_in(without_spaces(words[i].text), kBefore);
    if (joins) {
      join(next, i);
    } else {
      next = i;
    }
  }
  for (size_t i = 0, next = 1; next < words.size(); ++next) {
    const bool joins = !words[i].text.ends_with(' ') && is_in(words[next].text, kBehind);
    if (joins) {
      if (!words[next].text.empty()) join(i, next);
    } else {
      i = next;
    }
  }
  std::erase_if(words, [](const TextPart& word) { return word.text.empty(); });
}

}  // namespace

std::vector<int> warped(std::span<const double> costs, int rows, int cols) {
  const auto width = static_cast<size_t>(cols) + 1;
  const size_t size = (static_cast<size_t>(rows) + 1) * width;
  std::vector<float> cost(size, std::numeric_limits<float>::infinity());
  enum Step : uint8_t { kBoth, kRow, kCol };
  std::vector<uint8_t> trace(size, kCol);
  cost[0] = 0;
  const auto at = [&](int row, int col) {
    return static_cast<size_t>(row) * width + static_cast<size_t>(col);
  };
  for (int col = 1; col <= cols; ++col) {
    if (col % 64 == 0) give_way();
    for (int row = 1; row <= rows; ++row) {
      const float both = cost[at(row - 1, col - 1)], above = cost[at(row - 1, col)],
                  left = cost[at(row, col - 1)];
      const Step step = both < above && both < left    ? kBoth
                        : above < both && above < left ? kRow
                                                       : kCol;
      const float least = step == kBoth ? both : step == kRow ? above : left;
      const double own = costs[static_cast<size_t>(row - 1) * static_cast<size_t>(cols) +
                               static_cast<size_t>(col - 1)];
      cost[at(row, col)] = static_cast<float>(own + static_cast<double>(least));
      trace[at(row, col)] = step;
    }
  }
  std::vector<int> entered(static_cast<size_t>(rows));
  for (int row = rows, col = cols; row > 0;) {
    entered[static_cast<size_t>(row - 1)] = std::max(col - 1, 0);
    const Step step = col == 0 ? kRow : static_cast<Step>(trace[at(row, col)]);
    if (step != kCol) --row;
    if (step != kRow) --col;
  }
  return entered;
}

std::vector<double> token_ends(AttentionWatch& watch, int first, int n_tokens, int median_width,
                               double step) {
  std::vector<double> ends(static_cast<size_t>(std::max(n_tokens, 0)));
  const int rows = n_tokens - 1, cols = watch.n_rows;
  if (rows < 1 || cols < 1 || watch.heads.empty()) return ends;
  const auto n_rows = static_cast<size_t>(rows), n_cols = static_cast<size_t>(cols);
  std::vector<double> costs(n_rows * n_cols);
  for (size_t head = 0; head < watch.heads.size(); ++head) {
    give_way();
    std::vector<float> values;
    for (int row = 0; row < rows; ++row) {
      const std::span<const float> own = watch.row(first + row, head);
      values.insert(values.end(), own.begin(), own.end());
    }
    values.resize(n_rows * n_cols);
    normalise(values, n_rows, n_cols);
    for (size_t row = 0; row < n_rows; ++row)
      smooth(std::span(values).subspan(row * n_cols, n_cols), median_width);
    for (size_t i = 0; i < values.size(); ++i)
      costs[i] -= static_cast<double>(values[i]) / static_cast<double>(watch.heads.size());
  }
  const std::vector<int> entered = warped(costs, rows, cols);
  for (size_t i = 0; i < ends.size(); ++i)
    ends[i] = step * entered[std::min(i, entered.size() - 1)];
  return ends;
}

std::vector<SpokenWord> words_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                 std::span<const TokenTime> times, std::string_view language) {
  constexpr std::string_view kWithoutSpaces[] = {"zh", "ja", "th", "lo", "my", "yue"};
  std::vector<TextPart> words = whole_characters(tokenizer, tokens);
  if (std::ranges::find(kWithoutSpaces, language) == std::end(kWithoutSpaces))
    words = words_between_spaces(std::move(words));
  join_punctuation(words);
  std::vector<SpokenWord> result;
  for (TextPart& word : words)
    result.push_back({times[word.first].start, times[word.end - 1].end, std::move(word.text)});
  return result;
}

}  // namespace penstock
