// Hashes, ciphers, and a multiplication on an elliptic curve.
#include "mbedtls/aes.h"
#include "mbedtls/camellia.h"
#include "mbedtls/chachapoly.h"
#include "mbedtls/ecp.h"
#include "mbedtls/md5.h"
#include "mbedtls/sha256.h"
#include "mbedtls/sha512.h"
#include "input.h"
#include <string.h>

enum { Bytes = 200000 };
static unsigned char Text[Bytes], Packed[Bytes];

static int noise(void *State, unsigned char *Buffer, size_t Size) {
  uint64_t *Seed = State;
  for (size_t Index = 0; Index < Size; ++Index) {
    *Seed = *Seed * 6364136223846793005u + 1442695040888963407u;
    Buffer[Index] = (unsigned char)(*Seed >> 56);
  }
  return 0;
}

int main(void) {
  uint64_t Seed = 1;
  noise(&Seed, Text, Bytes);
  unsigned char Hash[64] = {0}, Key[32], Start[16], Tag[16];
  noise(&Seed, Key, sizeof(Key));
  memset(Start, 3, sizeof(Start));
  if (mbedtls_sha256_ret(Text, Bytes, Hash, 0) || mbedtls_sha512_ret(Hash, 32, Hash, 0) ||
      mbedtls_sha512_ret(Text, Bytes, Hash, 0) || mbedtls_md5_ret(Text, Bytes, Hash))
    return 1;
  report("hashes", digest(1, Hash, sizeof(Hash)));

  mbedtls_aes_context Aes;
  mbedtls_aes_init(&Aes);
  if (mbedtls_aes_setkey_enc(&Aes, Key, 256) ||
      mbedtls_aes_crypt_cbc(&Aes, MBEDTLS_AES_ENCRYPT, Bytes / 16 * 16, Start, Text, Packed))
    return 1;
  report("aes", digest(1, Packed, Bytes));
  mbedtls_aes_free(&Aes);
  mbedtls_camellia_context Camellia;
  mbedtls_camellia_init(&Camellia);
  if (mbedtls_camellia_setkey_dec(&Camellia, Key, 256) ||
      mbedtls_camellia_crypt_cbc(&Camellia, MBEDTLS_CAMELLIA_DECRYPT, Bytes / 16 * 16, Start, Text, Packed))
    return 1;
  report("camellia", digest(1, Packed, Bytes));
  mbedtls_camellia_free(&Camellia);
  mbedtls_chachapoly_context Stream;
  mbedtls_chachapoly_init(&Stream);
  if (mbedtls_chachapoly_setkey(&Stream, Key) ||
      mbedtls_chachapoly_encrypt_and_tag(&Stream, Bytes, Start, Key, sizeof(Key), Text, Packed, Tag))
    return 1;
  report("chacha", digest(digest(1, Packed, Bytes), Tag, sizeof(Tag)));
  mbedtls_chachapoly_free(&Stream);

  mbedtls_ecp_group Group;
  mbedtls_ecp_point Point;
  mbedtls_mpi Factor;
  mbedtls_ecp_group_init(&Group);
  mbedtls_ecp_point_init(&Point);
  mbedtls_mpi_init(&Factor);
  unsigned char Written[65];
  size_t Length;
  if (mbedtls_ecp_group_load(&Group, MBEDTLS_ECP_DP_SECP256R1) || mbedtls_mpi_read_binary(&Factor, Key, 31) ||
      mbedtls_ecp_mul(&Group, &Point, &Factor, &Group.G, noise, &Seed) ||
      mbedtls_ecp_point_write_binary(&Group, &Point, MBEDTLS_ECP_PF_UNCOMPRESSED, &Length, Written, sizeof(Written)))
    return 1;
  report("curve", digest(1, Written, Length));
  mbedtls_mpi_free(&Factor);
  mbedtls_ecp_point_free(&Point);
  mbedtls_ecp_group_free(&Group);
  return 0;
}
