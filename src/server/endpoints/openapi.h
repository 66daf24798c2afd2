// The description of the API in OpenAPI 3.1.
#pragma once
#include <string>

namespace penstock {

// Returns the document as JSON, as GET /openapi.json gives it. strict: with schemas that refuse
// fields they do not list.
const std::string& api_description(bool strict);

}  // namespace penstock
