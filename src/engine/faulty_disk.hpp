// For tests: a disk under SQLite that fails when it is told to. While one of these lives it is the
// default of every database that is opened; those opened before it stay on the real one.
#pragma once

#include <sqlite3.h>

#include <cstring>

namespace aliquot::engine {

class FaultyDisk {
 public:
  FaultyDisk() : real_(sqlite3_vfs_find(nullptr)), vfs_(*real_) {
    vfs_.zName = "faulty";
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
    vfs_.pAppData = this;
    vfs_.xOpen = open;
    sqlite3_vfs_register(&vfs_, 1);
  }
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;
  ~FaultyDisk() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(real_, 1);
  }

  // How many more of each go well; less than none: all of them.
  int writes = -1;
  int syncs = -1;
  int reads = -1;
  void mend() { writes = syncs = reads = -1; }

 private:
  struct File {
    sqlite3_file base;
    FaultyDisk* disk;
    // The real one's follows.
    sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static File& of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
  static sqlite3_file* real(sqlite3_file* file) { return of(file).real(); }
  static bool fails(int& left) { return left == 0 || (left > 0 && left-- == 0); }

  static int open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
    auto* disk = static_cast<FaultyDisk*>(vfs->pAppData);
    std::memset(file, 0, sizeof(File));
    of(file).disk = disk;
    const int code = disk->real_->xOpen(disk->real_, name, real(file), flags, out);
    if (code == SQLITE_OK) file->pMethods = &kMethods;
    return code;
  }
  static int close(sqlite3_file* file) { return real(file)->pMethods->xClose(real(file)); }
  static int read(sqlite3_file* file, void* to, int size, sqlite3_int64 at) {
    if (fails(of(file).disk->reads)) return SQLITE_IOERR_READ;
    return real(file)->pMethods->xRead(real(file), to, size, at);
  }
  static int write(sqlite3_file* file, const void* from, int size, sqlite3_int64 at) {
    if (fails(of(file).disk->writes)) return SQLITE_FULL;
    return real(file)->pMethods->xWrite(real(file), from, size, at);
  }
  static int truncate(sqlite3_file* file, sqlite3_int64 size) {
    return real(file)->pMethods->xTruncate(real(file), size);
  }
  static int sync(sqlite3_file* file, int) {
    // No power fails in a test, and syncing takes most of its time.
    return fails(of(file).disk->syncs) ? SQLITE_IOERR_FSYNC : SQLITE_OK;
  }
  static int file_size(sqlite3_file* file, sqlite3_int64* size) {
    return real(file)->pMethods->xFileSize(real(file), size);
  }
  static int lock(sqlite3_file* file, int kind) {
    return real(file)->pMethods->xLock(real(file), kind);
  }
  static int unlock(sqlite3_file* file, int kind) {
    return real(file)->pMethods->xUnlock(real(file), kind);
  }
  static int check_lock(sqlite3_file* file, int* out) {
    return real(file)->pMethods->xCheckReservedLock(real(file), out);
  }
  static int control(sqlite3_file* file, int what, void* argument) {
    return real(file)->pMethods->xFileControl(real(file), what, argument);
  }
  static int sector(sqlite3_file* file) { return real(file)->pMethods->xSectorSize(real(file)); }
  static int traits(sqlite3_file* file) {
    return real(file)->pMethods->xDeviceCharacteristics(real(file));
  }
  static int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
    return real(file)->pMethods->xShmMap(real(file), page, size, extend, out);
  }
  static int shm_lock(sqlite3_file* file, int at, int count, int flags) {
    return real(file)->pMethods->xShmLock(real(file), at, count, flags);
  }
  static void shm_barrier(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }
  static int shm_unmap(sqlite3_file* file, int remove) {
    return real(file)->pMethods->xShmUnmap(real(file), remove);
  }

  static constexpr sqlite3_io_methods kMethods{2,           close,     read,    write,   truncate,
                                               sync,        file_size, lock,    unlock,  check_lock,
                                               control,     sector,    traits,  shm_map, shm_lock,
                                               shm_barrier, shm_unmap, nullptr, nullptr};

  sqlite3_vfs* real_;
  sqlite3_vfs vfs_;
};

}  // namespace aliquot::engine
