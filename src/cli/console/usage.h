// Messages for wrong usage of the program.
#pragma once
#include <string>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace penstock {

// Returns the lines for stderr: the error, the most similar name for an unknown command or option,
// and how to get help.
std::string usage_error(const CLI::App* app, const CLI::Error& error);

}  // namespace penstock
