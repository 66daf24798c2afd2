// Examination of the machine for `penstock doctor`: its hardware, limits of the process, and advice.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

struct Finding {
  std::string topic;   // "memory"
  std::string text;    // what is there
  std::string advice;  // what to do about it; "": nothing is to be done
};

struct MachineCheck {
  std::vector<Finding> findings;
  int64_t memory = 0;                // bytes that this process may still take
  double read_bytes_per_second = 0;  // of memory; 0: not measured
};

// Examines processor, instruction set, memory, huge pages, NUMA nodes, GPU, limits of the process,
// and the folder of downloads. Takes about a second: reading from memory is measured.
MachineCheck check_machine();

}  // namespace penstock
