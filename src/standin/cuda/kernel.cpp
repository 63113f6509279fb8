// Modules, functions and launches.
#include "standin/cuda/kernel.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "standin/cuda/memory.hpp"

namespace aliquot::standin {
namespace {

// A launch's arguments, from an array of pointers or one packed buffer.
class Arguments {
 public:
  Arguments(void** parameters, void** extra) : parameters_(parameters) {
    // Pairs of a tag and a pointer, ended by tag 0; tag 1 is the buffer.
    for (; parameters_ == nullptr && extra != nullptr && extra[0] != nullptr; extra += 2)
      if (reinterpret_cast<std::uintptr_t>(extra[0]) == 1)
        buffer_ = static_cast<const char*>(extra[1]);
  }
  [[nodiscard]] bool present() const { return parameters_ != nullptr || buffer_ != nullptr; }

  template <class T>
  [[nodiscard]] T get(std::size_t index, std::size_t offset) const {
    T value{};
    std::memcpy(&value, parameters_ != nullptr ? parameters_[index] : buffer_ + offset,
                sizeof value);
    return value;
  }

 private:
  void** parameters_;
  const char* buffer_ = nullptr;
};

void saxpy(unsigned n, float a, CUdeviceptr x, CUdeviceptr y) {
  bool bad = false;
  const std::byte* xs = memory_bytes(x, n * sizeof(float), &bad);
  std::byte* ys = memory_bytes(y, n * sizeof(float), &bad);
  if (xs == nullptr || ys == nullptr) return;
  for (std::size_t i = 0; i < n; ++i) {
    float xi = 0;
    float yi = 0;
    std::memcpy(&xi, xs + i * sizeof xi, sizeof xi);
    std::memcpy(&yi, ys + i * sizeof yi, sizeof yi);
    yi += a * xi;
    std::memcpy(ys + i * sizeof yi, &yi, sizeof yi);
  }
}

bool looks_like_ptx(const char* image) {
  // PTX may begin with comments; binaries begin with a magic number.
  while (*image == ' ' || *image == '\n' || *image == '\t' || *image == '\r') ++image;
  return std::strncmp(image, "//", 2) == 0 || std::strncmp(image, ".version", 8) == 0 ||
         std::strncmp(image, "/*", 2) == 0;
}

bool looks_like_binary(const char* image) {
  constexpr unsigned char kFatbin[] = {0x50, 0xED, 0x55, 0xBA};
  constexpr unsigned char kWrapper[] = {0xB1, 0x43, 0x62, 0x46};
  return std::memcmp(image,
                     "\x7F"
                     "ELF",
                     4) == 0 ||
         std::memcmp(image, kFatbin, 4) == 0 || std::memcmp(image, kWrapper, 4) == 0;
}

// Every module that is loaded; the driver's mutex guards it.
std::set<Module*>& modules() {
  static auto* const all = new std::set<Module*>;
  return *all;
}

// What the variables of a PTX module take.
std::uint64_t variables(const std::string& text) {
  std::uint64_t sum = 0;
  for (std::size_t at = text.find(".global .b8 "); at != std::string::npos;
       at = text.find(".global .b8 ", at + 1)) {
    const auto open = text.find_first_of("[;", at);
    if (open != std::string::npos && text[open] == '[')
      sum += std::strtoull(text.c_str() + open + 1, nullptr, 10);
  }
  return round_up(sum, kGranularity);
}

// Memory for a module, which goes with it.
CUresult grow(Module* module, std::uint64_t bytes) {
  if (bytes == 0) return kSuccess;
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  if (const CUresult r = driver.charge(module->gpu, bytes); r != kSuccess) return r;
  module->bytes += bytes;
  return kSuccess;
}

void shrink(Module* module) {
  if (module->bytes != 0) Driver::instance().refund(module->gpu, module->bytes);
  module->bytes = 0;
}

std::uint64_t local_bytes(const Kernel& kernel) {
  unsigned kibibytes = 0;
  return std::sscanf(kernel.name.c_str(), "local_%u", &kibibytes) == 1 ? kibibytes * 1024ULL : 0;
}

// What a context takes for the threads of a kernel.
CUresult prepare(Context* context, const Kernel* kernel) {
  if (kernel == nullptr) return kSuccess;
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  const std::uint64_t local = local_bytes(*kernel);
  const bool heap = kernel->name.starts_with("heap_") && !context->heap;
  std::uint64_t more = heap ? context->limits[2] : 0;
  if (local > context->local) {
    const auto threads =
        static_cast<std::uint64_t>(driver.state().model(context->gpu).multiprocessors) * 2048;
    more += (local - context->local) * threads;
  }
  if (more == 0) return kSuccess;
  if (const CUresult r = driver.charge(context->gpu, more); r != kSuccess) return r;
  context->own_bytes += more;
  context->local = std::max(context->local, local);
  context->heap |= heap;
  return kSuccess;
}

CUresult load_code(Kernel* kernel) {
  if (kernel == nullptr || kernel->loaded) return kSuccess;
  unsigned mebibytes = 0;
  if (std::sscanf(kernel->name.c_str(), "late_%u", &mebibytes) == 1)
    if (const CUresult r = grow(kernel->module, mebibytes * kMiB); r != kSuccess) return r;
  kernel->loaded = true;
  return kSuccess;
}

CUresult load(CUmodule* out, const void* image) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (out == nullptr || image == nullptr) return kInvalidValue;
  const char* bytes = static_cast<const char*>(image);
  const bool ptx = looks_like_ptx(bytes);
  if (!ptx && !looks_like_binary(bytes)) return kInvalidImage;
  auto* module = new Module{ptx, ptx ? bytes : "", context, context->gpu};
  if (const CUresult r = grow(module, variables(module->text)); r != kSuccess) {
    delete module;
    return r;
  }
  const std::lock_guard lock(Driver::instance().mutex);
  modules().insert(module);
  *out = module;
  return kSuccess;
}

CUresult load_file(CUmodule* out, const char* path) {
  if (path == nullptr) return kInvalidValue;
  std::ifstream file(path, std::ios::binary);
  if (!file) return kFileNotFound;
  std::ostringstream content;
  content << file.rdbuf();
  return load(out, (content.str() + std::string(8, '\0')).c_str());
}

bool has_kernel(const Module& module, const std::string& name) {
  if (!module.ptx) return true;
  for (std::size_t at = module.text.find(".entry"); at != std::string::npos;
       at = module.text.find(".entry", at + 1)) {
    const auto begin = module.text.find_first_not_of(" \t\n", at + 6);
    if (begin == std::string::npos) return false;
    const auto end = module.text.find_first_of(" \t\n({", begin);
    if (module.text.compare(begin, end - begin, name) == 0) return true;
  }
  return false;
}

CUresult find_kernel(CUfunction* out, CUmodule module, const char* name) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (out == nullptr || module == nullptr || name == nullptr) return kInvalidValue;
  if (!has_kernel(*module, name)) return kNotFound;
  *out = new Kernel{module, name};
  return kSuccess;
}

