#include "server/replies/cache/particulars.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/ascii.h"
#include "base/text_hash.h"

namespace penstock {
namespace {

constexpr std::string_view kCommon =
#include "server/replies/cache/common_words.inc"
    ;

// Additional function words that answers do not depend on, which the word list of prose has as
// names or not at all.
constexpr std::string_view kMoreCommon =
    "a i im ive id ill youre youve whats thats hes shes its lets ok okay please thanks hello hi "
    "hey explain describe define summarize summarise compare discuss list tell give show briefly "
    "recipe online app email website laptop ";

constexpr std::string_view kNegations =
    "not no never none nobody nothing neither nor without cannot nowhere hardly ";

constexpr std::string_view kAsked =
    "who whom whose when where why how many much long often far old ";

// Words whose opposite changes the question.
constexpr std::string_view kOpposites =
    "more less most least fewer max min maximum minimum largest smallest biggest larger smaller "
    "bigger big small large little highest lowest higher lower high low longest shortest longer "
    "shorter tallest taller tall short fastest slowest faster slower fast slow best worst better "
    "worse good bad first last next previous before after above below over under up down left "
    "right top bottom out inside outside off open close opened closed buy sell bought sold lend "
    "borrow win lose won lost start stop begin end add remove adding removing increase decrease "
    "increases decreases increasing decreasing increased decreased raise rise fall grow shrink "
    "gain loss enable disable allow forbid install uninstall accept reject include exclude import "
    "export upload download encode decode encrypt decrypt push pull send receive create delete "
    "create destroy build break connect disconnect lock unlock hot cold warm cool dry wet north "
    "south east west early late earlier later always all only both either except unless male "
    "female man woman boy girl men women mother father mom dad son daughter brother sister husband "
    "wife king queen he she his her him hers young old new positive negative true false advantages "
    "disadvantages advantage disadvantage pros cons safe dangerous legal illegal cheap expensive "
    "cheapest most same different similar difference input output day night morning evening today "
    "tomorrow yesterday monday tuesday wednesday thursday friday saturday sunday weekly daily "
    "monthly yearly annual hourly ";

// Closed-class words and question openers, whose position does not change the meaning.
constexpr std::string_view kFunctionWords =
    "a an the this that these those some any each every other another such so there here it its "
    "they them their i you we me us my your our who whom whose what which when where why how of to "
    "in on at by for with from as into about off and or but if than then is are was were be been "
    "being am do does did done has have had having will would can could should may might must "
    "shall please tell know answer explain question ask asked like hi hey hello thanks ok okay ";

class Words {
 public:
  explicit Words(std::initializer_list<std::string_view> lists) {
    for (std::string_view list : lists) {
      for (size_t space = list.find(' '); space != std::string_view::npos; space = list.find(' ')) {
        if (space > 0) words_.insert(list.substr(0, space));
        list.remove_prefix(space + 1);
      }
    }
  }
  bool has(std::string_view word) const { return words_.contains(word); }

 private:
  ViewSet words_;
};

const ViewMap<std::string_view>& number_words() {
  static const ViewMap<std::string_view> kWords = {
      {"zero", "0"},        {"one", "1"},         {"two", "2"},       {"three", "3"},
      {"four", "4"},        {"five", "5"},        {"six", "6"},       {"seven", "7"},
      {"eight", "8"},       {"nine", "9"},        {"ten", "10"},      {"eleven", "11"},
      {"twelve", "12"},     {"thirteen", "13"},   {"fourteen", "14"}, {"fifteen", "15"},
      {"sixteen", "16"},    {"seventeen", "17"},  {"eighteen", "18"}, {"nineteen", "19"},
      {"twenty", "20"},     {"thirty", "30"},     {"forty", "40"},    {"fifty", "50"},
      {"sixty", "60"},      {"seventy", "70"},    {"eighty", "80"},   {"ninety", "90"},
      {"hundred", "100"},   {"thousand", "1000"}, {"million", "1e6"}, {"billion", "1e9"},
      {"trillion", "1e12"}, {"dozen", "12"},      {"half", "0.5"},    {"second", "2nd"},
      {"third", "3rd"},     {"fourth", "4th"},    {"fifth", "5th"},   {"sixth", "6th"},
      {"seventh", "7th"},   {"eighth", "8th"},    {"ninth", "9th"},   {"tenth", "10th"},
      {"once", "1x"},       {"twice", "2x"},      {"thrice", "3x"},   {"double", "2x"},
      {"triple", "3x"},     {"quarter", "0.25"}};
  return kWords;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}
bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Replaces typographic apostrophes and quotation marks by ASCII.
std::string plain_marks(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, char>, 8> kMarks = {{{"\u2019", '\''},
                                                                               {"\u2018", '\''},
                                                                               {"\u201c", '"'},
                                                                               {"\u201d", '"'},
                                                                               {"\u201e", '"'},
                                                                               {"\u00ab", '"'},
                                                                               {"\u00bb", '"'},
                                                                               {"\u2212", '-'}}};
  std::string plain;
  plain.reserve(text.size());
  while (!text.empty()) {
    const auto* mark =
        std::ranges::find_if(kMarks, [&](const auto& one) { return text.starts_with(one.first); });
    if (mark == kMarks.end()) {
      plain += text.front();
      text.remove_prefix(1);
    } else {
      plain += mark->second;
      text.remove_prefix(mark->first.size());
    }
  }
  return plain;
}

// Finds the ends of quotations; each part of the text is searched once for each mark. REQUIRES: the
// text outlives it, and places are asked for in ascending order.
class QuoteEnds {
 public:
  explicit QuoteEnds(std::string_view text) : text_(text) {}

