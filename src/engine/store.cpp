#include "engine/store.hpp"

#include <fmt/format.h>

#include <SQLiteCpp/SQLiteCpp.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>

#include <algorithm>
#include <map>
#include <utility>

#include "api/json.hpp"
#include "base/text.hpp"
#include "core/array_spec.hpp"

namespace aliquot::engine {
namespace {

constexpr int kSchema = 2;

// `info` and `spec` are JSON of the API's types, so that fields can be added without a new schema;
// what is searched for has a column beside it.
constexpr const char* kCreate = R"(
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY,
  array INTEGER,
  task INTEGER,
  uid INTEGER NOT NULL,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  over INTEGER NOT NULL,
  ok INTEGER NOT NULL,
  submit INTEGER NOT NULL,
  begun INTEGER,
  ended INTEGER,
  hold INTEGER NOT NULL,
  ending INTEGER NOT NULL,
  mark TEXT NOT NULL,
  payload INTEGER NOT NULL,
  info TEXT NOT NULL,
  spec TEXT NOT NULL
);
CREATE INDEX jobs_live ON jobs(uid, name) WHERE over = 0;
CREATE INDEX jobs_array ON jobs(array, task) WHERE array IS NOT NULL;
CREATE INDEX jobs_ended ON jobs(ended) WHERE over = 1;
CREATE INDEX jobs_uid ON jobs(uid);
CREATE INDEX jobs_payload ON jobs(payload);
CREATE TABLE steps(
  job INTEGER NOT NULL,
  id TEXT NOT NULL,
  info TEXT NOT NULL,
  PRIMARY KEY(job, id)
) WITHOUT ROWID;
CREATE TABLE payloads(
  id INTEGER PRIMARY KEY,
  script BLOB NOT NULL,
  environment BLOB NOT NULL
);
)";

// 1 to 2: whose they are and how large, and arguments, which were in `spec`.
constexpr const char* kToSecond = R"(
ALTER TABLE payloads ADD COLUMN arguments BLOB NOT NULL DEFAULT x'';
ALTER TABLE payloads ADD COLUMN uid INTEGER;
ALTER TABLE payloads ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
UPDATE payloads SET uid = (SELECT uid FROM jobs WHERE jobs.id = payloads.id),
  size = length(script) + length(environment);
CREATE INDEX payloads_uid ON payloads(uid, size);
)";

// The highest id there was, once rows are purged.
constexpr const char* kLastIdNote = "last id";

// K=V have no NUL in them.
std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    out += part;
    out += '\0';
  }
  return out;
}

std::vector<std::string> unjoin(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    parts.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return parts;
}

std::string blob(const SQLite::Column& column) {
  return {static_cast<const char*>(column.getBlob()), static_cast<std::size_t>(column.getBytes())};
}

}  // namespace

struct Store::Database {
  SQLite::Database db;
  std::map<std::string, SQLite::Statement> statements;
  bool dirty = false;
  std::optional<Error> spoilt;  // by the first change that failed

  explicit Database(const std::string& path)
      : db(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOFOLLOW) {}

  // Prepared once, cleared for use.
  SQLite::Statement& prepared(const std::string& sql) {
    auto found = statements.find(sql);
    if (found == statements.end()) {
      found = statements.try_emplace(sql, db, sql).first;
    }
    (void)found->second.tryReset();  // it says again how the last use failed
    found->second.clearBindings();
    return found->second;
  }

  void begin() {
    if (std::exchange(dirty, true)) return;
    prepared("BEGIN IMMEDIATE").exec();
  }

  // Not while a statement that reads the jobs is under way.
  void set_aside(std::int64_t id, const std::string& why) {
    spdlog::error(
        "the record of job {} cannot be read and is set aside, in the table 'unreadable': {}", id,
        why);
    begin();
    auto& copy = prepared("INSERT INTO unreadable SELECT *, ? FROM jobs WHERE id = ?");
    copy.bind(1, why);
    copy.bind(2, id);
    copy.exec();
    auto& remove = prepared("DELETE FROM jobs WHERE id = ?");
    remove.bind(1, id);
    remove.exec();
  }
};

namespace {

// Calls into SQLite; its exceptions end here.
template <class Function>
auto guarded(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    return fail(Error::Code::unavailable, "the state database: {}", error.what());
  }
}

