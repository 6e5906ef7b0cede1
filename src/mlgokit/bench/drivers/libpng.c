// Writes pictures in several formats with all filters, reads them back transformed.
#include "input.h"
#include "png.h"
#include <string.h>

enum { Width = 160, Height = 120 };

typedef struct {
  unsigned char *Bytes;
  size_t Size, At;
} Buffer;

static void put(png_structp Png, png_bytep Bytes, png_size_t Size) {
  Buffer *To = (Buffer *)png_get_io_ptr(Png);
  To->Bytes = realloc(To->Bytes, To->Size + Size);
  memcpy(To->Bytes + To->Size, Bytes, Size);
  To->Size += Size;
}

static void flush(png_structp Png) { (void)Png; }

static void get(png_structp Png, png_bytep Bytes, png_size_t Size) {
  Buffer *From = (Buffer *)png_get_io_ptr(Png);
  if (From->At + Size > From->Size)
    png_error(Png, "no more bytes");
  memcpy(Bytes, From->Bytes + From->At, Size);
  From->At += Size;
}

static void encode(Buffer *To, int Color, int Channels, int Interlace) {
  png_structp Png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
  png_infop Info = png_create_info_struct(Png);
  if (setjmp(png_jmpbuf(Png)))
    exit(1);
  png_set_write_fn(Png, To, put, flush);
  png_set_IHDR(Png, Info, Width, Height, 8, Color, Interlace, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_filter(Png, 0, PNG_ALL_FILTERS);
  png_write_info(Png, Info);
  static unsigned char Picture[Height][Width * 4];
  png_bytep Rows[Height];
  for (int Y = 0; Y < Height; ++Y) {
    Rows[Y] = Picture[Y];
    for (int X = 0; X < Width; ++X)
      for (int C = 0; C < Channels; ++C)
        Picture[Y][X * Channels + C] = (unsigned char)(X * (C + 1) + Y * 2 + (X * Y >> (5 + C)));
  }
  png_write_image(Png, Rows);
  png_write_end(Png, NULL);
  png_destroy_write_struct(&Png, &Info);
}

static uint64_t decode(Buffer *From) {
  png_structp Png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
  png_infop Info = png_create_info_struct(Png);
  if (setjmp(png_jmpbuf(Png)))
    exit(1);
  png_set_read_fn(Png, From, get);
  png_read_info(Png, Info);
  png_set_gray_to_rgb(Png);
  png_set_add_alpha(Png, 0x7f, PNG_FILLER_AFTER);
  png_set_interlace_handling(Png);
  png_read_update_info(Png, Info);
  static unsigned char Picture[Height][Width * 4];
  png_bytep Rows[Height];
  for (int Y = 0; Y < Height; ++Y)
    Rows[Y] = Picture[Y];
  png_read_image(Png, Rows);
  png_read_end(Png, NULL);
  png_destroy_read_struct(&Png, &Info, NULL);
  return digest(1, Picture, sizeof(Picture));
}

int main(void) {
  static const struct {
    int Color, Channels, Interlace;
  } Formats[] = {
      {PNG_COLOR_TYPE_GRAY, 1, PNG_INTERLACE_NONE},
      {PNG_COLOR_TYPE_RGB, 3, PNG_INTERLACE_ADAM7},
      {PNG_COLOR_TYPE_RGB_ALPHA, 4, PNG_INTERLACE_NONE},
  };
  for (int Index = 0; Index < 3; ++Index) {
    Buffer File = {NULL, 0, 0};
    encode(&File, Formats[Index].Color, Formats[Index].Channels, Formats[Index].Interlace);
    report("written", digest(File.Size, File.Bytes, File.Size));
    report("read", decode(&File));
    free(File.Bytes);
  }
  return 0;
}
