// Structural tags: free text, fixed text, JSON values, regular expressions and grammars put
// together by a JSON document.
//
//   {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags":
//   [{"begin": ..., "content": ..., "end": ...}]}} {"structures": [{"begin": ..., "schema": ...,
//   "end": ...}], "triggers": [...]}
//
// Formats: const_string json_schema grammar regex any_text sequence or optional plus star repeat
// tag triggered_tags tags_with_separator token. The names and their meaning follow XGrammar's; any
// text ends where the end of its tag, a trigger or what it excludes first occurs. A fixed text that
// a special token of the vocabulary spells is that token.
//
// Extensions: raw_string is a string of a JSON Schema without quotes (raw_string.h); plus has a
// separator and a max; a json_schema of style "python" has True, False and None; best_effort takes
// any object where a schema cannot be enforced; "where" is the name of the place in refusals.
#pragma once
#include "grammar/syntax/goal_of_schema.h"
#include "grammar/syntax/rules.h"
#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

// Returns the index of the start rule. vocabulary: for tokens; may be null. Refusals name their
// place by a JSON pointer.
Compiled<uint32_t> parse_structural_tag(const JsonValue& document, Rules& rules,
                                        const GoalOfSchema& goal_of, const Vocabulary* vocabulary,
                                        Budget& budget);

}  // namespace penstock::grammar
