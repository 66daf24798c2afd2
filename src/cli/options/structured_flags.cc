#include "cli/options/structured_flags.h"

#include <CLI/CLI.hpp>

#include "cli/console/input.h"

namespace penstock {

void StructuredFlags::add_to(CLI::App& app) {
  auto* group = app.add_option_group("Structured output", "constraints on the generated text")
                    ->require_option(0, 1);
  group->add_option("--json-schema", schema_file_,
                    "a JSON value that the schema in this file allows; - is standard input");
  group->add_flag("--json-object", outputs_.json_object, "any JSON object");
  group->add_option("--regex", outputs_.regex,
                    "a text that the regular expression matches as a whole");
  group->add_option("--grammar", grammar_file_, "a text of the grammar in this file (GBNF)");
  group->add_option("--structural-tag", tag_file_, "a text of the structural tag in this file");
  group->add_option("--choice", outputs_.choice, "one of these texts; may be repeated")
      ->expected(1)
      ->take_all();
  app.add_flag("--additional-properties", outputs_.additional_properties,
               "objects may have members that their schema does not name");
}

Result<std::optional<StructuredOutputs>> StructuredFlags::read() const {
  StructuredOutputs outputs = outputs_;
  if (!schema_file_.empty()) {
    ASSIGN_OR_RETURN(outputs.json, read_text(schema_file_));
  }
  if (!grammar_file_.empty()) {
    ASSIGN_OR_RETURN(outputs.grammar, read_text(grammar_file_));
  }
  if (!tag_file_.empty()) {
    ASSIGN_OR_RETURN(outputs.structural_tag, read_text(tag_file_));
  }
  if (outputs == StructuredOutputs()) return std::optional<StructuredOutputs>();
  return std::optional(std::move(outputs));
}

}  // namespace penstock