CUresult launch(CUfunction function, const Grid& grid, CUstream stream, void** parameters,
                void** extra) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (const CUresult r = load_code(function); r != kSuccess) return r;
  if (const CUresult r = prepare(s->context, function); r != kSuccess) return r;
  Operation operation;
  if (const CUresult r =
          kernel_operation(*s->context, function, grid, parameters, extra, &operation);
      r != kSuccess)
    return r;
  return enqueue(s, std::move(operation));
}

}  // namespace

void modules_gone(Context* context) {
  const std::lock_guard lock(Driver::instance().mutex);
  for (Module* module : modules())
    if (module->context == context) shrink(module);
}

CUresult kernel_operation(const Context& context, const Kernel* kernel, const Grid& grid,
                          void** parameters, void** extra, Operation* out) {
  if (kernel == nullptr) return kInvalidHandle;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const std::uint64_t threads = std::uint64_t{grid.block_x} * grid.block_y * grid.block_z;
  if (blocks == 0 || threads == 0 || threads > 1024) return kInvalidValue;
  const double processors = Driver::instance().state().model(context.gpu).multiprocessors;
  const double filled = static_cast<double>(blocks * threads) / (processors * 2048);
  const double waves = std::max(1.0, std::ceil(filled));
  out->width = std::min(1.0, static_cast<double>(blocks) / processors);
  out->work_ns = kPlainKernelNs * waves;

  const Arguments arguments(parameters, extra);
  if (kernel->name == "spin" && arguments.present()) {
    out->work_ns =
        kSpinNsPerIteration * waves * static_cast<double>(arguments.get<std::uint64_t>(0, 0));
  } else if (kernel->name == "saxpy" && arguments.present()) {
    const auto n = arguments.get<unsigned>(0, 0);
    const auto a = arguments.get<float>(1, 4);
    const auto x = arguments.get<CUdeviceptr>(2, 8);
    const auto y = arguments.get<CUdeviceptr>(3, 16);
    bool bad_x = false;
    bool bad_y = false;
    static_cast<void>(memory_bytes(x, n * sizeof(float), &bad_x));
    static_cast<void>(memory_bytes(y, n * sizeof(float), &bad_y));
    out->faults = bad_x || bad_y || memory_find(x) == nullptr || memory_find(y) == nullptr;
    memory_touch(x, n * sizeof(float));
    memory_touch(y, n * sizeof(float));
    if (!out->faults) out->effect = [=] { saxpy(n, a, x, y); };
    out->work_ns += static_cast<double>(n) * 12 / 4000;
  } else if (kernel->name == "fault") {
    out->faults = true;
  }
  return kSuccess;
}

