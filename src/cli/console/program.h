// The program's main function, for callers with their own main() (the Python package).
#pragma once

namespace penstock {

// Runs the program and returns the exit code. Does not throw.
int run_program(int argc, char** argv);

}  // namespace penstock
