// The program's log: lines on stderr, never on stdout, which belongs to results.
#pragma once
#include <spdlog/fwd.h>

namespace penstock {

// Returns the logger. Its level is that of PENSTOCK_LOG (trace, debug, info, warn, error, off), by
// default warn. Thread-safe. Not for use inside a step.
spdlog::logger& log();

}  // namespace penstock
