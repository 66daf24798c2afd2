#include "base/regular_file.h"
#include "cli/console/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#ifdef __GLIBC__
#include <execinfo.h>
#endif
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/commands/mpi_ranks.h"
#include "cli/console/exit_codes.h"
#include "cli/console/usage.h"
#include "cli/options/config_file.h"
#include "penstock/version.h"

namespace penstock {
namespace {

constexpr const char* kFooter =
    "With no command, a story is generated from the built-in model.\n"
    "Options can also come from a TOML or INI file: penstock --config FILE COMMAND, with one "
    "[COMMAND] "
    "section each.\n"
    "Exit codes: 0 success, 1 failure, 2 wrong usage, 3 file or model not found, 4 corrupt or "
    "unsupported "
    "file,\n"
    "5 memory, disk or cache exhausted, 130 interrupted.\n"
    "PENSTOCK_ISA=scalar (or avx2, amx, neon …) forces an instruction set; NO_COLOR turns colours "
    "off.";

// Commands to try next, printed after the story of a call without arguments.
constexpr const char* kNext =
    "\nThe built-in model wrote this. Next:\n"
    "  penstock pull                        models that fit this machine\n"
    "  penstock run org/name:Q4_K_M         download one of them and chat in the terminal\n"
    "  penstock serve                       an OpenAI-compatible server and a page for the "
    "browser: "
    "http://127.0.0.1:8000\n"
    "  penstock doctor                      what this machine has, and what to do about it\n";

// Checks that the file is regular, since CLI11 would open anything. Returns the error, or "".
std::string readable_file(const std::string& path) {
  const Status readable = check_regular_file(path);
  return readable || readable.error().code == ErrorCode::kNotFound ? "" : readable.error().message;
}

// Returns the long name of a flag that llama.cpp writes with one dash and several letters, which
// the parser would take for a flag of one letter and its value; other arguments as they are.
const char* spelled_out(const char* argument) {
  constexpr std::pair<std::string_view, const char*> kFlags[] = {
      {"-ot", "--override-tensor"}, {"-cmoe", "--cpu-moe"}, {"-ncmoe", "--n-cpu-moe"}};
  for (const auto& [flag, name] : kFlags)
    if (argument == flag) return name;
  return argument;
}

int run_main(int argc, char** argv) {
  CLI::App app{"Penstock: fast, exact inference for large language models.", "penstock"};
  app.set_version_flag("--version", std::string("penstock ") + kVersion);
  app.set_config("--config", "", "read options from this file")->check(readable_file);
  app.config_formatter(std::make_shared<ConfigFile>());
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.footer(kFooter);
  app.failure_message(usage_error);
  app.require_subcommand(0, 1);
  std::vector<Action> actions;
  std::vector<CLI::App*> subs;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->get_formatter()->column_width(34);
    actions.push_back(command.add(*sub));
    add_hosts_flag(*sub);
    subs.push_back(sub);
  }
  std::vector<const char*> args(argv, argv + argc);
  std::ranges::transform(args, args.begin(), spelled_out);
  const bool story = argc == 1;
  if (story) args = {argv[0], "generate"};
  try {
    app.parse(static_cast<int>(args.size()), args.data());
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kExitOk : kExitUsage;
  }
  for (size_t i = 0; i < subs.size(); ++i) {
    if (!subs[i]->parsed()) continue;
    if (const std::string taken = taken_argument(*subs[i], args); !taken.empty()) {
      std::fputs(taken.c_str(), stderr);
      return kExitUsage;
    }
    const int code = carry_out(*subs[i], actions[i], argv);
    if (story && code == kExitOk) std::fputs(kNext, stderr);
    return code;
  }
  std::fputs(app.help().c_str(), stdout);
  return kExitOk;
}

// glibc loads libgcc_s when a stack is unwound for the first time, and ends the process if there is
// no memory for it then: so it is loaded here.
void prepare_unwinding() {
#ifdef __GLIBC__
  void* frame = nullptr;
  (void)backtrace(&frame, 1);
#endif
}

}  // namespace

int run_program(int argc, char** argv) {
  prepare_unwinding();
  try {
    return run_main(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail({ErrorCode::kResourceExhausted, "out of memory"});
  } catch (const std::exception& error) {
    return fail({ErrorCode::kInternal, error.what()});
  }
}

}  // namespace penstock

int main(int argc, char** argv) { return penstock::run_program(argc, argv); }
