// What the program says when it is used wrongly.
#pragma once
#include <string>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace penstock {

// Lines for stderr: what is wrong, with the nearest name where a command or option is not known, and where help is.
std::string usage_error(const CLI::App* app, const CLI::Error& error);

}  // namespace penstock
