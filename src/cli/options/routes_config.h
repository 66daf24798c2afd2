// The tables of models of `penstock serve --models-config`: names that leave the choice of a model to the server.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "gateway/route/route_table.h"

namespace penstock {

// A list of objects:
//   {"name": "auto", "small": "a", "large": "b",
//    "rules": [{"if": {"code": true, "min_characters": 2000}, "use": "large"}, …],
//    "score": {"file": "router.json", "model": "vectors", "threshold": 0.5},
//    "cascade": {"min_mean_logprob": -1.5, "check": {"prompt": "… {question} … {answer} …", "yes": "yes", "at_least": 0.5}},
//    "otherwise": "small", "dry_run": false}
// A rule's `if` has code, mathematics, tools, json (true or false), min_characters, max_characters, language, key (a text or a
// list), header (an object) and max_seconds; its `use` is "small", "large" or a model's name. Error: kInvalidArgument: place,
// expected, got.
Result<std::vector<RouteConfig>> read_routes(const nlohmann::ordered_json& list, const std::string& place);

}  // namespace penstock
