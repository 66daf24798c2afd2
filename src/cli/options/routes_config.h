// The route tables of `penstock serve --models-config`: model names for which the server chooses
// the model.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/routes/table/route_table.h"

namespace penstock {

// Reads a list of objects:
//   {"name": "auto", "small": "a", "large": "b",
//    "rules": [{"if": {"code": true, "min_characters": 2000}, "use": "large"}, …],
//    "score": {"file": "router.json", "model": "vectors", "threshold": 0.5},
//    "cascade": {"min_mean_logprob": -1.5, "check": {"prompt": "… {question} … {answer} …", "yes":
//    "yes", "at_least": 0.5}}, "otherwise": "small", "dry_run": false}
// A rule's `if` has code, mathematics, tools, json (true or false), min_characters, max_characters,
// language, key (a text or a list), header (an object) and max_seconds; its `use` is "small",
// "large" or a model's name. Errors: kInvalidArgument, with place, expected and given value.
Result<std::vector<RouteConfig>> read_routes(const nlohmann::ordered_json& list,
                                             const std::string& place);

}  // namespace penstock
