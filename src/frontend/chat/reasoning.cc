#include "frontend/chat/reasoning.h"

#include <utility>

#include "frontend/chat/marked_parser.h"

namespace penstock {

ReasoningSplitter::ReasoningSplitter(const ReasoningRow& marks, bool starts_inside,
                                     std::vector<std::string> calls)
    : open_(std::string_view(marks.open).substr(skip_space(marks.open))),
      again_(marks.again),
      ends_(std::move(calls)),
      state_(State::kStart),
      optional_open_(starts_inside),
      close_alone_(marks.close_alone) {
  ends_.insert(ends_.begin(), marks.close);
}

ReplyPart ReasoningSplitter::push(std::string_view text) {
  ReplyPart out;
  buffer_ += text;
  while (step(out, false)) {
  }
  return out;
}

ReplyPart ReasoningSplitter::finish(bool cut) {
  ReplyPart out;
  if (cut && state_ == State::kStart) {
    // Words before a message's mark are no text where every message has a recipient.
    const std::string_view rest = std::string_view(buffer_).substr(skip_some_space(buffer_));
    const size_t begun = !again_.empty() && may_become(rest, open_)
                             ? buffer_.size()
                             : begun_mark(buffer_, {open_, close_alone_ ? ends_[0] : open_});
    buffer_.resize(buffer_.size() - begun);
  }
  if (cut && state_ == State::kReasoning)
    buffer_.resize(buffer_.size() - begun_mark(buffer_, ends_));
  while (step(out, true)) {
  }
  return out;
}

// Holds back white space until more reasoning follows.
void ReasoningSplitter::reason(ReplyPart& out, std::string_view text) {
  size_t end = text.size();
  while (end > 0 && is_space_only(text.substr(end - 1, 1))) --end;
  if (end > 0) {
    const size_t start = any_reasoning_ ? 0 : skip_space(text);
    if (any_reasoning_) out.reasoning += space_;
    space_.clear();
    out.reasoning += text.substr(start, end - start);
    any_reasoning_ = true;
  }
  space_ += text.substr(end);
}

bool ReasoningSplitter::step(ReplyPart& out, bool at_end) {
  switch (state_) {
    case State::kStart: {
      const size_t start = skip_some_space(buffer_);
      const std::string_view rest = std::string_view(buffer_).substr(start);
      if (rest.starts_with(open_)) {
        buffer_.erase(0, start + open_.size());
        state_ = State::kReasoning;
        found_ = true;
        return true;
      }
      if (close_alone_ && rest.starts_with(ends_[0])) {
        buffer_.erase(0, start + ends_[0].size());
        state_ = State::kBetween;
        return true;
      }
      if (!at_end && (may_become(rest, open_) || (close_alone_ && may_become(rest, ends_[0]))))
        return false;
      state_ = optional_open_ ? State::kReasoning : State::kAnswer;
      found_ = optional_open_;
      return true;
    }
    case State::kReasoning: return step_reasoning(out, at_end);
    case State::kBetween:
      buffer_.erase(0, skip_space(buffer_));
      if (buffer_.empty()) return false;
      if (!again_.empty() && found_) {
        if (!at_end && may_become(buffer_, again_)) return false;
        if (buffer_.starts_with(again_)) {
          buffer_.erase(0, again_.size());
          if (any_reasoning_) space_ += '\n';
          state_ = State::kReasoning;
          return true;
        }
      }
      state_ = State::kAnswer;
      return true;
    case State::kAnswer: out.content += std::exchange(buffer_, {}); return false;
  }
  return false;
}

bool ReasoningSplitter::step_reasoning(ReplyPart& out, bool at_end) {
  const auto [hit, mark] = first_mark(buffer_, ends_);
  if (hit != std::string::npos) {
    reason(out, std::string_view(buffer_).substr(0, hit));
    buffer_.erase(0, hit + (mark == 0 ? ends_[0].size() : 0));
    state_ = State::kBetween;
    return true;
  }
  const size_t n = buffer_.size() - (at_end ? 0 : held_back(buffer_, ends_));
  reason(out, std::string_view(buffer_).substr(0, n));
  buffer_.erase(0, n);
  return false;
}

}  // namespace penstock
