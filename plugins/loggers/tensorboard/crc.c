/*
 * crc.c - CRC-32C, polynomial 0x1EDC6F41, reflected; four bits at a time, which is fast enough for a
 * few hundred bytes per step and needs only a small constant table.
 */
#include "event.h"

uint32_t event_crc(uint32_t crc, const void *bytes, size_t n)
{
    static const uint32_t nibble[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const unsigned char *at = bytes;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}
