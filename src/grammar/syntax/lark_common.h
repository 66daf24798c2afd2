// The terminals of `%import common.NAME`.
#pragma once
#include <string>
#include <string_view>

namespace penstock::grammar {

// The expression that such a terminal matches as a whole, in the dialect of parse_terminal_regex; "": there is none of
// that name.
std::string_view lark_common_terminal(std::string_view name);
std::string lark_common_names();  // "CNAME, CPP_COMMENT, ..."

}  // namespace penstock::grammar
