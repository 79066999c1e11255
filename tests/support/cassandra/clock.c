/* Clock of a process, ahead of the real one by the microseconds in a file. Preloaded before a node:
   libfaketime also replaces the timed waits, which makes a Java process spin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real)(clockid_t, struct timespec *);
static volatile const int64_t *ahead;

__attribute__((constructor)) static void begin(void) {
  real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("CLOCK_AHEAD_FILE");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) ahead = mapped;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!real) begin();
  int result = real(clock, time);
  if (result == 0 && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t nanos = time->tv_nsec + (*ahead % 1000000) * 1000;
    time->tv_sec += *ahead / 1000000;
    if (nanos >= 1000000000) { nanos -= 1000000000; time->tv_sec++; }
    if (nanos < 0) { nanos += 1000000000; time->tv_sec--; }
    time->tv_nsec = nanos;
  }
  return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  int result = clock_gettime(CLOCK_REALTIME, &precise);
  time->tv_sec = precise.tv_sec;
  time->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t *copy) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (copy) *copy = precise.tv_sec;
  return precise.tv_sec;
}
