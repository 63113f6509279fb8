/* A program of a musl image: says that it runs, what it was told of GPUs, and waits when asked to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char** environ;

int main(int argc, char** argv) {
  void* memory = malloc(1 << 20);
  if (memory == NULL) return 1;
  memset(memory, 1, 1 << 20);
  free(memory);
  printf("musl runs as %d\n", (int)getuid());
  for (char** each = environ; *each != NULL; ++each)
    if (strncmp(*each, "CUDA_", 5) == 0 || strncmp(*each, "ALIQUOT_", 8) == 0 || strncmp(*each, "LD_PRELOAD=", 11) == 0) puts(*each);
  fflush(stdout);
  if (argc > 1) sleep((unsigned)atoi(argv[1]));
  return 0;
}
