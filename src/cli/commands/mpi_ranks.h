// Commands in processes that MPI starts: ranks of several hosts.
#pragma once
#include "cli/commands/commands.h"

namespace penstock {

// Adds --hosts to a command whose engine can have several ranks.
void add_hosts_flag(CLI::App& command);

// Carries a command out that was parsed: here; with --hosts by mpirun, which starts this program once for each rank; and in a process that
// mpirun or srun has started as rank 0 of several. Ranks above 0 compute with that one until it ends. Returns the exit code.
int carry_out(const CLI::App& command, const Action& action, char** argv);

}  // namespace penstock
