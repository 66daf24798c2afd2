#include "hub/download/fetch.h"

#include <algorithm>

#include "hub/download/file_fetch.h"

namespace penstock {
namespace {

constexpr int kConnections = 8;
constexpr std::chrono::milliseconds kWait{100};

using FileFetches = std::vector<std::unique_ptr<FileFetch>>;

FetchProgress progress_of(const FileFetches& fetches) {
  FetchProgress progress;
  for (const auto& fetch : fetches) {
    progress.done += fetch->received();
    progress.total += fetch->size();
    if (progress.note.empty()) progress.note = fetch->note();
  }
  return progress;
}

const Error* first_error(const FileFetches& fetches) {
  const auto failed =
      std::ranges::find_if(fetches, [](const auto& fetch) { return fetch->error().has_value(); });
  return failed == fetches.end() ? nullptr : &*(*failed)->error();
}

}  // namespace

Status fetch_files(FetchContext& context, const std::vector<RepoFile>& files,
                   const FetchObserver& observer) {
  FileFetches fetches;
  for (const RepoFile& file : files) fetches.push_back(std::make_unique<FileFetch>(context, file));
  while (true) {
    bool more = false;
    for (const auto& fetch : fetches)
      more |= fetch->step(kConnections - static_cast<int>(context.client.n_running()));
    if (const Error* error = first_error(fetches)) return tl::unexpected(*error);
    const FetchProgress progress = progress_of(fetches);
    if (!observer(progress)) return errorf(ErrorCode::kCancelled, "interrupted");
    if (std::ranges::all_of(fetches, [](const auto& fetch) { return fetch->done(); })) return {};
    context.client.poll(more ? std::chrono::milliseconds(0) : kWait);
  }
}

}  // namespace penstock
