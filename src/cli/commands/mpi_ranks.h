// Runs commands as MPI ranks on several hosts.
#pragma once
#include "cli/commands/commands.h"

namespace penstock {

// Adds the flag --hosts to a command whose engine can have several ranks.
void add_hosts_flag(CLI::App& command);

// Runs a parsed command and returns the exit code. Without --hosts it runs in this process; with
// --hosts by mpirun, which starts this program once for each rank. In a process that mpirun or srun
// has started, rank 0 runs the command and the other ranks compute for it until it ends.
int carry_out(const CLI::App& command, const Action& action, char** argv);

}  // namespace penstock
