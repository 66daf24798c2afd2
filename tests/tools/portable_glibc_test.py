#!/usr/bin/env python3
"""cmake/portable/glibc.c: what it has in the place of later functions of glibc does what those do."""
import pathlib
import subprocess
import tempfile
import unittest

GLIBC = pathlib.Path(__file__).resolve().parents[2] / "cmake/portable/glibc.c"
PROGRAM = """
#include "%s"
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define EXPECT(condition) if (!(condition)) { fprintf(stderr, "line %%d: %%s\\n", __LINE__, #condition); return 1; }

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static int same(double a, double b) { return !memcmp(&a, &b, sizeof a) || (a != a && b != b); }

static int waits(void) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);
  pthread_mutex_lock(&held);
  for (int i = 0; i < 20; ++i) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += 3000000;
    if (end.tv_nsec >= 1000000000) end.tv_sec += 1, end.tv_nsec -= 1000000000;
    const double before = now(CLOCK_MONOTONIC);
    EXPECT((i & 1 ? pthread_mutex_clocklock(&held, CLOCK_MONOTONIC, &end)
                  : pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &end)) == ETIMEDOUT);
    const double waited = now(CLOCK_MONOTONIC) - before;
    EXPECT(waited > 0.002 && waited < 5);
  }
  return 0;
}

int main(void) {
  EXPECT(clock_wait && clock_lock);
  EXPECT(waits() == 0);
  clock_wait = NULL;
  clock_lock = NULL;
  EXPECT(waits() == 0);
  struct timespec begin = {0, 0}, far = time_of_day(CLOCK_MONOTONIC, &begin);
  EXPECT(far.tv_nsec >= 0 && far.tv_nsec < 1000000000);
  EXPECT(far.tv_sec + far.tv_nsec * 1e-9 - (now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC)) < 1);

  double (*later)(double) = (double (*)(double))dlsym(RTLD_DEFAULT, "exp");
  double (*later_log)(double) = (double (*)(double))dlsym(RTLD_DEFAULT, "log");
  double (*later_pow)(double, double) = (double (*)(double, double))dlsym(RTLD_DEFAULT, "pow");
  EXPECT(later && later_log && later_pow && later != exp);
  for (double x = -800; x < 800; x += 0.37) {
    const double a = exp(x), b = later(x), c = log(x), d = later_log(x), e = pow(x, 1.7), f = later_pow(x, 1.7);
    EXPECT(same(a, b) && same(c, d) && same(e, f));
  }
  EXPECT(exp2(3) == 8 && log2(8) == 3);

  struct dl_find_object found;
  EXPECT(_dl_find_object((void*)main, &found) == 0 && (char*)found.dlfo_map_start < (char*)main && (char*)main < (char*)found.dlfo_map_end);
  EXPECT(_dl_find_object((void*)1, &found) == -1);

  const int many = open("/dev/null", O_RDONLY);
  EXPECT(dup2(many, 40) == 40);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  EXPECT(posix_spawn_file_actions_addclosefrom_np(&actions, 3) == 0);
  char* words[] = {"sh", "-c", "! [ -e /proc/self/fd/40 ]", NULL};
  pid_t child;
  int status;
  EXPECT(posix_spawn(&child, "/bin/sh", &actions, NULL, words, NULL) == 0 && waitpid(child, &status, 0) == child && status == 0);
  EXPECT(arc4random() != arc4random() || arc4random() != arc4random());
  fprintf(stderr, "done");
  return 0;
}
"""


class PortableGlibc(unittest.TestCase):
    def test_it_does_what_glibc_does(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            source = program.with_suffix(".c")
            source.write_text(PROGRAM % GLIBC)
            subprocess.run(["gcc", "-O1", "-fvisibility=hidden", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-pthread", str(source), "-o",
                            str(program), "-lm", "-ldl"], check=True)
            done = subprocess.run([program], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, "done"))


if __name__ == "__main__":
    unittest.main()
