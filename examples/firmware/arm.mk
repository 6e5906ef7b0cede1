# A firmware for Arm Cortex-M with picolibc; from the command line: CPU, ARCH, SOURCES; LD, the linker itself, or a
# driver with TO_LINKER=-Wl, beside it.
ROOT = /usr/lib/picolibc/arm-none-eabi
LIB = $(ROOT)/lib/thumb/$(ARCH)/nofp
STDCXX = /usr/include/newlib/c++/$(shell arm-none-eabi-gcc -dumpversion)
RESOURCES := $(shell $(CC) -print-resource-dir)/include
LIBGCC := $(shell arm-none-eabi-gcc -mcpu=$(CPU) -mthumb -print-libgcc-file-name)
TARGET = --target=thumb$(subst -,,$(ARCH))-none-eabi -mcpu=$(CPU) -fno-unwind-tables -fno-asynchronous-unwind-tables
TARGET_CXX = $(TARGET) -fno-exceptions -fno-rtti -fno-threadsafe-statics
OBJECTS = $(addsuffix .o,$(SOURCES))
firmware.elf: $(OBJECTS) board.ld
	$(LD) $(TO_LINKER)--defsym=FLASH=0 $(TO_LINKER)--defsym=RAM=0x20000000 -T board.ld $(LIB)/crt0-semihost.o $(OBJECTS) $(TO_LINKER)--start-group \
		$(LIB)/libc.a $(LIB)/libm.a $(LIB)/libsemihost.a $(LIBGCC) $(TO_LINKER)--end-group -o $@
%.c.o: %.c
	$(CC) $(TARGET) -nostdinc -isystem $(ROOT)/include -isystem $(RESOURCES) -I. $(CFLAGS) -c $< -o $@
%.cpp.o: %.cpp
	$(CXX) $(TARGET_CXX) -nostdinc -isystem $(STDCXX) -isystem $(STDCXX)/arm-none-eabi/thumb/$(ARCH)/nofp \
		-isystem $(RESOURCES) -isystem $(ROOT)/include -I. $(CXXFLAGS) -c $< -o $@
