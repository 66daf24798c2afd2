// The blobs that repositories of a Hugging Face cache share: CACHE/blobs/XX/HASH, to which
// blobs/ETAG of a repository is a link. CACHE/blobs/XX/HASH.refs lists these links, one path below
// the cache per line; HASH.lock is held by flock while they change. Only huggingface_hub writes
// there; shared blobs are read like any others.
#pragma once
#include <cstdint>
#include <filesystem>

namespace penstock {

// Removes the link `blob`, and its target if no other repository links to it. Returns the number of
// bytes freed. The target stays when its list of links is missing or another process holds its
// lock.
int64_t remove_shared_blob(const std::filesystem::path& cache, const std::filesystem::path& blob);

}  // namespace penstock