// Changes. SQLite may have ended the transaction of one that failed: what came after it would be
// kept alone.
template <class Database, class Function>
Result<void> changing(Database& database, Function&& function) {
  if (database.spoilt) return tl::make_unexpected(*database.spoilt);
  const Result<void> done = guarded([&]() -> Result<void> {
    database.begin();
    function();
    return {};
  });
  if (!done) database.spoilt = done.error();
  return done;
}

Result<Job> read_job(SQLite::Statement& row) {
  Job job;
  job.info = TRY(api::from_json<api::JobInfo>(row.getColumn(0).getString()));
  job.spec = TRY(api::from_json<api::JobSpec>(row.getColumn(1).getString()));
  const auto state = core::parse_job_state(job.info.state);
  if (!state) return fail(Error::Code::invalid_argument, "no state {}", quote(job.info.state));
  job.state = *state;
  job.hold = static_cast<Hold>(row.getColumn(2).getInt());
  job.ending = static_cast<Ending>(row.getColumn(3).getInt());
  job.mark = row.getColumn(4).getString();
  job.payload = row.getColumn(5).getInt64();
  if (job.info.id != row.getColumn(6).getInt64()) {
    return fail(Error::Code::invalid_argument, "it says that it is job {}", job.info.id);
  }
  if (!job.info.array_pending.empty()) {
    job.waiting = TRY(core::parse_array(job.info.array_pending));
  }
  if (!row.getColumn(7).isNull()) {
    job.run_time = {row.getColumn(7).getString(), MonoTime(row.getColumn(8).getInt64()),
                    Millis(row.getColumn(9).getInt64())};
  }
  return job;
}

constexpr const char* kJobColumns =
    "SELECT info, spec, hold, ending, mark, payload, id, boot, since, before, uid, state "
    "FROM jobs LEFT JOIN runs ON runs.job = jobs.id";

}  // namespace

