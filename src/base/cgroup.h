// Limits of this process' control groups (cgroups), version 1 and 2: those of its own group and of
// all groups above it count.
//
// mount: where the hierarchies are mounted (/sys/fs/cgroup), of version 2, 1 or both; groups: the
// content of /proc/self/cgroup. A group that cannot be seen from inside its namespace counts as the
// root.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Returns the least CPU quota of the groups, rounded, at least 1; 0 when none of the groups has a
// quota.
int cgroup_cpus(const std::filesystem::path& mount, std::string_view groups);

// Returns the bytes of memory that may still be taken: the least difference, over the groups, of
// limit (memory.max and memory.high, or version 1's memory.limit_in_bytes) and use; >= 0. The page
// cache of files counts as free, since the kernel evicts it before a limit is reached. Nothing when
// none of the groups has a limit.
std::optional<int64_t> cgroup_memory(const std::filesystem::path& mount, std::string_view groups);

// Returns the least limit of memory over the groups, in bytes; nothing when none has a limit.
std::optional<int64_t> cgroup_memory_limit(const std::filesystem::path& mount,
                                           std::string_view groups);

// Returns the content of /proc/self/cgroup.
std::string own_cgroups();

}  // namespace penstock
