#include "gpu/devices.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "gpu/fake_devices.hpp"
#include "gpu/nvml_devices.hpp"

namespace aliquot::gpu {
namespace {

TEST(ShortModel, IsWhatUsersWrite) {
  const std::map<std::string, std::string> models = {
      {"NVIDIA H200", "h200"},
      {"NVIDIA H100 80GB HBM3", "h100"},
      {"NVIDIA A100-SXM4-80GB", "a100"},
      {"NVIDIA A100-SXM4-80GB MIG 1g.10gb", "a100"},
      {"NVIDIA TITAN RTX", "titanrtx"},
      {"Tesla V100-SXM2-16GB", "v100"},
      {"Tesla P100-PCIE-16GB", "p100"},
      {"NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"},
      {"NVIDIA RTX 6000 Ada Generation", "rtx6000ada"},
      {"NVIDIA L40S", "l40s"},
      {"NVIDIA", "gpu"},
      {"", "gpu"},
  };
  for (const auto& [name, model] : models) EXPECT_EQ(short_model(name), model) << name;
}

TEST(MigProfile, IsTheEndOfASlicesName) {
  EXPECT_EQ(mig_profile("NVIDIA A100-SXM4-80GB MIG 1g.10gb"), "1g.10gb");
  EXPECT_EQ(mig_profile("NVIDIA H200 MIG 3g.71gb+me"), "3g.71gb+me");
  EXPECT_EQ(mig_profile("NVIDIA H200"), "");
}

// A driver with two GPUs, the second in MIG mode with slices 0 and 2. A handle is its number.
namespace mig {
nvml::Device device(std::uintptr_t number) { return reinterpret_cast<nvml::Device>(number); }
std::uintptr_t number(nvml::Device device) { return reinterpret_cast<std::uintptr_t>(device); }
void put(char* out, unsigned size, const std::string& text) {
  std::snprintf(out, size, "%s", text.c_str());
}

NvmlLibrary library() {
  NvmlLibrary nvml;
  nvml.init = [] { return nvml::kSuccess; };
  nvml.shutdown = [] { return nvml::kSuccess; };
  nvml.error_string = [](nvml::Return) { return "bad"; };
  nvml.driver_version = [](char* out, unsigned size) {
    put(out, size, "580.1");
    return nvml::kSuccess;
  };
  nvml.count = [](unsigned* out) {
    *out = 2;
    return nvml::kSuccess;
  };
  nvml.handle = [](unsigned index, nvml::Device* out) {
    *out = device(index + 1);
    return nvml::kSuccess;
  };
  nvml.uuid = [](nvml::Device one, char* out, unsigned size) {
    put(out, size, (number(one) >= 10 ? "MIG-" : "GPU-") + std::to_string(number(one)));
    return nvml::kSuccess;
  };
  nvml.name = [](nvml::Device one, char* out, unsigned size) {
    put(out, size,
        number(one) >= 10 ? "NVIDIA A100-SXM4-80GB MIG 1g.10gb" : "NVIDIA A100-SXM4-80GB");
    return nvml::kSuccess;
  };
  nvml.pci = [](nvml::Device, nvml::PciInfo*) { return nvml::kNotSupported; };
  nvml.minor = [](nvml::Device one, unsigned* out) {
    *out = static_cast<unsigned>(number(one)) - 1;
    return nvml::kSuccess;
  };
  nvml.memory = [](nvml::Device one, nvml::Memory* out) {
    out->total = static_cast<unsigned long long>(gib(number(one) >= 10 ? 10 : 80).value());
    out->used = number(one) * 1024;
    return nvml::kSuccess;
  };
  nvml.utilization = [](nvml::Device one, nvml::Utilization* out) {
    *out = {50, 0};
    return number(one) >= 10 ? nvml::kNotSupported : nvml::kSuccess;
  };
  nvml.mig_mode = [](nvml::Device one, unsigned* now, unsigned* pending) {
    *now = *pending = number(one) == 2 ? 1 : 0;
    return nvml::kSuccess;
  };
  nvml.most_slices = [](nvml::Device, unsigned* out) {
    *out = 7;
    return nvml::kSuccess;
  };
  nvml.slice_handle = [](nvml::Device one, unsigned slice, nvml::Device* out) {
    if (number(one) != 2 || (slice != 0 && slice != 2)) return nvml::kNotFound;
    *out = device(10 + slice);
    return nvml::kSuccess;
  };
  return nvml;
}
}  // namespace mig

TEST(NvmlDevices, AGpuInMigModeIsItsSlices) {
  const auto devices = NvmlDevices::create(mig::library(), false);
  ASSERT_TRUE(devices) << devices.error().message;
  const auto list = (*devices)->list();
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 3U);
  EXPECT_EQ(list->at(0).gpu.mig_profile, "");
  const auto& slice = list->at(2);
  EXPECT_EQ(slice.gpu.id, GpuId("MIG-12"));
  EXPECT_EQ(slice.gpu.model, "a100");
  EXPECT_EQ(core::model_name(slice.gpu), "a100_1g.10gb");
  EXPECT_EQ(slice.gpu.memory, gib(10));
  EXPECT_EQ(slice.index, 1);
  EXPECT_EQ(slice.minor, 1);
  EXPECT_EQ(slice.slice, 2U);
  const auto samples = (*devices)->sample();
  ASSERT_TRUE(samples) << samples.error().message;
  EXPECT_EQ(samples->at(2).id, GpuId("MIG-12"));
  EXPECT_EQ(samples->at(2).memory_used, Bytes(12 * 1024));
  EXPECT_EQ(samples->at(0).utilisation, Compute(5'000));
}

// What the driver reports of GPU 0, one after the other.
std::vector<unsigned long long>& xids() {
  static std::vector<unsigned long long> all;
  return all;
}
// And what it answers to whoever samples that GPU.
nvml::Return& answer() {
  static nvml::Return code = nvml::kSuccess;
  return code;
}

NvmlLibrary reporting() {
  NvmlLibrary nvml = mig::library();
  nvml.create_events = [](nvml::EventSet* out) {
    *out = reinterpret_cast<nvml::EventSet>(std::uintptr_t{1});
    return nvml::kSuccess;
  };
  nvml.free_events = [](nvml::EventSet) { return nvml::kSuccess; };
  nvml.register_events = [](nvml::Device, unsigned long long, nvml::EventSet) {
    return nvml::kSuccess;
  };
  nvml.next_event = [](nvml::EventSet, nvml::Event* out, unsigned) {
    if (xids().empty()) return nvml::kNotFound;
    *out = {mig::device(1), nvml::kXidEvent, xids().front(), 0, 0};
    xids().erase(xids().begin());
    return nvml::kSuccess;
  };
  nvml.utilization = [](nvml::Device one, nvml::Utilization* out) {
    *out = {50, 0};
    return mig::number(one) == 1 ? answer() : nvml::kSuccess;
  };
  return nvml;
}

TEST(NvmlDevices, AFatalXidMakesAGpuUnfitUntilItWasReset) {
  xids() = {};
  answer() = nvml::kSuccess;
  const auto devices = NvmlDevices::create(reporting(), false).value();
  EXPECT_EQ(devices->sample()->at(0).trouble, "");
  xids() = {13, 31};  // a program's faults
  EXPECT_EQ(devices->sample()->at(0).health, core::Health::ok);
  xids() = {45, 119, 79};
  const auto samples = devices->sample();
  EXPECT_EQ(samples->at(0).trouble, "xid119");
  EXPECT_EQ(samples->at(0).health, core::Health::lost);
  EXPECT_EQ(samples->at(0).utilisation, Compute(5'000)) << "it can still be looked at";
  EXPECT_EQ(samples->at(1).trouble, "");
  EXPECT_EQ(devices->sample()->at(0).trouble, "xid119");
  answer() = nvml::kGpuLost;
  EXPECT_EQ(devices->sample()->at(0).trouble, "xid119");
  answer() = nvml::kSuccess;
  EXPECT_EQ(devices->sample()->at(0).trouble, "");
  EXPECT_EQ(devices->sample()->at(0).health, core::Health::ok);
}

TEST(NvmlDevices, AGpuOfWhichTheDriverSaysNothingHidesTheOthersForAMoment) {
  xids() = {};
  answer() = nvml::kSuccess;
  const auto devices = NvmlDevices::create(reporting(), false).value();
  answer() = 999;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(devices->sample());
  const auto samples = devices->sample();
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->at(0).trouble, "silent");
  EXPECT_EQ(samples->at(1).health, core::Health::ok);
  answer() = nvml::kSuccess;
  EXPECT_EQ(devices->sample()->at(0).trouble, "");
}

TEST(NvmlDevices, ErrorsThatMemoryCouldNotCorrectMakeAGpuUnfit) {
  xids() = {};
  answer() = nvml::kSuccess;
  NvmlLibrary nvml = reporting();
  nvml.ecc_errors = [](nvml::Device one, int type, int, unsigned long long* out) {
    *out = mig::number(one) == 1 && type == nvml::kUncorrected ? 3 : 0;
    return nvml::kSuccess;
  };
  EXPECT_EQ(NvmlDevices::create(nvml, false).value()->sample()->at(0).trouble, "ecc");
  nvml.ecc_errors = nullptr;
  nvml.remapped_rows = [](nvml::Device one, unsigned*, unsigned*, unsigned*, unsigned* failed) {
    *failed = mig::number(one) == 1 ? 1 : 0;
    return nvml::kSuccess;
  };
  EXPECT_EQ(NvmlDevices::create(nvml, false).value()->sample()->at(0).trouble, "rows");
}

TEST(NoDevices, HaveNothingAndSayWhy) {
  const auto devices = no_devices("no driver");
  EXPECT_TRUE(devices->list()->empty());
  EXPECT_TRUE(devices->sample()->empty());
  EXPECT_EQ(devices->description(), "no GPUs: no driver");
  EXPECT_EQ(devices->driver_version(), "");
}

TEST(FakeDevices, AnswerWhatWasPut) {
  FakeDevices devices(fake_gpus(2, "h200", gib(140)));
  devices.samples()[1].memory_used = gib(3);
  EXPECT_EQ(devices.list()->at(1).gpu.id, GpuId("GPU-1"));
  EXPECT_EQ(devices.sample()->at(1).memory_used, gib(3));
  devices.break_with(Error{Error::Code::unavailable, "gone"});
  EXPECT_EQ(devices.sample().error().message, "gone");
}

TEST(OpenDevices, NamesAMissingStandIn) {
  const auto devices = open_devices(StandIn{"/nonexistent", "h200:1", "/tmp/none"});
  ASSERT_FALSE(devices);
  EXPECT_EQ(devices.error().code, Error::Code::not_found);
  EXPECT_FALSE(open_devices(StandIn{"relative", "h200:1", "/tmp/none"}));
}

TEST(OpenDevices, WithoutADriverIsUnsupported) {
  const auto library = open_devices(std::nullopt);
  if (library) GTEST_SKIP() << "there is a driver here: " << (*library)->description();
  EXPECT_EQ(library.error().code, Error::Code::unsupported);
}

// One machine for the whole process: the stand-in keeps its state open until the process ends.
class StandInDevices : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    state = "/tmp/aliquot-gpu-test-" + std::to_string(getpid());
    opened = new auto(open_devices(StandIn{ALIQUOT_STANDIN_DIR, "h200:2,titanrtx:1", state}));
  }
  static void TearDownTestSuite() {
    delete opened;
    std::filesystem::remove(state);
  }
  void SetUp() override { ASSERT_TRUE(*opened) << opened->error().message; }

  static Devices& devices() { return ***opened; }
  static int control(const std::string& words) {
    const std::string line = std::string(ALIQUOT_STANDIN_DIR "/aliquot-standin-ctl ") + words;
    return std::system(line.c_str());  // NOLINT: our own words
  }

  static std::string state;
  static Result<std::unique_ptr<Devices>>* opened;
};
std::string StandInDevices::state;
Result<std::unique_ptr<Devices>>* StandInDevices::opened = nullptr;

TEST_F(StandInDevices, AreListedAndMarkedSimulated) {
  const auto list = devices().list();
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->size(), 3U);
  EXPECT_EQ((*list)[0].gpu.model, "h200");
  EXPECT_EQ((*list)[2].gpu.model, "titanrtx");
  EXPECT_TRUE((*list)[0].gpu.id.value().starts_with("GPU-"));
  EXPECT_NE((*list)[0].gpu.id, (*list)[1].gpu.id);
  EXPECT_GT((*list)[0].gpu.memory, gib(138));
  EXPECT_LT((*list)[2].gpu.memory, gib(24)) << "what the driver keeps is not there to be granted";
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto& device = (*list)[static_cast<std::size_t>(i)];
    EXPECT_EQ(device.index, i);
    EXPECT_TRUE(device.simulated);
    EXPECT_FALSE(device.minor);
    EXPECT_FALSE(device.pci_bus.empty());
    EXPECT_EQ(device.gpu.health, core::Health::ok);
  }
  EXPECT_TRUE(devices().simulated());
  EXPECT_FALSE(devices().driver_version().empty());
  EXPECT_NE(devices().description().find("(simulated)"), std::string::npos);
}

