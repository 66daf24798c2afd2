#include "server/api/chat_reader.h"

#include "base/check.h"
#include "server/api/api_request.h"

namespace penstock {

ChatReader::ChatReader(const ChatTask& task, std::string call_prefix)
    : call_prefix_(std::move(call_prefix)),
      short_ids_(task.parsers.tools == "mistral"),
      one_call_(task.one_call) {
  auto parser = make_reply_parser(task.parsers);
  PENSTOCK_CHECK(parser.has_value());
  parser_ = std::move(*parser);
}

std::vector<ReplySegment> ChatReader::add(const ChoiceDelta& delta, Generation& generation) {
  std::vector<ReplySegment> news;
  if (delta.token != kNoToken) ++n_tokens_;
  if (delta.finish != FinishReason::kNone) {
    finish_ = delta.finish;
    stop_reason_ = delta.stop_reason;
  }
  if (done_) return news;
  ReplyPart part = parser_->push(delta.text);
  if (delta.finish != FinishReason::kNone) part.append(parser_->finish());
  using Kind = ReplySegment::Kind;
  if (!part.reasoning.empty()) news.push_back({Kind::kReasoning, std::move(part.reasoning), {}, {}});
  if (!part.content.empty()) news.push_back({Kind::kText, std::move(part.content), {}, {}});
  for (ToolCall& call : part.calls) {
    // Mistral's templates insist on ids of nine letters and digits.
    const std::string id = short_ids_ ? random_id("").substr(0, 9) : random_id(call_prefix_);
    news.push_back({Kind::kCall, {}, std::move(call), id});
    ++n_calls_;
    if (!one_call_) continue;
    done_ = true;
    if (delta.finish == FinishReason::kNone) generation.stop(delta.choice);
    break;
  }
  for (const ReplySegment& segment : news) append(segment);
  // Reasoning lasts until something else is said.
  if (!answered_ && !segments_.empty() && segments_.front().kind == Kind::kReasoning)
    n_reasoning_tokens_ = n_tokens_;
  answered_ = answered_ || (!segments_.empty() && segments_.back().kind != Kind::kReasoning);
  return news;
}

void ChatReader::append(const ReplySegment& segment) {
  if (segment.kind != ReplySegment::Kind::kCall && !segments_.empty() &&
      segments_.back().kind == segment.kind) {
    segments_.back().text += segment.text;
  } else {
    segments_.push_back(segment);
  }
}

std::string ChatReader::text_of(ReplySegment::Kind kind) const {
  std::string text;
  for (const ReplySegment& segment : segments_) {
    if (segment.kind == kind) text += segment.text;
  }
  return text;
}

}  // namespace penstock
