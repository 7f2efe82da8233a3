/*
 * bytes.c - the alphabet of byte-level BPE.
 */
#include "words.h"

static bool stands_for_itself(int32_t c)
{
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

int32_t byte_to_char(unsigned char byte)
{
    if (stands_for_itself(byte)) return byte;
    /* The other bytes in order: 0x00-0x20, 0x7f-0xa0, 0xad. */
    if (byte <= 0x20) return 0x100 + byte;
    return byte == 0xad ? 0x143 : 0x121 + (byte - 0x7f);
}

int char_to_byte(int32_t c)
{
    if (c < 0x100) return stands_for_itself(c) ? c : -1;
    if (c <= 0x120) return c - 0x100;
    if (c <= 0x142) return 0x7f + (c - 0x121);
    return c == 0x143 ? 0xad : -1;
}