TEST_F(StandInDevices, ShowTheMemoryAndProcessOfALoad) {
  const auto before = devices().sample();
  ASSERT_TRUE(before);
  ASSERT_EQ(before->size(), 3U);
  EXPECT_TRUE(before->at(0).processes.empty());

  std::vector<std::string> environment =
      gpu::environment(StandIn{ALIQUOT_STANDIN_DIR, "h200:2,titanrtx:1", state});
  environment.emplace_back("LD_LIBRARY_PATH=" ALIQUOT_STANDIN_DIR);
  std::vector<char*> envp;
  for (auto& variable : environment) envp.push_back(variable.data());
  envp.push_back(nullptr);
  std::string program = ALIQUOT_BIN_DIR "/aliquot-load";
  std::string words[] = {"aliquot-load", "--mem", "2G", "--seconds", "300"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(),
                  words[3].data(), words[4].data(), nullptr};
  pid_t pid = 0;
  ASSERT_EQ(posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv, envp.data()), 0);
  Sample seen;
  for (int i = 0; i < 2000; ++i) {
    const auto now = devices().sample();
    ASSERT_TRUE(now);
    seen = now->at(0);
    if (seen.memory_used >= before->at(0).memory_used + gib(2)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_GE(seen.memory_used, before->at(0).memory_used + gib(2));
  ASSERT_EQ(seen.processes.size(), 1U);
  EXPECT_EQ(seen.processes[0].pid, pid);
  EXPECT_GE(seen.processes[0].memory, gib(2));
  EXPECT_EQ(devices().sample()->at(0).memory_used, before->at(0).memory_used);
}

TEST_F(StandInDevices, ALostGpuStaysInTheList) {
  const auto before = devices().list();
  ASSERT_TRUE(before);
  ASSERT_EQ(control("lose 1"), 0);
  const auto sample = devices().sample();
  const auto list = devices().list();
  ASSERT_EQ(control("heal 1"), 0);
  ASSERT_TRUE(sample);
  ASSERT_TRUE(list);
  EXPECT_EQ(sample->at(1).health, core::Health::lost);
  EXPECT_EQ(sample->at(0).health, core::Health::ok);
  ASSERT_EQ(list->size(), 3U);
  EXPECT_EQ(list->at(1).gpu.health, core::Health::lost);
  EXPECT_EQ(list->at(1).gpu.id, before->at(1).gpu.id);
  EXPECT_EQ(devices().list()->at(1).gpu.health, core::Health::ok);
}

TEST_F(StandInDevices, AnErrorOfTheDriverIsHeardOf) {
  ASSERT_TRUE(devices().sample());
  ASSERT_EQ(control("xid 0 31"), 0);
  EXPECT_EQ(devices().sample()->at(0).trouble, "");
  ASSERT_EQ(control("xid 0 79"), 0);
  EXPECT_EQ(devices().sample()->at(0).trouble, "xid79");
  ASSERT_EQ(control("heal 0"), 0);
  EXPECT_EQ(devices().sample()->at(0).trouble, "");
  ASSERT_EQ(control("ecc 2 5 1"), 0);
  EXPECT_EQ(devices().sample()->at(2).trouble, "ecc");
  ASSERT_EQ(control("heal 2"), 0);
}

}  // namespace
}  // namespace aliquot::gpu
