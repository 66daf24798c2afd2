// penstock rank: runs a child rank, started by the serving process (parallel/child_ranks.h).
#include "engine/ranks/rank_worker.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"

namespace penstock {

Action add_rank(CLI::App& app) {
  app.group("");  // hidden from the help: not for users
  auto place = std::make_shared<RankPlace>();
  app.add_option("--segment", place->segment, "file descriptor of the memory that the ranks share")
      ->required();
  app.add_option("--rank", place->rank, "from 1 to size - 1")->required();
  app.add_option("--size", place->size, "number of ranks")->required();
  app.add_option("--parent", place->parent, "process that has started this one")->required();
  app.add_option("--cpus", place->cpus, "to compute on")->delimiter(',');
  return [place] {
    const Status served = serve_rank(*place);
    return served ? kExitOk : fail(served.error());
  };
}

}  // namespace penstock
