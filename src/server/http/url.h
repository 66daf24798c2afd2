// The target of an HTTP request.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace penstock {

// Parses the target of an HTTP request: "/v1/models/a%2Fb?x=1&y" gives the path "/v1/models/a/b"
// and the query {x: 1, y: ""}. Invalid escapes are kept unchanged; "http://host/x#y" gives "/x".
void parse_target(std::string_view target, std::string& path,
                  std::map<std::string, std::string>& query);

}  // namespace penstock
