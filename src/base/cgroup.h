// What the control groups of this process grant, of version 1 and 2: a limit of any group above it counts.
//
// `mount`: where the hierarchies are mounted (/sys/fs/cgroup), of version 2, 1 or both; `groups`: the content of
// /proc/self/cgroup. A group that cannot be seen from inside its namespace counts as the root.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// CPUs that the quotas grant: the least of them, rounded, at least 1; 0 when none of the groups has a quota.
int cgroup_cpus(const std::filesystem::path& mount, std::string_view groups);

// Bytes that may still be taken: the least of what the groups' limits (memory.max and memory.high, or version 1's
// memory.limit_in_bytes) leave over what is in use there, >= 0. Cached pages of files count as free, since the
// kernel gives them up before a limit. Nothing when none of the groups has a limit.
std::optional<int64_t> cgroup_memory(const std::filesystem::path& mount, std::string_view groups);

// Of this process: the content of /proc/self/cgroup.
std::string own_cgroups();

}  // namespace penstock
