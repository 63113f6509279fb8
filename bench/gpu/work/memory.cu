// Takes GPU memory in ways that a limit is easily blind to, until it is refused, and says what it got as one line of JSON.
//   exports   2 GiB at a time, held by a descriptor alone; then all closed, and 8 GiB allocated
//   orphan    4 GiB of a process that exports them and dies; then 1 GiB at a time
//   graphs    100 times 200 MiB, one after the other, in one graph; then graphs of 1 GiB on streams of their own
//   managed   512 MiB at a time, written by the GPU
//   pending   5 GiB freed on a stream behind a kernel of 0.1 s, and 5 GiB on another at once, ten times
//   free      all that cuMemGetInfo says is free, in one piece: plain, and from a pool
//   ballast   all of the card but 10 GiB, until its input ends: so the rest is a card of 10 GiB
//   local     a kernel with 16 KiB of local memory a thread after 8 GiB are taken
#include <cuda.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

__device__ void spin(unsigned long long ns) {
  unsigned long long from, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - from < ns);
}
__global__ void wait_for(unsigned long long ns) { spin(ns); }
__global__ void greedy(char* out, int n) {
  volatile char local[16384];
  for (int i = 0; i < n; ++i) local[i * 7919 % 16384] = static_cast<char>(i);
  if (out != nullptr) *out = local[n];
}

static const size_t kMiB = 1 << 20;
static const size_t kGiB = 1 << 30;
static CUdevice device;

static void say(const char* what, size_t got, int refusal, int fine) {
  printf("{\"kind\": \"%s\", \"got_mib\": %zu, \"refusal\": %d, \"fine\": %s}\n", what, got / kMiB, refusal, fine ? "true" : "false");
  fflush(stdout);
}
static void must(int r, const char* what) {
  if (r == 0) return;
  printf("{\"kind\": \"%s\", \"got_mib\": 0, \"refusal\": %d, \"fine\": false}\n", what, r);
  exit(4);
}
static void start() {
  CUcontext context;
  must(cuInit(0), "init");
  must(cuDeviceGet(&device, 0), "device");
  must(cuDevicePrimaryCtxRetain(&context, device), "context");
  must(cuCtxSetCurrent(context), "current");
}
static CUmemAllocationProp shareable() {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}
static int export_one(size_t size, int* fd) {
  const CUmemAllocationProp prop = shareable();
  CUmemGenericAllocationHandle handle;
  int r = cuMemCreate(&handle, size, &prop, 0);
  if (r == 0) r = cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  return r != 0 ? r : cuMemRelease(handle);
}
static int fill(size_t step, size_t most, size_t* got) {
  int r = 0;
  CUdeviceptr p;
  for (*got = 0; *got < most && (r = cuMemAlloc(&p, step)) == 0;) *got += step;
  return r;
}

static void exports() {
  std::vector<int> held;
  int fd = -1, r = 0;
  while (held.size() < 30 && (r = export_one(2 * kGiB, &fd)) == 0) held.push_back(fd);
  usleep(300000);
  const size_t got = held.size() * 2 * kGiB;
  for (int each : held) close(each);
  CUdeviceptr p;
  const int again = cuMemAlloc(&p, 8 * kGiB);
  usleep(300000);
  say("exports", got, r, r == 2 && again == 0);
}

static void orphan(const char* self) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) exit(1);
  const pid_t owner = fork();
  if (owner == 0) {
    dup2(pair[1], 3);
    execl(self, self, "owner", nullptr);
    _exit(1);
  }
  char byte;
  int fd = -1;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(pair[0], &message, 0) != 1 || CMSG_FIRSTHDR(&message) == nullptr) return say("orphan", 0, -1, 0);
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  start();
  CUmemGenericAllocationHandle handle;
  must(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<long>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), "import");
  close(fd);
  if (write(pair[0], "x", 1) != 1) exit(1);
  waitpid(owner, nullptr, 0);
  size_t got = 0;
  const int r = fill(kGiB / 2, 40 * kGiB, &got);
  usleep(300000);
  say("orphan", got + 4 * kGiB, r, r == 2);
}
static void owner() {
  start();
  int fd = -1;
  const CUmemAllocationProp prop = shareable();
  CUmemGenericAllocationHandle handle;
  must(cuMemCreate(&handle, 4 * kGiB, &prop, 0), "create");
  must(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "export");
  char byte = 'x';
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(3, &message, 0) != 1) exit(1);
  close(fd);
  if (read(3, &byte, 1) != 1) exit(1);
  _exit(0);
}

