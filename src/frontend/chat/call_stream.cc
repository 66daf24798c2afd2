#include "frontend/chat/call_stream.h"

#include <cstdio>

#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

bool in_number(char c) { return c >= '0' && c <= '9'; }

bool in_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || in_number(c) || c == '_' || c == '-';
}

bool is_structural(char c) {
  return std::string_view("{}[]:,\"").find(c) != std::string_view::npos;
}

constexpr size_t kMostField = 256;

Match take_field(std::string_view piece, std::string_view text, size_t& at) {
  const size_t start = at;
  const auto fits = [&](char c) {
    return piece == "{n}"      ? in_number(c)
           : piece == "{name}" ? is_function_name({&c, 1})
                               : in_identifier(c);
  };
  while (at < text.size() && fits(text[at])) ++at;
  if (at - start > kMostField) return Match::kNo;
  if (at == text.size()) return Match::kMore;
  return at > start ? Match::kYes : Match::kNo;
}

Match take_literal(std::string_view literal, std::string_view text, size_t& at) {
  for (size_t i = 0; i < literal.size();) {
    if (const size_t next = skip_space(literal, i); next > i) {
      i = next;
      at = skip_some_space(text, at);
      continue;
    }
    if (at == text.size()) return Match::kMore;
    if (text[at++] != literal[i++]) return Match::kNo;
  }
  return Match::kYes;
}

class HeadedStream final : public CallStream {
 public:
  explicit HeadedStream(std::function<CallHead(std::string_view)> head) : head_(std::move(head)) {}

  Step read(std::string& text, ReplyPart& out) override {
    if (arguments_ == nullptr) {
      CallHead head = head_(std::string_view(text).substr(0, kMostUndecided));
      if (head.match == Match::kMore && text.size() < kMostUndecided) return Step::kMore;
      if (head.match != Match::kYes) return Step::kNotACall;
      text.erase(0, head.at);
      if (head.arguments == nullptr) {
        give(out, {std::move(head.call.name), "{}", std::move(head.call.id)});
        return Step::kDone;
      }
      begin(out, std::move(head.call.name), std::move(head.call.id));
      arguments_ = std::move(head.arguments);
    }
    std::string piece;
    const Step step = arguments_->read(text, piece);
    if (!piece.empty()) out.add_arguments(piece);
    if (step == Step::kDone) end(out);
    return step;
  }

 private:
  std::function<CallHead(std::string_view)> head_;
  std::unique_ptr<ArgumentStream> arguments_;  // set after the head was emitted
};

class JsonArguments final : public ArgumentStream {
 public:
  explicit JsonArguments(std::string_view call_end) : call_end_(call_end) {}

  CallStream::Step read(std::string& text, std::string& arguments) override {
    using Step = CallStream::Step;
    text.erase(0, copy_.take(text, arguments));
    if (!copy_.done()) return Step::kMore;
    size_t at = 0;
    const Match match = take_pattern(call_end_, text, at);
    if (match == Match::kMore) return Step::kMore;
    if (match == Match::kYes) text.erase(0, at);
    return Step::kDone;
  }

 private:
  JsonCopy copy_;
  std::string call_end_;
};

}  // namespace

std::unique_ptr<CallStream> headed_stream(std::function<CallHead(std::string_view text)> head) {
  return std::make_unique<HeadedStream>(std::move(head));
}

std::unique_ptr<ArgumentStream> json_arguments(std::string_view call_end) {
  return std::make_unique<JsonArguments>(call_end);
}

void append_escaped(char c, std::string& out) {
  constexpr std::string_view kControls = "\b\f\n\r\t", kLetters = "bfnrt";
  if (c == '"' || c == '\\') {
    out += {'\\', c};
  } else if (static_cast<unsigned char>(c) >= ' ') {
    out += c;
  } else if (const size_t known = kControls.find(c); known != std::string_view::npos) {
    out += {'\\', kLetters[known]};
  } else {
    char text[8];
    std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(c));
    out += text;
  }
}

// Keeps white space between two words or numbers, so that they are not joined.
void JsonCopy::put(char c, std::string& out) {
  if (space_ && last_ != 0 && !is_structural(last_) && !is_structural(c)) out += ' ';
  space_ = false;
  out += last_ = c;
}

size_t JsonCopy::take(std::string_view text, std::string& out) {
  size_t at = 0;
  while (at < text.size() && !done_) {
    const char c = text[at++];
    if (quoted_ && static_cast<unsigned char>(c) < ' ') {
      std::string escape;
      append_escaped(c, escape);
      out += std::string_view(escape).substr(std::exchange(escaped_, false) ? 1 : 0);
    } else if (quoted_) {
      out += c;
      quoted_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (is_space_only({&c, 1})) {
      space_ = true;
    } else {
      put(c, out);
      quoted_ = c == '"';
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') done_ = --depth_ == 0;
    }
  }
  return at;
}

Match take_pattern(std::string_view pattern, std::string_view text, size_t& at,
                   std::string_view* field) {
  while (!pattern.empty()) {
    const std::string_view piece = next_piece(pattern);
    const size_t start = at;
    const bool is_field =
        piece == "{n}" || piece == "{id}" || piece == "{type}" || piece == "{name}";
    const Match match = is_field ? take_field(piece, text, at) : take_literal(piece, text, at);
    if (match != Match::kYes) return match;
    if (is_field && field != nullptr) *field = text.substr(start, at - start);
  }
  return Match::kYes;
}

Match find_object(std::string_view text, size_t& at) {
  at = skip_some_space(text, at);
  if (at == text.size()) return Match::kMore;
  if (text[at] != '{') return Match::kNo;
  const size_t first = skip_some_space(text, at + 1);
  if (first == text.size()) return Match::kMore;
  return text[first] == '"' || text[first] == '}' ? Match::kYes : Match::kNo;
}

std::string_view without_space(std::string_view text) {
  text.remove_prefix(skip_space(text));
  while (!text.empty() && is_space_only(text.substr(text.size() - 1))) text.remove_suffix(1);
  return text;
}

}  // namespace penstock
