// Approval of MCP tool calls: the requests that a response has sent to the client, and the client's
// answers.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text_hash.h"

namespace penstock {

// A call that the client has approved.
struct ApprovedCall {
  std::string request_id, label, name, arguments;
  std::string where;  // position of the answer: "input[0]"
};

// Collects approval requests and answers from the input items, in their order.
class McpApprovals {
 public:
  // Adds one item of any type. earlier: the item is from an earlier response that this server
  // stored. Errors: kInvalidArgument (an answer without a request, or a second request with the
  // same id).
  Status add(const nlohmann::ordered_json& item, const std::string& where, bool earlier);
  // Returns the calls that are approved by their last answer and have not been made, in the order
  // of the answers, without duplicates. Errors: kInvalidArgument (more calls or longer arguments
  // than one response may have).
  Result<std::vector<ApprovedCall>> approved() const;

 private:
  struct Question {
    ApprovedCall call;
    // number of the approving answer, from 1; 0: not approved
    size_t agreed = 0;
  };
  Status ask(const nlohmann::ordered_json& item, const std::string& where, bool earlier);
  Status answer(const nlohmann::ordered_json& item, const std::string& where);

  TextMap<Question> asked_;  // by id
  TextSet made_;             // ids of approval requests whose calls were made
  size_t n_answers_ = 0;
};

}  // namespace penstock
