// The blobs that repositories of a Hugging Face cache share: CACHE/blobs/XX/HASH, to which blobs/ETAG of a repository is a link.
// CACHE/blobs/XX/HASH.refs lists these links, a path below the cache a line; HASH.lock is held by flock while they change.
// Only huggingface_hub puts content there; it is read like any blob.
#pragma once
#include <cstdint>
#include <filesystem>

namespace penstock {

// Removes the link `blob`, and what it leads to when no other repository links it. Returns the bytes that this freed. Nothing
// is removed from the store on doubt: without a list of its links, or with a lock that another process holds.
int64_t remove_shared_blob(const std::filesystem::path& cache, const std::filesystem::path& blob);

}  // namespace penstock