Result<Store> Store::open(const std::filesystem::path& path) {
  return guarded([&]() -> Result<Store> {
    auto database = std::make_unique<Database>(path.empty() ? ":memory:" : path.string());
    SQLite::Database& db = database->db;
    db.setBusyTimeout(5'000);
    db.exec("PRAGMA journal_mode = WAL");
    db.exec("PRAGMA synchronous = FULL");
    db.exec("PRAGMA temp_store = MEMORY");
    db.exec("PRAGMA cache_size = -4096");
    db.exec("PRAGMA wal_autocheckpoint = 2000");
    const int version = db.execAndGet("PRAGMA user_version").getInt();
    if (version > kSchema) {
      return fail(Error::Code::unsupported,
                  "the state database is of version {}, this program knows {}: use a newer one",
                  version, kSchema);
    }
    if (version < kSchema) {
      SQLite::Transaction transaction(db);
      if (version == 0) db.exec(kCreate);
      db.exec(kToSecond);
      db.exec("PRAGMA user_version = " + std::to_string(kSchema));
      transaction.commit();
    }
    // Newer than the version: an older program does without.
    db.exec("CREATE TABLE IF NOT EXISTS notes(name TEXT PRIMARY KEY, text TEXT NOT NULL)");
    db.exec(
        "CREATE TABLE IF NOT EXISTS runs(job INTEGER PRIMARY KEY, boot TEXT NOT NULL, "
        "since INTEGER NOT NULL, before INTEGER NOT NULL)");
    db.exec("CREATE TABLE IF NOT EXISTS unreadable AS SELECT *, '' AS why FROM jobs WHERE 0");
    return Store(std::move(database));
  });
}

Store::Store(std::unique_ptr<Database> database) : database_(std::move(database)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<std::int64_t> Store::last_id() {
  const auto purged = TRY(note(kLastIdNote));
  return guarded([&]() -> Result<std::int64_t> {
    auto& query = database_->prepared(
        "SELECT max(ifnull((SELECT max(id) FROM jobs), 0), ifnull((SELECT max(id) FROM "
        "unreadable), "
        "0))");
    query.executeStep();
    return std::max(query.getColumn(0).getInt64(), parse_digits(purged.value_or("")).value_or(0));
  });
}

Result<void> Store::save_note(const std::string& name, const std::optional<std::string>& text) {
  return changing(*database_, [&] {
    auto& query = database_->prepared(text ? "INSERT OR REPLACE INTO notes VALUES(?,?)"
                                           : "DELETE FROM notes WHERE name = ?");
    query.bind(1, name);
    if (text) query.bind(2, *text);
    query.exec();
  });
}

Result<std::optional<std::string>> Store::note(const std::string& name) {
  return guarded([&]() -> Result<std::optional<std::string>> {
    auto& query = database_->prepared("SELECT text FROM notes WHERE name = ?");
    query.bind(1, name);
    if (!query.executeStep()) return std::nullopt;
    return query.getColumn(0).getString();
  });
}

Result<void> Store::save(const Job& job) {
  return changing(*database_, [&] {
    auto& query = database_->prepared(
        "INSERT OR REPLACE INTO jobs VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    const api::JobInfo& info = job.info;
    const bool over = core::is_final(job.state);
    query.bind(1, info.id);
    if (info.array_job_id) query.bind(2, *info.array_job_id);
    if (info.array_task_id) query.bind(3, *info.array_task_id);
    query.bind(4, static_cast<std::int64_t>(info.uid));
    query.bind(5, info.name);
    query.bind(6, info.state);
    query.bind(7, over ? 1 : 0);
    query.bind(8, job.state == core::JobState::completed ? 1 : 0);
    query.bind(9, info.submit_ms);
    if (job.state != core::JobState::pending && info.start_ms) query.bind(10, *info.start_ms);
    if (over && info.end_ms) query.bind(11, *info.end_ms);
    query.bind(12, static_cast<int>(job.hold));
    query.bind(13, static_cast<int>(job.ending));
    query.bind(14, job.mark);
    query.bind(15, job.payload);
    query.bind(16, api::to_json(info));
    query.bind(17, api::to_json(job.spec));
    query.exec();
  });
}

Result<void> Store::save_payload(std::int64_t id, Uid uid, const Payload& payload) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("INSERT OR REPLACE INTO payloads VALUES(?,?,?,?,?,?)");
    const std::string environment = join(payload.environment);
    const std::string arguments = join(payload.arguments);
    const std::size_t size = payload.script.size() + environment.size() + arguments.size();
    query.bind(1, id);
    query.bind(2, payload.script.data(), static_cast<int>(payload.script.size()));
    query.bind(3, environment.data(), static_cast<int>(environment.size()));
    query.bind(4, arguments.data(), static_cast<int>(arguments.size()));
    query.bind(5, static_cast<std::int64_t>(uid.value()));
    query.bind(6, static_cast<std::int64_t>(size));
    query.exec();
  });
}

Result<void> Store::save_step(const api::StepInfo& step) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("INSERT OR REPLACE INTO steps VALUES(?,?,?)");
    query.bind(1, step.job_id);
    query.bind(2, step.id);
    query.bind(3, api::to_json(step));
    query.exec();
  });
}

Result<void> Store::drop_steps(JobId id) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("DELETE FROM steps WHERE job = ?");
    query.bind(1, id.value());
    query.exec();
  });
}

Result<void> Store::save_run(JobId id, const std::optional<RunTime>& run) {
  return changing(*database_, [&] {
    auto& query = database_->prepared(run ? "INSERT OR REPLACE INTO runs VALUES(?,?,?,?)"
                                          : "DELETE FROM runs WHERE job = ?");
    query.bind(1, id.value());
    if (run) {
      query.bind(2, run->boot);
      query.bind(3, run->since.ms());
      query.bind(4, run->before.value());
    }
    query.exec();
  });
}

Result<Store::Live> Store::load_live() {
  return guarded([&]() -> Result<Live> {
    Live live;
    {
      auto& query = database_->prepared(fmt::format("{} WHERE over = 0 ORDER BY id", kJobColumns));
      while (query.executeStep()) {
        auto job = read_job(query);
        if (job) {
          live.jobs.push_back(std::move(*job));
          continue;
        }
        const auto state = core::parse_job_state(query.getColumn(11).getString());
        live.unreadable.push_back({.id = JobId(query.getColumn(6).getInt64()),
                                   .uid = Uid(query.getColumn(10).getUInt()),
                                   .active = !state || core::is_active(*state),
                                   .mark = query.getColumn(4).getString(),
                                   .why = job.error().message});
      }
      query.reset();
    }
    for (const Unreadable& row : live.unreadable) database_->set_aside(row.id.value(), row.why);
    return live;
  });
}

