#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace penstock {

spdlog::logger& log() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>(
        "penstock", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    const char* level = std::getenv("PENSTOCK_LOG");
    made->set_level(level == nullptr ? spdlog::level::warn : spdlog::level::from_str(level));
    return made;
  }();
  return *logger;
}

}  // namespace penstock
