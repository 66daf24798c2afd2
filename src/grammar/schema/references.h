// Drafts, identifiers and references of a JSON Schema document. Nothing is fetched: references to
// other documents are refused.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/text_hash.h"
#include "grammar/parts/budget.h"
#include "grammar/parts/refusal.h"
#include "grammar/schema/json_pointer.h"
#include "grammar/schema/json_value.h"

namespace penstock::grammar {

enum class Draft : uint8_t {
  k4,
  k6,
  k7,
  k2019,
  k2020,
  kUnstated
  // kUnstated: read as 2020-12, plus forms of earlier drafts that are unambiguous
};

// Returns the draft of a $schema such as "http://json-schema.org/draft-07/schema#"; nullopt:
// unknown.
std::optional<Draft> draft_of(std::string_view schema_uri);

// Resolves a URI reference against a base (RFC 3986). Malformed input is allowed.
std::string resolve_uri(std::string_view base, std::string_view reference);

struct Target {
  const JsonValue* schema;
  JsonPointer where;
};

class References {
 public:
  explicit References(Budget& budget) : budget_(budget) {}

  // Indexes all resources and anchors of the document. Errors: kUnsupported (an unknown $schema),
  // kTooLarge.
  Compiled<void> index(const JsonValue& document);

  Draft draft(const JsonValue& schema) const;
  // Whether the schema has an identifier beside a $ref, which drafts up to 7 ignore.
  bool base_depends_on_draft(const JsonValue& schema) const;
  // Returns the target of a $ref in this schema; nullopt: the document does not contain it.
  std::optional<Target> resolve(const JsonValue& schema, std::string_view reference);
  // Returns the number of schemas with this $dynamicAnchor; "": with $recursiveAnchor.
  int n_dynamic(std::string_view anchor) const;

 private:
  struct Resource {
    std::string uri;  // without a fragment; "": not stated
    const JsonValue* root;
    JsonPointer where;
    Draft draft;
  };
  struct Place {
    const JsonValue* schema;
    JsonPointer where;
    uint32_t resource;
  };
  Compiled<void> visit(const Place& place, std::vector<Place>& open);
  Compiled<uint32_t> resource_of(const Place& place);
  Compiled<void> add_anchors(const Place& place);
  void add_children(const Place& place, std::vector<Place>& open) const;
  uint32_t resource_index(const JsonValue& schema) const;
  std::optional<Target> by_pointer(const Resource& resource, std::string_view pointer);
  std::optional<Target> in_resource(const Resource& resource, std::string_view fragment);

  Budget& budget_;
  std::vector<Resource> resources_;
  std::unordered_map<const JsonValue*, uint32_t> resource_of_;  // by schema: index of its resource
  TextMap<Target> anchors_;  // keys: resource URI, "#" and anchor name
  TextMap<int> dynamic_;     // by name: number of dynamic anchors
};

}  // namespace penstock::grammar
