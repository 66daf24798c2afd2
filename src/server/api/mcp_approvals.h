// Calls of tools that a response has asked the client about, and what the client says to them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"

namespace penstock {

// A call that the client has agreed to.
struct ApprovedCall {
  std::string request_id, label, name, arguments;
  std::string where;  // "input[0]", of the answer
};

// Reads the items of a response's input in their order.
class McpApprovals {
 public:
  // One item of any type. earlier: it is of another response, which this server has kept. Errors:
  // kInvalidArgument, an answer to nothing, or a question under the id of another one.
  Status add(const nlohmann::ordered_json& item, const std::string& where, bool earlier);
  // The calls whose last answer is yes and that have not been made, in the order of the answers,
  // each once. Errors: kInvalidArgument, more calls or longer arguments than one response may have.
  Result<std::vector<ApprovedCall>> approved() const;

 private:
  struct Question {
    ApprovedCall call;
    size_t agreed = 0;  // the place of the answer among all; 0: there is none, or it is no
  };
  Status ask(const nlohmann::ordered_json& item, const std::string& where, bool earlier);
  Status answer(const nlohmann::ordered_json& item, const std::string& where);

  std::unordered_map<std::string, Question> asked_;  // by id
  std::unordered_set<std::string> made_;             // ids of questions whose call has been made
  size_t n_answers_ = 0;
};

}  // namespace penstock
