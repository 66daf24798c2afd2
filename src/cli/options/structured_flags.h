// Flags of structured outputs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/structured_outputs.h"

namespace CLI {
class App;
}

namespace penstock {

class StructuredFlags {
 public:
  // Adds --json-schema FILE, --json-object, --regex R, --grammar FILE, --structural-tag FILE and
  // --choice TEXT, of which at most one may be given, and --additional-properties.
  void add_to(CLI::App& app);
  // Reads the files and returns the constraint; nullopt: no flag was given. Errors: those of
  // read_text().
  Result<std::optional<StructuredOutputs>> read() const;

 private:
  std::string schema_file_, grammar_file_, tag_file_;
  StructuredOutputs outputs_;
};

}  // namespace penstock