CU_API cuModuleLoadData(CUmodule* out, const void* image) { return load(out, image); }

CU_API cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, int*, void**) {
  return load(out, image);
}

CU_API cuModuleLoadFatBinary(CUmodule* out, const void* image) { return load(out, image); }

CU_API cuModuleLoad(CUmodule* out, const char* path) { return load_file(out, path); }

CU_API cuModuleUnload(CUmodule module) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (module == nullptr) return kInvalidHandle;
  // Functions of the module may still be asked for their name: what is left of it stays.
  const std::lock_guard lock(Driver::instance().mutex);
  if (modules().erase(module) != 0) shrink(module);
  return kSuccess;
}

CU_API cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return find_kernel(out, module, name);
}

CU_API cuModuleGetGlobal_v2(CUdeviceptr*, std::size_t*, CUmodule module, const char* name) {
  return module == nullptr || name == nullptr ? kInvalidValue : kNotFound;
}

CU_API cuModuleGetLoadingMode(int* mode) { return give(mode, 2); }

CU_API cuLibraryLoadData(CUlibrary* out, const void* image, int*, void**, unsigned, int*, void**,
                         unsigned) {
  return load(out, image);
}

CU_API cuLibraryLoadFromFile(CUlibrary* out, const char* path, int*, void**, unsigned, int*, void**,
                             unsigned) {
  return load_file(out, path);
}

CU_API cuLibraryUnload(CUlibrary library) { return cuModuleUnload(library); }

CU_API cuLibraryGetModule(CUmodule* out, CUlibrary library) {
  return library == nullptr ? kInvalidHandle : give(out, library);
}

CU_API cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  return find_kernel(out, library, name);
}

CU_API cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  return kernel == nullptr ? kInvalidHandle : give(out, kernel);
}

CU_API cuFuncGetAttribute(int* out, int attribute, CUfunction function);

CU_API cuKernelGetAttribute(int* out, int attribute, CUkernel kernel, CUdevice) {
  return cuFuncGetAttribute(out, attribute, kernel);
}

CU_API cuKernelGetName(const char** out, CUkernel kernel) {
  return kernel == nullptr ? kInvalidHandle : give(out, kernel->name.c_str());
}

CU_API cuFuncGetName(const char** out, CUfunction function) {
  return cuKernelGetName(out, function);
}

CU_API cuFuncGetModule(CUmodule* out, CUfunction function) {
  return function == nullptr ? kInvalidHandle : give(out, function->module);
}

CU_API cuFuncGetAttribute(int* out, int attribute, CUfunction function) {
  if (function == nullptr) return kInvalidHandle;
  return give(out, attribute == 0   ? 1024
                   : attribute == 3 ? static_cast<int>(local_bytes(*function))
                   : attribute == 4 ? 32
                                    : 0);  // threads per block, local memory, registers
}

CU_API cuFuncSetAttribute(CUfunction function, int, int) {
  return function == nullptr ? kInvalidHandle : kSuccess;
}

CU_API cuFuncSetCacheConfig(CUfunction function, int) {
  return function == nullptr ? kInvalidHandle : kSuccess;
}

CU_API cuFuncLoad(CUfunction function) { return function == nullptr ? kInvalidHandle : kSuccess; }

CU_API cuFuncIsLoaded(int* state, CUfunction function) {
  return function == nullptr ? kInvalidHandle : give(state, 1);
}

CU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction function, int block,
                                                   std::size_t) {
  if (function == nullptr || block <= 0) return kInvalidValue;
  return give(out, std::max(1, 2048 / block));
}

CU_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, CUfunction function,
                                                            int block, std::size_t size, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(out, function, block, size);
}

CU_API_STREAM(cuLaunchKernel, _ptsz,
              (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
               unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra),
              (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra)) {
  static_cast<void>(shared);
  return launch(f, {gx, gy, gz, bx, by, bz}, stream, parameters, extra);
}

CU_API_STREAM(cuLaunchKernelEx, _ptsz,
              (const CUlaunchConfig* c, CUfunction f, void** parameters, void** extra),
              (c, f, parameters, extra)) {
  if (c == nullptr) return kInvalidValue;
  return launch(f,
                {c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ},
                c->hStream, parameters, extra);
}

CU_API_STREAM(cuLaunchCooperativeKernel, _ptsz,
              (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
               unsigned bz, unsigned shared, CUstream stream, void** parameters),
              (f, gx, gy, gz, bx, by, bz, shared, stream, parameters)) {
  static_cast<void>(shared);
  return launch(f, {gx, gy, gz, bx, by, bz}, stream, parameters, nullptr);
}

}  // namespace aliquot::standin
