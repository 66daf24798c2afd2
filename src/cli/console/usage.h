// Messages for wrong usage of the program.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace penstock {

// Returns the lines for stderr: the error, the most similar name for an unknown command or option,
// and how to get help.
std::string usage_error(const CLI::App* app, const CLI::Error& error);

// Returns the lines for stderr when an option that takes several texts may have taken the positional
// argument, which the command then lacks ("serve --served-model-name a MODEL"); "": none has. args:
// those of the program, of which `command` is the one that was parsed.
std::string taken_argument(const CLI::App& command, const std::vector<const char*>& args);

}  // namespace penstock
