// What the victim does with others, with code, and with graphs: descriptors and handles that pass
// between processes, sparse arrays, functions that are loaded late.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "enforce/victim.hpp"

namespace victim {
namespace {

constexpr int kNoSuchWord = -1000;

std::vector<int> descriptors;
std::vector<CUdeviceptr> opened;
std::map<std::string, CUfunction> code;
CUmodule code_module = nullptr;
CUarrayMapInfo sparse{};

// A graph of so many allocations, each with a kernel and its free, one after the other.
int capture_allocations(std::uint64_t count, std::uint64_t size) {
  CUstream s = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  if (kernel == nullptr)
    if (const int r = load_kernel(); r != 0) return r;
  if (const int r = api.cuStreamCreate(&s, 1); r != 0) return r;
  if (const int r = api.cuStreamBeginCapture_v2(s, 0); r != 0) return r;
  stream = s;
  int r = 0;
  for (std::uint64_t i = 0; i < count && r == 0; ++i) {
    CUdeviceptr address = 0;
    r = api.cuMemAllocAsync(&address, size, s);
    if (r == 0) r = launch(100, false);
    if (r == 0) r = api.cuMemFreeAsync(address, s);
  }
  stream = nullptr;
  if (r == 0) r = api.cuStreamEndCapture(s, &graph);
  if (r == 0) r = api.cuGraphInstantiateWithFlags(&exec, graph, 0);
  if (r == 0) r = api.cuGraphLaunch(exec, s);
  return r != 0 ? r : api.cuStreamSynchronize(s);
}

// Launches a function of that name, of a module that has all of them.
int run_code(const std::string& name) {
  static const char image[64] =
      "\x7F"
      "ELF";
  if (code_module == nullptr)
    if (const int r = api.cuModuleLoadData(&code_module, image); r != 0) return r;
  CUfunction& function = code[name];
  if (function == nullptr)
    if (const int r = api.cuModuleGetFunction(&function, code_module, name.c_str()); r != 0)
      return r;
  return api.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

CUmemAllocationProp shareable() {
  CUmemAllocationProp prop{};
  prop.type = 1;
  prop.requestedHandleTypes = kHandlePosixFd;
  prop.location = {kLocationDevice, device()};
  return prop;
}

// Memory that only a descriptor holds.
int make_export(std::uint64_t size, bool keep_handle) {
  const CUmemAllocationProp prop = shareable();
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;
  if (const int r = api.cuMemCreate(&handle, size, &prop, 0); r != 0) return r;
  if (const int r = api.cuMemExportToShareableHandle(&fd, handle, kHandlePosixFd, 0); r != 0)
    return r;
  descriptors.push_back(fd);
  if (!keep_handle) return api.cuMemRelease(handle);
  handles.push_back(handle);
  return 0;
}

int take_import(int fd) {
  CUmemGenericAllocationHandle handle = 0;
  void* const os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  const int r = api.cuMemImportFromShareableHandle(&handle, os_handle, kHandlePosixFd);
  if (r == 0) handles.push_back(handle);
  return r;
}

// Passes the last descriptor to a victim that waits under that name, and takes one.
sockaddr_un socket_name(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
  return address;
}

int pass_descriptor(const std::string& name) {
  const sockaddr_un to = socket_name(name);
  const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  char byte = 'x';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = const_cast<sockaddr_un*>(&to);
  message.msg_namelen = sizeof to;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptors.back(), sizeof(int));
  // Whoever takes it may not be there yet.
  for (int i = 0; i < 2000 && sendmsg(fd, &message, 0) < 0; ++i) usleep(5000);
  close(fd);
  close(descriptors.back());
  descriptors.pop_back();
  return 0;
}

int take_descriptor(const std::string& name) {
  const sockaddr_un own = socket_name(name);
  const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) return -1;
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  int taken = -1;
  if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message) != nullptr)
    std::memcpy(&taken, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof taken);
  close(fd);
  descriptors.push_back(taken);
  return taken < 0 ? -1 : 0;
}

// A sparse array with memory in it, of which nothing else is kept.
int make_sparse(std::uint64_t size) {
  const CUmemAllocationProp prop = shareable();
  CUmemGenericAllocationHandle handle = 0;
  CUarray array = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR d{8192, 8192, 0, 0x20, 1, kArraySparse};
  if (const int r = api.cuMemCreate(&handle, size, &prop, 0); r != 0) return r;
  if (const int r = api.cuArray3DCreate_v2(&array, &d); r != 0) return r;
  sparse = {};
  sparse.resource = array;
  sparse.subresource[3] = 64;
  sparse.memOperationType = kOperationMap;
  sparse.memHandle = handle;
  sparse.deviceBitMask = 1;
  if (const int r = api.cuMemMapArrayAsync(&sparse, 1, nullptr); r != 0) return r;
  return keep(api.cuMemRelease(handle), 'a', reinterpret_cast<std::uintptr_t>(array), size);
}

std::string hex(const CUipcMemHandle& handle) {
  std::string text;
  for (const char c : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    text += digits;
  }
  return text;
}

int open_handle(const std::string& text) {
  CUipcMemHandle handle{};
  for (size_t i = 0; i < sizeof handle.reserved; ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  CUdeviceptr address = 0;
  const int r = api.cuIpcOpenMemHandle_v2(&address, handle, 1);
  if (r == 0) opened.push_back(address);
  return r;
}

int run_word(const std::string& word, const std::string& what, std::uint64_t a, std::uint64_t b,
             std::ostringstream& out) {
  if (word == "pass") return pass_descriptor(what);
  if (word == "take") return take_descriptor(what);
  if (word == "open") return open_handle(what);
  if (word == "import") return take_import(descriptors.back());
  if (word == "close") {
    close(descriptors.back());
    descriptors.pop_back();
    return 0;
  }
  if (word == "unopen") {
    const int r = api.cuIpcCloseMemHandle(opened.back());
    opened.pop_back();
    return r;
  }
  if (word == "handle") {
    CUipcMemHandle handle{};
    const int r = api.cuIpcGetMemHandle(&handle, pieces.back().handle);
    out << " handle=" << hex(handle);
    return r;
  }
  if (word == "code") return run_code(what);
  if (word == "loop-graph") return capture_allocations(a, b);
  if (word == "export") return make_export(a, b != 0);
  if (word == "sparse") return make_sparse(a);
  if (word == "unsparse") {
    sparse.memOperationType = kOperationUnmap;
    return api.cuMemMapArrayAsync(&sparse, 1, nullptr);
  }
  if (word == "limit") return api.cuCtxSetLimit(static_cast<int>(a), b);
  if (word == "variables") {
    CUmodule module = nullptr;
    const std::string text = ".version 6.0\n.global .b8 data[" + what + "];\n";
    return api.cuModuleLoadData(&module, text.c_str());
  }
  return kNoSuchWord;
}

}  // namespace

bool run_more(const std::string& word, std::istringstream& in, std::ostringstream& out,
              int* result) {
  std::string rest;
  std::getline(in, rest);
  std::istringstream words(rest);
  std::string what;
  std::uint64_t b = 0;
  words >> what >> b;
  *result = run_word(word, what, std::strtoull(what.c_str(), nullptr, 10), b, out);
  if (*result != kNoSuchWord) return true;
  in.clear();
  in.str(rest);
  return false;
}

}  // namespace victim
