// Makes a sound faster and higher, and slower and deeper.
#include "SoundTouch.h"
#include "input.h"
#include <vector>

int main() {
  std::vector<soundtouch::SAMPLETYPE> Sound(2 * 60000), Part(2 * 4096);
  uint64_t State = 1;
  for (size_t Index = 0; Index < Sound.size(); ++Index) {
    State = State * 6364136223846793005u + 1442695040888963407u;
    // A saw with some noise.
    Sound[Index] = float(Index / 2 % 200) / 200 - 0.5f + float(State >> 56) / 4096;
  }
  for (double Change : {1.3, 0.8}) {
    soundtouch::SoundTouch Machine;
    Machine.setSampleRate(44100);
    Machine.setChannels(2);
    Machine.setTempo(Change);
    Machine.setPitch(Change);
    uint64_t Digest = 1;
    long Samples = 0;
    auto take = [&] {
      while (unsigned Count = Machine.receiveSamples(Part.data(), 4096)) {
        Samples += Count;
        Digest = digest(Digest, Part.data(), 2 * Count * sizeof(Part[0]));
      }
    };
    for (size_t Index = 0; Index < Sound.size(); Index += 2 * 4000) {
      Machine.putSamples(Sound.data() + Index, 4000);
      take();
    }
    Machine.flush();
    take();
    printf("%ld samples\n", Samples);
    report("sound", Digest);
  }
}
