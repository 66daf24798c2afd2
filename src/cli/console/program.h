// The whole program: what main() does, for whoever brings a main() of its own (the Python package).
#pragma once

namespace penstock {

// Returns the exit code. Nothing is thrown.
int run_program(int argc, char** argv);

}  // namespace penstock