static int graph_of(int count, size_t size, CUstream stream, CUgraphExec* exec) {
  CUgraph graph;
  int r = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  for (int i = 0; i < count && r == 0; ++i) {
    CUdeviceptr p;
    r = cuMemAllocAsync(&p, size, stream);
    if (r != 0) break;
    wait_for<<<1, 1, 0, stream>>>(1000);
    r = cuMemFreeAsync(p, stream);
  }
  const int ended = cuStreamEndCapture(stream, &graph);
  if (r == 0) r = ended;
  return r != 0 ? r : cuGraphInstantiate(exec, graph, 0);
}
static void graphs() {
  CUstream stream;
  CUgraphExec exec;
  wait_for<<<1, 1>>>(1);
  cuCtxSynchronize();
  must(cuStreamCreate(&stream, 1), "stream");
  must(graph_of(100, 200 * kMiB, stream, &exec), "graph");
  int r = 0;
  for (int i = 0; i < 5 && r == 0; ++i) r = cuGraphLaunch(exec, stream);
  if (r == 0) r = cuStreamSynchronize(stream);
  must(r, "graph of 100 x 200 MiB");
  size_t got = 200 * kMiB;
  for (int i = 0; i < 30 && r == 0; ++i) {
    must(cuStreamCreate(&stream, 1), "stream");
    r = graph_of(3, kGiB, stream, &exec);
    wait_for<<<1, 1, 0, stream>>>(800000000);  // so that none can have another's
    if (r == 0) r = cuGraphLaunch(exec, stream);
    if (r == 0) got += kGiB;
  }
  cuCtxSynchronize();
  say("graphs", got, r, r == 0 || r == 2);
}

static void managed() {
  size_t got = 0;
  int r = 0;
  CUdeviceptr p;
  for (; got < 40 * kGiB && (r = cuMemAllocManaged(&p, 512 * kMiB, CU_MEM_ATTACH_GLOBAL)) == 0; got += 512 * kMiB) cuMemsetD8(p, 1, 512 * kMiB);
  cuCtxSynchronize();
  usleep(500000);
  say("managed", got, r, r == 2);
}

static void pending() {
  CUstream streams[2];
  for (auto& s : streams) must(cuStreamCreate(&s, 1), "stream");
  int r = 0;
  for (int i = 0; i < 10 && r == 0; ++i) {
    CUdeviceptr p;
    r = cuMemAllocAsync(&p, 5 * kGiB, streams[i % 2]);
    if (r != 0) break;
    wait_for<<<1, 1, 0, streams[i % 2]>>>(100000000);
    r = cuMemFreeAsync(p, streams[i % 2]);
  }
  say("pending", 5 * kGiB, r, r == 0);
}

static void take_free() {
  size_t first = 0, second = 0, total;
  CUdeviceptr p;
  CUstream stream;
  must(cuStreamCreate(&stream, 1), "stream");
  cuMemGetInfo(&first, &total);
  int r = cuMemAlloc(&p, first);
  usleep(200000);
  if (r == 0) r = cuMemFree(p);
  cuMemGetInfo(&second, &total);
  if (r == 0) r = cuMemAllocAsync(&p, second, stream);
  cuCtxSynchronize();
  usleep(200000);
  say("free", second, r, r == 0);
}

static void local() {
  size_t got = 0;
  const int filled = fill(kGiB, 8 * kGiB, &got);
  greedy<<<1, 1>>>(nullptr, 1);
  const cudaError_t r = cudaGetLastError();
  cuCtxSynchronize();
  usleep(200000);
  say("local", got, r, filled == 0 && r == cudaErrorMemoryAllocation);
}

static void ballast() {
  size_t free, total;
  CUdeviceptr p;
  must(cuMemGetInfo(&free, &total), "free");
  must(cuMemAlloc(&p, free - 10 * kGiB), "ballast");
  say("ballast", free - 10 * kGiB, 0, 1);
  (void)getchar();
}

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  if (what == "orphan") return orphan(words[0]), 0;
  if (what == "owner") return owner(), 0;
  start();
  if (what == "exports") exports();
  if (what == "graphs") graphs();
  if (what == "managed") managed();
  if (what == "pending") pending();
  if (what == "free") take_free();
  if (what == "ballast") ballast();
  if (what == "local") local();
}
