#include "frontend/chat/marked_parser.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"

namespace penstock {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

std::pair<size_t, size_t> first_mark(std::string_view text, const std::vector<std::string>& marks) {
  std::pair<size_t, size_t> first{std::string::npos, 0};
  for (size_t i = 0; i < marks.size(); ++i) first = std::min(first, {text.find(marks[i]), i});
  return first;
}

size_t held_back(std::string_view text, const std::vector<std::string>& marks) {
  size_t held = 0;
  for (const std::string& mark : marks) {
    for (size_t n = std::min(mark.size() - 1, text.size()); n > held; --n) {
      if (text.ends_with(std::string_view(mark).substr(0, n))) held = n;
    }
  }
  return held;
}

size_t begun_mark(std::string_view text, const std::vector<std::string>& marks) {
  constexpr size_t kLeast = 2;
  const size_t n = held_back(text, marks);
  if (n < kLeast || is_ascii_alnum(text[text.size() - n])) return 0;
  return n;
}

size_t skip_space(std::string_view text, size_t start) {
  while (start < text.size() && is_blank(text[start])) ++start;
  return start;
}

size_t skip_some_space(std::string_view text, size_t start) {
  return skip_space(text.substr(0, std::min(start + kMostUndecided, text.size())), start);
}

bool is_space_only(std::string_view text) { return skip_space(text) == text.size(); }

bool may_become(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

bool is_function_name(std::string_view text) {
  constexpr size_t kMaxName = 256;
  return !text.empty() && text.size() <= kMaxName &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.' || c == ':' || c == '/';
         });
}

std::optional<size_t> find_value_end(std::string_view text, size_t start, CallScan& scan,
                                     bool python) {
  for (scan.position = std::max(scan.position, start); scan.position < text.size();) {
    const char c = text[scan.position++];
    if (scan.escaped) {
      scan.escaped = false;
    } else if (scan.quote != 0) {
      if (c == '\\') scan.escaped = true;
      if (c == scan.quote) scan.quote = 0;
    } else if (c == '"' || (python && c == '\'')) {
      scan.quote = c;
    } else if (c == '{' || c == '[' || (python && c == '(')) {
      ++scan.depth;
    } else if (c == '}' || c == ']' || (python && c == ')')) {
      if (--scan.depth == 0) return scan.position;
    }
  }
  return std::nullopt;
}

MarkedParser::MarkedParser(const CallFormat& format, std::shared_ptr<const ParameterTypes> types,
                           bool constrained_answer)
    : format_(format),
      types_(std::move(types)),
      state_(format.keeps_space ? State::kText : State::kStart),
      constrained_answer_(constrained_answer) {
  for (const auto* marks : {&format.text_begins, &format.text_ends})
    marks_.insert(marks_.end(), marks->begin(), marks->end());
  n_text_marks_ = marks_.size();
  marks_.insert(marks_.end(), format.open.begin(), format.open.end());
}

ReplyPart MarkedParser::push(std::string_view text) {
  ReplyPart out;
  buffer_ += text;
  run(out, false);
  return out;
}

ReplyPart MarkedParser::finish(bool cut) {
  ReplyPart out;
  if (cut && state_ != State::kCall) buffer_.resize(buffer_.size() - begun_mark(buffer_, marks_));
  run(out, true);
  emit(out, std::exchange(buffer_, {}));
  if (state_ == State::kText || state_ == State::kOnlyText || state_ == State::kStart) {
    out.content += std::exchange(space_, {});
  }
  return out;
}

void MarkedParser::run(ReplyPart& out, bool at_end) {
  while (step(out, at_end)) {
  }
}

bool MarkedParser::step(ReplyPart& out, bool at_end) {
  switch (state_) {
    case State::kText: return step_text(out, at_end);
    case State::kCall: return step_call(out, at_end);
    case State::kStart:
    case State::kAfterCall: return step_between(at_end);
    case State::kOnlyText: emit(out, std::exchange(buffer_, {})); return false;
  }
  return false;
}

// Holds back white space at the end, which is dropped before a call.
void MarkedParser::emit(ReplyPart& out, std::string_view text) {
  if (text.empty()) return;
  if (format_.keeps_space) {
    out.content += text;
    return;
  }
  size_t end = text.size();
  while (end > 0 && is_blank(text[end - 1])) --end;
  if (end > 0) out.content += std::exchange(space_, {});
  out.content += text.substr(0, end);
  space_ += text.substr(end);
}

void MarkedParser::pass(ReplyPart& out, size_t n) {
  const std::string_view text = std::string_view(buffer_).substr(0, n);
  emit(out, text);
  if (n > 0) at_line_ = text.back() == '\n';
  buffer_.erase(0, n);
}

void MarkedParser::to_text() {
  const bool calls_follow = format_.bare_lines && !constrained_answer_;
  state_ = format_.start_only && !calls_follow ? State::kOnlyText : State::kText;
}

void MarkedParser::open_call(size_t mark_size) {
  mark_text_ = buffer_.substr(0, mark_size);
  buffer_.erase(0, mark_size);
  line_call_ = mark_size == 0 && state_ == State::kText;
  at_line_ = false;
  scan_ = {};
  stream_ = nullptr;
  // What may be an answer is looked at as a whole.
  const bool may_be_answer = constrained_answer_ && mark_size == 0 && format_.read.whole != nullptr;
  if (format_.read.stream != nullptr && !may_be_answer)
    stream_ = format_.read.stream({format_, mark_text_, types_.get()});
  state_ = State::kCall;
}

