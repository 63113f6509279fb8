// Prints, for many names, versions and flags, what cuGetProcAddress_v2 answers: the symbol and the
// library it lies in. With the argument "absent": whether cuInit can be found without a driver;
// with "dlerror": whether looking up leaves errors behind.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "absent") == 0) {
    const bool found =
        dlsym(RTLD_DEFAULT, "cuInit") != nullptr || dlsym(RTLD_NEXT, "cuMemAlloc_v2") != nullptr;
    std::puts(found ? "found" : "absent");
    return 0;
  }
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return 1;
  if (argc > 1 && std::strcmp(argv[1], "dlerror") == 0) {
    (void)dlerror();
    for (const char* name : {"cuInit", "cuMemAlloc_v2", "cuEventCreate", "cuLaunchKernel"})
      if (dlsym(library, name) == nullptr || dlerror() != nullptr)
        std::printf("noise after %s\n", name);
    if (dlsym(library, "cuNoSuchThing") != nullptr || dlerror() == nullptr) std::puts("no error");
    std::puts("quiet");
    return 0;
  }
  using Get = int (*)(const char*, void**, int, unsigned long, int*);
  const auto get = reinterpret_cast<Get>(dlsym(library, "cuGetProcAddress_v2"));
  const char* const names[] = {"cuInit",
                               "cuGetProcAddress",
                               "cuMemAlloc",
                               "cuMemAllocPitch",
                               "cuMemAllocManaged",
                               "cuMemFree",
                               "cuMemAllocAsync",
                               "cuMemFreeAsync",
                               "cuMemAllocFromPoolAsync",
                               "cuMemPoolCreate",
                               "cuMemCreate",
                               "cuMemRelease",
                               "cuMemMap",
                               "cuMemUnmap",
                               "cuArrayCreate",
                               "cuArray3DCreate",
                               "cuArrayDestroy",
                               "cuMipmappedArrayCreate",
                               "cuMemGetInfo",
                               "cuDeviceTotalMem",
                               "cuDevicePrimaryCtxRetain",
                               "cuDevicePrimaryCtxRelease",
                               "cuDevicePrimaryCtxReset",
                               "cuCtxCreate",
                               "cuCtxDestroy",
                               "cuLaunchKernel",
                               "cuLaunchKernelEx",
                               "cuLaunchCooperativeKernel",
                               "cuGraphLaunch",
                               "cuGraphInstantiate",
                               "cuStreamSynchronize",
                               "cuCtxSynchronize",
                               "cuIpcOpenMemHandle",
                               "cuEventRecord",
                               "cuStreamCreate",
                               "cuMemcpyHtoD",
                               "cuNoSuchThing"};
  for (const char* name : names)
    for (const int version : {2000, 3000, 3020, 4000, 7000, 9000, 10000, 11000, 11020, 11040, 11060,
                              12000, 12020, 12050, 12080, 13000})
      for (const unsigned long flags : {0UL, 1UL, 2UL}) {
        void* address = nullptr;
        int status = 0;
        const int r = get(name, &address, version, flags, &status);
        Dl_info info{};
        if (address == nullptr || dladdr(address, &info) == 0 || info.dli_sname == nullptr) {
          std::printf("%s %d %lu none%d.%d -\n", name, version, flags, r, status);
          continue;
        }
        const char* slash = std::strrchr(info.dli_fname, '/');
        std::printf("%s %d %lu %s %s\n", name, version, flags, info.dli_sname,
                    slash == nullptr ? info.dli_fname : slash + 1);
      }
  return 0;
}
