// The terminals of `%import common.NAME`.
#pragma once
#include <string>
#include <string_view>

namespace penstock::grammar {

// Returns the regular expression of a common terminal, in the dialect of parse_terminal_regex();
// "": there is no terminal with this name.
std::string_view lark_common_terminal(std::string_view name);
std::string lark_common_names();  // "CNAME, CPP_COMMENT, ..."

}  // namespace penstock::grammar
