// Functions of glibc 2.29 to 2.36 that the compiler's libraries, the standard library's headers and Penstock use, for programs and
// libraries that are linked against an older glibc (cmake/portable/toolchain.cmake). Hidden: each of them has its own.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

// Those of glibc 2.29 differ from the ones that an architecture began with in how they report errors, not in their values.
#ifdef __aarch64__
#define FIRST_GLIBC "GLIBC_2.17"
#else
#define FIRST_GLIBC "GLIBC_2.2.5"
#endif
#define AS_AT_FIRST(name, parameters, arguments)             \
  __asm__(".symver first_" #name ", " #name "@" FIRST_GLIBC); \
  double first_##name parameters;                            \
  double name parameters { return first_##name arguments; }
AS_AT_FIRST(exp, (double x), (x))
AS_AT_FIRST(exp2, (double x), (x))
AS_AT_FIRST(log, (double x), (x))
AS_AT_FIRST(log2, (double x), (x))
AS_AT_FIRST(pow, (double x, double y), (x, y))

// Archives that are compiled for programs (Debian's of libjpeg, Opus and ICU) want these variables at a place that is known when they are
// linked. ICU's functions of time zones, which are not called, are the only readers of the last two.
#undef stderr
extern struct _IO_FILE _IO_2_1_stderr_;
FILE* stderr = &_IO_2_1_stderr_;
long __timezone = 0;
char* tzname[2] = {"UTC", "UTC"};

// Waits until a time of a clock. glibc 2.28 and 2.29 have only waits by the clock of the day: there a wait that it is set back in lasts
// longer.
typedef int ClockWait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
typedef int ClockLock(pthread_mutex_t*, clockid_t, const struct timespec*);
static ClockWait* clock_wait;
static ClockLock* clock_lock;
#pragma weak dlsym  // CMake's first programs are linked without libdl
__attribute__((constructor(101))) static void find_clocks(void) {
  if (!dlsym) return;
  clock_wait = (ClockWait*)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
  clock_lock = (ClockLock*)dlsym(RTLD_DEFAULT, "pthread_mutex_clocklock");
}

static struct timespec time_of_day(clockid_t clock, const struct timespec* end) {
  struct timespec now, today;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &today);
  const int64_t second = 1000000000;
  const int64_t ns = today.tv_nsec + (int64_t)end->tv_nsec - now.tv_nsec + second;  // 0 to 3 seconds
  return (struct timespec){.tv_sec = today.tv_sec + end->tv_sec - now.tv_sec - 1 + ns / second, .tv_nsec = ns % second};
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* end) {
  if (clock_wait) return clock_wait(condition, mutex, clock, end);
  const struct timespec today = time_of_day(clock, end);
  return pthread_cond_timedwait(condition, mutex, &today);
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const struct timespec* end) {
  if (clock_lock) return clock_lock(mutex, clock, end);
  const struct timespec today = time_of_day(clock, end);
  return pthread_mutex_timedlock(mutex, &today);
}

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
