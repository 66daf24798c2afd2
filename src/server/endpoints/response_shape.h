// A response of /v1/responses under construction: its items, its events, and the stored record.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_request.h"
#include "server/api/custom_input.h"
#include "server/api/mcp_items.h"
#include "server/api/openai_json.h"
#include "server/api/response_call.h"
#include "server/handlers/answer.h"
#include "server/services/background_runs.h"

namespace penstock {

// Error message of a response that failed because the server stopped.
inline constexpr const char* kStopped = "the server was stopped while it generated this response";

class ResponseShape final : public ReplyShape {
 public:
  // run: of a background response, else null.
  ResponseShape(Services& services, const ResponseCall& call, const BackgroundRun* run);

  std::string begin(const Generation&) override { return begin(); }
  std::string add(const ChoiceDelta& delta, Generation& generation) override;
  net::awaitable<void> keep(const Generation& generation, const Error* error) override;
  std::string end(const Generation&) override { return last_event(); }
  json whole(const Generation&) override { return last_; }
  std::string whole_text(const Generation&) override { return last_text(); }
  size_t bytes_beside() const override { return call_.echoed.size(); }
  HttpReply error(const Error& error) override { return error_reply(error, "input"); }
  std::string error_event(const Error&) override { return last_event(); }

  // Returns the response before anything is generated, as JSON text.
  std::string begun(const char* status) const { return text_of(head(status)); }
  bool kept() const { return !last_.is_null(); }
  // Stores a response that did not finish. reason: "": it was cancelled. Returns its last event.
  net::awaitable<std::string> keep_unfinished(std::string reason);

  // Responses in several rounds: each round is a generation; MCP tools run between rounds.
  std::string begin();
  void begin_round();
  // Adds the round's token usage.
  void add_use(const Generation& generation);
  // round_items(): items of this round. calls_to_run(): indices of the calls to run, in order.
  json round_items() const;
  std::vector<size_t> calls_to_run() const;
  const McpCallItem& call_at(size_t place) const { return items_[place].mcp; }
  std::string end_call(size_t place, const Result<McpResult>& result);
  // Whether the client must answer calls of this round, or the round was cut off.
  bool waits_for_client() const;
  bool is_cut() const { return reader_.finish() == FinishReason::kLength; }
  // Begins an approved call, which becomes the last item; returns its events.
  std::string begin_approved(const ApprovedCall& approved);
  size_t last_place() const { return items_.size() - 1; }
  std::string begin_list(const std::string& label);
  std::string end_list(const Result<json>& tools);
  // reason: why the response is incomplete; "": it is complete, or its text was cut off.
  net::awaitable<void> finish(std::string reason);
  net::awaitable<void> fail(std::string message);
  std::string last_event();
  // The finished response as JSON text. REQUIRES: kept()
  const std::string& last_text();
  int n_used_tokens() const { return use_.output; }

 private:
  using Kind = ReplySegment::Kind;
  struct Item {
    Kind kind;
    std::string id, text = {};
    ToolCall call = {};              // custom tools: `arguments` is the call's text
    const CallForm* form = nullptr;  // form of the call; null: a plain function
    CustomInput input = {};          // for custom tools
    json logprobs = json::array();
    const char* status = "in_progress";
    McpCallItem mcp = {};  // a call that this server runs
    json list = nullptr;   // the complete list-of-tools item
    bool custom() const { return form != nullptr && form->custom; }
  };
  struct Use {
    int input = 0, cached = 0, output = 0, reasoning = 0;
  };

  // Formats and numbers an event. REQUIRES: events are sent in the order of the calls.
  std::string event(const std::string& type, json fields);
  // Formats an event of the whole response, given as JSON text.
  std::string response_event(const std::string& type, const std::string& response) const;
  std::string item_event(const char* type, size_t place, json fields = json::object());
  std::string take(const ReplySegment& segment, json logprobs);
  std::string open_item(const ReplySegment& segment);
  std::string open_call(const ToolCall& call);
  std::string open_mcp_call(McpCallItem call);
  std::string added(Item item);
  std::string done(size_t place);
  std::string close_item(bool cut = false);
  std::string close_mcp_call(size_t place, bool cut);
  std::string call_piece(const ReplySegment& segment);
  // head(): the response without the echoed fields. text_of(): JSON text with them.
  json head(const char* status) const;
  std::string text_of(const json& own) const;
  void set_last(json own);
  json item_json(const Item& item) const;
  json part_json(const Item& item) const;
  json finished(std::string reason) const;
  void add_output(json& response) const;
  json failed(std::string_view message) const;
  net::awaitable<void> store();
  net::awaitable<void> extend();
  // Returns the event fields that identify the open item.
  json place() const {
    return {
        {"item_id", items_.back().id}, {"output_index", items_.size() - 1}, {"content_index", 0}};
  }

  Services& services_;
  const ResponseCall& call_;
  const BackgroundRun* const run_;
  TokenNames names_;
  ChatReader reader_;
  std::vector<Item> items_;
  size_t round_ = 0;   // index of this round's first item
  bool open_ = false;  // the last item may be extended
  // log-probabilities of text that is still held back
  json held_ = json::array();
  int64_t created_ = unix_time(), sequence_ = 0;
  Use use_;
  json marks_ = json::object(), timings_;  // usage fields and timings of the last round
  json details_ = json::object();          // of the first round's prompt
  json last_;                              // the finished response without the echoed fields
  std::string last_text_;                  // the whole finished response; "": not made yet
};

}  // namespace penstock
