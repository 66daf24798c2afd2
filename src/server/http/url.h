// The target of an HTTP request.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace penstock {

// "/v1/models/a%2Fb?x=1&y" -> path "/v1/models/a/b", query {x: 1, y: ""}. Bad escapes are kept as
// they are; of "http://host/x#y" counts "/x".
void parse_target(std::string_view target, std::string& path,
                  std::map<std::string, std::string>& query);

}  // namespace penstock
