// Functions of glibc 2.31 to 2.36 that the compiler's libraries, the standard library's headers and Penstock use, for programs that are
// linked against an older glibc (cmake/portable/toolchain.cmake).
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

// False: counts of shared_ptr are atomic also while there is one thread.
char __libc_single_threaded = 0;

uint32_t arc4random(void) {
  uint32_t drawn = 0;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) abort();
  return drawn;
}

// The files that are open when it is called. Those opened by other threads between it and the child's start are closed by O_CLOEXEC.
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int first) {
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return errno;
  int error = 0;
  for (struct dirent* entry; !error && (entry = readdir(folder));) {
    const int fd = atoi(entry->d_name);
    if (fd >= first) error = posix_spawn_file_actions_addclose(actions, fd);
  }
  closedir(folder);
  return error;
}

struct Search {
  uintptr_t address;
  struct dl_find_object* result;
};

// Of one loaded object: 1 if it has the address and tables of its frames, -1 if it has no tables, 0 if the address is elsewhere.
static int look(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct Search* search = data;
  uintptr_t begin = UINTPTR_MAX, end = 0, frames = 0;
  int inside = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t from = info->dlpi_addr + header->p_vaddr, to = from + header->p_memsz;
    if (header->p_type == PT_GNU_EH_FRAME) frames = from;
    if (header->p_type != PT_LOAD) continue;
    if (from < begin) begin = from;
    if (to > end) end = to;
    inside |= from <= search->address && search->address < to;
  }
  if (!inside) return 0;
  if (!frames) return -1;
  *search->result =
      (struct dl_find_object){.dlfo_map_start = (void*)begin, .dlfo_map_end = (void*)end, .dlfo_eh_frame = (void*)frames};
  return 1;
}

// By which libgcc finds the frames that an exception goes through.
int _dl_find_object(void* address, struct dl_find_object* result) {
  struct Search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
