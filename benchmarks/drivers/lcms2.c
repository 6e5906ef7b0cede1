// Turns colours of a picture that is made here into other colour spaces, in whole numbers and in fractions.
#include "lcms2.h"
#include "input.h"

enum { Pixels = 60000 };
static uint8_t Picture[3 * Pixels];
static uint16_t Lab[3 * Pixels];
static float Fractions[3 * Pixels], Turned[3 * Pixels];

int main(void) {
  uint64_t State = 1;
  for (size_t Index = 0; Index < sizeof(Picture); ++Index) {
    State = State * 6364136223846793005u + 1442695040888963407u;
    Picture[Index] = (uint8_t)(State >> 56);
    Fractions[Index] = (float)(State >> 40) / (float)(1 << 24);
  }
  cmsHPROFILE Rgb = cmsCreate_sRGBProfile(), Space = cmsCreateLab4Profile(NULL), Xyz = cmsCreateXYZProfile();
  cmsUInt32Number Flags[] = {0, cmsFLAGS_NOOPTIMIZE};
  for (int Number = 0; Number < 2; ++Number) {
    cmsHTRANSFORM To = cmsCreateTransform(Rgb, TYPE_RGB_8, Space, TYPE_Lab_16, INTENT_PERCEPTUAL, Flags[Number]);
    cmsHTRANSFORM Back = cmsCreateTransform(Space, TYPE_Lab_16, Rgb, TYPE_RGB_8, INTENT_PERCEPTUAL, Flags[Number]);
    if (!To || !Back)
      return 1;
    cmsDoTransform(To, Picture, Lab, Pixels);
    report("Lab", digest(1, Lab, sizeof(Lab)));
    cmsDoTransform(Back, Lab, Picture, Pixels);
    report("RGB", digest(1, Picture, sizeof(Picture)));
    cmsDeleteTransform(To);
    cmsDeleteTransform(Back);
  }
  cmsHTRANSFORM Turn = cmsCreateTransform(Rgb, TYPE_RGB_FLT, Xyz, TYPE_XYZ_FLT, INTENT_RELATIVE_COLORIMETRIC, 0);
  if (!Turn)
    return 1;
  cmsDoTransform(Turn, Fractions, Turned, Pixels);
  report("XYZ", digest(1, Turned, sizeof(Turned)));
  cmsDeleteTransform(Turn);
  cmsCloseProfile(Rgb);
  cmsCloseProfile(Space);
  cmsCloseProfile(Xyz);
  return 0;
}
