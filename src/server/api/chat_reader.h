// One choice of a chat taken apart while it arrives: reasoning, text, tool calls. The whole reply and the
// stream of it come from the same object, so they agree.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "server/api/chat_setup.h"
#include "server/api/generation.h"

namespace penstock {

struct ReplySegment {
  enum class Kind { kReasoning, kText, kCall };
  Kind kind;
  std::string text;  // of reasoning and text
  ToolCall call;
  std::string id;  // of a call
};

class ChatReader {
 public:
  // call_prefix: of the ids of tool calls. The task's parser names are known to be good.
  ChatReader(const ChatTask& task, std::string call_prefix);

  // What a delta adds; nothing after the reply's end. A call that must be the only one ends the choice.
  std::vector<ReplySegment> add(const ChoiceDelta& delta, Generation& generation);

  // Everything so far; neighbours of one kind (but calls) are joined.
  const std::vector<ReplySegment>& segments() const { return segments_; }
  std::string text_of(ReplySegment::Kind kind) const;
  int n_calls() const { return n_calls_; }
  int n_reasoning_tokens() const { return n_reasoning_tokens_; }
  FinishReason finish() const { return finish_; }
  const StopReason& stop_reason() const { return stop_reason_; }

 private:
  void append(const ReplySegment& segment);

  std::unique_ptr<ReplyParser> parser_;
  std::string call_prefix_;
  bool short_ids_, one_call_, done_ = false, answered_ = false;
  std::vector<ReplySegment> segments_;
  int n_calls_ = 0, n_reasoning_tokens_ = 0, n_tokens_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  StopReason stop_reason_;
};

}  // namespace penstock
