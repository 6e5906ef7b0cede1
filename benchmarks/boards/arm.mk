# A firmware for Arm Cortex-M with picolibc, linked by the linker itself; from the command line: CPU, ARCH, SOURCES.
ROOT = /usr/lib/picolibc/arm-none-eabi
LIB = $(ROOT)/lib/thumb/$(ARCH)/nofp
STDCXX = /usr/include/newlib/c++/$(shell arm-none-eabi-gcc -dumpversion)
RESOURCES := $(shell $(CC) -print-resource-dir)/include
LIBGCC := $(shell arm-none-eabi-gcc -mcpu=$(CPU) -mthumb -print-libgcc-file-name)
TARGET = --target=thumb$(subst -,,$(ARCH))-none-eabi -mcpu=$(CPU) -fno-unwind-tables -fno-asynchronous-unwind-tables
TARGET_CXX = $(TARGET) -fno-exceptions -fno-rtti -fno-threadsafe-statics
OBJECTS = $(addsuffix .o,$(SOURCES))
firmware.elf: $(OBJECTS) board.ld
	$(LD) --defsym=FLASH=0 --defsym=RAM=0x20000000 -T board.ld $(LIB)/crt0-semihost.o $(OBJECTS) --start-group \
		$(LIB)/libc.a $(LIB)/libm.a $(LIB)/libsemihost.a $(LIBGCC) --end-group -o $@
%.c.o: %.c
	$(CC) $(TARGET) -nostdinc -isystem $(ROOT)/include -isystem $(RESOURCES) -I. $(CFLAGS) -c $< -o $@
%.cpp.o: %.cpp
	$(CXX) $(TARGET_CXX) -nostdinc -isystem $(STDCXX) -isystem $(STDCXX)/arm-none-eabi/thumb/$(ARCH)/nofp \
		-isystem $(RESOURCES) -isystem $(ROOT)/include -I. $(CXXFLAGS) -c $< -o $@