  // Returns the position of the closing mark of a quotation that begins at `at`, or npos.
  size_t of(size_t at) {
    const size_t mark = kMarks.find(text_[at]);
    if (mark == kMarks.npos) return kMarks.npos;
    const bool inside_word = at > 0 && (is_letter(text_[at - 1]) || is_digit(text_[at - 1]));
    if (text_[at] == '\'' && inside_word) return kMarks.npos;
    size_t& end = next_[mark];
    if (end != kMarks.npos && end <= at) end = closing_behind(at);
    return end;
  }

 private:
  static constexpr std::string_view kMarks = "\"'`";

  // An apostrophe closes nothing.
  size_t closing_behind(size_t at) const {
    const char mark = text_[at];
    size_t end = at;
    do {
      end = text_.find(mark, end + 1);
    } while (end != kMarks.npos && mark == '\'' && end + 1 < text_.size() &&
             is_letter(text_[end + 1]));
    return end;
  }

  const std::string_view text_;
  std::array<size_t, kMarks.size()> next_{};  // by mark: the closing one that was found last
};

// Strips plural and possessive endings.
std::string stem(std::string word) {
  if (word.ends_with("'s")) word.resize(word.size() - 2);
  if (word.size() > 3 && word.ends_with('s') && !word.ends_with("ss")) word.pop_back();
  return word;
}

bool is_common(const std::string& word) {
  static const Words kWords({kCommon, kMoreCommon});
  if (kWords.has(word)) return true;
  const auto without = [&](std::string_view end, std::string_view instead = "") {
    return word.size() > end.size() + 2 && word.ends_with(end) &&
           kWords.has(word.substr(0, word.size() - end.size()) + std::string(instead));
  };
  return without("s") || without("es") || without("ies", "y") || without("ed") || without("d") ||
         without("ing") || without("ing", "e") || without("ly") || without("er") || without("'s");
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(plain_marks(text)), quotes_(text_) {}

  Particulars read() {
    while (at_ < text_.size()) step();
    std::ranges::sort(found_.negations);
    for (auto* list : {&found_.opposites, &found_.asked}) {
      std::ranges::sort(*list);
      list->erase(std::ranges::unique(*list).begin(), list->end());
    }
    return std::move(found_);
  }

 private:
  void step() {
    if (const size_t end = quotes_.of(at_); end != std::string::npos) {
      found_.quoted.push_back(text_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      begins_ = false;
    } else if (is_digit(text_[at_]) ||
               (text_[at_] == '-' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      take_number();
    } else if (is_letter(text_[at_])) {
      take_word();
    } else {
      const char c = text_[at_++];
      constexpr std::string_view kPlain = ".,;:!?()'\"-";
      // Symbols are significant: 3 + 4, a * b, $5.
      if (!is_ascii_space(c) && kPlain.find(c) == std::string_view::npos)
        found_.numbers.emplace_back(1, c);
      if (c == '.' || c == '!' || c == '?' || c == ':' || c == '\n') begins_ = true;
    }
  }

  // Reads a number: "1,000.5" as "1000.5", with directly following letters ("3rd", "5km", "4x4").
  void take_number() {
    std::string number;
    const auto next_is_digit = [&] { return at_ + 1 < text_.size() && is_digit(text_[at_ + 1]); };
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == ',' && next_is_digit()) continue;
      const bool inner = (c == '.' || c == ':' || c == '/' || c == '-') && next_is_digit();
      if (!is_digit(c) && !is_letter(c) && !inner && c != '%') break;
      number += ascii_lower(c);
    }
    add_number(std::move(number));
    begins_ = false;
  }

  void take_word() {
    const size_t start = at_;
    bool has_digit = false, is_odd = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      const bool joined =
          (c == '\'' || c == '_' || c == '@' || c == '.' || c == '/' || c == '+' || c == '#') &&
          at_ + 1 < text_.size() && (is_letter(text_[at_ + 1]) || is_digit(text_[at_ + 1]));
      const bool sign = (c == '+' || c == '#') && at_ > start;  // C++, C#
      if (!is_letter(c) && !is_digit(c) && !joined && !sign) break;
      has_digit |= is_digit(c);
      is_odd |= (joined && c != '\'') || sign || (static_cast<unsigned char>(c) & 0x80) != 0;
    }
    const std::string_view as_is = std::string_view(text_).substr(start, at_ - start);
    std::string word;
    for (const char c : as_is) word += ascii_lower(c);
    const bool capital = as_is.front() != word.front();
    const bool shouted = as_is.size() > 1 && as_is[1] != word[1];
    sort_in(std::move(word), has_digit || is_odd, shouted, capital && !begins_);
    begins_ = false;
  }

