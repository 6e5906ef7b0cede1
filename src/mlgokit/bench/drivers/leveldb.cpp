// Puts keys into a store, reads them, opens it again, and reads them from its table.
#include "input.h"
#include "leveldb/db.h"
#include "leveldb/write_batch.h"
#include <cstdlib>
#include <memory>
#include <string>

static leveldb::DB *open() {
  leveldb::Options Options;
  Options.create_if_missing = true;
  // Everything fits into memory: no other thread compacts, and all runs execute the same.
  Options.write_buffer_size = 64 << 20;
  Options.compression = leveldb::kNoCompression;
  leveldb::DB *Store = nullptr;
  leveldb::Status Status = leveldb::DB::Open(Options, "store", &Store);
  if (!Status.ok()) {
    fprintf(stderr, "error: %s\n", Status.ToString().c_str());
    exit(1);
  }
  return Store;
}

static std::string key(unsigned Number) {
  char Text[32];
  return std::string(Text, snprintf(Text, sizeof(Text), "key%08u", Number));
}

static void ask(leveldb::DB &Store) {
  uint64_t State = 1;
  long Found = 0;
  std::string Value;
  for (unsigned Index = 0; Index < 8000; ++Index)
    if (Store.Get(leveldb::ReadOptions(), key(Index * 7 % 9001), &Value).ok()) {
      ++Found;
      State = digest(State, Value.data(), Value.size());
    }
  std::unique_ptr<leveldb::Iterator> At(Store.NewIterator(leveldb::ReadOptions()));
  for (At->SeekToFirst(); At->Valid(); At->Next())
    State = digest(State, At->key().data(), At->key().size());
  for (At->SeekToLast(); At->Valid(); At->Prev())
    State = digest(State, At->value().data(), At->value().size());
  printf("%ld\n", Found);
  report("values", State);
}

int main() {
  leveldb::DestroyDB("store", leveldb::Options());
  {
    std::unique_ptr<leveldb::DB> Store(open());
    for (unsigned Index = 0; Index < 400; ++Index) {
      leveldb::WriteBatch Batch;
      for (unsigned Part = 0; Part < 20; ++Part) {
        unsigned Number = (Index * 20 + Part) * 7919 % 9001;
        Batch.Put(key(Number), std::string(20 + Number % 60, 'a' + Number % 26));
        if (Part == 7)
          Batch.Delete(key(Number / 2));
      }
      Store->Write(leveldb::WriteOptions(), &Batch);
    }
    ask(*Store);
  }
  std::unique_ptr<leveldb::DB> Store(open());
  ask(*Store);
}