bool MarkedParser::step_text(ReplyPart& out, bool at_end) {
  const auto [first, mark] = first_mark(buffer_, marks_);
  const size_t line = bare_line();
  if (line < first) {
    pass(out, line);
    open_call(0);
    return true;
  }
  if (first == std::string::npos) {
    pass(out, buffer_.size() - (at_end ? 0 : held_back(buffer_, marks_)));
    return false;
  }
  pass(out, first);
  if (mark < n_text_marks_) {
    buffer_.erase(0, marks_[mark].size());
    return true;
  }
  // A mark of text may begin with one of calls.
  if (!at_end && std::ranges::any_of(format_.text_begins, [&](const std::string& begin) {
        return may_become(buffer_, begin);
      }))
    return false;
  open_call(marks_[mark].size());
  return true;
}

size_t MarkedParser::bare_line() const {
  if (!format_.bare_lines) return std::string::npos;
  if (at_line_ && buffer_.starts_with(format_.bare)) return 0;
  const size_t end = buffer_.find(std::string{'\n', format_.bare});
  return end == std::string::npos ? end : end + 1;
}

bool MarkedParser::step_call(ReplyPart& out, bool at_end) {
  return stream_ != nullptr ? step_stream(out, at_end) : step_whole(out, at_end);
}

bool MarkedParser::step_stream(ReplyPart& out, bool at_end) {
  const CallStream::Step step = stream_->read(buffer_, out);
  if (stream_->begun()) space_.clear();
  if (step == CallStream::Step::kDone) {
    stream_.reset();
    state_ = State::kAfterCall;
    return true;
  }
  if (step == CallStream::Step::kNotACall) {
    stream_.reset();
    // In the middle of text what is no call is not held back as a whole.
    return (format_.read.whole != nullptr && !line_call_) || refuse_call(out);
  }
  if (!at_end) return false;
  const bool begun = stream_->begun();
  stream_->cut(out);
  stream_.reset();
  if (!begun && mark_text_.empty()) return refuse_call(out);
  space_.clear();
  buffer_.clear();
  state_ = State::kAfterCall;
  return false;
}

bool MarkedParser::step_whole(ReplyPart& out, bool at_end) {
  CallText read = format_.read.whole(buffer_, scan_);
  if (read.kind == CallText::Kind::kMore && !at_end) return false;
  if (read.kind == CallText::Kind::kCalls && take_calls(std::move(read), out)) return true;
  // the reply was cut inside of a call
  if (read.kind == CallText::Kind::kMore && !mark_text_.empty()) {
    space_.clear();
    buffer_.clear();
    state_ = State::kAfterCall;
    return false;
  }
  return refuse_call(out);
}

// Makes text of an opening that no call follows: of its mark; a bare opening has none, its text is
// still in the buffer.
bool MarkedParser::refuse_call(ReplyPart& out) {
  to_text();
  emit(out, std::exchange(mark_text_, {}));
  if (line_call_) pass(out, 1);
  return true;
}

// Without a mark, a text with an unknown tool name is not a call.
bool MarkedParser::take_calls(CallText read, ReplyPart& out) {
  const auto is_tool = [&](const ToolCall& call) { return types_->contains(call.name); };
  if (mark_text_.empty() && types_ != nullptr && !std::ranges::all_of(read.calls, is_tool))
    return false;
  if (mark_text_.empty() && constrained_answer_ &&
      !is_only_call(std::string_view(buffer_).substr(0, read.consumed)))
    return false;
  space_.clear();
  std::move(read.calls.begin(), read.calls.end(), std::back_inserter(out.calls));
  buffer_.erase(0, read.consumed);
  state_ = State::kAfterCall;
  return true;
}

bool MarkedParser::opens_bare() const {
  if (format_.bare != 0) return buffer_[0] == format_.bare;
  return format_.bare_name && is_function_name(std::string_view(buffer_).substr(0, 1));
}

bool MarkedParser::step_between(bool at_end) {
  const bool after_call = state_ == State::kAfterCall;
  const size_t blank = skip_space(buffer_);
  if (!after_call) space_ += buffer_.substr(0, blank);
  buffer_.erase(0, blank);
  if (buffer_.empty()) return false;
  // A mark may begin like another one, or like a bare opening.
  size_t opened = 0;
  bool wait = false;
  for (const std::string& mark : format_.text_begins) {
    if (buffer_.starts_with(mark)) {
      to_text();
      return true;
    }
    wait = wait || may_become(buffer_, mark);
  }
  for (const std::string& mark : format_.open) {
    if (buffer_.starts_with(mark)) opened = std::max(opened, mark.size());
    wait = wait || may_become(buffer_, mark);
  }
  if (opened > 0 && wait && !at_end) return false;
  if (opened > 0) {
    open_call(opened);
    return true;
  }
  if (opens_bare() && (!wait || at_end)) {
    open_call(0);
    return true;
  }
  for (const std::string& mark : format_.close) {
    if (!after_call) break;
    if (buffer_.starts_with(mark)) {
      buffer_.erase(0, mark.size());
      if (format_.keeps_space) to_text();
      return true;
    }
    wait = wait || may_become(buffer_, mark);
  }
  if (wait && at_end && after_call) buffer_.clear();  // an incomplete mark
  if (wait && (!at_end || after_call)) return false;
  to_text();
  return true;
}

}  // namespace penstock
