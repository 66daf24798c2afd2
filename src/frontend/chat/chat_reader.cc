#include "frontend/chat/chat_reader.h"

#include <algorithm>

#include "base/check.h"
#include "frontend/random_id.h"

namespace penstock {

using Kind = ReplySegment::Kind;

ChatReader::ChatReader(const ChatTask& task, std::string call_prefix)
    : call_prefix_(std::move(call_prefix)),
      short_ids_(task.parsers.tools == "mistral"),
      one_call_(task.one_call) {
  auto parser = make_reply_parser(task.parsers);
  PENSTOCK_CHECK(parser.has_value());
  parser_ = std::move(*parser);
}

std::vector<ReplySegment> ChatReader::add(std::string_view text, int n_tokens,
                                          FinishReason finish) {
  n_tokens_ += n_tokens;
  if (finish != FinishReason::kNone) finish_ = finish;
  if (complete_) return {};
  std::vector<ReplySegment> news = read(text);
  for (const ReplySegment& segment : news) append(segment);
  // Reasoning ends when another segment begins.
  if (!answered_ && !segments_.empty() && segments_.front().kind == Kind::kReasoning)
    n_reasoning_tokens_ = n_tokens_;
  answered_ = answered_ || (!segments_.empty() && segments_.back().kind != Kind::kReasoning);
  return news;
}

std::vector<ReplySegment> ChatReader::read(std::string_view text) {
  std::vector<ReplySegment> news;
  ReplyPart part = parser_->push(text);
  if (finish_ != FinishReason::kNone) part.append(parser_->finish(finish_ != FinishReason::kStop));
  const size_t n_begun = part.continues ? 1 : 0, n_calls = part.calls.size();
  // The rest of an open call precedes what follows it.
  if (part.continues)
    news.push_back(call_segment(std::move(part.calls[0]), false, n_calls > 1 || !part.open));
  if (complete_) return news;
  if (!part.reasoning.empty()) news.push_back({Kind::kReasoning, std::move(part.reasoning)});
  if (!part.content.empty()) news.push_back({Kind::kText, std::move(part.content)});
  for (size_t i = n_begun; i < n_calls && !complete_; ++i)
    news.push_back(call_segment(std::move(part.calls[i]), true, i + 1 < n_calls || !part.open));
  return news;
}

ReplySegment ChatReader::call_segment(ToolCall call, bool begins, bool ends) {
  if (begins) {
    // Keep the model's id if the template expects it back. Mistral's templates require nine letters
    // and digits.
    if (call.id.empty())
      call.id = short_ids_ ? random_id("").substr(0, 9) : random_id(call_prefix_);
    ++n_calls_;
  }
  complete_ = one_call_ && ends;
  return {Kind::kCall, {}, std::move(call), n_calls_ - 1, begins, ends};
}

void ChatReader::append(const ReplySegment& segment) {
  if (segment.kind == Kind::kCall && !segment.begins) {
    segments_.back().call.arguments += segment.call.arguments;
    segments_.back().ends = segment.ends;
  } else if (segment.kind != Kind::kCall && !segments_.empty() &&
             segments_.back().kind == segment.kind) {
    segments_.back().text += segment.text;
  } else {
    segments_.push_back(segment);
  }
}

const ToolCall& ChatReader::call(int n) const {
  const auto found = std::ranges::find_if(segments_, [&](const ReplySegment& one) {
    return one.kind == Kind::kCall && one.n_call == n;
  });
  PENSTOCK_CHECK(found != segments_.end());
  return found->call;
}

std::string ChatReader::text_of(Kind kind) const {
  std::string text;
  for (const ReplySegment& segment : segments_) {
    if (segment.kind == kind) text += segment.text;
  }
  return text;
}

ChatMessage ChatReader::message() const {
  ChatMessage message{"assistant", text_of(Kind::kText), text_of(Kind::kReasoning)};
  for (const ReplySegment& segment : segments_) {
    if (segment.kind == Kind::kCall) message.tool_calls.push_back(segment.call);
  }
  return message;
}

}  // namespace penstock