Result<Job> Store::load(JobId id) {
  return guarded([&]() -> Result<Job> {
    auto& query = database_->prepared(fmt::format("{} WHERE id = ?", kJobColumns));
    query.bind(1, id.value());
    if (!query.executeStep()) return fail(Error::Code::not_found, "there is no job {}", id);
    return read_job(query);
  });
}

Result<Payload> Store::payload(std::int64_t id) {
  return guarded([&]() -> Result<Payload> {
    auto& query =
        database_->prepared("SELECT script, environment, arguments FROM payloads WHERE id = ?");
    query.bind(1, id);
    if (!query.executeStep()) {
      return fail(Error::Code::not_found, "the script of job {} is no longer kept", id);
    }
    return Payload{blob(query.getColumn(0)), unjoin(blob(query.getColumn(1))),
                   unjoin(blob(query.getColumn(2)))};
  });
}

Result<std::vector<api::StepInfo>> Store::steps(JobId id) {
  return guarded([&]() -> Result<std::vector<api::StepInfo>> {
    // The batch step first, then by number.
    auto& query = database_->prepared(
        "SELECT info FROM steps WHERE job = ? ORDER BY id <> 'batch', CAST(id AS INTEGER)");
    query.bind(1, id.value());
    std::vector<api::StepInfo> steps;
    while (query.executeStep()) {
      // What cannot be read stays where it is.
      auto step = api::from_json<api::StepInfo>(query.getColumn(0).getString());
      if (step) steps.push_back(std::move(*step));
    }
    return steps;
  });
}

Result<std::vector<api::JobInfo>> Store::query(const AccountingQuery& wanted, bool with_steps) {
  auto jobs = guarded([&]() -> Result<std::vector<api::JobInfo>> {
    std::string sql = "SELECT info, id FROM jobs WHERE 1";
    if (wanted.only_over) sql += " AND over = 1";
    if (wanted.start)
      sql += wanted.only_over ? " AND ended >= ?1" : " AND (ended IS NULL OR ended >= ?1)";
    if (wanted.end) sql += " AND submit <= ?2";
    if (wanted.uid) sql += " AND uid = ?3";
    if (wanted.id) sql += " AND (id = ?4 OR array = ?4)";
    if (wanted.name) sql += " AND name = ?5";
    sql += " ORDER BY id";
    auto& query = database_->prepared(sql);
    if (wanted.start) query.bind(1, wanted.start->ms());
    if (wanted.end) query.bind(2, wanted.end->ms());
    if (wanted.uid) query.bind(3, static_cast<std::int64_t>(wanted.uid->value()));
    if (wanted.id) query.bind(4, *wanted.id);
    if (wanted.name) query.bind(5, *wanted.name);
    std::vector<api::JobInfo> found;
    std::map<std::int64_t, std::string> unreadable;
    while (query.executeStep()) {
      auto job = api::from_json<api::JobInfo>(query.getColumn(0).getString());
      if (job) {
        found.push_back(std::move(*job));
      } else {
        unreadable[query.getColumn(1).getInt64()] = job.error().message;
      }
    }
    query.reset();
    for (const auto& [id, why] : unreadable) database_->set_aside(id, why);
    return found;
  });
  if (jobs && with_steps) {
    for (api::JobInfo& job : *jobs) job.steps = TRY(steps(JobId(job.id)));
  }
  return jobs;
}

Result<std::optional<JobId>> Store::find_task(std::int64_t array, std::int64_t task) {
  return guarded([&]() -> Result<std::optional<JobId>> {
    auto& query = database_->prepared("SELECT id FROM jobs WHERE array = ? AND task = ?");
    query.bind(1, array);
    query.bind(2, task);
    if (!query.executeStep()) return std::nullopt;
    return JobId(query.getColumn(0).getInt64());
  });
}

Result<std::optional<JobId>> Store::last_of(Uid uid) {
  return guarded([&]() -> Result<std::optional<JobId>> {
    auto& query = database_->prepared("SELECT max(ifnull(array, id)) FROM jobs WHERE uid = ?");
    query.bind(1, static_cast<std::int64_t>(uid.value()));
    if (!query.executeStep() || query.getColumn(0).isNull()) return std::nullopt;
    return JobId(query.getColumn(0).getInt64());
  });
}

