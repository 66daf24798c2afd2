// penstock cache list | verify | prune: looks after the folder of a --kv-store. Servers may use it
// meanwhile.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "engine/store/block_files.h"

namespace penstock {
namespace {

// "45 s", "3 min", "2 h" or "12 d"
std::string time_text(int64_t ns) {
  const int64_t seconds = ns / 1'000'000'000;
  if (seconds < 100) return fmt::format("{} s", seconds);
  if (seconds < 100 * 60) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

struct CacheCommand {
  explicit CacheCommand(CLI::App& app) {
    app.require_subcommand(1);
    list = app.add_subcommand("list", "show the models, and how many of their blocks there are");
    verify = app.add_subcommand("verify", "read every block and compare its checksum");
    prune = app.add_subcommand("prune", "remove the blocks that were used least recently");
    for (CLI::App* sub : {list, verify, prune})
      sub->add_option("path", path, "the folder, as for serve --kv-store")->required();
    list->add_flag("--json", json, "print a JSON object on each line");
    verify->add_flag("--remove", remove, "remove what is damaged; what cannot be read stays");
    prune->add_option("--size", size, "what may stay, as 20G; 0 removes all")->required();
  }

  int run_list() const {
    const auto models = list_store(path);
    if (!models) return fail(models.error());
    if (!json)
      std::printf("%-32s  %10s  %10s  %10s  %10s\n", "model", "blocks", "size", "used", "oldest");
    for (const auto& [name, model] : *models) {
      if (json) {
        fmt::print("{}\n",
                   nlohmann::ordered_json{
                       {"model", name},
                       {"blocks", model.n_blocks},
                       {"bytes", model.bytes},
                       {"seconds_since_use", static_cast<double>(model.youngest_ns) * 1e-9},
                       {"oldest_seconds", static_cast<double>(model.oldest_ns) * 1e-9}}
                       .dump());
        continue;
      }
      std::printf("%-32s  %10lld  %10s  %10s  %10s\n", name.c_str(),
                  static_cast<long long>(model.n_blocks),
                  format_bytes(static_cast<double>(model.bytes)).c_str(),
                  time_text(model.youngest_ns).c_str(), time_text(model.oldest_ns).c_str());
    }
    return kExitOk;
  }

  int run_verify() const {
    bool all_removed = true;
    const auto check = check_store(path, [&](const BlockFault& fault) {
      std::string end;
      if (remove && fault.was_read) {
        const bool removed = unlink(fault.file.c_str()) == 0 || errno == ENOENT;
        all_removed &= removed;
        end = removed ? ": removed" : fmt::format(": not removed: {}", std::strerror(errno));
      }
      std::printf("%s: %s%s\n", fault.file.c_str(), fault.what.c_str(), end.c_str());
    });
    if (!check) return fail(check.error());
    std::printf("%lld blocks, %s: %lld damaged\n", static_cast<long long>(check->n_blocks),
                format_bytes(static_cast<double>(check->bytes)).c_str(),
                static_cast<long long>(check->n_damaged));
    if (check->n_unread > 0)
      std::printf("%lld could not be read\n", static_cast<long long>(check->n_unread));
    if (check->n_unread > 0 || !all_removed) return kExitFailure;
    return check->n_damaged == 0 || remove ? kExitOk : kExitBadFile;
  }

  int run_prune() const {
    int64_t most = 0;
    if (const std::string error = parse_bytes(size, most); !error.empty())
      return fail({ErrorCode::kInvalidArgument, "--size: " + error});
    const auto before = list_store(path);
    if (!before) return fail(before.error());
    int64_t bytes = 0;
    for (const auto& [name, model] : *before) bytes += model.bytes;
    const int64_t left = prune_block_files(std::filesystem::path(path) / kBlockFolder, most, most);
    std::printf("%s freed, %s left\n",
                format_bytes(static_cast<double>(std::max<int64_t>(0, bytes - left))).c_str(),
                format_bytes(static_cast<double>(left)).c_str());
    return kExitOk;
  }

  int run() const {
    if (list->parsed()) return run_list();
    return verify->parsed() ? run_verify() : run_prune();
  }

  CLI::App *list, *verify, *prune;
  std::string path, size;
  bool json = false, remove = false;
};

}  // namespace

Action add_cache(CLI::App& app) {
  auto command = std::make_shared<CacheCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
