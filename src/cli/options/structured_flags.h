// Flags that say what the text must look like.
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
  // --json-schema FILE, --json-object, --regex R, --grammar FILE, --structural-tag FILE, --choice TEXT: one of them at
  // most.
  void add_to(CLI::App& app);
  // Reads the files. nullopt: no flag was given. Errors: of reading.
  Result<std::optional<StructuredOutputs>> read() const;

 private:
  std::string schema_file_, grammar_file_, tag_file_;
  StructuredOutputs outputs_;
};

}  // namespace penstock