Result<std::optional<core::DependencyFacts>> Store::facts(JobId id,
                                                          std::optional<std::int64_t> task) {
  return guarded([&]() -> Result<std::optional<core::DependencyFacts>> {
    auto& query = database_->prepared(
        task ? "SELECT count(*), min(over), min(ok), count(begun), max(begun) FROM jobs "
               "WHERE array = ?1 AND (task = ?2 OR task IS NULL)"
             : "SELECT count(*), min(over), min(ok), count(begun), max(begun) FROM jobs "
               "WHERE id = ?1 OR array = ?1");
    query.bind(1, id.value());
    if (task) query.bind(2, *task);
    query.executeStep();
    const int count = query.getColumn(0).getInt();
    if (count == 0) return std::nullopt;
    core::DependencyFacts facts;
    facts.ended = query.getColumn(1).getInt() == 1;
    facts.ok = facts.ended && query.getColumn(2).getInt() == 1;
    if (query.getColumn(3).getInt() == count) {
      facts.begun = WallTime(query.getColumn(4).getInt64());
    }
    return facts;
  });
}

Result<Bytes> Store::stored_for(Uid uid) {
  return guarded([&]() -> Result<Bytes> {
    auto& query = database_->prepared("SELECT sum(size) FROM payloads WHERE uid = ?");
    query.bind(1, static_cast<std::int64_t>(uid.value()));
    query.executeStep();
    return Bytes(query.getColumn(0).getInt64());
  });
}

Result<std::int64_t> Store::purge(WallTime over_before, std::int64_t most,
                                  const std::function<bool(JobId)>& needed) {
  std::vector<std::int64_t> old;
  TRY(guarded([&]() -> Result<void> {
    // An array goes when all of it may.
    auto& query = database_->prepared(
        "SELECT id, ifnull(array, id) FROM jobs WHERE over = 1 AND ended < ?1 AND (array IS NULL "
        "OR NOT EXISTS (SELECT 1 FROM jobs AS other WHERE other.array = jobs.array "
        "AND (other.over = 0 OR other.ended >= ?1))) ORDER BY ended");
    query.bind(1, over_before.ms());
    while (std::ssize(old) < most && query.executeStep()) {
      const std::int64_t id = query.getColumn(0).getInt64();
      if (!needed(JobId(id)) && !needed(JobId(query.getColumn(1).getInt64()))) old.push_back(id);
    }
    return {};
  }));
  if (old.empty()) return 0;
  // Its number is not given again.
  TRY(save_note(kLastIdNote, std::to_string(TRY(last_id()))));
  TRY(changing(*database_, [&] {
    for (const std::int64_t id : old) {
      for (const char* sql : {"DELETE FROM steps WHERE job = ?", "DELETE FROM jobs WHERE id = ?"}) {
        auto& query = database_->prepared(sql);
        query.bind(1, id);
        query.exec();
      }
    }
  }));
  return std::ssize(old);
}

Result<void> Store::drop_payloads(WallTime over_since) {
  return changing(*database_, [&] {
    auto& query = database_->prepared(
        "DELETE FROM payloads WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.payload = "
        "payloads.id AND (over = 0 OR ended > ?))");
    query.bind(1, over_since.ms());
    query.exec();
  });
}

bool Store::dirty() const { return database_->dirty; }

Result<void> Store::commit() {
  if (database_->spoilt) return tl::make_unexpected(*database_->spoilt);
  if (!database_->dirty) return {};
  const Result<void> done = guarded([&]() -> Result<void> {
    // A reader left open would keep the log from being written back.
    for (auto& [sql, statement] : database_->statements) statement.tryReset();
    database_->prepared("COMMIT").exec();
    database_->dirty = false;
    return {};
  });
  if (!done) database_->spoilt = done.error();
  return done;
}

void Store::rollback() {
  for (auto& [sql, statement] : database_->statements) statement.tryReset();
  // Some errors have ended the transaction already.
  if (sqlite3_get_autocommit(database_->db.getHandle()) == 0) {
    (void)database_->db.tryExec("ROLLBACK");
  }
  database_->dirty = false;
  database_->spoilt.reset();
}

}  // namespace aliquot::engine