  void sort_in(std::string word, bool odd, bool shouted, bool capital) {
    static const Words kNegationWords({kNegations}), kAskedWords({kAsked}),
        kOppositeWords({kOpposites}), kFunction({kFunctionWords});
    if (word.ends_with("n't") || word == "cannot") {
      found_.negations.emplace_back("not");
      return;
    }
    for (const std::string_view end : {"'m", "'re", "'ve", "'ll", "'d"}) {
      if (word.ends_with(end)) word.resize(word.size() - end.size());
    }
    const bool genitive = word.ends_with("'s");
    if (genitive && (kAskedWords.has(word.substr(0, word.size() - 2)) || is_common(word)))
      word.resize(word.size() - 2);
    if (kNegationWords.has(word)) {
      found_.negations.push_back(std::move(word));
    } else if (const auto number = number_words().find(word); number != number_words().end()) {
      add_number(std::string(number->second));
    } else {
      if (kAskedWords.has(word)) found_.asked.push_back(word);
      if (kOppositeWords.has(word)) found_.opposites.push_back(word);
      const bool is_function = kFunction.has(word);
      if (!genitive && !is_function) found_.words.push_back(stem(word));
      capital = shouted || (capital && !is_function);
      if (odd || capital || !is_common(word)) add_name(stem(std::move(word)));
    }
  }

  void add_number(std::string number) {
    // order matters: "Five Factor" is not "Factor Five"
    found_.words.push_back(number);
    found_.numbers.push_back(std::move(number));
  }

  void add_name(std::string name) {
    if (names_.insert(name).second) found_.names.push_back(std::move(name));
  }

  const std::string text_;
  QuoteEnds quotes_;
  TextSet names_;  // in found_
  size_t at_ = 0;
  // at the start of a sentence, where any word is capitalized
  bool begins_ = true;
  Particulars found_;
};

// Returns the words of `one` that the other has too.
std::vector<std::string_view> words_of(const Particulars& one, const Particulars& other) {
  const ViewSet has(other.words.begin(), other.words.end());
  std::vector<std::string_view> shared;
  std::ranges::copy_if(one.words, std::back_inserter(shared),
                       [&](const std::string& word) { return has.contains(word); });
  return shared;
}

}  // namespace

Particulars particulars_of(std::string_view text) { return Reader(text).read(); }

bool agree(const Particulars& a, const Particulars& b) {
  const auto sorted_out = [](const Particulars& one) {
    return std::tie(one.numbers, one.names, one.negations, one.quoted, one.opposites, one.asked);
  };
  return sorted_out(a) == sorted_out(b) && words_of(a, b) == words_of(b, a);
}

}  // namespace penstock
