#include "engine/walk/world.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "api/json.hpp"
#include "gpu/fake_devices.hpp"
#include "net/encoding.hpp"

namespace aliquot::engine::walk {
namespace {

class WalkUsers final : public Users {
 public:
  Result<User> find(Uid uid) override { return User{"u" + std::to_string(uid.value()), "g", 100}; }
  void learn(Uid, std::function<void()> then) override { then(); }
};

Deed deed_of(const std::string& method, std::string_view target) {
  if (method != "POST") return Deed::question;
  target = target.substr(0, target.find('?'));
  if (target.starts_with("/v1/jobs/")) {
    const auto verb = target.substr(target.rfind('/') + 1);
    if (verb == "cancel") return Deed::cancel;
    if (verb == "hold" || verb == "release") return Deed::hold;
    if (verb == "update" || verb == "top") return Deed::update;
    if (verb == "requeue") return Deed::requeue;
    if (verb == "suspend" || verb == "resume") return Deed::suspension;
    return Deed::other;
  }
  if (target == "/v1/jobs" || target == "/v1/allocations") return Deed::submission;
  if (target == "/v1/accounts") return Deed::limits;
  if (target.starts_with("/v1/reservations")) return Deed::reservation;
  if (target.starts_with("/v1/node")) return Deed::drain;
  return Deed::other;
}

}  // namespace

void Connection::answer(net::Response given) {
  if (!open) return;
  // From a destructor, which must not throw.
  dropped = given.body.find("the request was dropped") != std::string::npos;
  if (dropped) return;
  if (response) throw Violation("a second answer to " + request);
  response = std::move(given);
  if (heard) heard(response->status);
  if (answered) answered(*response);
  fuse_.burn();
}

void Connection::close() {
  if (!std::exchange(open, false)) return;
  for (const auto& hook : std::exchange(hooks, {})) hook();
}

void Connection::break_off() {
  open = false;
  hooks.clear();
  answered = nullptr;
}

World::World(std::string folder)
    : folder_(std::move(folder)), machine_(fuse_), users_(std::make_unique<WalkUsers>()) {
  std::filesystem::create_directories(folder_);
  host_ = {.name = "host", .os = "walk", .cpus = 16, .memory = gib(64)};
  host_.gpus = gpu::fake_gpus(3, "h200", gib(100));
  open();
}

World::~World() {
  for (const auto& one : connections_) one->break_off();
  fuse_.put_out();
  api_.reset();
  engine_.reset();
  std::filesystem::remove_all(folder_);
}

void World::open() {
  auto store = Store::open(folder_ + "/state.db");
  if (!store) throw Violation("the record cannot be opened: " + store.error().message);
  host_.boot_id = fmt::format("boot {}", boots_);
  machine_.capacity = core::Node{.id = NodeId("host"),
                                 .cpus = kOneCpu * host_.cpus,
                                 .memory = host_.memory,
                                 .gpus = {},
                                 .compute_limit = settings_.compute_limit};
  for (const gpu::Device& device : host_.gpus) machine_.capacity.gpus.push_back(device.gpu);
  auto made =
      Engine::create({settings_, host_, clock_, machine_, *users_, std::move(*store), Uid(0),
                      [this](const Job& job, core::JobState next) { heard(job, next); }});
  if (!made) throw Violation("the daemon does not start: " + made.error().message);
  engine_ = std::move(*made);
  api_ = std::make_unique<ApiServer>(*engine_, [this] { due_ = true; });
  restarted_ = clock_.mono();
  take_stock();
  settle();
}

void World::close_all() {
  for (const auto& one : connections_) one->break_off();
  connections_.clear();
  holders_.clear();
}

// What was not committed never was; what runs goes on, unless the power went, too.
void World::crash(bool power, std::uint32_t dice) {
  fuse_.put_out();
  ++deeds[Deed::kill];
  close_all();
  api_.reset();
  engine_.reset();
  due_ = false;
  states_.clear();  // of which some were heard before they were committed
  if (power) {
    machine_.power_lost(dice);
    clock_.boot();
    ++boots_;
  } else {
    machine_.daemon_died(dice);
  }
  guarded([&] { open(); }, dice + 1);
}

void World::guarded(const std::function<void()>& body, std::uint32_t dice) {
  try {
    body();
  } catch (const Killed&) {
    told("    … and there it is killed");
    crash(false, dice);
  }
}

void World::settle() {
  due_ = false;
  engine_->settle();
}

std::shared_ptr<Connection> World::ask(std::uint32_t uid, const std::string& method,
                                       const std::string& target, const std::string& body) {
  told(fmt::format("u{} {} {} {}", uid, method, target, body == "{}" ? "" : body));
  ++deeds[deed_of(method, target)];
  auto connection = std::make_shared<Connection>(fuse_, uid, method + " " + target);
  connections_.push_back(connection);
  connection->heard = [this, request = connection->request](int status) {
    told(fmt::format("    {}: {}", status, request));
  };
  const auto parsed = net::parse_target(target);
  if (!parsed) return connection;
  net::Request request{method, parsed->path, parsed->query, body, {uid, uid, 4'711}};
  api_->handle(request, net::Responder(connection));
  return connection;
}

}  // namespace aliquot::engine::walk
