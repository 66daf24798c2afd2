#include "cli/commands/mpi_ranks.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "engine/ranks/rank_worker.h"

namespace penstock {
namespace {

constexpr const char* kSize = "--tensor-parallel-size";
constexpr const char* kStages = "--pipeline-parallel-size";
constexpr const char* kHosts = "--hosts";

// Returns the number of ranks of an engine; 0: the command has no such flags or none was given.
int n_ranks_of(const CLI::App& command) {
  int n = 0;
  for (const char* name : {kSize, kStages}) {
    const CLI::Option* size = command.get_option_no_throw(name);
    if (size != nullptr && !size->empty()) n = std::max(n, 1) * size->as<int>();
  }
  return n;
}

// Replaces this process by mpirun. Returns only on errors.
Error run_by_mpirun(const std::vector<std::string>& hosts, int n_ranks, char** argv) {
  const int n_hosts = static_cast<int>(hosts.size());
  if (n_ranks == 0 || n_ranks % n_hosts != 0) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{}: expected {} times {} to be a multiple of the {} hosts, got {}", kHosts,
                        kSize, kStages, n_hosts, n_ranks)};
  }
  std::string places;
  for (const std::string& host : hosts)
    places += fmt::format("{}{}:{}", places.empty() ? "" : ",", host, n_ranks / n_hosts);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  // Ranks divide the CPUs among themselves (no binding). Rank 0 gets 60 s to end after a signal.
  std::vector<std::string> command = {"mpirun",
                                      "--bind-to",
                                      "none",
                                      "--mca",
                                      "odls_base_sigkill_timeout",
                                      "60",
                                      "-n",
                                      std::to_string(n_ranks),
                                      "--host",
                                      places,
                                      error ? argv[0] : self.string()};
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  for (char** argument = argv + 1; *argument != nullptr; ++argument) arguments.push_back(*argument);
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return {ErrorCode::kUnsupported,
          fmt::format("{}: mpirun cannot be started: {} (Debian has it in openmpi-bin)", kHosts,
                      std::strerror(errno))};
}

int run_as_rank(const CLI::App& command, const MpiPlace& place, const Action& action) {
  if (n_ranks_of(command) == 0) {
    return fail({ErrorCode::kInvalidArgument,
                 fmt::format("{}: MPI has started {} processes: expected a command with {} {}",
                             command.get_name(), place.size, kSize, place.size)});
  }
  if (place.rank == 0) return action();
  const Status served = serve_rank(place);
  return served ? kExitOk : fail(served.error());
}

}  // namespace

void add_hosts_flag(CLI::App& command) {
  const CLI::Option* size = command.get_option_no_throw(kSize);
  if (size == nullptr || command.get_option_no_throw(kHosts) != nullptr) return;
  command
      .add_option(kHosts,
                  "hosts that the ranks are on, separated by commas, equally many on each: mpirun "
                  "starts them there")
      ->group(size->get_group());
}

int carry_out(const CLI::App& command, const Action& action, char** argv) {
  if (const auto place = mpi_place()) return run_as_rank(command, *place, action);
  const CLI::Option* hosts = command.get_option_no_throw(kHosts);
  if (n_ranks_of(command) == 0 || hosts == nullptr || hosts->empty() ||
      command.get_name() == "plan")
    return action();
  return fail(
      run_by_mpirun(CLI::detail::split(hosts->as<std::string>(), ','), n_ranks_of(command), argv));
}

}  // namespace penstock
