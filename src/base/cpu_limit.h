// How many CPUs a control group grants.
#pragma once
#include <filesystem>
#include <string_view>

namespace penstock {

// CPUs that the quotas of this process' control group and of all groups above it grant: the least of them, rounded, at
// least 1; 0 when none of them has a quota. `mount`: where the hierarchies are mounted (/sys/fs/cgroup), of version 2, 1
// or both; `groups`: the content of /proc/self/cgroup. A group that cannot be seen from inside its namespace counts as
// the root.
int cgroup_cpus(const std::filesystem::path& mount, std::string_view groups);

}  // namespace penstock
