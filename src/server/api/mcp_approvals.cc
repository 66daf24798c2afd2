#include "server/api/mcp_approvals.h"

#include <algorithm>

#include "frontend/json_fields.h"
#include "server/api/api_request.h"
#include "server/mcp/mcp_config.h"

namespace penstock {

Status McpApprovals::add(const json& item, const std::string& where, bool earlier) {
  const std::string type = get_string(item, "type");
  if (type == "mcp_approval_request") return ask(item, where, earlier);
  if (type == "mcp_approval_response") return answer(item, where);
  if (type == "mcp_call") made_.insert(get_string(item, "approval_request_id"));
  return {};
}

// The first request with an id counts: clients may repeat stored items but not change them.
Status McpApprovals::ask(const json& item, const std::string& where, bool earlier) {
  const std::string id = get_string(item, "id");
  ApprovedCall call{id, get_string(item, "server_label"), get_string(item, "name"),
                    get_string(item, "arguments"), where};
  const auto [place, is_new] = asked_.try_emplace(id);
  ApprovedCall& known = place->second.call;
  if (is_new) {
    known = std::move(call);
    return {};
  }
  const bool same =
      known.label == call.label && known.name == call.name && known.arguments == call.arguments;
  if (same || earlier) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "{}.id: there is another mcp_approval_request with the id {:.80}", where, id);
}

Status McpApprovals::answer(const json& item, const std::string& where) {
  const std::string id = get_string(item, "approval_request_id");
  const auto question = asked_.find(id);
  if (question == asked_.end()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}.approval_request_id: expected the id of an mcp_approval_request before it, "
                  "got \"{:.80}\"",
                  where, id);
  }
  ++n_answers_;
  question->second.agreed = get_bool(item, "approve") ? n_answers_ : 0;
  question->second.call.where = where;
  return {};
}

Result<std::vector<ApprovedCall>> McpApprovals::approved() const {
  std::vector<const Question*> agreed;
  for (const auto& [id, question] : asked_) {
    if (question.agreed > 0 && !made_.contains(id)) agreed.push_back(&question);
  }
  std::ranges::sort(agreed, {}, &Question::agreed);
  if (agreed.size() > kMostMcpCalls) {
    return errorf(ErrorCode::kInvalidArgument,
                  "input: expected answers that agree to at most {} calls, got {}", kMostMcpCalls,
                  agreed.size());
  }
  std::vector<ApprovedCall> calls;
  for (const Question* one : agreed) {
    if (const size_t n_bytes = one->call.arguments.size(); n_bytes > kMostMcpArguments) {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: agrees to a call with {} bytes of arguments, expected at most {}",
                    one->call.where, n_bytes, kMostMcpArguments);
    }
    calls.push_back(one->call);
  }
  return calls;
}

}  // namespace penstock
